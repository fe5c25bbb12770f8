"""What a transaction can do with a store."""

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
    """Reads a store, as it was at one moment."""

    def generation(self) -> int:
        """How many transactions have written anything."""
        return int(self._all(self._statements.state)[0].generation)


class Tx(ChangesetWriter, RowWriter, NodeWriter, Reader):
    """Reads and writes a store that nobody else writes meanwhile.

    What can't be done raises what SQLAlchemy raises; the transaction is of no use then, but behind
    the :meth:`savepoint` that it was in.
    """

    def __init__(
        self,
        connection: Connection,
        statements: Statements,
        state: tuple[int, int],
        *,
        reads_latest: bool = False,
    ) -> None:
        """Go on from ``state``, generation and position, which were read under the lock."""
        super().__init__(connection, statements, reads_latest=reads_latest)
        self._generation, self._position = state
        self._is_counted = False
        self._known = {}

    def generation(self) -> int:
        """How many transactions have written anything, with this one if it has."""
        return self._generation

    def last_position(self) -> int:
        """The position of the last changeset; 0 before the first."""
        return self._position

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part of the transaction that is undone when it raises something."""
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
