"""A database, a broker, a spool, Spark, a replica and an event store, each killed in turn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from stompkit.spark.eventstore import SparkEventStore
from stompkit.spark.jobs import JobName, load
from stompkit.spark.jobs.status import look
from stompkit.spool import SpoolError, SpoolReader
from tests.campaign.chain import Chain, Misfortune, until
from tests.campaign.checker import Finding
from tests.campaign.commands import Command
from tests.campaign.copies import Replica
from tests.campaign.disk import built
from tests.campaign.history import Note
from tests.campaign.plan import Plan
from tests.campaign.replicas import Stored, check_replicas
from tests.campaign.replicated import Origin

__all__ = ["Piped"]

_USUAL_ROUNDS: Final = 3
#: Longest time until all data has arrived, in seconds, with two starts of Java.
_ARRIVAL_S: Final = 180.0
_FILE: Final = """
name = "shop"
state-dir = "{folder}/state"
trigger = "100ms"

[source]
spool = "{folder}/spool"
maxRecordsPerTrigger = {most}

[target]
url = "{target}"

[apply]
tables = ["events", "accounts"]

[events]
path = "{folder}/events"
history = true
ttl = "forever"

[spark]
master = "local[1]"

[spark.config]
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


class Piped:
    """A run of ``stompkit pipeline``; a :class:`tests.campaign.stage.Stage`."""

    def __init__(self, plan: Plan, directory: Path, report: Path) -> None:
        """Prepare without starting anything."""
        self._plan = plan
        self._directory = directory
        self._chain = Chain(plan, directory, built(report))
        self._spool = directory / "spool"
        self._file = directory / "shop.toml"
        self._replica: Replica
        self._origin: Origin
        self._receiver: Command
        self._jobs: dict[JobName, Command] = {}
        self._end: tuple[Struct, ...] = ()
        self._finding = check_replicas([], [], [])

    # The run.

    def play(self) -> None:
        """Run it."""
        with self._chain as chain:
            self._begin()
            misfortunes = self._misfortunes()
            # A driver is killed in each run, when a part of its work is done.
            drivers = [partial(chain.kill, each) for each in self._jobs.values()]
            for number, share in enumerate(chain.moments(_USUAL_ROUNDS)):
                self._wait(share)
                chain.happen(misfortunes if number else drivers)
            chain.wait(lambda: self._origin.writer.has_done, self._how_far)
            chain.note("all is written")
            # The checker decides whether all data arrived.
            until(self._is_over, _ARRIVAL_S)
            chain.note("all is there")
            self._judge()

    def _begin(self) -> None:
        chain, folder = self._chain, self._directory
        queue = "/queue/shop"
        self._origin = Origin(chain, self._plan, folder, queue)
        words = ("stompkit", "spool", "run", str(self._spool), "--from", chain.url(queue))
        self._receiver = chain.start(Command("receiver", folder, *words, "--quiet"))
        self._replica = Replica("replica", folder / "replica.sqlite")
        most = self._plan.chance("pipeline").choice((10, 50))
        text = _FILE.format(folder=folder, target=self._replica.url, most=most)
        self._file.write_text(text, encoding="utf-8")
        # A job needs an existing spool.
        chain.wait((self._spool / "spool.json").exists, lambda: "there is a spool")
        names: tuple[JobName, ...] = ("replicate", "events")
        for name in names:
            job = Command(
                name, folder, "stompkit", "pipeline", "run", name, "--config", str(self._file)
            )
            self._jobs[name] = chain.start(job)

    def _misfortunes(self) -> list[Misfortune]:
        chain = self._chain
        drivers = [partial(chain.kill, each) for each in self._jobs.values()]
        return [
            chain.crash,
            chain.lose_power,
            chain.cut,
            self._origin.kill_publisher,
            partial(chain.kill, self._origin.writer),
            partial(chain.kill, self._receiver),
            *drivers,
            *drivers,
        ]

    def _wait(self, share: float) -> None:
        wanted = share * self._origin.quota

        def is_there() -> bool:
            self._replica.look()
            return self._replica.count >= wanted

        self._chain.wait(is_there, self._how_far, _ARRIVAL_S)

    def _stored(self) -> int:
        """Return the number of messages of the spool that the event store has."""
        try:
            return sum(place.next for place in look(load(self._file), "events").places)
        except SpoolError:
            return 0  # it is being created

    def _is_over(self) -> bool:
        for command in self._chain.commands:
            command.check()
        self._replica.look()
        if self._replica.count < self._origin.quota or self._origin.source.waiting():
            return False
        try:
            return self._stored() >= sum(SpoolReader(self._spool).head())
        except SpoolError:
            return False

    def _how_far(self) -> str:
        return f"the replica has {self._replica.count} transactions"

    # Results.

    def _judge(self) -> None:
        committed = self._origin.committed()
        store = SparkEventStore(self._directory / "events", history=True)
        stored = Stored(tuple(each.sequence for _, each in store.events()))
        applied = self._replica.applied()
        self._end = (*committed, *self._replica.seen, applied, stored)
        self._finding = check_replicas(committed, self._replica.seen, [applied], [stored])

    @property
    def log(self) -> str:
        """Return the output of all programs."""
        return self._chain.log

    @property
    def events(self) -> Sequence[Struct]:
        """Return the observations and the faults."""
        return [*map(Note, self._chain.notes), *self._end]

    def check(self) -> Finding:
        """Return the result of the checker."""
        return self._finding
