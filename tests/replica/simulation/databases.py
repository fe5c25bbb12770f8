"""Databases of nodes: SQLite in memory, which outlives the process that it is said to belong to."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import StaticPool

from stompkit.replica.data.documents import DocumentData
from stompkit.replica.store import Prepare, Store, StoreBusy, Tx

__all__ = ["Database", "Databases"]


class _BusyStore(Store):
    """A store that others have locked now and then."""

    is_busy: Callable[[], bool] | None = None

    @contextmanager
    def transaction(self, prepare: Prepare | None = None) -> Iterator[Tx]:
        """Begin, unless somebody else has the lock for too long."""
        if self.is_busy is not None and self.is_busy():
            raise StoreBusy("somebody else writes")
        with super().transaction(prepare) as tx:
            yield tx


class Database:
    """A database with a store and documents; all of it can be copied, and put back."""

    def __init__(self) -> None:
        """Make an empty one."""
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        self.engine: Final[Engine] = create_engine(
            "sqlite://", creator=lambda: self._connection, poolclass=StaticPool
        )
        self.store: Final = _BusyStore(self.engine)
        self.data: Final = DocumentData()

    def create(self) -> None:
        """Make all tables."""
        self.store.create()
        self.data.create(self.engine)

    def bodies(self) -> dict[str, bytes | None]:
        """The changesets in the store by their ids, with their octets where it has them still."""
        with self.store.reading() as reader:
            return {each.id: each.body for each in reader.changesets()}

    def content(self) -> bytes:
        """All that is committed."""
        return self._connection.serialize()

    def put_back(self, content: bytes) -> None:
        """Have what was in a database at another time, or in another database."""
        self._connection.rollback()
        self._connection.deserialize(content)

    def troubled_by(self, is_busy: Callable[[], bool] | None) -> None:
        """Have somebody else lock this database whenever ``is_busy()``."""
        self.store.is_busy = is_busy


class Databases:
    """Databases that are used again by one world after the other, since they take long to make."""

    def __init__(self) -> None:
        """Have none."""
        self._all: list[Database] = []
        self._empty = b""
        self._taken = 0

    def begin(self) -> None:
        """Take all back that were taken."""
        self._taken = 0

    def take(self) -> Database:
        """Give one that has its tables, and nothing in them."""
        if self._taken == len(self._all):
            database = Database()
            if not self._empty:
                database.create()
                self._empty = database.content()
            self._all.append(database)
        found = self._all[self._taken]
        self._taken += 1
        found.put_back(self._empty)
        found.troubled_by(None)
        return found
