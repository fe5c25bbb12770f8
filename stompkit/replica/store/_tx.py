"""Transactions on a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection

from stompkit.replica.store._changesets import ChangesetReader, ChangesetWriter
from stompkit.replica.store._nodes import NodeReader, NodeWriter
from stompkit.replica.store._rows import RowReader, RowWriter
from stompkit.replica.store._statements import Statements

__all__ = ["Reader", "Tx"]


class Reader(ChangesetReader, RowReader, NodeReader):
    """A reader of one snapshot of a store."""

    def generation(self) -> int:
        """Return the number of write transactions."""
        return int(self._all(self._statements.state)[0].generation)


class Tx(ChangesetWriter, RowWriter, NodeWriter, Reader):
    """Reads and writes a store, with the exclusive lock for writing.

    Failures raise SQLAlchemy's errors; the transaction is unusable then, except after leaving the
    enclosing :meth:`savepoint`.
    """

    def __init__(
        self,
        connection: Connection,
        statements: Statements,
        state: tuple[int, int],
        *,
        reads_latest: bool = False,
    ) -> None:
        """Continue from ``state``, generation and position, which were read under the lock."""
        super().__init__(connection, statements, reads_latest=reads_latest)
        self._generation, self._position = state
        self._is_counted = False
        self._known = {}

    def generation(self) -> int:
        """Return the number of write transactions, including this one if it has written."""
        return self._generation

    def last_position(self) -> int:
        """Return the position of the last changeset; 0 before the first."""
        return self._position

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Return a context that is rolled back on an exception."""
        before: tuple[Any, ...] = self._generation, self._position, self._is_counted
        try:
            with self.connection.begin_nested():
                yield
        except BaseException:
            self._generation, self._position, self._is_counted = before
            self._known.clear()
            raise

    def _write(self) -> None:
        if not self._is_counted:
            self.connection.execute(self._statements.count_up)
            self._generation += 1
            self._is_counted = True

    def _put_position(self, last: int) -> None:
        super()._put_position(last)
        self._position = last
