"""Changesets that were published and not confirmed when a publisher was interrupted."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from stompkit.replication.model.events import Changeset
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.mysql import OffsetLostError
from stompkit.replication.sources.offsets import Checkpoint, MemoryOffsets
from stompkit.testing.launching.polling import wait_until
from tests.replication.sources.mysql.reading import DEADLINE_S, Database, Reading


class Killed(Exception):
    """Simulates the end of a process."""


class Frozen(MemoryOffsets):
    """Offsets that stop storing, as after the end of a process."""

    is_frozen = False

    def store(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint, unless the process has ended."""
        if not self.is_frozen:
            super().store(checkpoint)


class Consumer:
    """Skips duplicates, and ends a publisher at its n-th changeset."""

    def __init__(self, killed_at: int = 0) -> None:
        """Start empty."""
        self._killed_at = killed_at
        self._last = self._seen = 0
        self.keys: list[object] = []

    def __call__(self, changeset: Changeset) -> None:
        """Process a changeset."""
        if changeset.sequence > self._last:
            self._last = changeset.sequence
            self.keys += [change.key["id"] for change in changeset.changes if change.key]
        self._seen += 1
        if self._seen == self._killed_at:
            raise Killed


def test_numbers_of_an_interrupted_snapshot_are_not_given_to_transactions(
    database: Database,
) -> None:
    """They are skipped even if the snapshot is not requested any more."""
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    database.many("INSERT INTO t VALUES (%s)", [(number,) for number in range(50)])
    offsets = Frozen()
    reading = Reading(database, offsets=offsets, start="now")
    consumer = Consumer(killed_at=4)
    with CHANGESET.connected_to(consumer):

        def freeze(changeset: Changeset) -> None:
            offsets.is_frozen = True

        with CHANGESET.connected_to(freeze), pytest.raises(Killed):
            reading.publisher(snapshot="initial", chunk_rows=10).run()
        offsets.is_frozen = False
        database.run("INSERT INTO t VALUES (1000)")
        reading.publisher(snapshot="never").run()
    assert 1000 in consumer.keys


def test_a_snapshot_of_a_table_without_a_key_is_not_taken_up_again(database: Database) -> None:
    """Otherwise its rows, and later changes, would exist twice."""
    database.run("CREATE TABLE t (v INT)")
    database.many("INSERT INTO t VALUES (%s)", [(number,) for number in range(50)])
    reading = Reading(database, start="now")
    with CHANGESET.connected_to(Consumer(killed_at=3)), pytest.raises(Killed):
        reading.publisher(snapshot="initial", chunk_rows=10).run()
    with pytest.raises(OffsetLostError, match=rf"{database.name}\.t cannot be taken up again"):
        reading.publisher(snapshot="initial", chunk_rows=10).run()


def test_one_with_columns_that_stand_for_the_key_is(database: Database) -> None:
    database.run("CREATE TABLE t (id INT NOT NULL)")
    database.many("INSERT INTO t VALUES (%s)", [(number,) for number in range(50)])
    reading = Reading(database, start="now", keys={"t": ["id"]})
    consumer = Consumer(killed_at=3)
    with CHANGESET.connected_to(consumer):
        with pytest.raises(Killed):
            reading.publisher(snapshot="initial", chunk_rows=10).run()
        reading.publisher(snapshot="initial", chunk_rows=10).run()
    assert set(consumer.keys) == set(range(50))


def test_a_stop_waits_for_confirmations_that_are_owed(database: Database) -> None:
    """Otherwise a publisher of other tables could give the same numbers to other transactions."""
    database.run("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)")
    reading = Reading(database, tables=Tables([f"{database.name}.a"]))
    futures: list[Future[None]] = []

    def take(changeset: Changeset) -> Future[None]:
        futures.append(Future())
        return futures[-1]

    with CHANGESET.connected_to(take), reading.running() as running:
        database.run("INSERT INTO b VALUES (1)", "INSERT INTO a VALUES (1)")
        assert wait_until(lambda: bool(futures), DEADLINE_S)
        running.publisher.stop()
        futures[0].set_result(None)
        assert running.wait_for_end() is None
    checkpoint = reading.offsets.load()
    assert checkpoint is not None
    assert checkpoint.sequence == 1


def test_a_receiver_that_fails_while_nothing_happens_ends_the_publisher(
    database: Database,
) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    futures: list[Future[None]] = []

    def take(changeset: Changeset) -> Future[None]:
        futures.append(Future())
        return futures[-1]

    with CHANGESET.connected_to(take), Reading(database).running() as running:
        database.run("INSERT INTO t VALUES (1)")
        assert wait_until(lambda: bool(futures), DEADLINE_S)
        futures[0].set_exception(OSError("the target is gone"))
        assert str(running.wait_for_end()) == "the target is gone"
