"""Transactions of the asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from stompkit.client import _transactions
from stompkit.client.aio._loop import future_of
from stompkit.client.aio._subscription import Message

__all__ = ["Transaction"]


class Transaction:
    """Messages and acknowledgements that take effect together, or not at all.

    As an asynchronous context manager it begins, commits when the block ends, and aborts when the
    block raises. See :class:`stompkit.client.Transaction`.
    """

    def __init__(
        self, transaction: _transactions.Transaction, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Start idle; :meth:`Client.transaction` creates transactions."""
        self._transaction = transaction
        self._loop = loop

    @property
    def name(self) -> str:
        """The ``transaction`` header of its frames."""
        return self._transaction.name

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

    def begin(self) -> asyncio.Future[None]:
        """Send BEGIN as soon as the client is connected."""
        return future_of(self._transaction.begin(), self._loop, lambda _: self.abort())

    def send(
        self, destination: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        """Add a message.

        Raises :class:`~stompkit.client.BufferFullError` and
        :class:`~stompkit.client.TransactionLostError`.
        """
        self._transaction.send(destination, body, headers)

    def ack(self, message: Message) -> None:
        """Add the acknowledgement of a message.

        Raises :class:`~stompkit.client.StaleAcknowledgementError` and
        :class:`~stompkit.client.TransactionLostError`.
        """
        self._transaction.ack(message._message)

    def nack(self, message: Message) -> None:
        """Add the refusal of a message; raises the errors of :meth:`ack`."""
        self._transaction.nack(message._message)

    def commit(self) -> asyncio.Future[None]:
        """Commit the transaction; completes when the broker has confirmed it.

        Fails with, or raises, the errors of :meth:`stompkit.client.Transaction.commit`.
        """
        return future_of(self._transaction.commit(), self._loop)

    def abort(self) -> asyncio.Future[None]:
        """Abort the transaction; completes when ABORT has been given to the transport."""
        return future_of(self._transaction.abort(), self._loop)
