"""Databases of nodes: SQLite in memory, which survive the simulated processes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import StaticPool

from stompkit.replica.data.documents import DocumentData
from stompkit.replica.store import Prepare, Store, StoreBusyError, Tx

__all__ = ["Database", "Databases"]


class _BusyStore(Store):
    """A store that others lock now and then."""

    is_busy: Callable[[], bool] | None = None

    @contextmanager
    def transaction(self, prepare: Prepare | None = None) -> Iterator[Tx]:
        """Begin, unless another process keeps the lock for too long."""
        if self.is_busy is not None and self.is_busy():
            raise StoreBusyError("somebody else writes")
        with super().transaction(prepare) as tx:
            yield tx


class Database:
    """A database with a store and documents, which can be copied and restored."""

    def __init__(self) -> None:
        """Create an empty one."""
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        self.engine: Final[Engine] = create_engine(
            "sqlite://", creator=lambda: self._connection, poolclass=StaticPool
        )
        self.store: Final = _BusyStore(self.engine)
        self.data: Final = DocumentData()

    def create(self) -> None:
        """Create all tables."""
        self.store.create()
        self.data.create(self.engine)

    def bodies(self) -> dict[str, bytes | None]:
        """Return the changesets in the store by their ids, with their bytes if still stored."""
        with self.store.reading() as reader:
            return {each.id: each.body for each in reader.changesets()}

    def content(self) -> bytes:
        """Return a copy of all committed data."""
        return self._connection.serialize()

    def put_back(self, content: bytes) -> None:
        """Restore the contents of an earlier time or of another database."""
        self._connection.rollback()
        self._connection.deserialize(content)

    def troubled_by(self, is_busy: Callable[[], bool] | None) -> None:
        """Simulate a lock by another process whenever ``is_busy()`` returns True."""
        self.store.is_busy = is_busy


class Databases:
    """A pool of databases for successive worlds, since their creation is slow."""

    def __init__(self) -> None:
        """Start empty."""
        self._all: list[Database] = []
        self._empty = b""
        self._taken = 0

    def begin(self) -> None:
        """Return all databases to the pool."""
        self._taken = 0

    def take(self) -> Database:
        """Return a database with its tables and without rows."""
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
