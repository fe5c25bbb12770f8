"""The existing rows are published first, and then the changes, without a gap."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.mysql import MysqlPublisher
from stompkit.replication.sources.offsets import FileOffsets
from stompkit.replication.sources.publication import Publication
from stompkit.testing.launching.polling import wait_until
from tests.replication.sources.mysql.reading import DEADLINE_S, Database, Reading, numbers, received


class Copy:
    """Tables of a consumer that applies the changes."""

    def __init__(self) -> None:
        """Start empty."""
        self.rows: dict[tuple[str, tuple[Any, ...]], dict[str, Any]] = {}

    def apply(self, changes: list[RowChange]) -> None:
        """Apply changes as a sink does: a repeated write overwrites."""
        for change in changes:
            if change.action in ("schema", "truncate"):
                continue
            place = (change.table, tuple(change.key.values()))
            if change.old_key is not None:
                self.rows.pop((change.table, tuple(change.old_key.values())), None)
            if change.after is None:
                self.rows.pop(place, None)
            else:
                self.rows[place] = change.after

    def table(self, name: str) -> list[tuple[Any, ...]]:
        """Return the rows of a table, in the order of their keys."""
        found = sorted((key, row) for (table, key), row in self.rows.items() if table == name)
        return [tuple(row.values()) for _, row in found]


def test_rows_that_are_there_come_first_and_then_what_changes(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)")
    reading = Reading(database, start="now")
    with reading.running(snapshot="initial", chunk_rows=2) as running:
        running.wait_for_changes(3)
        database.run("INSERT INTO t VALUES (4)")
        running.wait_for_changes(4)
    found = [(change.action, change.key["id"]) for change in running.changes]
    assert found == [("read", 1), ("read", 2), ("read", 3), ("write", 4)]
    # An empty changeset ends the snapshot.
    assert [each.source.is_snapshot for each in running.found] == [True, True, False, False]
    assert [len(each.changes) for each in running.found] == [2, 1, 0, 1]
    database.run("INSERT INTO t VALUES (5)")
    assert [change.key["id"] for change in reading.changes(snapshot="initial")] == [5]


def test_only_the_snapshot_is_taken_if_that_is_asked_for(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    reading = Reading(database)
    assert [change.action for change in reading.changes(snapshot="only", blocking=True)] == ["read"]
    database.run("INSERT INTO t VALUES (2)")
    assert reading.changes(snapshot="only") == []
    assert [change.action for change in reading.changes()] == ["write"]


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("a INT UNSIGNED, PRIMARY KEY (a)", [f"({n * 97})" for n in range(25)]),
        ("a BIGINT UNSIGNED PRIMARY KEY", [f"({2**64 - 1 - n})" for n in range(25)]),
        ("a INT, b INT, PRIMARY KEY (b, a)", [f"({n % 5}, {n // 5})" for n in range(25)]),
        (
            "a INT, b VARCHAR(9), c DATE, PRIMARY KEY (c, b, a)",
            [f"({n}, '{n % 3}', '2026-01-{n % 2 + 1:02}')" for n in range(25)],
        ),
        ("a VARCHAR(9) PRIMARY KEY", [f"('{chr(97 + n)}%\\'')" for n in range(25)]),
        ("a VARCHAR(9) CHARACTER SET latin1 PRIMARY KEY", [f"('é{n}')" for n in range(25)]),
        ("a DECIMAL(30,5) PRIMARY KEY", [f"({n}.00001)" for n in range(-12, 13)]),
        # More digits than a DOUBLE has.
        ("a DECIMAL(30) PRIMARY KEY", [f"({2**53 + n})" for n in range(25)]),
        ("a DECIMAL(65,30) PRIMARY KEY", [f"(-123456789012.{n:030})" for n in range(25)]),
        # More digits than are displayed.
        ("a FLOAT PRIMARY KEY", [f"({n}.1)" for n in range(25)]),
        ("a FLOAT PRIMARY KEY", [f"({n - 2**24})" for n in range(25)]),
        ("a BINARY(3) PRIMARY KEY", [f"(0x{n:02x}00ff)" for n in range(25)]),
        ("a VARBINARY(9) PRIMARY KEY", [f"(REPEAT(0xff, {n % 9}))" for n in range(9)]),
        pytest.param(
            "a UUID PRIMARY KEY",
            [f"('{n:08x}-0000-4000-8000-000000000000')" for n in range(25)],
            marks=pytest.mark.mariadb_only,
        ),
        pytest.param(
            "a INET6 PRIMARY KEY",
            [f"('2001:db8::{n}')" for n in range(25)],
            marks=pytest.mark.mariadb_only,
        ),
        ("a TIMESTAMP(6) PRIMARY KEY", [f"('2026-01-01 00:00:00.{n:06}')" for n in range(25)]),
        ("a DATETIME PRIMARY KEY", [f"('2026-01-01 00:00:{n:02}')" for n in range(25)]),
        ("a TIME(2) PRIMARY KEY", [f"('-01:00:{n:02}.5')" for n in range(25)]),
        ("a YEAR PRIMARY KEY", [f"({n})" for n in range(2000, 2025)]),
        pytest.param(
            "a YEAR(2) PRIMARY KEY",
            [f"({n})" for n in range(1990, 2015)],
            marks=pytest.mark.mariadb_only,
        ),
        (
            "a ENUM('z','y','x','10','9') PRIMARY KEY",
            ["('z')", "('y')", "('x')", "('10')", "('9')"],
        ),
        ("a SET('z','y','x') PRIMARY KEY", ["('')", "('z')", "('y')", "('y,x')", "('z,y,x')"]),
        ("a BIT(20) PRIMARY KEY", [f"({n * 4000})" for n in range(25)]),
        ("a BIT(1) PRIMARY KEY", ["(0)", "(1)"]),
        ("a DOUBLE PRIMARY KEY", [f"({n}.1e-7)" for n in range(25)]),
        ("`% a``b` INT PRIMARY KEY", [f"({n})" for n in range(25)]),
        ("a INT, b INT NOT NULL UNIQUE", [f"(1, {n})" for n in range(25)]),
        ("a INT", [f"({n})" for n in range(25)]),
    ],
)
def test_chunks_have_every_row_once(database: Database, key: str, values: list[str]) -> None:
    database.run(f"CREATE TABLE `t%s` ({key})", f"INSERT INTO `t%s` VALUES {','.join(values)}")
    changes = Reading(database).changes(snapshot="only", chunk_rows=3)
    rows = [tuple((change.after or {}).values()) for change in changes]
    assert len(rows) == len(set(rows)) == len(values)


def test_rows_are_of_one_moment_and_the_stream_begins_there(database: Database) -> None:
    """While the first chunk is published, rows of all kinds change everywhere."""
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO t SELECT seq, 0 FROM {numbers(100)}",
    )
    reading = Reading(database)
    first = Event()

    def receive(changeset: Changeset) -> None:
        if not first.is_set():
            first.set()
            database.run(
                "UPDATE t SET v = 1 WHERE id IN (1, 50, 100)",
                "DELETE FROM t WHERE id IN (2, 51)",
                "UPDATE t SET id = 200 WHERE id = 3",
                "INSERT INTO t VALUES (0, 7), (150, 7)",
            )

    with CHANGESET.connected_to(receive):
        changes = reading.changes(snapshot="initial", chunk_rows=10)
    reads = [change.after for change in changes if change.action == "read"]
    assert reads == [{"id": number, "v": 0} for number in range(1, 101)]
    assert len(changes) == 100 + 3 + 2 + 1 + 2
    copy = Copy()
    copy.apply(changes)
    assert copy.table("t") == list(database.ask("SELECT * FROM t ORDER BY id"))


def test_a_snapshot_under_writes_ends_with_an_equal_copy(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE u (a INT, b INT, PRIMARY KEY (b, a))",
        f"INSERT INTO t SELECT seq, 0 FROM {numbers(2000)}",
        f"INSERT INTO u SELECT seq, seq MOD 7 FROM {numbers(500)}",
    )
    started, end = Event(), Event()
    writer = Thread(target=_write_until, args=(database, started, end))
    writer.start()
    try:
        reading = Reading(database, start="now")
        with reading.running(snapshot="initial", chunk_rows=100) as running:
            started.set()
            running.wait_for_changes(3000)
            end.set()
            writer.join()
            database.run("INSERT INTO t VALUES (-1, -1)")
            assert wait_until(
                lambda: any(change.key == {"id": -1} for change in running.changes), DEADLINE_S
            )
    finally:
        end.set()
        started.set()
        writer.join()
    copy = Copy()
    copy.apply(running.changes)
    assert copy.table("t") == list(database.ask("SELECT * FROM t ORDER BY id"))
    assert copy.table("u") == list(database.ask("SELECT * FROM u ORDER BY b, a"))


def _write_until(database: Database, started: Event, end: Event) -> None:
    # A writer without an end can be faster than its reader, which then never catches up.
    with database.connect() as connection, connection.cursor() as cursor:
        for number in range(1, 601):
            if number == 100:
                started.wait()
            if end.is_set():
                break
            place = number * 37 % 2000 + 1
            cursor.execute("BEGIN")
            cursor.execute(f"UPDATE t SET v = {number} WHERE id = {place}")
            cursor.execute(f"DELETE FROM t WHERE id = {(place + 3) % 2000 + 1}")
            cursor.execute(f"INSERT INTO t VALUES ({3000 + number}, {number})")
            cursor.execute(f"UPDATE u SET b = {number % 11} WHERE a = {number % 500 + 1}")
            cursor.execute("COMMIT" if number % 5 else "ROLLBACK")


READER = """
import sys
from stompkit.replication.sources.offsets import FileOffsets
from stompkit.replication.sources.publication import Publication
from stompkit.replication.sources.mysql import mysql_pub
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.model.tables import Tables

url, path, tables = sys.argv[1:]

def receive(changeset):
    for change in changeset.changes:
        print(changeset.sequence, change.action, change.key.get("id", 0), change.after["v"])
    sys.stdout.flush()

CHANGESET.connect(receive)
publication = Publication(
    FileOffsets(path), kind="mysql", tables=Tables(include=[tables]), checkpoint_s=0.0
)
mysql_pub(url, publication=publication, snapshot="initial", chunk_rows=10)
"""


def test_a_snapshot_that_is_killed_goes_on_where_it_was(database: Database, tmp_path: Path) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO t SELECT seq, 0 FROM {numbers(300)}",
    )
    command = [sys.executable, "-c", READER, database.url, str(tmp_path / "offsets")]
    command.append(f"{database.name}.*")
    copy: dict[int, int] = {}
    reads = 0
    for round_, enough in enumerate((50, 120, 1_000_000), 1):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            # What it has printed when it is killed is read, too: it need not come again.
            for line in process.stdout:
                _, action, key, value = line.split()
                reads += action == "read"
                copy[int(key)] = int(value)
                if reads >= enough:
                    process.kill()
        # Change both rows that have been read and rows that have not.
        if enough < 1000:
            database.run(f"UPDATE t SET v = {round_} WHERE id IN (1, {round_ + 10}, 299)")
    # A chunk may be published again, but not all of them.
    assert 300 <= reads < 300 + 2 * 40
    assert sorted(copy.items()) == list(database.ask("SELECT * FROM t ORDER BY id"))
    checkpoint = FileOffsets(tmp_path / "offsets").load()
    assert checkpoint is not None
    assert checkpoint.state == {}


def test_a_table_that_is_gone_meanwhile_is_left_out(database: Database) -> None:
    database.run(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "CREATE TABLE b (id INT PRIMARY KEY)",
        "INSERT INTO a VALUES (1)",
    )
    reading = Reading(database)

    def receive(changeset: Changeset) -> None:
        if changeset.source.is_snapshot:
            database.run("DROP TABLE b")

    with CHANGESET.connected_to(receive):
        changes = reading.changes(snapshot="initial")
    assert [(change.table, change.action) for change in changes] == [("a", "read"), ("b", "schema")]


def test_a_snapshot_stops_between_chunks(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        f"INSERT INTO t SELECT seq FROM {numbers(100)}",
        "ANALYZE TABLE t",
    )
    reading = Reading(database)
    publisher = reading.publisher(snapshot="initial", chunk_rows=10)

    def receive(changeset: Changeset) -> None:
        if changeset.sequence == 3:
            publisher.stop()

    with received() as found, CHANGESET.connected_to(receive):
        publisher.run()
    assert len(found) == 3
    assert publisher.progress == (30, 100)
    rest = reading.changes(snapshot="initial", chunk_rows=50)
    assert [change.key["id"] for change in rest] == list(range(31, 101))


def test_without_a_table_the_snapshot_is_empty_and_the_stream_begins(database: Database) -> None:
    tables = Tables(include=[f"{database.name}.*"])
    publication = Publication(kind="mysql", tables=tables)
    MysqlPublisher(database.url, publication=publication, snapshot="only").run()
    assert publication.position
    database.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with received() as found:
        MysqlPublisher(database.url, publication=publication, snapshot="initial").run()
    assert [change.action for each in found for change in each.changes] == ["schema", "write"]


def test_what_a_receiver_raises_ends_a_snapshot(database: Database) -> None:
    """The error may look like a lost connection to the server."""
    database.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    reading = Reading(database)

    def receive(changeset: Changeset) -> None:
        raise ConnectionError("full")

    with CHANGESET.connected_to(receive), pytest.raises(ConnectionError, match="full"):
        reading.publisher(snapshot="initial").run()
    assert [change.key for change in reading.changes(snapshot="initial")] == [{"id": 1}]


def test_columns_are_told_ahead_of_the_rows_where_that_is_asked_for(database: Database) -> None:
    database.run(
        "CREATE TABLE nothing (id INT PRIMARY KEY)",
        "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    reading = Reading(database, start="now")
    changes = reading.changes(snapshot="initial", chunk_rows=2, announce=True)
    told = [(change.table, change.action) for change in changes]
    assert told == [("nothing", "schema"), ("t", "schema"), *[("t", "read")] * 3]
    columns = (changes[1].after or {})["columns"]
    assert [(column["name"], column["key"]) for column in columns] == [("id", True), ("v", False)]


def test_columns_are_told_when_a_table_is_seen_first_where_that_is_asked_for(
    database: Database,
) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    reading = Reading(database)
    database.run("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
    actions = [change.action for change in reading.changes(announce=True)]
    assert actions == ["schema", "write", "write"]
