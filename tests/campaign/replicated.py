"""A database, its outbox, a broker and replicas, each killed in turn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from tests.campaign.chain import Chain, Misfortune, until
from tests.campaign.checker import Finding
from tests.campaign.commands import Command
from tests.campaign.copies import Replica, Source
from tests.campaign.disk import built
from tests.campaign.history import Note
from tests.campaign.plan import Plan
from tests.campaign.replicas import Accounts, Committed, check_replicas
from tests.campaign.writing import accounts_after

__all__ = ["Origin", "Replicated", "replicating"]

_USUAL_ROUNDS: Final = 5
_SETTINGS: Final = """
[[destination]]
name = "/fanout/shop"
children = ["/queue/shop0", "/queue/shop1"]
"""


class Origin:
    """A program that changes a database, and the relay job of its outbox."""

    def __init__(self, chain: Chain, plan: Plan, directory: Path, destination: str) -> None:
        """Start both."""
        self._chain = chain
        self.source = Source(directory / "source.sqlite")
        chance = plan.chance("clients")
        pause_ms = chance.choice((2, 5, 10))
        #: Number of transactions of the run; each takes longer than a message.
        self.quota = plan.quota // 3
        words = (self.source.url, str(plan.seed), str(self.quota), str(pause_ms))
        self.writer = chain.start(Command("writer", directory, "tests.campaign.writing", *words))
        most_bytes = chance.choice(("1048576", "65536"))
        self.publisher = chain.start(
            replicating(
                "publisher",
                directory,
                *("--from", f"outbox+{self.source.url}", "--to", chain.url(destination)),
                *("--max-frame-bytes", most_bytes),
            )
        )

    def committed(self) -> list[Committed]:
        """Return all transactions at the end, after verifying their descriptions."""
        committed = self.source.committed()
        after: Accounts = {}
        for each in committed:
            after = accounts_after(after, each.steps)
        assert after == self.source.accounts(), "the writer has written something else"
        return committed

    def misfortunes(self) -> list[Misfortune]:
        """Return the faults of both programs."""
        return [
            lambda: self._chain.kill(self.writer),
            self.kill_publisher,
            self.kill_publisher,
            lambda: self._chain.pause(self.publisher),
        ]

    def kill_publisher(self) -> None:
        """Kill the job, and start it again."""
        self._chain.kill(self.publisher)
        # Mostly the lease is expired, as waiting for its end takes 15 seconds.
        if self._chain.chance.random() < 0.8:
            self.source.end_lease()


def replicating(name: str, directory: Path, *arguments: str) -> Command:
    """Return the command line of ``stompkit replicate``."""
    state = ("--state-dir", str(directory / "state"), "--quiet")
    return Command(name, directory, "stompkit", "replicate", "--name", name, *state, *arguments)


class Replicated:
    """A run of ``stompkit replicate``; a :class:`tests.campaign.stage.Stage`."""

    #: Longest time in seconds until all transactions have arrived, after the last fault.
    patience_s = 90.0

    def __init__(self, plan: Plan, directory: Path, report: Path) -> None:
        """Prepare without starting anything."""
        self._plan = plan
        self._directory = directory
        self.chain = Chain(plan, directory, built(report), _SETTINGS)
        self.replicas: list[Replica] = []
        self._consumers: list[Command] = []
        self._origin: Origin
        self._end: tuple[Struct, ...] = ()
        self._finding = check_replicas([], [], [])

    # The run.

    def play(self) -> None:
        """Run it."""
        with self.chain as chain:
            self.begin()
            misfortunes = self.misfortunes()
            for share in chain.moments(_USUAL_ROUNDS):
                self._wait(share)
                chain.happen(misfortunes)
            chain.wait(lambda: self._origin.writer.has_done, self._how_far)
            chain.note("all is written")
            # The checker decides whether all transactions arrived.
            until(self._is_over, self.patience_s)
            chain.note("all is there")
            self._judge()

    def begin(self) -> None:
        """Start all programs."""
        chance = self._plan.chance("consumers")
        count = chance.choice((1, 2))
        for number in range(count):
            name = f"replica-{number}"
            replica = Replica(name, self._directory / f"{name}.sqlite")
            options = ["--batch", chance.choice(("1", "10", "100"))]
            options += ["--prefetch", chance.choice(("1000", "40"))]
            ends = ("--from", self.chain.url(f"/queue/shop{number}"), "--to", replica.url)
            consumer = replicating(f"consumer-{number}", self._directory, *ends, *options)
            self._consumers.append(self.chain.start(consumer))
            self.replicas.append(replica)
        destination = "/fanout/shop" if count > 1 else "/queue/shop0"
        self._origin = Origin(self.chain, self._plan, self._directory, destination)

    def misfortunes(self) -> list[Misfortune]:
        """Return the possible faults."""
        chain = self.chain
        kills = [partial(chain.kill, each) for each in self._consumers]
        pauses = [partial(chain.pause, each) for each in self._consumers]
        return [*chain.usual(), *self._origin.misfortunes(), *kills, *kills, *pauses]

    def _look(self) -> None:
        for replica in self.replicas:
            replica.look()

    def _wait(self, share: float) -> None:
        wanted = share * self._origin.quota

        def is_there() -> bool:
            self._look()
            return min(each.count for each in self.replicas) >= wanted

        self.chain.wait(is_there, self._how_far)

    def _is_over(self) -> bool:
        for command in self.chain.commands:
            command.check()
        self._look()
        is_all_there = min(each.count for each in self.replicas) >= self._origin.quota
        return is_all_there and not self._origin.source.waiting()

    def _how_far(self) -> str:
        counts = [f"{each.name} has {each.count}" for each in self.replicas]
        return f"{', '.join(counts)} transactions; {self._origin.source.waiting()} wait"

    # Results.

    def _judge(self) -> None:
        committed = self._origin.committed()
        seen = [look for replica in self.replicas for look in replica.seen]
        applied = [replica.applied() for replica in self.replicas]
        self._end = (*committed, *seen, *applied)
        self._finding = check_replicas(committed, seen, applied)

    @property
    def log(self) -> str:
        """Return the output of all programs."""
        return self.chain.log

    @property
    def events(self) -> Sequence[Struct]:
        """Return the observations and the faults."""
        return [*map(Note, self.chain.notes), *self._end]

    def check(self) -> Finding:
        """Return the result of the checker."""
        return self._finding
