"""Messages of one subscription that wait to be handled."""

from __future__ import annotations

from collections import deque
from typing import Final

from twisted.internet.defer import Deferred, fail, succeed

from stompkit.client._errors import SubscriptionEndedError
from stompkit.client._gate import ReadingGate
from stompkit.client._messages import Message
from stompkit.client._waiters import Waiters

__all__ = ["Inbox"]

#: Factor by which an inbox may exceed its limits while reading cannot be paused.
_MOST_OVER: Final = 16


class Inbox:
    """A queue that pauses reading from the broker when it is full.

    It can exceed its limits by data that was already read, and by messages that precede a pending
    answer in the stream.
    """

    def __init__(self, max_messages: int, max_bytes: int, gate: ReadingGate) -> None:
        """Start empty."""
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._gate = gate
        self._messages: deque[tuple[Message, int]] = deque()
        self._bytes = 0
        self._readers: deque[Deferred[Message]] = deque()
        self._watchers = Waiters[None]()
        self._end: SubscriptionEndedError | None = None

    @property
    def is_overflowing(self) -> bool:
        """True if the inbox has reached its hard limit and accepts no more messages."""
        return (
            len(self._messages) >= self._max_messages * _MOST_OVER
            or self._bytes >= self._max_bytes * _MOST_OVER
        )

    def put(self, message: Message, size: int) -> None:
        """Pass a message of *size* bytes to a waiting reader, or queue it."""
        if self._readers:
            self._readers.popleft().callback(message)
            return
        self._messages.append((message, size))
        self._bytes += size
        if len(self._messages) >= self._max_messages or self._bytes >= self._max_bytes:
            self._gate.set_full(self, full=True)
        self._watchers.callback(None)

    def get(self) -> Deferred[Message]:
        """Return the next message; fails with SubscriptionEndedError if there will be none."""
        if self._messages:
            message, size = self._messages.popleft()
            self._bytes -= size
            self._open_if_low()
            return succeed(message)
        if self._end is not None:
            return fail(self._end)
        reader: Deferred[Message] = Deferred(self._readers.remove)
        self._readers.append(reader)
        return reader

    def when_filled(self) -> Deferred[None]:
        """Fire when a message waits, without taking it; fails as :meth:`get` does."""
        if self._messages:
            return succeed(None)
        if self._end is not None:
            return fail(self._end)
        return self._watchers.wait()

    def take(self, max_messages: int, max_bytes: int) -> list[Message]:
        """Return up to *max_messages* waiting messages; stop when they reach *max_bytes* bytes."""
        taken: list[Message] = []
        octets = 0
        while self._messages and len(taken) < max_messages and octets < max_bytes:
            message, size = self._messages.popleft()
            taken.append(message)
            octets += size
        self._bytes -= octets
        self._open_if_low()
        return taken

    def clear(self) -> None:
        """Drop all waiting messages."""
        self._messages.clear()
        self._bytes = 0
        self._gate.set_full(self, full=False)

    def end(self, end: SubscriptionEndedError) -> None:
        """Accept no more messages; waiting ones can still be taken, and do not pause reading."""
        self._end = end
        self._gate.set_full(self, full=False)
        while self._readers:
            self._readers.popleft().errback(end)
        self._watchers.errback(end)

    def _open_if_low(self) -> None:
        if len(self._messages) <= self._max_messages // 2 and self._bytes <= self._max_bytes // 2:
            self._gate.set_full(self, full=False)
