"""Event stores and prepare-commits of every kind, to be asked the same."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from sqlalchemy import Engine, create_engine, event, inspect, text

from stompkit.replication.eventsourcing import (
    EventStore,
    Namespace,
    PrepareCommit,
    RedisEventStore,
    RedisPrepareCommit,
    SqlEventStore,
    SqlPrepareCommit,
)
from tests.servers import RedisServer, SqlServer, mariadb, postgresql, redis, redis_server

__all__ = ["KINDS", "MakePrepareCommit", "MakeStore", "mariadb", "postgresql", "redis"]
__all__ += ["redis_server"]

KINDS = ("redis", "sqlite", "postgresql", "mariadb")


class MakeStore(Protocol):
    """Makes stores in one place."""

    def __call__(
        self,
        namespace: Namespace | None = None,
        ttl: float | None = 1000,
        *,
        history: bool = False,
    ) -> EventStore:
        """Make a strict one."""


MakePrepareCommit = Callable[..., PrepareCommit]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def without_fsync(connection: sqlite3.Connection, _: object) -> None:
    """Processes are killed in here, machines are not: nothing has to be on the disk."""
    connection.execute("PRAGMA synchronous = OFF")


@pytest.fixture
def place(
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    database: Callable[[SqlServer], str],
) -> Iterator[str | Engine]:
    """An empty server: the URL of Redis, or an engine."""
    if kind == "redis":
        server: RedisServer = request.getfixturevalue("redis")
        yield server.url
        return
    url = f"sqlite:///{tmp_path}/events.sqlite"
    if kind != "sqlite":
        url = database(request.getfixturevalue(kind))
    engine = create_engine(url)
    if kind == "sqlite":
        event.listen(engine, "connect", without_fsync)
    with engine.begin() as connection:
        for name in inspect(connection).get_table_names():
            connection.execute(text(f"DELETE FROM {name}"))
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def database() -> Callable[[SqlServer], str]:
    """Gives the URL of one database of a server."""
    urls: dict[SqlServer, str] = {}

    def give(server: SqlServer) -> str:
        if server not in urls:
            urls[server] = server.url(server.new_database())
        return urls[server]

    return give


@pytest.fixture
def make_store(place: str | Engine) -> Iterator[MakeStore]:
    made: list[EventStore] = []

    def make(
        namespace: Namespace | None = None,
        ttl: float | None = 1000,
        *,
        history: bool = False,
    ) -> EventStore:
        store: EventStore
        if isinstance(place, str):
            store = RedisEventStore(place, namespace, ttl, strict=True, history=history)
        else:
            store = SqlEventStore(place, namespace, ttl, strict=True, history=history)
        made.append(store)
        return store

    yield make
    for each in made:
        each.close()


@pytest.fixture
def make_prepare_commit(place: str | Engine) -> Iterator[MakePrepareCommit]:
    made: list[PrepareCommit] = []

    def make(namespace: Namespace | None = None, ttl: float | None = 1000) -> PrepareCommit:
        prepare_commit: PrepareCommit
        if isinstance(place, str):
            prepare_commit = RedisPrepareCommit(place, True, namespace, ttl)
        else:
            prepare_commit = SqlPrepareCommit(place, True, namespace, ttl)
        made.append(prepare_commit)
        return prepare_commit

    yield make
    for each in made:
        each.close()
