"""A publisher in a child process, killed repeatedly."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psycopg

from stompkit.replication.model.events import Changeset, decode
from stompkit.replication.sources.offsets import FileOffsets
from stompkit.testing.launching.polling import wait_until
from tests.replication.sources.postgres.postgres_made import (
    DEADLINE_S,
    Database,
    Taken,
    made_publication,
)

#: The longest time in seconds between two changes, as some changes are not published.
PAUSE_S = 0.2


def _said(changeset: Changeset) -> tuple[object, ...]:
    """Return the parts of a changeset that must be equal when it is published again."""
    source = changeset.source
    return (changeset.id, source.position, source.transaction, source.time, changeset.changes)


_PROGRAM = """
import sys
from concurrent.futures import Future
from random import Random
from threading import Timer
from stompkit.replication.model.events import encode
from stompkit.replication.sources.offsets import FileOffsets
from stompkit.replication.sources.publication import Publication
from stompkit.replication.sources.postgres import PostgresPublisher
from stompkit.replication.model.signals import CHANGESET

url, slot, offsets, taken, seed = sys.argv[1:]
file = open(taken, "ab", buffering=0)
chance = Random(seed)

def take(changeset):
    file.write(encode(changeset) + b"\\n")
    future = Future()
    timer = Timer(chance.random() * 0.05, future.set_result, [None])
    timer.daemon = True
    timer.start()
    return future

CHANGESET.connect(take)
publication = Publication(FileOffsets(offsets), kind="postgresql", checkpoint_s=0.05)
PostgresPublisher(
    url, publication, slot=slot, publication_name=slot, chunk_rows=20, heartbeat_s=0.2
).run()
"""


def test_publisher_that_is_killed_again_and_again_tells_all(
    database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    database.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 400) i")
    taken = tmp_path / "taken"
    taken.touch()
    chance = random.Random(5)
    command = [sys.executable, "-c", _PROGRAM, database.url, database.slot]

    with database.connect() as connection:
        for number in range(7):
            process = subprocess.Popen(
                [*command, str(tmp_path / "offsets"), str(taken), str(number)],
                stderr=subprocess.PIPE,
            )
            try:
                enough = taken.stat().st_size + chance.randrange(500, 60_000)
                deadline = time.monotonic() + DEADLINE_S
                for _ in range(100):
                    _change_something(connection, chance)
                    if process.poll() is not None or taken.stat().st_size >= enough:
                        break
                while process.poll() is None and (size := taken.stat().st_size) < enough:
                    _change_something(connection, chance)
                    # Write no faster than it publishes, or a slow publisher would never catch up.
                    wait_until(partial(_has_grown, process, taken, size), PAUSE_S, interval_s=0.005)
                    assert time.monotonic() < deadline
            finally:
                process.kill()
                _, errors = process.communicate()
            assert process.returncode == -signal.SIGKILL, errors.decode()
    # The last publisher may run to its end.
    publication = made_publication(FileOffsets(tmp_path / "offsets"), checkpoint_s=1.0)
    with Taken(publication) as rest:
        database.publisher(publication, blocking=False).run()
    told = [decode(line) for line in taken.read_bytes().splitlines()] + list(rest)
    assert _replica(told) == dict(database.execute("SELECT id, v FROM t"))


def _has_grown(process: subprocess.Popen[bytes], taken: Path, size: int) -> bool:
    return taken.stat().st_size > size or process.poll() is not None


def _change_something(
    connection: psycopg.Connection[tuple[object, ...]], chance: random.Random
) -> None:
    with connection.transaction():
        for _ in range(chance.randrange(1, 4)):
            one, other = chance.randrange(1, 2100), chance.randrange(2100, 10**9)
            match chance.randrange(4):
                case 0:
                    statement = f"INSERT INTO t VALUES ({one}, 1) ON CONFLICT DO NOTHING"
                case 1:
                    statement = f"UPDATE t SET v = v + 1 WHERE id BETWEEN {one} AND {one + 5}"
                case 2:
                    statement = f"UPDATE t SET id = {other} WHERE id = {one}"
                case _:
                    statement = f"DELETE FROM t WHERE id = {one}"
            connection.execute(statement.encode())


def _replica(told: list[Changeset]) -> dict[object, object]:
    """Return the rows of a consumer that drops known numbers."""
    rows: dict[object, object] = {}
    last = 0
    said: dict[int, tuple[object, ...]] = {}
    for changeset in told:
        if not changeset.source.is_snapshot:
            again = said.setdefault(changeset.sequence, _said(changeset))
            assert again == _said(changeset)
        if changeset.sequence <= last:
            continue
        assert changeset.sequence == last + 1
        last = changeset.sequence
        for change in changeset.changes:
            if change.old_key is not None:
                rows.pop(change.old_key["id"], None)
            if change.action == "delete":
                rows.pop(change.key["id"], None)
            else:
                assert change.after is not None
                rows[change.key["id"]] = change.after["v"]
    return rows
