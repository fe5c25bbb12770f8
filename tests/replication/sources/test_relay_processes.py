"""Programs and relays that are killed at any point lose nothing, and publish nothing extra."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import Engine, func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, sessionmaker

from stompkit.replication.model.events import Changeset, EventError, decode
from stompkit.replication.sources.outbox import Outbox
from stompkit.testing.launching.polling import wait_until
from tests.replication.sources.models import Tag
from tests.replication.sources.received import contents, replay

#: Timeout of a test, in seconds.
PATIENCE_S = 120.0

#: Changes rows in transactions, some of which are rolled back, until it is killed.
PROGRAM = """
import sys
from random import Random
from threading import Event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import sessionmaker
from stompkit.replication.sources.outbox import Outbox
from tests.replication.sources.conftest import make_engine
from tests.replication.sources.models import Tag, TextKey

url, seed = sys.argv[1:]
chance = Random(int(seed))
sessions = sessionmaker(make_engine(url))
outbox = Outbox(sessions)
while True:
    with sessions() as session:
        try:
            for key in sorted(chance.sample(range(1, 9), chance.randint(1, 3))):
                tag = session.get(Tag, key, with_for_update=True)
                if tag is None:
                    session.add(Tag(id=key, word=str(chance.random())))
                elif chance.random() < 0.2:
                    session.delete(tag)
                else:
                    tag.word = str(chance.random())
                session.flush()
            if chance.random() < 0.3:
                session.rollback()
            else:
                session.commit()
        except DBAPIError:
            session.rollback()
    # Whoever writes without a pause leaves SQLite to nobody else.
    Event().wait(0.01)
"""

#: Publishes into a file, and confirms a little later.
RELAY = """
import sys
from concurrent.futures import Future
from random import Random
from threading import Event, Timer
from stompkit.replication.model.events import encode
from stompkit.replication.sources.relay import OutboxRelay
from tests.replication.sources.conftest import make_engine

url, path, seed = sys.argv[1:]
file = open(path, "ab", buffering=0)
chance = Random(int(seed))

def publish(changeset):
    file.write(encode(changeset) + b"\\n")
    future = Future()
    timer = Timer(chance.random() * 0.05, future.set_result, [None])
    timer.daemon = True
    timer.start()
    return future

relay = OutboxRelay(
    make_engine(url), publish, batch=5, max_unconfirmed=20, poll_s=0.02, lease_s=1.0
)
relay.run(Event())
"""


@contextmanager
def _running(script: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process, which is killed at the end unless it has ended."""
    command = [sys.executable, "-c", script, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def _read(paths: list[Path]) -> list[Changeset]:
    """Return the changesets published by relays; a killed relay may leave an incomplete line."""
    found = []
    for path in paths:
        for line in path.read_bytes().splitlines() if path.exists() else []:
            with suppress(EventError):
                found.append(decode(line))
    return found


def _unique(changesets: list[Changeset]) -> list[Changeset]:
    """Return each changeset once, in order; check that no number has two changesets."""
    by_sequence: dict[int, Changeset] = {}
    for each in changesets:
        assert by_sequence.setdefault(each.sequence, each) == each
    assert len({each.id for each in by_sequence.values()}) == len(by_sequence)
    return [by_sequence[sequence] for sequence in sorted(by_sequence)]


def _counted(engine: Engine, outbox: Outbox) -> int | None:
    with suppress(DBAPIError), engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(outbox.table)).scalar()
    return None


def _lines(paths: list[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in paths if path.exists())


def _has(paths: list[Path], lines: int) -> bool:
    return _lines(paths) >= lines


@pytest.mark.matrix
def test_what_was_committed_is_published_whoever_is_killed(
    engine: Engine, sessions: sessionmaker[Session], tmp_path: Path
) -> None:
    chance = Random(5)
    outbox = Outbox(sessions)
    outbox.create(engine)
    outbox.close()
    url = engine.url.render_as_string(hide_password=False)
    # Only one transaction can write to SQLite at a time.
    programs = 1 if engine.dialect.name == "sqlite" else 2
    paths = [tmp_path / f"relay {number}" for number in range(3)]
    with ExitStack() as stack:
        for seed in range(programs):
            stack.enter_context(_running(PROGRAM, url, str(seed)))
        relays = {
            path: stack.enter_context(_running(RELAY, url, str(path), str(seed)))
            for seed, path in enumerate(paths)
        }
        # Kill each publisher in turn; another one takes over its lease, until none is left.
        while relays:
            leader = _leader(relays)
            enough = _lines(paths) + chance.randint(1, 40)
            assert wait_until(partial(_has, paths, enough), PATIENCE_S)
            relays.pop(leader).kill()
        # Changes that the programs commit before they are killed may be unseen.
        unseen = _counted(engine, outbox) or 0
        assert wait_until(lambda: (_counted(engine, outbox) or 0) > unseen, PATIENCE_S)
    last = tmp_path / "last relay"
    with _running(RELAY, url, str(last), "0"):
        assert wait_until(lambda: _counted(engine, outbox) == 0, PATIENCE_S)
    published = _unique(_read([*paths, last]))
    assert [each.sequence for each in published] == list(range(1, len(published) + 1))
    rows: dict[str, dict[tuple[object, ...], dict[str, object]]] = {}
    for changeset in published:
        # Order matters: the replay fails if a row is not as the next change expects it.
        replay(changeset.changes, rows)
    assert {name: each for name, each in rows.items() if each} == contents(engine)
    assert rows.keys() <= {Tag.__tablename__}


def _leader(relays: Mapping[Path, object]) -> Path:
    """Return the relay that is the first to publish something."""
    before = {path: _lines([path]) for path in relays}
    found: list[Path] = []

    def has_published() -> bool:
        found[:] = [path for path, lines in before.items() if _lines([path]) > lines]
        return bool(found)

    assert wait_until(has_published, PATIENCE_S)
    return found[0]
