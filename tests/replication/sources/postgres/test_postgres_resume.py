"""A publisher that is stopped, killed, blocked or disconnected: nothing is lost, numbers stay."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from stompkit.replication.model.events import Changeset
from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.offsets import Checkpoint, MemoryOffsets
from stompkit.replication.sources.postgres import OffsetLostError
from stompkit.testing.launching.polling import wait_until
from tests.replication.sources.postgres.postgres_made import (
    DEADLINE_S,
    Database,
    Running,
    Taken,
)
from tests.servers import PostgreSql, SqlServer


class _Killed(Exception):
    """Simulates the end of a process."""


def _said(changeset: Changeset) -> tuple[object, ...]:
    """Return the parts of a changeset that must be equal when it is published again."""
    source = changeset.source
    return (changeset.id, source.position, source.transaction, source.time, changeset.changes)


@pytest.mark.parametrize("at", range(1, 8))
def test_transactions_come_again_with_their_numbers_from_where_it_was_killed(
    database: Database, at: int
) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE u (id int PRIMARY KEY)"
    )
    tables = Tables(include=["t"])
    database.begin(tables)
    for number in range(7):
        database.transaction(f"INSERT INTO t VALUES ({number})", f"INSERT INTO u VALUES ({number})")
        database.execute(f"INSERT INTO u VALUES ({number + 100})")
        if number == 3:
            database.execute("ALTER TABLE t ADD w int")

    def confirm(changeset: Changeset) -> Future[None] | None:
        if changeset.sequence == at:
            raise _Killed
        # The second last before the end is not confirmed, so no later confirmation counts.
        return Future() if changeset.sequence == at - 1 else None

    publication = database.publication(tables)
    with Taken(publication, confirm) as first, pytest.raises(_Killed):
        database.publisher(publication, snapshot="never").run()
    again = database.read(tables)
    assert [each.sequence for each in again] == list(range(max(at - 1, 1), 8))
    said = {each.sequence: _said(each) for each in again}
    for each in first:
        assert said.get(each.sequence, _said(each)) == _said(each)
    everything = {each.sequence: each for each in [*first, *again]}
    keys = [change.key.get("id") for each in everything.values() for change in each.changes]
    assert keys == [0, 1, 2, 3, None, 4, 5, 6]
    assert database.read(tables) == []


def test_server_is_told_of_what_is_confirmed_only(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    futures: list[Future[None]] = []

    def confirm(changeset: Changeset) -> Future[None]:
        futures.append(Future())
        return futures[-1]

    with Running(database, confirm=confirm) as running:
        running.until_streaming()
        with database.connect() as slow:
            # A transaction that began before the unconfirmed one and ends after it: its messages
            # have earlier positions in the log.
            slow.execute("BEGIN")
            slow.execute("INSERT INTO t VALUES (1)")
            database.execute("INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)")
            running.until_changes(2)
            futures[0].set_result(None)
            first = running.taken.changesets[0]
            running.until(lambda: database.slot_lsn() == first.source.position)
            slow.execute("COMMIT")
        running.until_changes(3)
        futures[2].set_result(None)
        told = "SELECT reply_time FROM pg_stat_replication WHERE application_name = 'stompkit'"
        (before,) = database.execute(told)
        running.until(lambda: database.execute(told)[0][0] > before[0])
        assert database.slot_lsn() == first.source.position
        futures[1].set_result(None)
        third = running.taken.changesets[2].source.position
        running.until(
            lambda: database.execute(f"SELECT '{database.slot_lsn()}'::pg_lsn >= '{third}'")[0][0]
        )


def test_slow_broker_holds_the_reader_and_not_the_connection(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY)",
        f"ALTER DATABASE {database.name} SET wal_sender_timeout = '1s'",
    )
    futures: list[Future[None]] = []

    def confirm(changeset: Changeset) -> Future[None]:
        futures.append(Future())
        return futures[-1]

    sender = (
        "SELECT pid, now() - backend_start > '3 s' FROM pg_stat_replication "
        f"WHERE pid = (SELECT active_pid FROM pg_replication_slots "
        f"WHERE slot_name = '{database.slot}')"
    )
    with Running(database, confirm=confirm, most=2) as running:
        running.until_streaming()
        ((pid, _),) = database.execute(sender)
        for number in range(10):
            database.execute(f"INSERT INTO t VALUES ({number})")
        running.until(lambda: database.execute(sender) == [(pid, True)])
        assert len(running.taken.changes) == 2

        def release() -> bool:
            for future in futures:
                if not future.done():
                    future.set_result(None)
            return len(running.taken.changes) == 10

        running.until(release)
        release()
        assert running.taken.sequences == list(range(1, 11))
        assert database.execute(sender)[0][0] == pid


def test_stop_does_not_wait_for_ever_for_a_broker(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with Running(database, confirm=lambda changeset: Future(), most=1, flush_s=0.5) as running:
        running.until_streaming()
        database.execute("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
        running.until_changes(1)
    assert [change.key["id"] for change in database.changes()] == [1, 2]


def test_stop_stores_what_was_confirmed_and_tells_the_server(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with Running(database, heartbeat_s=600) as running:
        running.until_streaming()
        database.execute("INSERT INTO t VALUES (1)")
        running.until_changes(1)
    assert running.taken.changesets[0].source.position == database.slot_lsn()
    assert database.read() == []


def test_log_of_other_databases_moves_the_slot(database: Database) -> None:
    other = Database(database.server, database.server.new_database())
    other.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with Running(database) as running:
        running.until_streaming()
        other.execute("INSERT INTO t SELECT generate_series(1, 1000)")
        ((end,),) = other.execute("SELECT pg_current_wal_lsn()::text")

        def has_moved() -> bool:
            lsn = database.slot_lsn()
            return bool(database.execute(f"SELECT '{lsn}'::pg_lsn >= '{end}'")[0][0])

        running.until(has_moved)
        assert running.taken.changesets == []
    checkpoint = database.offsets.load()
    assert checkpoint is not None
    assert checkpoint.position != ""


def test_connection_that_is_cut_is_made_again(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with Running(database) as running:
        running.until_streaming()
        for number in range(5):
            database.execute(f"INSERT INTO t VALUES ({number})")
            database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'stompkit' AND datname = current_database()"
            )
        running.until_changes(5)
        assert running.taken.sequences == [1, 2, 3, 4, 5]
    assert "the stream has broken" in caplog.text


# A separate server.


@pytest.fixture(scope="module")
def own_server(postgresql: SqlServer) -> Iterator[PostgreSql]:
    """A server that may be restarted."""
    with PostgreSql() as server:
        yield server


def _shut_down(server: PostgreSql) -> None:
    """Shut it down immediately but cleanly, although there are connections."""
    pid = int((server.directory / "data" / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGINT)
    server.stop()


def test_server_that_is_started_again_goes_on(own_server: PostgreSql) -> None:
    database = Database(own_server, own_server.new_database())
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with Running(database, heartbeat_s=600) as running:
        running.until_streaming()
        database.execute("INSERT INTO t VALUES (1)")
        running.until_changes(1)
        # The server waits until all its changes were confirmed.
        _shut_down(own_server)
        assert wait_until(lambda: not own_server.socket.exists(), DEADLINE_S)
        own_server.start()
        database.execute("INSERT INTO t VALUES (2)")
        running.until_changes(2)
        assert running.taken.sequences == [1, 2]
    assert database.read() == []


def test_log_that_the_server_has_removed_is_an_offset_that_is_lost(own_server: PostgreSql) -> None:
    database = Database(own_server, own_server.new_database())
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.begin()
    assert wait_until(lambda: not database.is_active(), DEADLINE_S)
    database.execute(
        "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'",
        "SELECT pg_reload_conf()",
        "INSERT INTO t VALUES (1)",
    )

    def is_lost() -> bool:
        database.execute("SELECT pg_switch_wal()", "INSERT INTO t SELECT max(id) + 1 FROM t")
        database.execute("CHECKPOINT")
        status = f"SELECT wal_status FROM pg_replication_slots WHERE slot_name='{database.slot}'"
        return database.execute(status) == [("lost",)]

    assert wait_until(is_lost, DEADLINE_S)
    database.execute("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")
    with pytest.raises(OffsetLostError, match="max_slot_wal_keep_size"):
        database.read()


# Losses are reported.


def test_slot_that_was_dropped_is_an_offset_that_is_lost(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.begin()
    database.drop_slot()
    with pytest.raises(OffsetLostError, match=f"the slot {database.slot} is not there"):
        database.read()


def test_a_job_that_takes_the_slot_of_another_is_warned(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.begin()
    assert caplog.text == ""
    database.offsets = MemoryOffsets()
    database.read()
    assert f"the slot {database.slot} exists already" in caplog.text
    assert "--slot" in caplog.text


def test_slot_that_somebody_else_has_read_is_an_offset_that_is_lost(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.begin()
    assert wait_until(lambda: not database.is_active(), DEADLINE_S)
    database.execute("INSERT INTO t VALUES (1)")
    database.execute(f"SELECT pg_replication_slot_advance('{database.slot}', pg_current_wal_lsn())")
    with pytest.raises(OffsetLostError, match="was read up to"):
        database.read()


def test_checkpoint_of_another_server_is_an_offset_that_is_lost(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.begin()
    found = database.offsets.load()
    assert found is not None
    database.offsets.store(
        Checkpoint(
            origin=found.origin,
            sequence=found.sequence,
            position=found.position,
            state={**found.state, "system": "1"},
        )
    )
    with pytest.raises(OffsetLostError, match="of the server 1"):
        database.read()
