"""Databases of each kind as targets of a sink."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, Row, create_engine, event, make_url

from stompkit.replication.model.events import Action, Changeset, RowChange, Source, make_changeset
from tests.servers import SqlServer

__all__ = ["KINDS", "Target", "change", "changeset", "database_url", "schema_change", "target"]

KINDS = ("sqlite", "postgresql", "mariadb")
SOURCE = Source(kind="test")


class Target:
    """An empty database, accessed without the sink."""

    def __init__(self, kind: str, url: str) -> None:
        """Describe it."""
        self.kind = kind
        self.url = url
        self.engine: Engine = create_engine(url)

    @property
    def is_mysql(self) -> bool:
        """True if MySQL takes the place of MariaDB."""
        return self.engine.url.get_backend_name() == "mysql"

    def execute(self, *statements: str) -> None:
        """Execute a statement."""
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def rows(self, query: str) -> list[Row[Any]]:
        """Return the rows of a query."""
        with self.engine.connect() as connection:
            return list(connection.exec_driver_sql(query).all())

    def table(self, name: str = "t", order: str = "1") -> list[tuple[Any, ...]]:
        """Return the rows of a table."""
        return [tuple(row) for row in self.rows(f"SELECT * FROM {name} ORDER BY {order}")]

    def pick(self, **choices: str) -> str:
        """Return the text for this kind of database."""
        return choices[self.kind]


def change(action: Action, key: Mapping[str, Any], table: str = "t", **more: Any) -> RowChange:
    """Return a change of a row."""
    return RowChange(table=table, action=action, key=dict(key), **more)


def schema_change(*columns: Mapping[str, object], table: str = "t") -> RowChange:
    """Return a change that describes a table's columns."""
    return change("schema", {}, table, after={"columns": [dict(column) for column in columns]})


def changeset(sequence: int, *changes: RowChange, origin: str = "origin") -> Changeset:
    """Return a changeset of a transaction."""
    return make_changeset(origin, sequence, changes, SOURCE, id=f"{origin}:{sequence}")


@pytest.fixture(scope="session")
def database_url() -> Callable[[SqlServer], str]:
    """A function that returns the URL of one database of a server, emptied."""
    urls: dict[SqlServer, str] = {}

    def give(server: SqlServer) -> str:
        if server not in urls:
            urls[server] = server.url(server.new_database())
        engine = create_engine(urls[server], isolation_level="AUTOCOMMIT")
        name = make_url(urls[server]).database
        with engine.connect() as connection:
            if engine.dialect.name == "postgresql":
                connection.exec_driver_sql("DROP SCHEMA public CASCADE")
                connection.exec_driver_sql("CREATE SCHEMA public")
            else:
                connection.exec_driver_sql(f"DROP DATABASE {name}")
                connection.exec_driver_sql(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        engine.dispose()
        return urls[server]

    return give


def _without_fsync(connection: sqlite3.Connection, _: object) -> None:
    """Disable syncing: only processes are killed in these tests, not machines."""
    connection.execute("PRAGMA synchronous = OFF")


@pytest.fixture(params=KINDS)
def target(
    request: pytest.FixtureRequest, tmp_path: Path, database_url: Callable[[SqlServer], str]
) -> Iterator[Target]:
    """An empty database of each kind."""
    url = f"sqlite:///{tmp_path / 'target.sqlite'}"
    if request.param != "sqlite":
        url = database_url(request.getfixturevalue(request.param))
    else:
        # Also for engines that sinks create.
        event.listen(Engine, "connect", _without_fsync)
    target = Target(request.param, url)
    yield target
    target.engine.dispose()
    if request.param == "sqlite":
        event.remove(Engine, "connect", _without_fsync)
