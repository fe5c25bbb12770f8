"""XA transactions are published when they are committed, and not when they are prepared."""

from __future__ import annotations

from contextlib import closing, suppress
from itertools import count
from typing import Final

import pymysql
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.mysql import OffsetLostError, StreamError
from stompkit.testing.launching.polling import wait_until
from tests.effort import drawn
from tests.replication.sources.mysql.reading import DEADLINE_S, Database, Reading


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


def detach(database: Database, xid: str, *statements: str) -> None:
    """Prepare a transaction that survives its connection, as those of a transaction manager."""
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        for statement in (f"XA START {xid}", *statements, f"XA END {xid}", f"XA PREPARE {xid}"):
            cursor.execute(statement)


def end(database: Database, statement: str) -> None:
    """Commit or roll back a transaction, once the server has closed its connection."""

    def is_done() -> bool:
        with suppress(pymysql.err.OperationalError):
            database.run(statement)
            return True
        return False

    assert wait_until(is_done, DEADLINE_S)


def test_what_was_prepared_before_reading_began_is_read_in_the_older_log(
    tables: Database,
) -> None:
    detach(tables, "'a'", "INSERT INTO t VALUES (1)")
    end(tables, "XA COMMIT 'a'")
    detach(tables, "'a'", "INSERT INTO t VALUES (2)")
    tables.rotate()
    detach(tables, "'b'", "INSERT INTO t VALUES (3)")
    reading = Reading(tables)
    detach(tables, "'c'", "INSERT INTO t VALUES (4)")
    for xid in "bca":
        end(tables, f"XA COMMIT '{xid}'")
    tables.run("INSERT INTO u VALUES (1)")
    assert keys(reading) == [("t", 3), ("t", 4), ("t", 2), ("u", 1)]


def test_what_another_database_had_prepared_does_not_matter(tables: Database) -> None:
    other = Database(tables.server)
    other.run("CREATE TABLE t (id INT PRIMARY KEY)")
    detach(other, "'a'", "INSERT INTO t VALUES (1)")
    reading = Reading(tables, tables=Tables(include=[f"{tables.name}.*"]))
    end(tables, "XA COMMIT 'a'")
    tables.run("INSERT INTO t VALUES (2)")
    other.close()
    assert keys(reading) == [("t", 2)]


def test_what_was_prepared_in_log_that_is_purged_stops_it_with_the_remedy(
    tables: Database,
) -> None:
    detach(tables, "'a'", "INSERT INTO t VALUES (1)")
    tables.rotate()
    tables.purge()
    reading = Reading(tables)
    end(tables, "XA COMMIT 'a'")
    with pytest.raises(StreamError, match=r"was purged\. A new snapshot includes them"):
        reading.changes()


_NUMBERS: Final = count(1)
_STEPS: Final = st.sampled_from(
    ["prepare", "prepare", "commit", "roll back", "rotate", "insert", "read"]
)


@given(st.lists(st.tuples(_STEPS, st.integers(0, 9)), min_size=4, max_size=12), st.integers(0, 4))
@settings(
    deadline=None,
    max_examples=drawn(8),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_rows_of_all_transactions_that_are_committed_later_are_read(
    tables: Database, steps: list[tuple[str, int]], begin: int
) -> None:
    """Transactions are prepared, ended and read in any order, with numbers that are used again."""
    # What another example has left prepared must not matter.
    number_of = next(_NUMBERS)
    table = f"t{number_of}"
    tables.run(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    xids = [f"'{number_of}'", f"'{number_of}','b'", f"'{number_of}','c',2"]
    prepared: dict[str, int] = {}
    expected: list[int] = []
    found: list[int] = []
    reading: Reading | None = None
    for row, (step, number) in enumerate([*steps, ("commit", 0), ("commit", 0), ("commit", 0)]):
        if row >= begin and reading is None:
            reading = Reading(tables, tables=Tables(include=[f"{tables.name}.{table}"]))
            expected.clear()
        if step == "prepare":
            unused = [xid for xid in xids if xid not in prepared]
            if unused:
                xid = unused[number % len(unused)]
                detach(tables, xid, f"INSERT INTO {table} VALUES ({row})")
                prepared[xid] = row
        elif step in ("commit", "roll back") and prepared:
            xid = sorted(prepared)[number % len(prepared)]
            held = prepared.pop(xid)
            end(tables, f"XA {step.replace(' ', '').upper()} {xid}")
            expected += [held] if step == "commit" else []
        elif step == "rotate":
            tables.run("FLUSH BINARY LOGS")
        elif step == "insert":
            tables.run(f"INSERT INTO {table} VALUES ({row})")
            expected.append(row)
        elif step == "read" and reading is not None:
            found += [number for _, number in keys(reading)]
    if reading is not None:
        found += [number for _, number in keys(reading)]
        assert found == expected


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
