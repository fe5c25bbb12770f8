"""Snapshots: the existing rows come first, then the changes, without a gap."""

from __future__ import annotations

import random
from collections.abc import Iterable
from concurrent.futures import Future
from threading import Event, Thread
from typing import Any

import pytest

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.postgres import OffsetLostError, postgres_pub
from stompkit.testing.launching.polling import wait_until
from tests.replication.sources.postgres.postgres_made import DEADLINE_S, Database, Running, Taken


class _Killed(Exception):
    """Simulates the end of a process."""


def _rows(changes: Iterable[RowChange]) -> list[dict[str, Any] | None]:
    return [change.after for change in changes]


def test_rows_come_in_chunks_in_the_order_of_the_key_and_then_the_stream(
    database: Database,
) -> None:
    database.execute(
        "CREATE TABLE t (b text, a int, v int, PRIMARY KEY (a, b))",
        "INSERT INTO t SELECT chr(97 + i % 3), i / 3, i FROM generate_series(0, 9) i",
    )
    changesets = database.read(snapshot="initial", chunk_rows=4)
    # An empty changeset ends the snapshot.
    assert [len(each.changes) for each in changesets] == [4, 4, 2, 0]
    assert [each.source.is_snapshot for each in changesets] == [True, True, True, False]
    assert all(each.source.position for each in changesets)
    rows = [change for each in changesets for change in each.changes]
    assert {change.action for change in rows} == {"read"}
    assert [list(change.key) for change in rows] == [["a", "b"]] * 10
    assert [change.after["v"] for change in rows if change.after] == list(range(10))
    database.execute("INSERT INTO t VALUES ('x', 0, 0)")
    (change,) = database.changes(snapshot="initial")
    assert change.action == "write"


#: Types of keys, and values in their order.
KEYS = {
    "int": ["-5", "0", "7"],
    "numeric": ["-1.5", "0.00", "NaN"],
    "float4": ["-0.1", "0.1", "Infinity"],
    "text": ["", "a", "a b"],
    "char(3)": ["a", "abc", "b"],
    "bit(3)": ["001", "011", "110"],
    "varbit": ["1", "10", "11"],
    "bytea": [r"\x", r"\x00ff", r"\xff"],
    "bool": ["f", "t"],
    "date": ["-infinity", "2026-01-01", "infinity"],
    "timestamptz": ["2026-01-01 00:00:00.000001Z", "2026-01-01 00:00:00.000002Z"],
    "interval": ["-1 day", "00:00:00.5", "1 mon"],
    "uuid": [f"{number}0000000-0000-4000-8000-000000000000" for number in range(3)],
    "inet": ["10.0.0.1", "10.0.0.2/8", "::1"],
    "int[]": ["{}", "{1,2}", "{1,NULL}"],
    "int4range": ["empty", "[1,5)", "[2,)"],
    'kinds."a mood"': ["sad", "ok", "it's {fine}"],
    'kinds."a {pair}"': ["(1,a)", "(1,b)", "(2,)"],
    'kinds."a {pair}"[]': ['{"(1,a)"}', '{"(1,a)","(2,b)"}'],
    "kinds.couple": ["(1,a)", "(2,b)"],
    "kinds.short": ["a", "ab"],
}


@pytest.mark.parametrize("other", ["int", 'kinds."a {pair}"', "kinds.short"])
def test_chunks_are_read_by_keys_of_any_type(database: Database, other: str) -> None:
    tables = {
        f"t{number}": [(values[0], second) for values in [KEYS[other]] for second in KEYS[kind]]
        for number, kind in enumerate(KEYS)
    }
    database.execute(
        "CREATE SCHEMA kinds",
        """CREATE TYPE kinds."a mood" AS ENUM ('sad', 'ok', 'it''s {fine}')""",
        'CREATE TYPE kinds."a {pair}" AS (a int, b text)',
        'CREATE DOMAIN kinds.couple AS kinds."a {pair}" CHECK ((VALUE).a > 0)',
        "CREATE DOMAIN kinds.short AS varchar(2)",
    )
    with database.connect() as connection:
        for (name, rows), kind in zip(tables.items(), KEYS, strict=True):
            columns = f"a {other}, b {kind}, PRIMARY KEY (a, b)"
            connection.execute(f"CREATE TABLE {name} ({columns})".encode())
            for first, second in rows:
                insert = f"INSERT INTO {name} VALUES (%s::text::{other}, %s::text::{kind})"
                connection.execute(insert.encode(), [first, second])
    changes = database.changes(snapshot="initial", chunk_rows=1)
    found = {name: sum(each.table == name for each in changes) for name in tables}
    assert found == {name: len(rows) for name, rows in tables.items()}


@pytest.mark.parametrize("size", [1, 3, 4, 5])
def test_chunks_end_anywhere(database: Database, size: int) -> None:
    database.execute(
        "CREATE TABLE a (id numeric PRIMARY KEY)",
        "CREATE TABLE b (id int PRIMARY KEY)",
        "CREATE TABLE c (v int)",
        "ALTER TABLE c REPLICA IDENTITY FULL",
        "INSERT INTO a VALUES (-1.5), (0), (2.25), ('NaN')",
        "INSERT INTO c VALUES (1), (1), (2), (3)",
    )
    changes = database.changes(snapshot="initial", chunk_rows=size)
    assert [str(change.key["id"]) for change in changes if change.table == "a"] == [
        "-1.5",
        "0",
        "2.25",
        "NaN",
    ]
    assert [change for change in changes if change.table == "c"] == [
        RowChange(schema="public", table="c", action="read", key={}, after={"v": number})
        for number in (1, 1, 2, 3)
    ]


def test_keys_of_text_are_no_sql(database: Database) -> None:
    database.execute("CREATE TABLE t (a text, b uuid, PRIMARY KEY (a, b))")
    names = ["", "%s", "' OR 1=1 --", "\\", "{}", "ä\n☃"]
    with database.connect() as connection:
        for name in names:
            connection.execute("INSERT INTO t VALUES (%s, gen_random_uuid())", [name])
    changes = database.changes(snapshot="initial", chunk_rows=1)
    assert [change.key["a"] for change in changes] == sorted(names)


def test_snapshot_under_writes_has_no_gap_and_no_double_effect(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "INSERT INTO t SELECT i, 0 FROM generate_series(1, 2000) i",
    )
    chance = random.Random(1)
    started, ended = Event(), Event()

    def write() -> None:
        # A writer without an end can be faster than its reader, which then never catches up.
        with database.connect() as connection:
            for fresh in range(10_001, 10_601):
                if fresh == 10_100:
                    started.wait()
                if ended.is_set():
                    break
                row = chance.randrange(2000)
                for statement in (
                    f"INSERT INTO t VALUES ({fresh}, 0)",
                    f"UPDATE t SET v = v + 1 WHERE id IN ({row}, {fresh - 5})",
                    f"UPDATE t SET id = -{fresh} WHERE id = {row + 1}",
                    f"DELETE FROM t WHERE id = {chance.randrange(2000)}",
                ):
                    connection.execute(statement.encode())

    writer = Thread(target=write)
    writer.start()
    try:
        with Running(database, snapshot="initial", chunk_rows=20) as running:
            started.set()
            running.until(
                lambda: (
                    any(not each.source.is_snapshot for each in list(running.taken))
                    and len(running.taken.changesets) > 300
                )
            )
            ended.set()
            writer.join()
            # A last row, since the position of a quiet server's log may be one that it never sends.
            database.execute("INSERT INTO t VALUES (100000, 0)")
            running.until(lambda: running.taken.changes[-1].key["id"] == 100_000)
    finally:
        ended.set()
        started.set()
        writer.join()
    rows: dict[int, int] = {}
    for change in running.taken.changes:
        key = change.key["id"]
        # Each effect occurs once, on the intended row.
        match change.action:
            case "read" | "write":
                assert key not in rows
            case "delete":
                del rows[key]
                continue
            case "update":
                before = rows.pop(change.old_key["id"] if change.old_key else key)
                assert change.after is not None
                assert change.after["v"] == before + (change.old_key is None)
        assert change.after is not None
        rows[key] = change.after["v"]
    assert rows == {row[0]: row[1] for row in database.execute("SELECT id, v FROM t")}


class _Replica:
    """A consumer that drops known numbers."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], int] = {}
        self.last = 0

    def apply(self, changeset: Changeset) -> None:
        if changeset.sequence <= self.last:
            return
        assert changeset.sequence == self.last + 1
        self.last = changeset.sequence
        for change in changeset.changes:
            if change.old_key is not None:
                self.rows.pop((change.table, change.old_key["id"]), None)
            row = (change.table, change.key["id"])
            if change.action == "delete":
                self.rows.pop(row, None)
            elif change.after is not None:
                self.rows[row] = change.after["v"]


@pytest.mark.parametrize("at", [1, 2, 9, 16, 17, 30])
def test_snapshot_that_was_killed_goes_on_although_the_rows_have_changed(
    database: Database, at: int
) -> None:
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, v int)",
        "CREATE TABLE b (id int PRIMARY KEY, v int)",
        "INSERT INTO a SELECT i, 0 FROM generate_series(1, 100) i",
        "INSERT INTO b SELECT i, 0 FROM generate_series(1, 100) i",
    )
    replica = _Replica()

    def confirm(changeset: Changeset) -> Future[None] | None:
        replica.apply(changeset)
        if changeset.sequence == at:
            raise _Killed
        # Applied, but confirmed late; the publisher waits for each sixteenth.
        return Future() if changeset.sequence > max(at - 5, (at - 1) // 16 * 16) else None

    publication = database.publication()
    with Taken(publication, confirm), pytest.raises(_Killed):
        database.publisher(publication, snapshot="initial", chunk_rows=5).run()
    for table in ("a", "b"):
        database.execute(
            f"DELETE FROM {table} WHERE id % 7 < 4",
            f"UPDATE {table} SET v = 1 WHERE id % 3 = 0",
            f"UPDATE {table} SET id = 1000 - id WHERE id % 5 = 0",
            f"INSERT INTO {table} VALUES (1, 2), (50, 2)",
        )
    rest = database.read(snapshot="initial", chunk_rows=5)
    assert any(each.source.is_snapshot for each in rest)
    for changeset in rest:
        replica.apply(changeset)
    assert replica.rows == {
        (table, row[0]): row[1]
        for table in ("a", "b")
        for row in database.execute(f"SELECT id, v FROM {table}")
    }


def test_a_snapshot_of_a_table_without_a_key_is_not_taken_up_again(database: Database) -> None:
    """Otherwise its rows, and later changes, would exist twice."""
    database.execute(
        "CREATE TABLE t (v int)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t SELECT generate_series(1, 50)",
    )

    def kill(changeset: Changeset) -> Future[None] | None:
        if changeset.sequence == 3:
            raise _Killed
        return None

    publication = database.publication()
    with Taken(publication, kill), pytest.raises(_Killed):
        database.publisher(publication, snapshot="initial", chunk_rows=10).run()
    with pytest.raises(OffsetLostError, match=r"public\.t cannot be taken up again"):
        database.read(snapshot="initial", chunk_rows=10)


def test_columns_are_told_ahead_of_the_rows_where_that_is_asked_for(database: Database) -> None:
    database.execute(
        "CREATE TABLE empty (id int PRIMARY KEY)",
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    changes = database.changes(snapshot="initial", chunk_rows=2, announce=True)
    told = [(change.table, change.action) for change in changes]
    assert told == [("empty", "schema"), ("t", "schema"), *[("t", "read")] * 3]
    columns = (changes[1].after or {})["columns"]
    assert [(column["name"], column["key"]) for column in columns] == [("id", True), ("v", False)]


def test_snapshot_goes_on_behind_what_was_confirmed(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 50)"
    )

    def stop_in_the_middle(table: str, done: int, rows: int) -> None:
        if done == 25:
            running.publisher.stop()

    running = Running(database, snapshot="initial", chunk_rows=5, on_progress=stop_in_the_middle)
    with running:
        running.join()
    assert [change.key["id"] for change in running.taken.changes] == list(range(1, 26))
    rest = database.changes(snapshot="initial", chunk_rows=5)
    assert [change.key["id"] for change in rest] == list(range(26, 51))


def test_snapshot_goes_on_when_the_connection_is_cut(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 50)"
    )

    def cut(table: str, done: int, rows: int) -> None:
        if done == 25:
            database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'stompkit' AND datname = current_database()"
            )

    with Running(database, snapshot="initial", chunk_rows=5, on_progress=cut) as running:
        running.until_changes(50)
        assert [change.key["id"] for change in running.taken.changes] == list(range(1, 51))
        assert running.taken.sequences[:10] == list(range(1, 11))


def test_progress_is_told(database: Database) -> None:
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE TABLE b (id int PRIMARY KEY)",
        "INSERT INTO a SELECT generate_series(1, 10)",
        "ANALYZE a",
    )
    told: list[tuple[str, int, int]] = []
    database.read(
        snapshot="initial", chunk_rows=4, on_progress=lambda *progress: told.append(progress)
    )
    assert told == [
        ("public.a", 4, 10),
        ("public.a", 8, 10),
        ("public.a", 10, 10),
        ("public.b", 0, 0),
    ]


def test_change_of_columns_behind_the_snapshot_is_told(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1)")
    assert [each.action for each in database.changes(snapshot="initial")] == ["read"]
    database.execute("INSERT INTO t VALUES (2)")
    assert [each.action for each in database.changes()] == ["write"]
    database.execute("ALTER TABLE t ADD w int", "INSERT INTO t VALUES (3)")
    assert [each.action for each in database.changes()] == ["schema", "write"]


def test_only_a_snapshot_needs_no_slot(database: Database) -> None:
    database.execute("CREATE TABLE t (v int)", "INSERT INTO t VALUES (1), (2)")
    assert _rows(database.changes(snapshot="only")) == [{"v": 1}, {"v": 2}]
    assert database.slot_lsn() is None
    assert database.execute("SELECT * FROM pg_publication") == []
    # It is taken whenever it is requested.
    assert len(database.changes(snapshot="only")) == 2


def test_only_wanted_tables_are_read(database: Database) -> None:
    database.execute(
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.t (id int PRIMARY KEY)",
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO shop.t VALUES (1)",
        "INSERT INTO t VALUES (2)",
    )
    changes = database.changes(Tables(include=["shop.*"]), snapshot="initial")
    assert [change.name for change in changes] == ["shop.t"]


def test_slot_that_is_there_is_used_with_a_snapshot_of_now(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        f"CREATE PUBLICATION {database.slot} FOR ALL TABLES",
        f"SELECT pg_create_logical_replication_slot('{database.slot}', 'pgoutput')",
        "INSERT INTO t VALUES (1, 1)",
        "UPDATE t SET v = 2",
    )
    changes = database.changes(snapshot="initial")
    assert [(each.action, each.after) for each in changes] == [
        ("read", {"id": 1, "v": 2}),
        ("write", {"id": 1, "v": 1}),
        ("update", {"id": 1, "v": 2}),
    ]


def test_stop_ends_the_wait_for_transactions_of_others(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with database.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t VALUES (1)")
        stop = Event()
        thread = Thread(
            target=postgres_pub,
            args=[database.url, database.publication()],
            kwargs={"slot": database.slot, "publication_name": database.slot, "stop": stop},
        )
        thread.start()
        waits = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND datname = current_database() AND application_name = 'stompkit'"
        )
        assert wait_until(lambda: database.execute(waits) == [(1,)], DEADLINE_S)
        stop.set()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    assert database.slot_lsn() is None
