"""Databases with the tables of the models, empty before each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, inspect, make_url, text
from sqlalchemy.orm import Session, sessionmaker

from stompkit.replication.sources.outbox_tables import OutboxTables
from stompkit.replication.sources.session import sqlalchemy_pub
from tests.replication.sources.models import Base
from tests.replication.sources.received import Received
from tests.servers import SqlServer, mariadb, postgresql

__all__ = ["database_url", "databases", "engine", "mariadb", "postgresql", "received", "sessions"]

KINDS = ("sqlite", "postgresql", "mariadb")


def only(*kinds: str) -> pytest.MarkDecorator:
    """Return a decorator that collects a test for these kinds of databases only."""
    return pytest.mark.parametrize("database_url", kinds, indirect=True)


@pytest.fixture(scope="session")
def databases() -> Callable[[SqlServer], str]:
    """A function that returns the URL of one database of a server."""
    urls: dict[SqlServer, str] = {}

    def give(server: SqlServer) -> str:
        if server not in urls:
            urls[server] = server.url(server.new_database())
        return urls[server]

    return give


@pytest.fixture(params=KINDS)
def database_url(
    request: pytest.FixtureRequest, tmp_path: Path, databases: Callable[[SqlServer], str]
) -> str:
    """The URL of a database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'database.sqlite'}"
    return databases(request.getfixturevalue(request.param))


def make_engine(url: str | URL, **settings: Any) -> Engine:
    """Return an engine; SQLite enforces foreign keys and does not sync the disk."""
    waits = {"timeout": 60} if make_url(url).get_backend_name() == "sqlite" else {}
    engine = create_engine(url, connect_args=waits, **settings)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def connected(connection: Any, _: object) -> None:
            # The driver of SQLite begins transactions too late for savepoints.
            connection.isolation_level = None
            cursor = connection.cursor()
            cursor.execute("PRAGMA foreign_keys = ON")
            cursor.execute("PRAGMA synchronous = OFF")
            cursor.close()

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN")

    return engine


def empty(engine: Engine, *tables: Table) -> None:
    """Create all tables, without rows."""
    Base.metadata.create_all(engine)
    there = set(inspect(engine).get_table_names())
    wanted = [*reversed(Base.metadata.sorted_tables), *tables]
    with engine.begin() as connection:
        nodes = Base.metadata.tables["nodes"]
        connection.execute(nodes.update().values(next_id=None))
        for table in wanted:
            if table.name in there:
                connection.execute(table.delete())
        if engine.dialect.name == "postgresql":
            # Explicit keys do not advance the sequence, and tests use small ones.
            connection.execute(text("SELECT setval('tags_id_seq', 1000)"))


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database of each kind."""
    engine = make_engine(database_url)
    outbox = OutboxTables("stompkit_outbox")
    outbox.metadata.drop_all(engine)
    empty(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def sessions(engine: Engine) -> sessionmaker[Session]:
    """A factory of sessions."""
    return sessionmaker(engine)


@pytest.fixture
def received() -> Iterator[Received]:
    """The changesets that are sent in the test."""
    with Received() as received:
        yield received


@pytest.fixture
def pub(sessions: sessionmaker[Session]) -> Iterator[sqlalchemy_pub]:
    """A publisher of all tables."""
    pub = sqlalchemy_pub(sessions)
    yield pub
    pub.close()
