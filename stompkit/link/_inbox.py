"""What comes of a subscription."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Final, Literal

from twisted.internet.defer import Deferred, maybeDeferred

from stompkit.client import (
    ClientClosed,
    Message,
    Subscription,
    SubscriptionEnded,
)
from stompkit.frames import LocalProtocolError
from stompkit.link._thread import LinkClosed, ReactorThread

__all__ = ["Delivery", "Inbox"]


class Delivery:
    """A message that has come."""

    __slots__ = ("_inbox", "_message", "body", "headers")

    def __init__(self, message: Message, inbox: Inbox) -> None:
        """Made by :class:`Inbox`."""
        self._message = message
        self._inbox = inbox
        self.headers: Final[Mapping[str, str]] = message.headers
        self.body: Final = message.body

    def __repr__(self) -> str:
        """Which one it is."""
        return repr(self._message)

    @property
    def is_stale(self) -> bool:
        """Whether it can't be acknowledged, because its connection is lost: it comes again."""
        return self._inbox.acknowledges and self._message.is_settled

    def ack(self) -> None:
        """Acknowledge it, which returns at once; where that gets lost it comes again.

        In the mode ``client`` all that have come before it are acknowledged, too.
        """
        self._inbox.settle([self._message], "ack")

    def nack(self) -> None:
        """Refuse it, which returns at once."""
        self._inbox.settle([self._message], "nack")


class Inbox:
    """What comes of one subscription, which outlives connections."""

    def __init__(
        self,
        thread: ReactorThread,
        subscription: Subscription,
        *,
        max_messages: int,
        max_bytes: int,
        is_cumulative: Callable[[], bool] = lambda: False,
        on_arrival: Callable[[], object] = lambda: None,
    ) -> None:
        """Made by :meth:`Link.subscribe`, in the reactor's thread.

        ``is_cumulative`` tells whether to acknowledge a message is to acknowledge all before it.
        """
        #: Whether deliveries have to be acknowledged.
        self.acknowledges: Final = subscription.ack != "auto"
        self._is_cumulative = is_cumulative
        self._on_arrival = on_arrival
        self._thread = thread
        self._subscription = subscription
        self._most = (max_messages, max_bytes)
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._has_changed = threading.Condition()
        self._end: Exception | None = None
        self._more: Deferred[None] | None = None
        Deferred.fromCoroutine(self._collect())

    async def _collect(self) -> None:
        """Take messages from the client, not more than are wanted."""
        most_messages, most_bytes = self._most
        try:
            while True:
                messages = [await self._subscription.get()]
                # What comes with it is taken together, which costs less.
                await self._turn()
                room = most_messages - len(self._messages), most_bytes - self._bytes
                messages += self._subscription.take(room[0] - 1, room[1] - len(messages[0].body))
                with self._has_changed:
                    is_first = not self._messages
                    self._messages += messages
                    self._bytes += sum(len(message.body) for message in messages)
                    self._has_changed.notify()
                    is_full = len(self._messages) >= most_messages or self._bytes >= most_bytes
                    self._more = Deferred() if is_full else None
                    more = self._more
                if is_first:
                    self._on_arrival()
                if more is not None:
                    await more
        except Exception as error:
            reason = error.reason if isinstance(error, SubscriptionEnded) else error
            with self._has_changed:
                self._end = LinkClosed("the subscription has ended")
                self._end.__cause__ = reason
                self._has_changed.notify_all()
            self._on_arrival()

    def _turn(self) -> Deferred[None]:
        """Fires when the reactor has handled what it has read."""
        turn: Deferred[None] = Deferred()
        self._thread.reactor.callLater(0, turn.callback, None)
        return turn

    @property
    def size(self) -> int:
        """Octets of the messages that wait here; those that wait with the client not counted."""
        return self._bytes

    @property
    def count(self) -> int:
        """How many messages wait here."""
        return len(self._messages)

    def get(self, timeout_s: float | None = None) -> Delivery | None:
        """The next message; ``None`` where none comes in that many seconds.

        Raises :class:`LinkClosed` when the subscription or the link has ended, with the reason as
        its cause.
        """
        taken = self.take(1, timeout_s)
        return taken[0] if taken else None

    def take(self, most: int, timeout_s: float | None = 0.0) -> list[Delivery]:
        """What has come, in order and up to so many messages; none where none comes in that time.

        It waits for the first one only, ``timeout_s`` seconds at the most, and costs less than
        :meth:`get` for each. Raises as that does.
        """
        with self._has_changed:
            if not self._messages:
                self._has_changed.wait_for(lambda: self._messages or self._end, timeout_s)
                if not self._messages:
                    if self._end is not None:
                        raise self._end
                    return []
            if most >= len(self._messages):
                messages, self._messages = self._messages, deque()
                self._bytes = 0
            else:
                messages = deque(self._messages.popleft() for _ in range(most))
                self._bytes -= sum(len(message.body) for message in messages)
            most_messages, most_bytes = self._most
            more = None
            if len(self._messages) <= most_messages // 2 and self._bytes <= most_bytes // 2:
                more, self._more = self._more, None
        if more is not None:
            self._thread.start(more.callback, None)
        return [Delivery(message, self) for message in messages]

    def settle(self, messages: Sequence[Message], how: Literal["ack", "nack"]) -> None:
        """Acknowledge (``"ack"``) or refuse (``"nack"``) messages; returns at once."""
        if not self.acknowledges:
            return

        def settle() -> None:
            # Whatever is lost with its connection comes again, and is told by its number.
            if how == "nack":
                for message in messages:
                    maybeDeferred(message.nack).addErrback(lambda _: None)
                return
            with suppress(LocalProtocolError):
                self._subscription.ack_all(messages[-1:] if self._is_cumulative() else messages)

        self._thread.start(settle)

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """Acknowledge many, in the order in which they have come; returns at once."""
        self.settle([delivery._message for delivery in deliveries], "ack")

    def leave(self) -> None:
        """End the subscription, in the reactor's thread, and wait for nothing."""
        self._subscription.unsubscribe().addErrback(lambda _: None)

    def close(self, timeout_s: float = 10.0) -> None:
        """End the subscription; what has come and was not taken is left to the broker."""
        try:
            self._thread.call(self._subscription.unsubscribe).result(timeout_s)
        except (ClientClosed, LinkClosed, FutureTimeout):
            pass  # the connection's end is the subscription's, too
