"""Messages received by a subscription."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Final, Literal

from twisted.internet.defer import Deferred, maybeDeferred

from stompkit.client import (
    ClientClosedError,
    Message,
    Subscription,
    SubscriptionEndedError,
)
from stompkit.client._content import Content
from stompkit.client.blocking._thread import LinkClosedError, ReactorThread
from stompkit.frames import LocalProtocolError

__all__ = ["Delivery", "Inbox", "give_up"]


class Delivery(Content):
    """A message received from the broker."""

    __slots__ = ("_inbox", "_message")

    def __init__(self, message: Message, inbox: Inbox) -> None:
        """Wrap *message*; called by :class:`Inbox`."""
        self._message = message
        self._inbox = inbox
        self.headers = message.headers
        self.body = message.body

    @property
    def is_stale(self) -> bool:
        """True if the connection is lost: the message cannot be acknowledged and is redelivered."""
        return self._inbox.acknowledges and self._message.is_settled

    def ack(self) -> None:
        """Acknowledge the message without waiting; the broker redelivers it if that gets lost.

        In the mode ``client`` this also acknowledges all earlier messages.
        """
        self._inbox.settle([self._message], "ack")

    def nack(self) -> None:
        """Refuse the message without waiting."""
        self._inbox.settle([self._message], "nack")


class Inbox:
    """Messages received by one subscription, across reconnections."""

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
        """Start collecting messages; called by :meth:`Link.subscribe` in the reactor thread.

        ``is_cumulative`` returns true if acknowledging a message also acknowledges all earlier
        messages.
        """
        #: True if deliveries must be acknowledged.
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
        """Take messages from the client, up to the limits of the inbox."""
        most_messages, most_bytes = self._most
        try:
            while True:
                messages = [await self._subscription.get()]
                # Messages that arrive together are taken together, which costs less.
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
            reason = error.reason if isinstance(error, SubscriptionEndedError) else error
            with self._has_changed:
                self._end = LinkClosedError("the subscription has ended")
                self._end.__cause__ = reason
                self._has_changed.notify_all()
            self._on_arrival()

    def _turn(self) -> Deferred[None]:
        """Return a Deferred that fires when the reactor has handled the data already read."""
        turn: Deferred[None] = Deferred()
        self._thread.reactor.callLater(0, turn.callback, None)
        return turn

    @property
    def size(self) -> int:
        """Size in bytes of the messages in this inbox, without those buffered by the client."""
        return self._bytes

    @property
    def count(self) -> int:
        """Number of messages in this inbox."""
        return len(self._messages)

    def get(self, timeout_s: float | None = None) -> Delivery | None:
        """Return the next message, or ``None`` if none arrives within ``timeout_s`` seconds.

        Raises :class:`LinkClosedError` when the subscription or the link has ended; its cause is
        the reason. Raises RuntimeError if a callback of the link would have to wait.
        """
        taken = self.take(1, timeout_s)
        return taken[0] if taken else None

    def take(self, most: int, timeout_s: float | None = 0.0) -> list[Delivery]:
        """Return up to ``most`` received messages in order; an empty list after a timeout.

        Waits only for the first message, at most ``timeout_s`` seconds. Taking several messages at
        once costs less than calling :meth:`get` for each. Raises the same errors as :meth:`get`.
        """
        self._thread.refuse_fork()
        with self._has_changed:
            if not self._messages:
                if self._end is None and timeout_s != 0:
                    self._thread.refuse_to_wait()
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
        """Acknowledge (``"ack"``) or refuse (``"nack"``) messages without waiting."""
        self._thread.refuse_fork()
        if not self.acknowledges:
            return

        def settle() -> None:
            # Messages lost with their connection are redelivered, and recognised by their number.
            if how == "nack":
                for message in messages:
                    maybeDeferred(message.nack).addErrback(lambda _: None)
                return
            with suppress(LocalProtocolError):
                self._subscription.ack_all(messages[-1:] if self._is_cumulative() else messages)

        self._thread.start(settle)

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """Acknowledge several messages in the order of receipt, without waiting."""
        self.settle([delivery._message for delivery in deliveries], "ack")

    def leave(self) -> None:
        """End the subscription without waiting; called in the reactor thread."""
        self._subscription.unsubscribe().addErrback(lambda _: None)

    def close(self, timeout_s: float = 10.0) -> None:
        """End the subscription; messages received but not taken remain with the broker.

        Waits for the broker's answer; raises RuntimeError if a callback of the link would have to.
        """
        try:
            if timeout_s:
                self._thread.refuse_to_wait()
            self._thread.call(self._subscription.unsubscribe).result(timeout_s)
        except (ClientClosedError, LinkClosedError, FutureTimeout):
            pass  # the connection's end is the subscription's, too


def give_up(begun: Iterable[Deferred[Inbox]], future: Future[Inbox]) -> None:
    """End a subscription that no caller waits for any more; called in the reactor thread."""
    for each in begun:
        each.cancel()
    future.add_done_callback(_leave)


def _leave(future: Future[Inbox]) -> None:
    if future.exception() is None:
        future.result().leave()
