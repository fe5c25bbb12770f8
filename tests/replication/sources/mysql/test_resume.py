"""Resuming after an end, a crash or a lost connection; and the cases where that is impossible."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from stompkit.replication.model.events import Changeset
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.mysql import MysqlPublisher, OffsetLostError, StreamError
from stompkit.replication.sources.offsets import Checkpoint, FileOffsets, MemoryOffsets
from stompkit.replication.sources.publication import Publication
from stompkit.testing.launching.polling import wait_until
from tests.replication.sources.mysql.reading import DEADLINE_S, Database, Reading, numbers, received
from tests.servers import MariaDb

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, v INT)"


@pytest.fixture(scope="module")
def own_server(mariadb: MariaDb) -> Iterator[MariaDb]:
    """A separate server, which can be killed and reset."""
    with type(mariadb)() as server:
        yield server


@pytest.fixture
def own(own_server: MariaDb) -> Iterator[Database]:
    """A database of that server, with a new log."""
    database = Database(own_server)
    database.run("SET GLOBAL server_id = 1")
    database.reset()
    yield database
    database.close()


def ids(changesets: list[Changeset]) -> list[int]:
    return [change.key["id"] for each in changesets for change in each.changes]


# Positions for resuming.


class _Kept(MemoryOffsets):
    """Records every checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Checkpoint] = []

    def store(self, checkpoint: Checkpoint) -> None:
        super().store(checkpoint)
        self.all.append(checkpoint)


def test_reading_goes_on_at_every_commit(database: Database) -> None:
    """From every checkpoint on, the rest is published with the same numbers and ids."""
    database.run(TABLE, "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM")
    offsets = _Kept()
    reading = Reading(database, offsets=offsets)
    database.run(
        # Large enough for several events.
        f"INSERT INTO t SELECT seq, 0 FROM {numbers(2000)}",
        "BEGIN",
        "UPDATE t SET v = 1 WHERE id < 500",
        "SAVEPOINT a",
        "DELETE FROM t WHERE id > 1000",
        "COMMIT",
        "INSERT INTO m VALUES (1), (2)",
        "ALTER TABLE t ADD COLUMN w INT",
        "FLUSH BINARY LOGS",
        "CREATE TABLE s SELECT id FROM t WHERE id < 10",
        "UPDATE t SET w = 1 WHERE id < 5",
        "TRUNCATE TABLE m",
        "DROP TABLE s",
        "INSERT INTO t VALUES (5000, 1, 1)",
    )
    everything = reading.changesets()
    assert len(everything) == 9
    published = [each for each in offsets.all if each.sequence]
    assert {each.sequence for each in published} == set(range(1, 10))
    for checkpoint in published:
        again = Reading(database)
        again.offsets.store(checkpoint)
        assert again.changesets() == everything[checkpoint.sequence :]


def test_a_checkpoint_is_never_inside_a_transaction(database: Database) -> None:
    """Without its table maps the rest of a statement would be lost silently."""
    database.run(TABLE)
    offsets = _Kept()
    reading = Reading(database, offsets=offsets)
    begin = database.end()[1]
    database.run(f"INSERT INTO t SELECT seq, 0 FROM {numbers(5000)}")
    (changeset,) = reading.changesets()
    events = database.ask(f"SHOW BINLOG EVENTS IN '{database.end()[0]}' FROM {begin}")
    assert len([each for each in events if each[2].startswith("Write_rows")]) > 5
    ends = {json.loads(each.position)["pos"] for each in offsets.all}
    assert ends <= {begin, database.end()[1]}
    assert len(changeset.changes) == 5000


def test_the_log_is_read_from_where_it_is_asked_for(own: Database) -> None:
    own.run(
        TABLE, "INSERT INTO t VALUES (1, 1)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (2, 2)"
    )
    place = own.end()
    own.run("INSERT INTO t VALUES (3, 3)")

    def found(start: object) -> list[int]:
        changes = Reading(own, start=start).changes()
        return [change.key["id"] for change in changes if change.action == "write"]

    assert found("oldest") == [1, 2, 3]
    assert found("file") == [2, 3]
    assert found(place) == [3]
    assert found("now") == []


def test_a_position_without_gtid_is_resumed_by_file_and_position(database: Database) -> None:
    database.run(TABLE)
    reading = Reading(database)
    database.run("INSERT INTO t VALUES (1, 1)")
    assert ids(reading.changesets()) == [1]
    checkpoint = reading.offsets.load()
    assert checkpoint is not None
    position = json.loads(checkpoint.position)
    # MySQL always resumes by GTID.
    assert bool(position.pop("gtid", "")) != database.is_mysql
    position["pos"] = database.end()[1]
    database.run("INSERT INTO t VALUES (2, 2)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (3, 3)")
    reading.offsets.store(
        Checkpoint(origin=checkpoint.origin, sequence=1, position=json.dumps(position))
    )
    assert ids(reading.changesets()) == [2, 3]


def test_files_of_the_log_that_end_are_followed(database: Database) -> None:
    database.run(TABLE)
    reading = Reading(database)
    with reading.running() as running:
        for number in range(1, 6):
            database.run("FLUSH BINARY LOGS", f"INSERT INTO t VALUES ({number}, 0)")
        running.wait_for_changes(5)
    assert ids(running.found) == [1, 2, 3, 4, 5]
    assert reading.changes() == []


# Lost connections.


def test_a_lost_connection_is_made_again_without_a_gap_or_a_repeat(database: Database) -> None:
    database.run(TABLE)
    reading = Reading(database)
    with reading.running() as running:
        for number in range(1, 6):
            database.run(f"INSERT INTO t VALUES ({number}, 0)")
            running.wait_for_changes(number)
            dumps = database.ask(
                "SELECT ID FROM INFORMATION_SCHEMA.PROCESSLIST WHERE COMMAND = 'Binlog Dump'"
            )
            database.run(*(f"KILL {thread}" for (thread,) in dumps))
        database.run("INSERT INTO t VALUES (6, 0)")
        running.wait_for_changes(6)
    assert ids(running.found) == [1, 2, 3, 4, 5, 6]
    assert [each.sequence for each in running.found] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_server_that_comes_back_is_read_on(own: Database, end: str) -> None:
    own.run(TABLE, "INSERT INTO t VALUES (1, 0)")
    reading = Reading(own, start="oldest")
    with reading.running() as running:
        running.wait_for_changes(2)
        if end == "kill":
            kill(own)
        own.server.stop()
        own.server.start()
        with own.connect() as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (2, 0)")
        running.wait_for_changes(3)
    assert [change.action for change in running.changes] == ["schema", "write", "write"]


def kill(database: Database) -> None:
    """Kill the server with ``kill -9``."""
    (pid,) = database.ask("SELECT @@pid_file")[0]
    number = int(Path(pid).read_text())
    subprocess.run(["kill", "-9", str(number)], check=True)
    assert wait_until(lambda: not Path(f"/proc/{number}").exists(), DEADLINE_S)


def test_numbers_of_tables_from_before_a_crash_do_not_mix_tables_up(own: Database) -> None:
    """A killed server does not log that, and numbers tables from the beginning."""
    own.run("CREATE TABLE a (x INT PRIMARY KEY, y VARCHAR(10))", "CREATE TABLE b (n BIGINT)")
    own.run("INSERT INTO a VALUES (1, 'one')", "INSERT INTO b VALUES (77)")
    for number, tables in enumerate(("ba", "ab"), 2):
        kill(own)
        own.server.stop()
        own.server.start()
        with own.connect() as connection, connection.cursor() as cursor:
            for table in tables:
                value = f"({number})" if table == "b" else f"({number}, 'more')"
                cursor.execute(f"INSERT INTO {table} VALUES {value}")
    changes = Reading(own, start="oldest").changes()
    found = [(change.table, tuple((change.after or {}).values())) for change in changes[2:]]
    assert found == [
        ("a", (1, "one")),
        ("b", (77,)),
        ("b", (2,)),
        ("a", (2, "more")),
        ("a", (3, "more")),
        ("b", (3,)),
    ]


# Cases where resuming is impossible.


def test_a_log_that_was_reset_is_not_taken_for_the_same(own: Database) -> None:
    """File, position and GTID are the same as before."""
    history = [
        "DROP TABLE IF EXISTS t",
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO t VALUES (2)",
    ]
    own.reset()
    own.run(*history)
    reading = Reading(own, start="oldest")
    keys = [change.key for change in reading.changes() if change.action == "write"]
    assert keys == [{"id": 1}, {"id": 2}]
    place = own.end()
    # The time in the log is in seconds.
    second = own.ask("SELECT UNIX_TIMESTAMP()")
    assert wait_until(lambda: own.ask("SELECT UNIX_TIMESTAMP()") != second, DEADLINE_S)
    own.reset()
    own.run(*history, "INSERT INTO t VALUES (3)")
    assert own.end()[0] == place[0]
    with pytest.raises(OffsetLostError, match="reset"):
        reading.changes()


@pytest.mark.parametrize("more", [0, 1, 20])
def test_a_log_that_was_reset_is_lost(own: Database, more: int) -> None:
    own.run(TABLE)
    reading = Reading(own, start="oldest")
    own.run("INSERT INTO t VALUES (1, 1)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (2, 2)")
    assert len(reading.changes()) == 3
    own.reset()
    own.run(*(f"REPLACE INTO t VALUES (3, {each})" for each in range(more)))
    with pytest.raises(OffsetLostError, match="snapshot"):
        reading.changes()


@pytest.mark.parametrize("by", ["gtid", "file"])
def test_files_that_were_purged_are_lost(own: Database, by: str) -> None:
    own.run(TABLE)
    reading = Reading(own, start="oldest")
    assert len(reading.changes()) == 1
    if by == "file":
        checkpoint = reading.offsets.load()
        assert checkpoint is not None
        position = json.loads(checkpoint.position)
        position.pop("gtid", None)
        reading.offsets.store(
            Checkpoint(origin=checkpoint.origin, sequence=1, position=json.dumps(position))
        )
    own.run("INSERT INTO t VALUES (1, 1)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (2, 2)")
    own.purge()
    with pytest.raises(OffsetLostError, match="snapshot"):
        reading.changes()


def test_files_that_were_purged_do_not_matter_if_all_of_them_was_told(own: Database) -> None:
    own.run(TABLE)
    reading = Reading(own, start="oldest")
    assert len(reading.changes()) == 1
    own.run("FLUSH BINARY LOGS", "INSERT INTO t VALUES (1, 1)")
    own.purge()
    assert [change.key for change in reading.changes()] == [{"id": 1}]


def test_a_log_that_was_reset_since_a_snapshot_is_lost(own: Database) -> None:
    own.run(TABLE, *(f"REPLACE INTO t VALUES (3, {each})" for each in range(5)))
    reading = Reading(own)
    assert len(reading.changes(snapshot="only")) == 1
    own.reset()
    own.run(*(f"REPLACE INTO t VALUES (3, {each})" for each in range(20)))
    with pytest.raises(OffsetLostError, match="snapshot"):
        reading.changes()


@pytest.mark.parametrize("begin", ["now", "snapshot"])
def test_a_log_that_was_reset_before_anything_was_read_is_lost(own: Database, begin: str) -> None:
    """File, position and GTID are the same as before the first commit was read."""
    history = ["DROP TABLE IF EXISTS t", "CREATE TABLE t (id INT PRIMARY KEY)"]
    own.run(*history)
    reading = Reading(own, start="now")
    reading.changes(snapshot="only" if begin == "snapshot" else "never")
    second = own.ask("SELECT UNIX_TIMESTAMP()")
    assert wait_until(lambda: own.ask("SELECT UNIX_TIMESTAMP()") != second, DEADLINE_S)
    own.reset()
    own.run(*history, "INSERT INTO t VALUES (1)")
    with pytest.raises(OffsetLostError, match="reset"):
        reading.changes()


def test_a_position_of_another_server_is_lost(database: Database, own: Database) -> None:
    own.run("SET GLOBAL server_id = 2")
    for each in (database, own):
        each.run(TABLE, "INSERT INTO t VALUES (1, 1)")
    reading = Reading(own, start="oldest")
    reading.changes()
    reading.url = database.url
    with pytest.raises(OffsetLostError, match="connect to the former"):
        reading.changesets()


@pytest.mark.mariadb_only
def test_reading_goes_on_at_another_server_of_a_replication_if_that_is_asked_for(
    own: Database,
) -> None:
    own.run(TABLE)
    reading = Reading(own, start="oldest")
    reading.changes()
    own.run("SET GLOBAL server_id = 2", "INSERT INTO t VALUES (1, 1)")
    with pytest.raises(OffsetLostError):
        reading.changes()
    assert [change.key for change in reading.changes(same_server=False)] == [{"id": 1}]


@pytest.mark.parametrize("position", ["nonsense", '{"lsn": 1}'])
def test_a_position_of_something_else_is_refused(database: Database, position: str) -> None:
    reading = Reading(database)
    reading.offsets.store(Checkpoint(origin="o", sequence=1, position=position))
    with pytest.raises(OffsetLostError, match="offsets"):
        reading.changes()


# Ends of a publisher.


def test_stop_is_prompt_and_nothing_is_lost(database: Database) -> None:
    database.run(TABLE)
    reading = Reading(database)
    with reading.running() as running:
        database.run("INSERT INTO t VALUES (1, 1)")
        running.wait_for_changes(1)
        running.publisher.stop()
        assert running.wait_for_end() is None
    database.run("INSERT INTO t VALUES (2, 2)")
    assert ids(reading.changesets()) == [2]


def test_a_publisher_that_was_stopped_before_it_runs_reads_nothing(database: Database) -> None:
    database.run(TABLE)
    reading = Reading(database)
    database.run("INSERT INTO t VALUES (1, 1)")
    publisher = reading.publisher(blocking=True)
    publisher.stop()
    publisher.run()
    assert ids(reading.changesets()) == [1]


@pytest.mark.parametrize("error", [RuntimeError, ConnectionError, pymysql.OperationalError])
def test_what_a_receiver_of_changesets_raises_ends_reading_in_front_of_it(
    database: Database, error: type[Exception]
) -> None:
    """The error may look like a lost connection to the server."""
    database.run(TABLE)
    reading = Reading(database)
    database.run(*(f"INSERT INTO t VALUES ({number}, 0)" for number in (1, 2, 3)))

    def receive(changeset: Changeset) -> None:
        if changeset.changes[0].key == {"id": 2}:
            raise error("full")

    with CHANGESET.connected_to(receive):
        for mode in ("never", "initial"):
            with pytest.raises(error, match="full"):
                reading.publisher(snapshot=mode).run()
    assert ids(reading.changesets()) == [2, 3]


READER = """
import sys
from stompkit.replication.sources.offsets import FileOffsets
from stompkit.replication.sources.publication import Publication
from stompkit.replication.sources.mysql import mysql_pub
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.model.tables import Tables

url, path, table, file, pos = sys.argv[1:]

def receive(changeset):
    for change in changeset.changes:
        print(changeset.sequence, change.key["id"], flush=True)

CHANGESET.connect(receive)
publication = Publication(
    FileOffsets(path), kind="mysql", tables=Tables(include=[table]), checkpoint_s=0.0
)
mysql_pub(url, None, True, publication=publication, start=(file, int(pos)), heartbeat_s=0.2)
"""


def test_a_reader_that_is_killed_goes_on_and_numbers_are_the_same(
    database: Database, tmp_path: Path
) -> None:
    database.run(TABLE)
    file, pos = database.end()
    database.run(*(f"INSERT INTO t VALUES ({number}, 0)" for number in range(1, 61)))
    command = [sys.executable, "-c", READER, database.url, str(tmp_path / "offsets")]
    command += [f"{database.name}.t", file, str(pos)]
    seen: dict[int, int] = {}
    for enough in (10, 25, 45, 60):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            # What it has printed when it is killed is read, too: it does not come again.
            for line in process.stdout:
                sequence, number = map(int, line.split())
                assert seen.setdefault(sequence, number) == number
                if len(seen) >= enough:
                    process.kill()
    assert seen == {number: number for number in range(1, 61)}
    checkpoint = FileOffsets(tmp_path / "offsets").load()
    assert checkpoint is not None
    publication = Publication(
        FileOffsets(tmp_path / "offsets"),
        kind="mysql",
        tables=Tables(include=[f"{database.name}.t"]),
    )
    with received() as found:
        MysqlPublisher(database.url, publication=publication).run()
    assert checkpoint.sequence + len(found) == 60


def test_behind_an_event_that_is_larger_than_a_packet_reading_goes_on(own: Database) -> None:
    """The server then cannot tell which transactions precede the checkpoint."""
    own.run("CREATE TABLE t (id INT PRIMARY KEY, a LONGTEXT)")
    reading = Reading(own)
    own.run("INSERT INTO t VALUES (1, REPEAT('x', 2000000))", "INSERT INTO t VALUES (2, '')")
    assert len(reading.changes()) == 2
    ((usual,),) = own.ask("SELECT @@GLOBAL.max_allowed_packet")
    own.run("SET GLOBAL max_allowed_packet = 1048576")
    try:
        if not own.is_mysql:
            file, pos = own.end()
            # MariaDB 11.8 can.
            ((told,),) = own.ask(f"SELECT BINLOG_GTID_POS('{file}', {pos})")
            assert told in (None, "0-1-3")
        own.run("INSERT INTO t VALUES (3, '')")
        assert [change.key for change in reading.changes()] == [{"id": 3}]
        # A file that was reset is nevertheless a different one.
        second = own.ask("SELECT UNIX_TIMESTAMP()")
        assert wait_until(lambda: own.ask("SELECT UNIX_TIMESTAMP()") != second, DEADLINE_S)
        own.reset()
        own.run("SET GLOBAL max_allowed_packet = 16777216")
        own.run("INSERT INTO t VALUES (4, REPEAT('x', 3000000))")
        own.run("SET GLOBAL max_allowed_packet = 1048576")
        with pytest.raises(OffsetLostError, match="reset"):
            reading.changes()
    finally:
        own.run(f"SET GLOBAL max_allowed_packet = {usual}")


def test_statements_about_tables_of_others_end_nothing(own: Database) -> None:
    """Tools that compare replicas log their statements in that form."""
    own.run("CREATE TABLE t (id INT PRIMARY KEY)")
    reading = Reading(own)
    other = f"{own.name}_other"
    own.run(
        f"CREATE DATABASE {other}",
        f"CREATE TABLE {other}.checksums (id INT PRIMARY KEY, v INT)",
        "SET SESSION binlog_format = 'STATEMENT'",
        f"REPLACE INTO {other}.checksums VALUES (1, 2)",
        f"UPDATE {other}.checksums SET v = 3",
        f"DELETE FROM {other}.checksums WHERE id = 1",
        "SET SESSION binlog_format = 'ROW'",
        "INSERT INTO t VALUES (1)",
    )
    assert [change.key for change in reading.changes()] == [{"id": 1}]
    own.run(
        "SET SESSION binlog_format = 'STATEMENT'",
        "REPLACE INTO t VALUES (2)",
        "SET SESSION binlog_format = 'ROW'",
    )
    with pytest.raises(StreamError, match="logged as such"):
        reading.changes()
