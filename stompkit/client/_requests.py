"""Requests and their replies, over a private reply queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Final, Literal, cast
from uuid import uuid4

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from stompkit._common import Clock, PeerDeadline
from stompkit.client._gate import ReadingGate
from stompkit.client._messages import Acknowledger, Message
from stompkit.client._outbox import Outbox
from stompkit.client._subscription import Subscription
from stompkit.frames import Frame

__all__ = ["ReplyStyle", "Requests"]

_log: Final = Logger()

#: Creation of the reply queue: by SUBSCRIBE, or in RabbitMQ by its name in reply-to.
ReplyStyle = Literal["subscribe", "rabbitmq"]


class _Request:
    """A request without a reply so far."""

    def __init__(self, answer: Deferred[Message], deadline: PeerDeadline) -> None:
        self.answer = answer
        self.deadline = deadline
        self.sent: Deferred[None] | None = None


class Requests:
    """Sends requests, and matches replies to them."""

    def __init__(
        self,
        outbox: Outbox,
        gate: ReadingGate,
        clock: IReactorTime,
        subscribe: Callable[[str, Callable[[Message], None]], Subscription] | None,
        destination: str,
    ) -> None:
        """Start without a queue; ``subscribe`` is ``None`` if the broker subscribes automatically.

        ``destination`` is the name of the queue, with ``{id}`` for a random word.
        """
        self._word: Final = uuid4().hex
        self._outbox = outbox
        self._gate = gate
        self._clock = clock
        self._subscribe = subscribe
        self._destination = destination.replace("{id}", self._word)
        self._subscription: Subscription | None = None
        self._acknowledger = Acknowledger("auto", outbox)
        self._numbers = count(1)
        self._open: dict[str, _Request] = {}

    def request(
        self, destination: str, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> Deferred[Message]:
        """Send a request; fires with the reply. See :meth:`Client.request`."""
        correlation_id = headers.get("correlation-id") or f"{self._word}-{next(self._numbers)}"
        if correlation_id in self._open:
            raise ValueError(
                f"a request with the correlation-id {correlation_id!a} is open already"
            )
        own = {
            "destination": destination,
            "reply-to": self._destination,
            "correlation-id": correlation_id,
        }
        frame = Frame("SEND", {**headers, **own}, body)
        late = TimeoutError(f"no reply from {destination} within {timeout_s:g} seconds")
        deadline = PeerDeadline(
            cast("Clock", self._clock),
            lambda: self._gate.has_unread,
            lambda: self._fail(correlation_id, late),
        )
        deadline.start(timeout_s)
        answer: Deferred[Message] = Deferred(lambda _: self._forget(correlation_id))
        self._open[correlation_id] = _Request(answer, deadline)
        self._gate.set_awaiting(self, awaiting=True)
        self._queue().addCallback(self._send, correlation_id, frame).addErrback(
            self._failed, correlation_id
        )
        return answer

    def deliver(self, frame: Frame) -> bool:
        """Process a MESSAGE that matches no subscription; return False if it is not a reply."""
        if frame.headers.get("correlation-id") not in self._open:
            return False
        self._reply(self._acknowledger.message(frame))
        return True

    def end(self, error: Exception) -> None:
        """Fail all open requests."""
        self._subscription = None
        for correlation_id in list(self._open):
            self._fail(correlation_id, error)

    def _queue(self) -> Deferred[Subscription] | Deferred[None]:
        """Fire when replies can be received."""
        if self._subscribe is None:
            return succeed(None)
        if self._subscription is None or self._subscription.has_ended:
            self._subscription = self._subscribe(self._destination, self._reply)
        return self._subscription.when_ready()

    def _send(self, _: object, correlation_id: str, frame: Frame) -> None:
        request = self._open.get(correlation_id)
        if request is not None:
            request.sent = self._outbox.send(frame, receipt=True, wait=False)
            request.sent.addErrback(self._failed, correlation_id)

    def _reply(self, message: Message) -> None:
        request = self._close(message.headers.get("correlation-id", ""))
        if request is None:
            _log.debug("a reply comes too late, or to no request: {message!r}", message=message)
        else:
            request.answer.callback(message)

    def _failed(self, failure: Failure, correlation_id: str) -> None:
        error = failure.value
        assert isinstance(error, Exception)  # one of the outbox's
        self._fail(correlation_id, error)

    def _fail(self, correlation_id: str, error: Exception) -> None:
        request = self._close(correlation_id)
        if request is not None:
            request.answer.errback(error)

    def _forget(self, correlation_id: str) -> None:
        self._close(correlation_id)

    def _close(self, correlation_id: str) -> _Request | None:
        """Stop waiting for this reply, and withdraw the request if it is unsent."""
        request = self._open.pop(correlation_id, None)
        if request is None:
            return None
        self._gate.set_awaiting(self, awaiting=bool(self._open))
        if request.deadline.active():
            request.deadline.cancel()
        if request.sent is not None:
            request.sent.cancel()
        return request
