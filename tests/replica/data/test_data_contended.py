"""Rows that an application has locked: the replica backs off once, and waits without its lock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine, event

from stompkit.replica.data.combined import CombinedData
from stompkit.replica.data.sql import SqlData
from stompkit.replica.store import Store, StoreBusyError
from tests.replica.data.data_made import row
from tests.replica.stores import database_url, engine, server_urls

__all__ = ["database_url", "engine", "server_urls"]

SERVERS = pytest.mark.parametrize("engine", ("postgresql", "mariadb"), indirect=True)
WANTED = [row("pairs", {"x": 1, "y": y}, a=7) for y in range(3)]


@pytest.fixture
def pairs(engine: Engine) -> Iterator[None]:
    """A table of the application with three rows."""
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE pairs (x INT NOT NULL, y INT NOT NULL, a INT, PRIMARY KEY (x, y))"
        )
        connection.exec_driver_sql("INSERT INTO pairs VALUES (1, 0, 0), (1, 1, 0), (1, 2, 0)")
    yield
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE pairs")


def update(connection: Connection) -> None:
    """Update a row as the application does, which locks it."""
    connection.exec_driver_sql("UPDATE pairs SET a = a + 1 WHERE y = 1")


def contents(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.exec_driver_sql("SELECT a FROM pairs ORDER BY x, y").scalars())


@SERVERS
@pytest.mark.usefixtures("pairs")
def test_rows_that_were_in_use_are_locked_before_the_store(engine: Engine) -> None:
    """An application holds one of them whenever the replica reads, and commits when it can."""
    store = Store(engine, lock_wait_s=0.2, join_wait_s=0.2)
    store.create()
    data = CombinedData(SqlData(engine, None))
    waits: list[str] = []

    with engine.connect() as application:
        update(application)
        with pytest.raises(StoreBusyError), store.transaction(data.prepare) as tx:
            data.write(tx.connection, WANTED)

        @event.listens_for(engine, "before_cursor_execute")
        def before(connection: Connection, _: object, statement: str, *__: object) -> None:
            if "pairs" in statement and "FOR UPDATE" in statement and not waits:
                waits.append(statement)
                # It would have to wait if the replica held its lock by now.
                store.join(application).set_meta("who", "application")
                application.commit()

        with store.transaction(data.prepare) as tx:
            assert tx.meta("who") == "application"
            assert data.write(tx.connection, WANTED) == {}
        event.remove(engine, "before_cursor_execute", before)
    assert len(waits) == 1
    assert contents(engine) == [7, 7, 7]


@SERVERS
@pytest.mark.usefixtures("pairs")
def test_a_table_that_has_gone_since_is_in_nobodys_way(engine: Engine) -> None:
    store = Store(engine, lock_wait_s=0.2)
    store.create()
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE passing (id INT NOT NULL PRIMARY KEY)")
    data = SqlData(engine, None)
    with engine.connect() as application:
        update(application)
        with pytest.raises(StoreBusyError), store.transaction(data.prepare) as tx:
            data.write(tx.connection, [row("passing", 1), *WANTED])
        application.rollback()
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE passing")
    with store.transaction(data.prepare) as tx:
        assert list(data.write(tx.connection, [row("passing", 1), *WANTED])) == [b"passing 1"]
    assert contents(engine) == [7, 7, 7]
