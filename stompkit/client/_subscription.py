"""One subscription, which outlives connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from stompkit.client._errors import ConnectionGone, QueueOverflow, SubscriptionEnded, ignore_gone
from stompkit.client._gate import ReadingGate
from stompkit.client._inbox import Inbox
from stompkit.client._messages import ACK_MODES, AckMode, Acknowledger, Message
from stompkit.client._outbox import Outbox
from stompkit.client._waiters import Waiters
from stompkit.frames import Frame, LocalProtocolError

__all__ = ["Handler", "Subscription", "Terms"]

_log: Final = Logger()

#: What a message is given to; a Deferred or coroutine is waited for.
Handler = Callable[[Message], Awaitable[Any] | None]


_WINDOW: Final = "consumer-window-size"
#: What Artemis counts for each message of a prefetch: more than most have.
_OCTETS_OF_A_MESSAGE: Final = 1024 * 1024
_WIDEST: Final = 2**31 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """What a subscription is made with; see :meth:`Client.subscribe`."""

    id: str
    destination: str
    headers: Mapping[str, str]
    """Further ones of SUBSCRIBE."""
    ack: AckMode
    handler: Handler | None
    max_messages: int
    """How many may wait for being handled; ``prefetch``, if that is more."""
    max_bytes: int
    """Octets of these."""
    prefetch: int | None = None
    receipt: bool = True
    nack_on_error: bool = True
    concurrency: int = 1

    def __post_init__(self) -> None:
        """Refuse what doesn't fit; raises ``ValueError``."""
        if self.ack not in ACK_MODES:
            raise ValueError(f"ack is one of {', '.join(ACK_MODES)}, not {self.ack!a}")
        if self.concurrency < 1 or (self.concurrency > 1 and self.ack == "client"):
            # An acknowledgement in the mode client is for all messages before it, too.
            raise ValueError("concurrency is at least 1, and 1 in the mode client")
        if self.prefetch is not None and self.prefetch < 1:
            raise ValueError("prefetch is at least 1, or None")

    def frame(self) -> Frame:
        """The SUBSCRIBE frame."""
        own = {"id": self.id, "destination": self.destination, "ack": self.ack}
        if self.prefetch is not None:
            # Each broker looks at its own spelling.
            prefetch = str(self.prefetch)
            own |= {"prefetch-count": prefetch, "activemq.prefetchSize": prefetch}
            return Frame("SUBSCRIBE", {_WINDOW: _window(self.prefetch), **self.headers, **own})
        return Frame("SUBSCRIBE", {**self.headers, **own})


def _window(prefetch: int) -> str:
    """The octets of a prefetch, for a broker that counts these and not messages.

    Artemis takes ``activemq.prefetchSize`` for octets where this header is missing: after a message
    or two it would wait for acknowledgements, for ever where the client needs several messages for
    one. With a window of one octet there is one message at a time.
    """
    octets = 1 if prefetch == 1 else min(prefetch * _OCTETS_OF_A_MESSAGE, _WIDEST)
    return str(octets)


class Subscription:
    """A subscription; :meth:`Client.subscribe` makes it.

    Without a handler it is an asynchronous iterator of its messages, and :meth:`get` gives the
    next one. It is made again with the same ``id`` on every connection.
    """

    def __init__(
        self,
        terms: Terms,
        outbox: Outbox,
        gate: ReadingGate,
        forget: Callable[[Subscription], None],
    ) -> None:
        """Start with nothing sent."""
        #: What tells it from the other subscriptions of its connection.
        self.id = terms.id
        self.destination = terms.destination
        self.ack: AckMode = terms.ack
        self._terms = terms
        self._outbox = outbox
        self._forget = forget
        self._acknowledger = Acknowledger(terms.ack, outbox)
        self._inbox = Inbox(max(terms.max_messages, terms.prefetch or 0), terms.max_bytes, gate)
        self._is_ready = False
        self._end: SubscriptionEnded | None = None
        self._readiness = Waiters[Subscription]()
        self._endings = Waiters[None]()
        if terms.handler is not None:
            for _ in range(terms.concurrency):
                # They end with the inbox, and deal with every exception themselves.
                Deferred.fromCoroutine(self._handle_all(terms.handler))

    def __repr__(self) -> str:
        """Say which one it is."""
        return f"<Subscription {self.id!a} of {self.destination!a}>"

    # What users call.

    def get(self) -> Deferred[Message]:
        """The next message.

        Fails with :class:`SubscriptionEnded` when there will be none. Raises ``RuntimeError``
        where a handler gets the messages.
        """
        if self._terms.handler is not None:
            raise RuntimeError("the messages of this subscription go to its handler")
        return self._inbox.get()

    def take(self, max_messages: int, max_bytes: int) -> list[Message]:
        """What has come and waits already, without waiting for more.

        At most ``max_messages``, and no more once they have ``max_bytes`` octets, headers included.
        For who has much to take: :meth:`get` for each costs more. Raises ``RuntimeError`` where a
        handler gets the messages.
        """
        if self._terms.handler is not None:
            raise RuntimeError("the messages of this subscription go to its handler")
        return self._inbox.take(max_messages, max_bytes)

    def ack_all(self, messages: Iterable[Message]) -> int:
        """Acknowledge messages of this subscription, without receipts, and say how many.

        The others :attr:`~Message.is_settled` already. It is the same as :meth:`Message.ack` for
        each, and costs less. Raises ``LocalProtocolError`` where a message lacks what ACK has to
        repeat, and then none is acknowledged.
        """
        return self._acknowledger.ack_all(messages)

    def __aiter__(self) -> Self:
        """Iterate over the messages, until the subscription ends."""
        return self

    async def __anext__(self) -> Message:
        """The next message; raises the error that ended the subscription, if one did."""
        try:
            return await self.get()
        except SubscriptionEnded as end:
            if end.reason is not None:
                raise end.reason from None
            raise StopAsyncIteration from None

    def unsubscribe(self, headers: dict[str, str] | None = None) -> Deferred[None]:
        """End the subscription; fires when the broker has confirmed it.

        ``headers`` are further ones of UNSUBSCRIBE, which some brokers want for durable
        subscriptions. Messages that have been handed out can still be settled, as far as the
        broker allows it; those that wait are dropped, but in the mode ``auto``, where nobody
        would deliver them again, they are still handed out. Fails with :class:`BrokerError` if
        the broker refuses.
        """
        return self._leave(None, headers or {})

    def _leave(self, reason: Exception | None, headers: dict[str, str]) -> Deferred[None]:
        if self._end is not None:
            return succeed(None)
        self._forget(self)
        self.end(reason)
        # From 1.1 on the id would do, but CoilMQ wants the destination, too.
        names = {"id": self.id, "destination": self.destination}
        frame = Frame("UNSUBSCRIBE", {**names, **headers})
        done = self._outbox.send_now(frame, receipt=self._terms.receipt)
        return done.addErrback(ignore_gone)

    def when_ended(self) -> Deferred[None]:
        """Fire when the subscription has ended, or fail with the error that ended it."""
        if self._end is not None:
            return succeed(None) if self._end.reason is None else fail(self._end.reason)
        return self._endings.wait()

    # What the client calls.

    @property
    def has_ended(self) -> bool:
        """Whether no more messages will come."""
        return self._end is not None

    def when_ready(self) -> Deferred[Subscription]:
        """Fire when the broker has confirmed the subscription for the first time."""
        if self._end is not None:
            return fail(self._end.reason or self._end)
        if self._is_ready:
            return succeed(self)
        return self._readiness.wait()

    def when_filled(self) -> Deferred[None]:
        """Fire when a message waits to be taken; fails as :meth:`get` does."""
        return self._inbox.when_filled()

    def announce(self) -> None:
        """Send SUBSCRIBE on the current connection, if there is one."""
        sent = self._outbox.send_now(self._terms.frame(), receipt=self._terms.receipt)
        sent.addCallbacks(self._confirmed, self._refused)

    def deliver(self, frame: Frame) -> None:
        """Take a MESSAGE."""
        if self._inbox.is_overflowing:
            self._overflow()
            return
        size = len(frame.body) + len(frame.head or b"")
        self._inbox.put(self._acknowledger.message(frame), size)

    def connection_lost(self) -> None:
        """Drop what waits, unless nobody would deliver it again."""
        if self.ack != "auto":
            self._inbox.clear()

    def end(self, reason: Exception | None) -> None:
        """Take no more messages."""
        if self._end is not None:
            return
        self._end = SubscriptionEnded(reason)
        if self.ack != "auto":
            self._inbox.clear()
        self._inbox.end(self._end)
        self._readiness.errback(reason or self._end)
        if reason is None:
            self._endings.callback(None)
        else:
            self._endings.errback(reason)

    # Inside.

    def _confirmed(self, _: None) -> None:
        self._is_ready = True
        self._readiness.callback(self)

    def _refused(self, failure: Failure) -> None:
        if isinstance(failure.value, ConnectionGone):  # the next connection is told
            return
        _log.error("{subscription!r} is refused: {reason}", subscription=self, reason=failure.value)
        self._forget(self)
        error = failure.value
        assert isinstance(error, Exception)  # one of the outbox's
        self.end(error)

    def _overflow(self) -> None:
        overflow = QueueOverflow(f"messages come faster than {self!r} is read")
        _log.error("{overflow}", overflow=overflow)
        left = self._leave(overflow, {})
        left.addErrback(lambda _: None)  # the connection's loss tells of the broker's refusal

    async def _handle_all(self, handler: Handler) -> None:
        while True:
            try:
                message = await self._inbox.get()
            except SubscriptionEnded:
                return
            try:
                await maybeDeferred(handler, message)
            except Exception:
                _log.failure("the handler of {subscription!r} failed", subscription=self)
                if self._terms.nack_on_error:
                    await self._settle(message.nack)
            else:
                await self._settle(message.ack)

    async def _settle(self, settle: Callable[[], Deferred[bool]]) -> None:
        try:
            await settle()
        except LocalProtocolError as error:  # NACK on 1.0: the broker keeps the message for us
            _log.warn("{subscription!r} can't settle: {reason}", subscription=self, reason=error)
