"""Event stores and prepare-commits of every kind, for the same tests."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from sqlalchemy import Engine, create_engine, event, inspect, text

from stompkit.replication.eventstore import (
    EventStore,
    Namespace,
    PrepareCommit,
    RedisEventStore,
    RedisPrepareCommit,
    SqlEventStore,
    SqlPrepareCommit,
)
from stompkit.replication.eventstore.store import DEFAULT_TTL_S
from tests.servers import RedisServer, SqlServer, mariadb, postgresql, redis, redis_server

__all__ = ["KINDS", "STORE_KINDS", "MakePrepareCommit", "MakeStore", "mariadb", "postgresql"]
__all__ += ["redis", "redis_server", "strict_store"]

KINDS = ("redis", "sqlite", "postgresql", "mariadb")
#: There is a kind of store without a kind of prepare-commit.
STORE_KINDS = (*KINDS, "spark")


class MakeStore(Protocol):
    """A factory of stores in one place."""

    def __call__(
        self,
        namespace: Namespace | None = None,
        ttl: float | None = 1000,
        *,
        history: bool = False,
    ) -> EventStore:
        """Return a strict store."""


MakePrepareCommit = Callable[..., PrepareCommit]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def without_fsync(connection: sqlite3.Connection, _: object) -> None:
    """Disable syncing: only processes are killed in these tests, not machines."""
    connection.execute("PRAGMA synchronous = OFF")


@pytest.fixture
def place(
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    database: Callable[[SqlServer], str],
) -> Iterator[str | Engine | Path]:
    """An empty place: the URL of Redis, an engine, or a folder that does not exist yet."""
    if kind == "spark":
        pytest.importorskip("pyspark")
        yield tmp_path / "events"
        return
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
    """A function that returns the URL of one database of a server."""
    urls: dict[SqlServer, str] = {}

    def give(server: SqlServer) -> str:
        if server not in urls:
            urls[server] = server.url(server.new_database())
        return urls[server]

    return give


def strict_store(
    place: str | Engine | Path,
    namespace: Namespace | None = None,
    ttl: float | None = DEFAULT_TTL_S,
    *,
    history: bool = False,
) -> EventStore:
    """Return the strict store for a place."""
    if isinstance(place, str):
        return RedisEventStore(place, namespace, ttl, strict=True, history=history)
    if isinstance(place, Engine):
        return SqlEventStore(place, namespace, ttl, strict=True, history=history)
    from stompkit.spark.eventstore import SparkEventStore

    # As with SQLite: machines are not killed here.
    return SparkEventStore(place, namespace, ttl, strict=True, history=history, sync=False)


@pytest.fixture
def make_store(place: str | Engine | Path) -> Iterator[MakeStore]:
    made: list[EventStore] = []

    def make(
        namespace: Namespace | None = None,
        ttl: float | None = 1000,
        *,
        history: bool = False,
    ) -> EventStore:
        store = strict_store(place, namespace, ttl, history=history)
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
