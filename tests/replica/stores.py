"""Stores in databases of each kind, and their contents."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, inspect, make_url
from sqlalchemy.pool import StaticPool

from stompkit.replica.rows import RowState, Stamp
from stompkit.replica.rules import TableRules
from stompkit.replica.store import ChangesetRecord, HeldRecord, RowRecord, Store, row_id
from stompkit.replication.model.events import RowChange
from tests.servers import SqlServer

__all__ = [
    "ALL_KINDS",
    "KINDS",
    "A",
    "B",
    "changeset",
    "database_url",
    "empty",
    "engine",
    "held",
    "make_engine",
    "row",
    "server_urls",
    "state",
    "store",
]

KINDS = ("sqlite", "postgresql", "mariadb")
#: In addition the modes of SQLite.
ALL_KINDS = ("memory", "sqlite-wal", "sqlite-begin", *KINDS)
A, B = "A~00000001", "B~00000002"


def make_engine(kind: str, url: str, timeout_s: float = 30.0) -> Engine:
    """Return an engine as applications have it."""
    if kind == "memory":
        shared = {"check_same_thread": False}
        return create_engine("sqlite://", poolclass=StaticPool, connect_args=shared)
    is_sqlite = make_url(url).get_backend_name() == "sqlite"
    engine = create_engine(url, connect_args={"timeout": timeout_s} if is_sqlite else {})
    if not is_sqlite:
        return engine

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: object) -> None:
        # The data need not survive the machine.
        connection.execute("PRAGMA synchronous = OFF")
        if kind == "sqlite-wal":
            connection.execute("PRAGMA journal_mode = WAL")
        if kind == "sqlite-begin":
            connection.isolation_level = None

    if kind == "sqlite-begin":
        # As in SQLAlchemy's documentation.
        @event.listens_for(engine, "begin")
        def begin(connection: Any) -> None:
            connection.exec_driver_sql("BEGIN")

    return engine


@pytest.fixture(scope="session")
def server_urls() -> dict[str, str]:
    """One database of each server."""
    return {}


@pytest.fixture
def database_url(
    request: pytest.FixtureRequest, tmp_path: Path, server_urls: dict[str, str]
) -> Callable[[str], str]:
    """A function that returns the URL of a database of a kind."""

    def give(kind: str) -> str:
        if kind not in ("postgresql", "mariadb"):
            return f"sqlite:///{tmp_path / 'database.sqlite'}"
        if kind not in server_urls:
            server: SqlServer = request.getfixturevalue(kind)
            server_urls[kind] = server.url(server.new_database())
        return server_urls[kind]

    return give


@pytest.fixture(params=KINDS)
def engine(request: pytest.FixtureRequest, database_url: Callable[[str], str]) -> Iterator[Engine]:
    """A database of each kind."""
    engine = make_engine(request.param, database_url(request.param))
    yield engine
    empty(engine)
    engine.dispose()


def empty(engine: Engine) -> None:
    """Empty a store; creating new tables would be slower."""
    tables = Store(engine).metadata.sorted_tables
    with engine.begin() as connection:
        if not inspect(connection).has_table(tables[0].name):
            return
        for table in tables:
            is_state = table.name.endswith("_state")
            connection.execute(
                table.update().values(generation=0, position=0) if is_state else table.delete()
            )


@pytest.fixture
def store(engine: Engine) -> Store:
    """An empty store in a database of each kind."""
    store = Store(engine)
    with engine.connect() as connection:
        is_made = inspect(connection).has_table("stompkit_replica_state")
    if not is_made:
        store.create()
    return store


def changeset(position: int, sequence: int = 0, origin: str = A, **more: Any) -> ChangesetRecord:
    """Return a changeset; each has another id, that of its body."""
    body = more.pop("body", f"{origin} {position}".encode())
    return ChangesetRecord(
        position=position,
        origin=origin,
        sequence=sequence or position,
        id=hashlib.sha256(body or b"").hexdigest(),
        hlc=1_800_000_000_000_000 + position,
        time=1_800_000_000.25,
        size=len(body or b""),
        body=body,
        **more,
    )


def held(sequence: int, origin: str = B, **more: Any) -> HeldRecord:
    """Return a changeset that is held back."""
    body = more.pop("body", f"{origin} {sequence}".encode())
    id = hashlib.sha256(body).hexdigest()
    return HeldRecord(origin=origin, sequence=sequence, id=id, body=body, **more)


def state(value: object) -> RowState:
    """Return the state of a row that was written once."""
    made = RowState()
    change = RowChange(table="t", action="write", key={"id": 1}, after={"a": value})
    made.apply(change, Stamp(1, A, 1), {}, TableRules())
    return made


def row(number: object, table: str = "notes", **more: Any) -> RowRecord:
    """Return a row whose key is a number, and by default its digest, too."""
    key = {"id": number}
    digest = number if isinstance(number, int) else 1
    facts: dict[str, Any] = {"is_live": True, "digest": digest, "state": state(number), **more}
    return RowRecord(id=row_id(table, key), table=table, key=key, **facts)
