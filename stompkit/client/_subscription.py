"""One subscription, across reconnections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from twisted.internet.defer import CancelledError, Deferred, fail, maybeDeferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from stompkit.client._errors import (
    ClientClosedError,
    ConnectionGoneError,
    QueueOverflowError,
    SubscriptionEndedError,
    ignore_gone,
)
from stompkit.client._gate import ReadingGate
from stompkit.client._inbox import Inbox
from stompkit.client._messages import ACK_MODES, AckMode, Acknowledger, Message
from stompkit.client._outbox import Outbox
from stompkit.client._removals import MOST_SUSPICIONS, Removal, Removals
from stompkit.client._waiters import Waiters
from stompkit.frames import Frame, LocalProtocolError

__all__ = ["Handler", "Subscription", "Terms", "leave_if_cancelled"]

_log: Final = Logger()

#: Function that handles a message; a Deferred or coroutine that it returns is awaited.
Handler = Callable[[Message], Awaitable[Any] | None]


_WINDOW: Final = "consumer-window-size"
#: Bytes per message in a prefetch for Artemis: more than most messages have.
_OCTETS_OF_A_MESSAGE: Final = 1024 * 1024
_WIDEST: Final = 2**31 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """Settings of a subscription; see :meth:`Client.subscribe`."""

    id: str
    destination: str
    headers: Mapping[str, str]
    """Additional headers of SUBSCRIBE."""
    ack: AckMode
    handler: Handler | None
    max_messages: int
    """Maximum number of messages that wait to be handled; ``prefetch``, if that is more."""
    max_bytes: int
    """Maximum total size in bytes of these messages."""
    prefetch: int | None = None
    receipt: bool = True
    nack_on_error: bool = True
    concurrency: int = 1

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for invalid settings."""
        if self.ack not in ACK_MODES:
            raise ValueError(f"ack is one of {', '.join(ACK_MODES)}, not {self.ack!a}")
        if self.concurrency < 1 or (self.concurrency > 1 and self.ack == "client"):
            # In the mode client an acknowledgement also covers all earlier messages.
            raise ValueError("concurrency is at least 1, and 1 in the mode client")
        if self.prefetch is not None and self.prefetch < 1:
            raise ValueError("prefetch is at least 1, or None")

    def frame(self, ack: AckMode) -> Frame:
        """Return the SUBSCRIBE frame for a broker that is asked for this ack mode."""
        own = {"id": self.id, "destination": self.destination, "ack": ack}
        if self.prefetch is not None:
            # Each broker reads its own spelling.
            prefetch = str(self.prefetch)
            own |= {"prefetch-count": prefetch, "activemq.prefetchSize": prefetch}
            window = _window(self.prefetch, self.ack)
            return Frame("SUBSCRIBE", {_WINDOW: window, **self.headers, **own})
        return Frame("SUBSCRIBE", {**self.headers, **own})


def _window(prefetch: int, ack: AckMode) -> str:
    """Return the window size in bytes of a prefetch, for a broker that does not count messages.

    Without this header Artemis interprets ``activemq.prefetchSize`` as bytes. It would then wait
    for acknowledgements after a message or two, for ever if the client needs several messages
    first. A window of one byte delivers one message at a time. In the mode ``auto`` Artemis never
    opens a full window again, so there is none.
    """
    if ack == "auto":
        return "-1"
    octets = 1 if prefetch == 1 else min(prefetch * _OCTETS_OF_A_MESSAGE, _WIDEST)
    return str(octets)


class Subscription:
    """A subscription; :meth:`Client.subscribe` creates it.

    Without a handler it is an asynchronous iterator of its messages, and :meth:`get` returns the
    next one. It is restored with the same ``id`` on every connection.
    """

    def __init__(
        self,
        terms: Terms,
        outbox: Outbox,
        gate: ReadingGate,
        forget: Callable[[Subscription], None],
        removals: Removals,
    ) -> None:
        """Start without sending SUBSCRIBE."""
        #: Id of the subscription, unique within its connection.
        self.id = terms.id
        self.destination = terms.destination
        self.ack: AckMode = terms.ack
        self._terms = terms
        self._outbox = outbox
        self._forget = forget
        self._removals = removals
        self._removal: Removal | None = None
        self._acknowledger = Acknowledger(terms.ack, outbox)
        self._inbox = Inbox(max(terms.max_messages, terms.prefetch or 0), terms.max_bytes, gate)
        self._is_ready = False
        #: Number of the last connection on which SUBSCRIBE was sent.
        self._epoch = 0
        self._suspicions = 0
        self._end: SubscriptionEndedError | None = None
        #: Error of calls that wait for SUBSCRIBE, unless it is the end itself.
        self._unready: Exception | None = None
        self._readiness = Waiters[Subscription]()
        self._endings = Waiters[None]()
        if terms.handler is not None:
            for _ in range(terms.concurrency):
                # They end with the inbox, and handle all exceptions themselves.
                Deferred.fromCoroutine(self._handle_all(terms.handler))

    def __repr__(self) -> str:
        """Return the id and destination."""
        return f"<Subscription {self.id!a} of {self.destination!a}>"

    # Public methods.

    def get(self) -> Deferred[Message]:
        """Return the next message.

        Fails with :class:`SubscriptionEndedError` when the subscription has ended. Raises
        ``RuntimeError`` if the subscription has a handler.
        """
        if self._terms.handler is not None:
            raise RuntimeError("the messages of this subscription go to its handler")
        return self._inbox.get()

    def take(self, max_messages: int, max_bytes: int) -> list[Message]:
        """Return the messages that already wait, without waiting for more.

        Returns at most ``max_messages``, and stops when they reach ``max_bytes`` bytes, headers
        included. For many messages this costs less than :meth:`get` for each. Raises
        ``RuntimeError`` if the subscription has a handler.
        """
        if self._terms.handler is not None:
            raise RuntimeError("the messages of this subscription go to its handler")
        return self._inbox.take(max_messages, max_bytes)

    def ack_all(self, messages: Iterable[Message]) -> int:
        """Acknowledge messages of this subscription without receipts; return their number.

        Messages that are settled already (:attr:`~Message.is_settled`) are skipped. The effect is
        that of :meth:`Message.ack` for each, at a lower cost. Raises ``LocalProtocolError`` if a
        message lacks a header that ACK must repeat; none is acknowledged then.
        """
        return self._acknowledger.ack_all(messages)

    def __aiter__(self) -> Self:
        """Iterate over the messages, until the subscription ends."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message; raises the error that ended the subscription, if one did."""
        try:
            return await self.get()
        except SubscriptionEndedError as end:
            if end.reason is not None:
                raise end.reason from None
            raise StopAsyncIteration from None

    def unsubscribe(self, headers: dict[str, str] | None = None) -> Deferred[None]:
        """End the subscription; fires when the broker has confirmed it.

        ``headers`` are additional headers of UNSUBSCRIBE, by which a broker removes a durable
        subscription. With them, UNSUBSCRIBE is also sent if the client is not connected: on the
        next connection, until a broker confirms or refuses it. Fails with
        :class:`ClientClosedError` if the client is closed before. Messages already handed out can
        still be settled, if the broker allows it. Waiting messages are dropped. In the mode
        ``auto`` they are still handed out, since the broker would not redeliver them. Fails with
        :class:`BrokerError` if the broker refuses. Nothing is removed if another subscription has
        got the ``id``.
        """
        return self._remove(dict(headers)) if headers else self._leave(None)

    def _remove(self, headers: dict[str, str]) -> Deferred[None]:
        """Remove it from the broker, where it does not end with the connection."""
        if self._removal is None or self._removal.error is not None:
            is_subscribed = self._end is None and self._outbox.is_current(self._epoch)
            if self._end is None:
                self._forget(self)
                self.end(None)
            self._removal = Removal(
                self._outbox,
                self.id,
                lambda: self._terms.frame(self.ack),
                lambda: self._unsubscribe_frame({}),
                lambda: self._unsubscribe_frame(headers),
                receipt=self._terms.receipt,
            )
            self._removals.add(self._removal, is_subscribed=is_subscribed)
        return self._removal.wait()

    def _leave(self, reason: Exception | None) -> Deferred[None]:
        if self._end is not None:
            return succeed(None)
        self._forget(self)
        self.end(reason)
        if not self._outbox.is_current(self._epoch):
            return succeed(None)
        left = self._outbox.send_now(self._unsubscribe_frame({}), receipt=self._terms.receipt)
        done: Deferred[None] = Deferred()  # the caller may cancel it
        self._removals.leave(self.id, left)
        left.addCallbacks(done.callback, done.errback)
        return done.addErrback(ignore_gone)

    def _unsubscribe_frame(self, headers: Mapping[str, str]) -> Frame:
        # From 1.1 on the id would suffice, but CoilMQ also requires the destination.
        return Frame("UNSUBSCRIBE", {"id": self.id, "destination": self.destination, **headers})

    def when_ended(self) -> Deferred[None]:
        """Fire when the subscription has ended, or fail with the error that ended it."""
        if self._end is not None:
            return succeed(None) if self._end.reason is None else fail(self._end.reason)
        return self._endings.wait()

    # Called by the client.

    @property
    def has_ended(self) -> bool:
        """True if no more messages follow."""
        return self._end is not None

    def when_ready(self) -> Deferred[Subscription]:
        """Fire when the broker has confirmed the subscription for the first time."""
        if self._end is not None:
            return fail(self._unready or self._end)
        if self._is_ready:
            return succeed(self)
        return self._readiness.wait()

    def when_filled(self) -> Deferred[None]:
        """Fire when a message waits to be taken; fails as :meth:`get` does."""
        return self._inbox.when_filled()

    def announce(self) -> None:
        """Send SUBSCRIBE on the current connection, if there is one and it has not ended."""
        if self._end is not None:
            return
        self._epoch = self._outbox.epoch
        ack = self.ack
        if ack == "client-individual" and self._outbox.is_coilmq:
            # CoilMQ treats client-individual as auto. In the mode client, it sends one message at
            # a time, so each acknowledgement covers one.
            ack = "client"
        sent = self._outbox.send_now(self._terms.frame(ack), receipt=self._terms.receipt)
        sent.addCallbacks(self._confirmed, self._refused)

    def deliver(self, frame: Frame) -> None:
        """Queue a MESSAGE."""
        if self._inbox.is_overflowing:
            self._overflow()
            return
        size = len(frame.body) + len(frame.head or b"")
        self._inbox.put(self._acknowledger.message(frame), size)

    def connection_lost(self) -> None:
        """Drop waiting messages, unless the broker would not redeliver them."""
        if self.ack != "auto":
            self._inbox.clear()

    def end(self, reason: Exception | None, closed: ClientClosedError | None = None) -> None:
        """Accept no more messages; with ``closed``, the client is closed for the reason."""
        if self._end is not None:
            return
        self._unready = closed or reason
        self._end = SubscriptionEndedError(reason)
        if self.ack != "auto":
            self._inbox.clear()
        self._inbox.end(self._end)
        self._readiness.errback(self._unready or self._end)
        if reason is None:
            self._endings.callback(None)
        else:
            self._endings.errback(reason)

    # Internal.

    def _confirmed(self, _: None) -> None:
        self._is_ready = True
        self._suspicions = 0
        self._readiness.callback(self)

    def _refused(self, failure: Failure) -> None:
        error: object = failure.value
        if isinstance(error, ConnectionGoneError):
            self._suspicions = self._suspicions + 1 if error.is_suspect else 0
            if self._suspicions < MOST_SUSPICIONS:  # resent on the next connection
                return
            error = error.reason
        assert isinstance(error, Exception)  # one of the outbox's
        _log.error("{subscription!r} is refused: {reason}", subscription=self, reason=error)
        self._forget(self)
        self.end(error)

    def _overflow(self) -> None:
        overflow = QueueOverflowError(f"messages come faster than {self!r} is read")
        _log.error("{overflow}", overflow=overflow)
        left = self._leave(overflow)
        left.addErrback(lambda _: None)  # a refusal ends the connection, which is reported

    async def _handle_all(self, handler: Handler) -> None:
        while True:
            try:
                message = await self._inbox.get()
            except SubscriptionEndedError:
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
            _log.warn("{subscription!r} cannot settle: {reason}", subscription=self, reason=error)


def leave_if_cancelled(failure: Failure, subscription: Subscription) -> Failure:
    """End the subscription if the caller has cancelled the wait for it."""
    if isinstance(failure.value, CancelledError):
        subscription.unsubscribe().addErrback(lambda _: None)  # no caller waits for the result
    return failure
