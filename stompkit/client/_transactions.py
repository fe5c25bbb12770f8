"""Transactions: several frames that take effect together, within one connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import TracebackType
from typing import Final, Self

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.python.failure import Failure

from stompkit.client._entries import Entry
from stompkit.client._errors import ConnectionGoneError, TransactionLostError, ignore_gone
from stompkit.client._messages import Acknowledger, Message
from stompkit.client._outbox import Outbox
from stompkit.frames import Frame, LocalProtocolError

__all__ = ["Transaction"]


class _Phase(Enum):
    NEW = "not begun"
    OPEN = "open"
    OVER = "over"


class Transaction:
    """Messages and acknowledgements that take effect together, or not at all.

    As an asynchronous context manager it begins, commits when the block ends, and aborts when the
    block raises::

        async with client.transaction() as transaction:
            transaction.send("/queue/paid", receipt_of(message))
            transaction.ack(message)

    A transaction is bound to one connection. If that is lost before the broker confirms COMMIT, it
    fails with :class:`TransactionLostError`, and no frame of it is resent.
    """

    def __init__(
        self, name: str, outbox: Outbox, when_connected: Callable[[], Deferred[None]]
    ) -> None:
        """Start idle; :meth:`Client.transaction` creates transactions."""
        #: The ``transaction`` header of its frames.
        self.name: Final = name
        self._outbox = outbox
        self._when_connected = when_connected
        self._phase = _Phase.NEW
        self._epoch = 0
        self._claims: list[tuple[Acknowledger, Message]] = []
        self._commit: Entry | None = None
        self._error: Exception | None = None  # the reason why it cannot be committed

    async def __aenter__(self) -> Self:
        """Begin the transaction."""
        await self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit, or abort after an exception, which propagates."""
        if error is None:
            await self.commit()
        else:
            self.abort()

    def begin(self) -> Deferred[None]:
        """Send BEGIN as soon as the client is connected; fails with :class:`ClientClosedError`."""
        if self._phase is not _Phase.NEW:
            raise RuntimeError(f"transaction {self.name} cannot begin: it is {self._phase.value}")
        return self._when_connected().addCallback(self._begin)

    def _begin(self, _: None) -> Deferred[None] | None:
        try:
            self._outbox.send_here(self._frame("BEGIN")).done.addErrback(self._spoiled)
        except ConnectionGoneError:  # lost again at once
            return self._when_connected().addCallback(self._begin)
        self._epoch = self._outbox.epoch
        self._phase = _Phase.OPEN
        return None

    def send(
        self, destination: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        """Add a message.

        Raises :class:`BufferFullError` if the client's buffer is full (``await client.drain()``
        waits for room), and :class:`TransactionLostError`.
        """
        own = {"destination": destination, "transaction": self.name}
        self._add(Frame("SEND", {**(headers or {}), **own}, body), counted=True)

    def ack(self, message: Message) -> None:
        """Add the acknowledgement of a message.

        Raises :class:`StaleAcknowledgementError` for a message from an earlier connection or a
        settled one, and :class:`TransactionLostError`.
        """
        self._settle(message, "ACK")

    def nack(self, message: Message) -> None:
        """Add the refusal of a message; raises the errors of :meth:`ack`."""
        self._settle(message, "NACK")

    def _settle(self, message: Message, command: str) -> None:
        self._check()
        acknowledger = message._acknowledger
        frame = acknowledger.claim(message, command, self.name)
        self._claims.append((acknowledger, message))
        self._add(frame)

    def commit(self) -> Deferred[None]:
        """Commit the transaction; fires when the broker has confirmed it.

        Fails with :class:`BrokerError` if the broker refuses, and with ``LocalProtocolError`` if a
        frame could not be sent; in both cases nothing was applied. Fails with, or raises,
        :class:`TransactionLostError`. Cancelling the Deferred aborts the transaction if COMMIT has
        not been given to the transport; otherwise the outcome is unknown.
        """
        self._check()
        if self._error is not None:
            self.abort()
            raise self._error
        self._commit = self._put(self._frame("COMMIT"), receipt=True)
        self._phase = _Phase.OVER
        return self._commit.done.addCallbacks(self._committed, self._not_committed)

    def abort(self) -> Deferred[None]:
        """Abort the transaction; fires when ABORT has been given to the transport.

        Its messages can be settled again. Does nothing if the connection is lost or the transaction
        is over.
        """
        was_open = self._phase is _Phase.OPEN
        self._phase = _Phase.OVER
        return self._abort() if was_open else succeed(None)

    def _abort(self) -> Deferred[None]:
        if not self._outbox.is_current(self._epoch):
            return succeed(None)
        for acknowledger, message in self._claims:
            acknowledger.release(message)
        try:
            aborted = self._outbox.send_here(self._frame("ABORT")).done
        except ConnectionGoneError:  # the disconnect of the client aborts the transaction
            return succeed(None)
        return aborted.addErrback(ignore_gone)

    def _committed(self, _: None) -> None:
        for acknowledger, message in self._claims:
            acknowledger.settled(message)

    def _not_committed(self, failure: Failure) -> None:
        gone = failure.value
        if isinstance(gone, ConnectionGoneError):
            raise TransactionLostError(
                outcome_unknown=gone.written, reason=gone.reason
            ) from gone.reason
        if self._error is not None:
            self._abort()
            raise self._error
        if isinstance(gone, CancelledError):
            self._cancelled()
        failure.raiseException()

    def _cancelled(self) -> None:
        """Abort if COMMIT was not sent: the broker would hold the claimed messages otherwise."""
        assert self._commit is not None  # its Deferred was cancelled
        if self._commit.written:
            self._committed(None)
        else:
            self._abort()

    def _check(self) -> None:
        if self._phase is not _Phase.OPEN:
            raise RuntimeError(f"transaction {self.name} is {self._phase.value}")
        if not self._outbox.is_current(self._epoch):
            raise TransactionLostError(outcome_unknown=False, reason=self._outbox.last_loss)

    def _add(self, frame: Frame, *, counted: bool = False) -> None:
        """Send a frame of the transaction; if it fails, the transaction cannot be committed."""
        self._put(frame, counted=counted).done.addErrback(self._spoiled)

    def _put(self, frame: Frame, *, receipt: bool = False, counted: bool = False) -> Entry:
        self._check()
        try:
            return self._outbox.send_here(frame, receipt=receipt, counted=counted)
        except ConnectionGoneError as gone:  # the client is being disconnected
            raise TransactionLostError(outcome_unknown=False, reason=gone.reason) from gone.reason

    def _spoiled(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, LocalProtocolError):
            self._error = error
            if self._commit is not None:  # it is queued behind this frame
                self._commit.done.cancel()
        # Otherwise the connection is lost, and COMMIT reports that.

    def _frame(self, command: str) -> Frame:
        return Frame(command, {"transaction": self.name})
