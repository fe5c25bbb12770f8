"""From MariaDB over a queue and a spool to PostgreSQL and an event store, on Spark."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import create_engine

from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.testing import RunningBroker
from stompkit.testing.launching.polling import wait_until
from tests.effort import effort
from tests.integration.replication.chain import Chain, check, started, tables_of, url_of
from tests.integration.replication.conftest import Open
from tests.integration.replication.processes import Running
from tests.integration.replication.workload import Workload
from tests.servers import PostgreSql, ServerMissing

if find_spec("pyspark") is None:
    pytest.skip("the extra spark is not installed", allow_module_level=True)

from stompkit.spark.eventstore import SparkEventStore
from stompkit.spark.jobs import JobName, load
from stompkit.spark.jobs.status import look
from stompkit.spool import SpoolError, SpoolReader

pytestmark = pytest.mark.matrix

CHANGES: Final = effort(2_100, 100_000)
#: One of them is run each time, and all of them in a campaign.
SEEDS: Final = effort([3], list(range(20)))
#: Number of parts of the workload, after each of which something is killed.
PARTS: Final = effort(7, 21)
LONG_S: Final = 600.0
#: Name of an executor's process.
EXECUTOR: Final = b"CoarseGrainedExecutorBackend"
FILE: Final = """
name = "shop"
state-dir = "{folder}/state"
trigger = "100ms"

[source]
spool = "{folder}/spool"
maxRecordsPerTrigger = 500

[target]
url = "{target}"
create = true

[events]
path = "{folder}/events"
history = true
ttl = "forever"

[spark]
master = "local-cluster[1,2,1024]"

[spark.config]
"spark.executor.memory" = "512m"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"spark.executor.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


@pytest.fixture
def target_server() -> Iterator[PostgreSql]:
    """A separate server, which can be killed."""
    try:
        server = PostgreSql()
    except ServerMissing as missing:
        pytest.fail(str(missing))
    with server:
        yield server


def children(process: int) -> Iterator[int]:
    """Return a process and all its descendants."""
    yield process
    with suppress(OSError):
        tasks = Path(f"/proc/{process}/task")
        for task in tasks.iterdir():
            for child in (task / "children").read_text().split():
                yield from children(int(child))


def executors(process: int) -> list[int]:
    """Return the executors of a driver."""
    found = []
    for child in children(process):
        with suppress(OSError):
            if EXECUTOR in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


class Job(Running):
    """A job of a pipeline, in a separate driver."""

    def __init__(self, name: JobName, folder: Path, file: Path) -> None:
        """Start it."""
        self._job: JobName = name
        self._file = file
        self._before = 0
        super().__init__(name, folder, "pipeline", "run", name, "--config", str(file), "--quiet")

    def done(self) -> int:
        """Return the number of messages that the target has."""
        try:
            return sum(place.next for place in look(load(self._file), self._job).places)
        except (SpoolError, SinkUnavailableError):
            return 0  # the spool is being created, or the target is down

    def kill(self) -> None:
        """Kill it during its work: after some progress since its start."""
        self._wait_for(lambda: self.done() > self._before)
        super().kill()
        self._before = self.done()

    def kill_executor(self) -> None:
        """Kill one of its executors."""
        found: list[int] = []

        def look() -> bool:
            found[:] = executors(self.pid)
            return bool(found)

        self._wait_for(look)
        with suppress(ProcessLookupError):
            os.kill(found[0], signal.SIGKILL)

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        def look() -> bool:
            self.check()
            return condition()

        assert wait_until(look, LONG_S), self.log


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replica_and_an_event_store_are_right_in_the_end_whatever_is_killed(
    database: Open, broker: RunningBroker, target_server: PostgreSql, tmp_path: Path, seed: int
) -> None:
    source = database("mariadb")
    workload = Workload(source, seed)
    chance = random.Random(seed)
    queue = f"{broker.url}/queue/changes"
    target = create_engine(target_server.url(target_server.new_database()))
    file = tmp_path / "shop.toml"
    file.write_text(FILE.format(folder=tmp_path, target=url_of(target)))

    def kill_target() -> None:
        target_server.kill()
        target_server.start()

    with ExitStack() as stack:
        stack.callback(target.dispose)
        publisher = started(
            tmp_path,
            stack,
            "publisher",
            "--from",
            url_of(source),
            "--to",
            queue,
            *tables_of(source),
        )
        spool = str(tmp_path / "spool")
        receiver = Running("receiver", tmp_path, "spool", "run", spool, "--from", queue, "--quiet")
        stack.enter_context(receiver)
        replicate = stack.enter_context(Job("replicate", tmp_path, file))
        events = stack.enter_context(Job("events", tmp_path, file))
        chain = Chain(
            workload,
            broker,
            publisher,
            receiver,
            replicate,
            events,
            others=[
                lambda: chance.choice([replicate, events]).kill_executor(),
                kill_target,
            ],
            seed=seed,
        )
        chain.run(CHANGES, parts=PARTS)
        chain.wait(lambda: check(source, target), changes=CHANGES, kills=1)
        # The event store has another driver, which may be behind.
        head = sum(SpoolReader(spool).head())
        assert wait_until(lambda: events.done() >= head, LONG_S), events.log
        check(source, target)
    numbers = Counter(
        (each.origin, each.sequence)
        for _, each in SparkEventStore(tmp_path / "events", history=True).events()
    )
    assert set(numbers.values()) == {1}
    assert len({origin for origin, _ in numbers}) == 1
    # The store records no changeset for the empty one that ends the snapshot.
    stored = {number for _, number in numbers}
    assert len(set(range(1, max(stored) + 1)) - stored) == 1
