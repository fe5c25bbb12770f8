"""Transactions: several frames that take effect together, within one connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import TracebackType
from typing import Final, Self

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from stompkit.client._entries import Entry
from stompkit.client._errors import ConnectionGone, TransactionLost, ignore_gone
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

    It lives within one connection. If that is lost before the broker has confirmed COMMIT, it
    fails with :class:`TransactionLost`, and nothing of it is sent again.
    """

    def __init__(
        self, name: str, outbox: Outbox, when_connected: Callable[[], Deferred[None]]
    ) -> None:
        """Do nothing yet; :meth:`Client.transaction` makes it."""
        #: The ``transaction`` header of its frames.
        self.name: Final = name
        self._outbox = outbox
        self._when_connected = when_connected
        self._phase = _Phase.NEW
        self._epoch = 0
        self._claims: list[tuple[Acknowledger, Message]] = []
        self._commit: Entry | None = None
        self._error: Exception | None = None  # why it can't be committed as it is

    async def __aenter__(self) -> Self:
        """Begin."""
        await self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit, or abort if there was an error; that goes on."""
        if error is None:
            await self.commit()
        else:
            self.abort()

    def begin(self) -> Deferred[None]:
        """Send BEGIN as soon as there is a connection; fails with :class:`ClientClosed`."""
        if self._phase is not _Phase.NEW:
            raise RuntimeError(f"transaction {self.name} can't begin: it is {self._phase.value}")
        return self._when_connected().addCallback(self._begin)

    def _begin(self, _: None) -> Deferred[None] | None:
        try:
            self._outbox.send_here(self._frame("BEGIN"))
        except ConnectionGone:  # as fast as that
            return self._when_connected().addCallback(self._begin)
        self._epoch = self._outbox.epoch
        self._phase = _Phase.OPEN
        return None

    def send(
        self, destination: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        """Add a message.

        Raises :class:`BufferFull` where the client's buffer has no room (``await
        client.drain()`` makes some), and :class:`TransactionLost`.
        """
        own = {"destination": destination, "transaction": self.name}
        self._add(Frame("SEND", {**(headers or {}), **own}, body), counted=True)

    def ack(self, message: Message) -> None:
        """Add the acknowledgement of a message.

        Raises :class:`StaleAcknowledgement` for a message that came over an earlier connection or
        is settled, and :class:`TransactionLost`.
        """
        self._settle(message, "ACK")

    def nack(self, message: Message) -> None:
        """Add the refusal of a message; raises what :meth:`ack` raises."""
        self._settle(message, "NACK")

    def _settle(self, message: Message, command: str) -> None:
        self._check()
        acknowledger = message._acknowledger
        frame = acknowledger.claim(message, command, self.name)
        self._claims.append((acknowledger, message))
        self._add(frame)

    def commit(self) -> Deferred[None]:
        """Have it all take effect; fires when the broker has confirmed it.

        Fails with :class:`BrokerError` if the broker refuses, and with ``LocalProtocolError`` if
        a frame of it could not be sent; both mean that nothing was done. Fails with, or raises,
        :class:`TransactionLost`.
        """
        self._check()
        if self._error is not None:
            self.abort()
            raise self._error
        self._commit = self._put(self._frame("COMMIT"), receipt=True)
        self._phase = _Phase.OVER
        return self._commit.done.addCallbacks(self._committed, self._not_committed)

    def abort(self) -> Deferred[None]:
        """Drop it all; fires when ABORT has been given to the transport.

        The messages that it was to settle wait for that again. Nothing is to be done where the
        connection has been lost, or the transaction is over.
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
        except ConnectionGone:  # the client is being disconnected, which aborts it
            return succeed(None)
        return aborted.addErrback(ignore_gone)

    def _committed(self, _: None) -> None:
        for acknowledger, message in self._claims:
            acknowledger.settled(message)

    def _not_committed(self, failure: Failure) -> None:
        gone = failure.value
        if isinstance(gone, ConnectionGone):
            raise TransactionLost(outcome_unknown=gone.written, reason=gone.reason) from gone.reason
        if self._error is not None:
            self._abort()
            raise self._error
        failure.raiseException()

    def _check(self) -> None:
        if self._phase is not _Phase.OPEN:
            raise RuntimeError(f"transaction {self.name} is {self._phase.value}")
        if not self._outbox.is_current(self._epoch):
            raise TransactionLost(outcome_unknown=False, reason=self._outbox.last_loss)

    def _add(self, frame: Frame, *, counted: bool = False) -> None:
        """Send a frame of the transaction, without which it can't be committed."""
        self._put(frame, counted=counted).done.addErrback(self._spoiled)

    def _put(self, frame: Frame, *, receipt: bool = False, counted: bool = False) -> Entry:
        self._check()
        try:
            return self._outbox.send_here(frame, receipt=receipt, counted=counted)
        except ConnectionGone as gone:  # the client is being disconnected
            raise TransactionLost(outcome_unknown=False, reason=gone.reason) from gone.reason

    def _spoiled(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, LocalProtocolError):
            self._error = error
            if self._commit is not None:  # it stands in line behind
                self._commit.done.cancel()
        # Else the connection is gone, as COMMIT will tell.

    def _frame(self, command: str) -> Frame:
        return Frame(command, {"transaction": self.name})
