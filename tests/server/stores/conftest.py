"""Fixtures with stores of every kind, for common tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from stompkit.server.interfaces import MessageStore
from stompkit.server.stores import LmdbStore, MemoryStore
from stompkit.server.stores.sql import sql_store
from stompkit.server.stores.tables import TABLES
from tests.servers import PostgreSql, SqlServer, mariadb, postgresql

__all__ = ["KINDS", "Place", "database", "mariadb", "place", "postgresql", "store"]

KINDS = ("memory", "lmdb", "sqlite", "postgresql", "mariadb")


class Place:
    """The location of a store: several objects, one after the other, can open the same store."""

    def __init__(self, kind: str, directory: Path, url: str) -> None:
        """Describe a location without a store."""
        self.kind = kind
        self._directory = directory
        self.url = url
        self._memory = MemoryStore()

    def store(self, *, synchronous: bool = True) -> MessageStore:
        """Return an object that can open the store."""
        if self.kind == "memory":
            return self._memory
        if self.kind == "lmdb":
            return LmdbStore(self._directory, synchronous=synchronous)
        return sql_store(self.url, synchronous=synchronous)


@pytest.fixture(scope="session")
def database() -> Callable[[SqlServer], str]:
    """Returns the URL of one database of a server, without tables or functions."""
    urls: dict[SqlServer, str] = {}

    def give(server: SqlServer) -> str:
        if server not in urls:
            urls[server] = server.url(server.new_database())
        engine = create_engine(urls[server])
        TABLES.drop_all(engine)
        if isinstance(server, PostgreSql):
            # Functions stay when the tables of their triggers are dropped.
            with engine.begin() as connection:
                connection.execute(text("DROP SCHEMA public CASCADE"))
                connection.execute(text("CREATE SCHEMA public"))
        engine.dispose()
        return urls[server]

    return give


@pytest.fixture(params=KINDS)
def place(
    request: pytest.FixtureRequest, tmp_path: Path, database: Callable[[SqlServer], str]
) -> Place:
    """A location for a store of each kind."""
    url = f"sqlite:///{tmp_path / 'messages.sqlite'}"
    if request.param in ("postgresql", "mariadb"):
        url = database(request.getfixturevalue(request.param))
    return Place(request.param, tmp_path / "data", url)


@pytest.fixture
def store(place: Place) -> Iterator[MessageStore]:
    """An open store of each kind."""
    store = place.store()
    store.open()
    yield store
    store.close()
