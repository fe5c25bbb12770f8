"""A random workload, a chain of processes that are killed all the time, and equal tables."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DatabaseError

from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing._launching.polling import wait_until
from tests.integration.replication.processes import Replicating
from tests.integration.replication.workload import Workload, contents
from tests.servers import SqlServer

#: A failing round is run again with the number that its test shows.
SEED = 6
CHANGES = 100_000
#: After each of so many parts of the workload something is killed.
PARTS = 15
LONG_S = 600.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker that keeps its messages when it is killed."""
    directory = tmp_path / "broker"
    directory.mkdir()
    arguments = ("--data", str(directory / "data"))
    with launch(LaunchConfig(directory=directory, arguments=arguments)) as broker:
        yield broker


Open = Callable[[str], Engine]


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """A function that makes a database of a kind."""
    with ExitStack() as stack:

        def make(kind: str) -> Engine:
            if kind == "sqlite":
                url = f"sqlite:///{tmp_path}/target.db"
            else:
                server: SqlServer = request.getfixturevalue(kind)
                url = server.url(server.new_database())
            engine = create_engine(url)
            stack.callback(engine.dispose)
            return engine

        yield make


def url_of(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def has_ended(engine: Engine) -> bool:
    """Whether the last row has come."""
    try:
        with engine.connect() as connection:
            found = connection.execute(text("SELECT COUNT(*) FROM items WHERE id = -1"))
            return bool(found.scalar_one())
    except DatabaseError:  # there is no table yet
        return False


@pytest.mark.parametrize(
    ("source", "target", "changes"),
    [("mariadb", "postgresql", CHANGES), ("postgresql", "sqlite", CHANGES)],
)
def test_whatever_is_killed_source_and_target_are_equal_in_the_end(
    source: str, target: str, changes: int, database: Open, broker: RunningBroker, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    source_engine, target_engine = database(source), database(target)
    workload = Workload(source_engine, SEED)
    workload.run(changes // 10)  # found by the snapshot
    queue = f"{broker.url}/queue/changes"
    with (
        Replicating(
            "publisher",
            tmp_path,
            *("--from", url_of(source_engine), "--to", queue),
            *("--tables", "*.orders", "--tables", "*.items"),
        ) as publisher,
        Replicating(
            "consumer", tmp_path, "--from", queue, "--to", url_of(target_engine), "--create"
        ) as consumer,
    ):
        broker_kills = 0
        for part in range(PARTS):
            workload.run(changes * 9 // 10 // PARTS)
            if part == PARTS // 2:
                workload.alter()
            # Each in its turn, so that each is killed several times.
            match (part + chance.randint(0, 1)) % 3:
                case 0:
                    publisher.kill()
                case 1:
                    consumer.kill()
                case _:
                    broker.restart(kill=True)
                    broker_kills += 1
        workload.finish()
        for each in (publisher, consumer):
            each.kill()

        def is_over() -> bool:
            publisher.check()
            consumer.check()
            return has_ended(target_engine)

        assert wait_until(is_over, LONG_S), f"{publisher.log}\n{consumer.log}"
        assert min(publisher.kills, consumer.kills, broker_kills) >= 3
        assert workload.changes >= changes
        assert workload.taken_back > changes // 100
        wanted, found = contents(source_engine), contents(target_engine)
        for table, rows in wanted.items():
            missing, extra = set(rows) - set(found[table]), set(found[table]) - set(rows)
            assert not missing, f"{len(missing)} rows of {table} are missing: {list(missing)[:3]}"
            assert not extra, f"{len(extra)} rows of {table} are wrong: {list(extra)[:3]}"
            assert len(rows) == len(found[table])
        assert consumer.stop() == 0, consumer.log
        assert publisher.stop() == 0, publisher.log
