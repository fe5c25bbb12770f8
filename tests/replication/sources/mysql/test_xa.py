"""XA transactions are published when they are committed, and not when they are prepared."""

from __future__ import annotations

import pytest

from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.mysql import OffsetLostError, StreamError
from tests.replication.sources.mysql.reading import Database, Reading


@pytest.fixture
def tables(database: Database) -> Database:
    """A database with two tables."""
    database.run("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    return database


def prepare(database: Database, xid: str, *statements: str) -> None:
    database.run(f"XA START {xid}", *statements, f"XA END {xid}", f"XA PREPARE {xid}")


def keys(reading: Reading) -> list[tuple[str, int]]:
    return [(change.table, change.key["id"]) for change in reading.changes()]


def test_what_is_prepared_is_told_when_it_is_committed(tables: Database) -> None:
    reading = Reading(tables)
    prepare(tables, "'a'", "INSERT INTO t VALUES (1), (2)", "INSERT INTO u VALUES (1)")
    tables.run("XA COMMIT 'a'", "INSERT INTO t VALUES (3)")
    first, second = reading.changesets()
    assert [(change.table, change.key["id"]) for change in first.changes] == [
        ("t", 1),
        ("t", 2),
        ("u", 1),
    ]
    assert [change.key for change in second.changes] == [{"id": 3}]


def test_what_is_prepared_and_rolled_back_is_not_told(tables: Database) -> None:
    reading = Reading(tables)
    prepare(tables, "'a','b',7", "INSERT INTO t VALUES (1)")
    tables.run("XA ROLLBACK 'a','b',7", "INSERT INTO t VALUES (2)")
    assert keys(reading) == [("t", 2)]


def test_one_phase_is_an_ordinary_transaction(tables: Database) -> None:
    reading = Reading(tables)
    tables.run("XA START 'a'", "INSERT INTO t VALUES (1)", "XA END 'a'", "XA COMMIT 'a' ONE PHASE")
    assert keys(reading) == [("t", 1)]


def test_transactions_that_change_nothing_do_not_matter(tables: Database) -> None:
    reading = Reading(tables)
    prepare(tables, "'a'", "SELECT * FROM t")
    tables.run("XA COMMIT 'a'")
    prepare(tables, "'b'", "DELETE FROM t")
    tables.run("XA COMMIT 'b'", "INSERT INTO t VALUES (1)")
    assert keys(reading) == [("t", 1)]


def test_what_was_prepared_before_a_restart_is_told_when_it_is_committed(tables: Database) -> None:
    reading = Reading(tables)
    prepare(tables, "'a'", "INSERT INTO t VALUES (1)")
    tables.run("SELECT 1")
    with tables.connect() as other, other.cursor() as cursor:
        cursor.execute("INSERT INTO u VALUES (1)")
    assert keys(reading) == [("u", 1)]
    with tables.connect() as other, other.cursor() as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("INSERT INTO u VALUES (2)")
    assert keys(reading) == [("u", 2)]
    checkpoint = reading.offsets.load()
    assert checkpoint is not None
    assert list(checkpoint.state["xa"]) == ["61,,1"]
    tables.run("XA COMMIT 'a'")
    assert keys(reading) == [("t", 1)]
    checkpoint = reading.offsets.load()
    assert checkpoint is not None
    assert checkpoint.state == {}
    assert checkpoint.sequence == 3


def test_what_was_prepared_before_reading_began_stops_it(tables: Database) -> None:
    prepare(tables, "'a'", "INSERT INTO t VALUES (1)")
    reading = Reading(tables)
    tables.run("XA COMMIT 'a'")
    with pytest.raises(StreamError, match="prepared before reading began"):
        reading.changes()


def test_tables_that_are_not_wanted_do_not_matter(tables: Database) -> None:
    reading = Reading(tables, tables=Tables(include=[f"{tables.name}.u"]))
    prepare(tables, "'a'", "INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (1)")
    tables.run("XA COMMIT 'a'")
    prepare(tables, "'b'", "INSERT INTO t VALUES (2)")
    tables.run("XA COMMIT 'b'")
    assert keys(reading) == [("u", 1)]


def test_a_place_where_nothing_was_prepared_is_lost(tables: Database) -> None:
    reading = Reading(tables)
    file, pos = tables.end()
    tables.run("INSERT INTO t VALUES (1)")
    prepare(tables, "'a'", "INSERT INTO t VALUES (2)")
    with tables.connect() as other, other.cursor() as cursor:
        cursor.execute("INSERT INTO u VALUES (1)")
    assert keys(reading) == [("t", 1), ("u", 1)]
    checkpoint = reading.offsets.load()
    assert checkpoint is not None
    checkpoint.state["xa"]["61,,1"] = [file, pos]
    tables.run("XA COMMIT 'a'")
    with pytest.raises(OffsetLostError, match="prepared by XA"):
        reading.changes()
