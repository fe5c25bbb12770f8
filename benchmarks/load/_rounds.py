"""The schedule of cells and brokers, and the results."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from types import TracebackType
from typing import Any, Final, Self

from benchmarks._report import progress
from benchmarks.load._cells import HALF, Cell
from benchmarks.load._extremes import EXTREMES
from benchmarks.load._generator import GeneratorError, run
from benchmarks.load._meter import Meter, append_us
from benchmarks.load._peers import Missing, Peer
from benchmarks.load._running import Running
from stompkit.testing import BrokerError

__all__ = ["Machine", "Result", "measure"]

#: Messages of the first run, which determines the number for the others, and warms up just-in-time
#: compilers.
_FIRST: Final = {"queue": 20_000, "topic": 4_000, "churn": 50}
_LEAST: Final = 200
_LEAST_CHURN: Final = 20
_MOST: Final = 20_000_000
#: Largest ratio of a run's length to that of the run from which it is estimated.
_FACTOR: Final = 10
#: Factor for the length of a run at a rate, which measures the 99.9th percentile.
_LONGER: Final = 3
#: Longest duration of a run that was meant to take a second, and additional time, in seconds.
_SLOWER: Final = 20.0
_SPARE_S: Final = 40.0
#: Errors of a broker that are reported in its row.
_FAULTS: Final = (GeneratorError, BrokerError, Missing, OSError)
#: Arguments that remove the remaining messages of a queue.
_DRAIN: Final = ("--phase", "drain", "--consumers", "1", "--ack", "auto")


@dataclass
class Result:
    """The results of one broker in one cell."""

    cell: Cell
    peer: Peer
    runs: list[dict[str, Any]] = field(default_factory=list)
    """The generator's reports, with ``broker_cpu_s``, and how many cores others used."""
    fault: str = ""
    """Description of an error; there may be no runs then."""
    lacks: str = ""
    """The reason why the cell cannot be run with this broker."""

    @property
    def is_due(self) -> bool:
        """True if there are runs left."""
        return not self.fault and not self.lacks

    @property
    def per_second(self) -> float:
        """Median of messages, or deliveries of a topic, per second."""
        return float(median(run["per_second"] for run in self.runs))

    @property
    def cpu_per_100k_s(self) -> float:
        """Median of the broker's processor time for 100,000 of these, in seconds."""
        parts = [run["broker_cpu_s"] / (run["per_second"] * run["seconds"]) for run in self.runs]
        return float(median(parts)) * 1e5

    @property
    def others_cores(self) -> float:
        """Median number of cores used by other programs."""
        return float(median(run["others_cores"] for run in self.runs))

    def percentile(self, key: str, name: str) -> float | None:
        """Return the median of a percentile in microseconds, or None if it was not measured."""
        found = [run[key][name] for run in self.runs if key in run]
        return median(found) if found else None


class Machine(AbstractContextManager["Machine"]):
    """The brokers, each started on first use, and paused while others are measured."""

    def __init__(self, most_s: float = _SPARE_S) -> None:
        """Start without brokers; a run may take ``most_s``."""
        self.most_s = most_s
        self._running: dict[tuple[str, str], Running] = {}
        self._numbers = itertools.count(1)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop all of them."""
        for running in self._running.values():
            running.stop()

    def __enter__(self) -> Self:
        """Return the machine."""
        return self

    def start(self, peer: Peer, cell: Cell) -> Running:
        """Return the running instance of a peer for a cell, started if needed; it is paused."""
        key = (peer.name, peer.variant(cell))
        if key not in self._running:
            progress(f"starting {peer.name}")
            self._running[key] = peer.start(key[1])
            self._running[key].pause()
        return self._running[key]

    def drop(self, peer: Peer, cell: Cell) -> None:
        """Stop a peer that may be faulty or is not needed again."""
        running = self._running.pop((peer.name, peer.variant(cell)), None)
        if running is not None:
            running.stop()

    def run(self, peer: Peer, cell: Cell, messages: int) -> dict[str, Any]:
        """Run a cell once, while all other brokers are paused; raise GeneratorError."""
        running = self.start(peer, cell)
        name = f"load-{next(self._numbers)}"
        given = (*peer.arguments(running, cell, name), "--messages", str(messages))
        running.resume()
        meter = Meter(running)
        report = run(*given, most_s=self.most_s)
        meter.read(report)
        if cell.kind == "queue" and not cell.consumers:
            drained = run(*given, *_DRAIN, most_s=self.most_s)
            report["drain_per_second"] = drained["per_second"]
        elif cell.kind == "churn":
            # Verify that all sent messages are there, once each.
            shape = ("--producers", str(cell.parallel), "--unordered")
            run("stomp", *given[1:], *_DRAIN, *shape, most_s=self.most_s)
        running.pause()
        if cell.is_persistent and cell.window == 1:
            report["append_us"] = append_us(running.directory)
        return report

    def run_extreme(self, peer: Peer, cell: Cell, seconds: float) -> dict[str, Any]:
        """Run a cell that needs a broker for itself; raise GeneratorError."""
        running = self.start(peer, cell)
        running.resume()
        try:
            return EXTREMES[cell.kind](peer, running, cell, seconds)
        finally:
            self.drop(peer, cell)


def measure(
    machine: Machine, cells: list[Cell], peers: list[Peer], rounds: int, seconds: float
) -> Iterator[Result]:
    """Run each cell with all peers alternately; about ``seconds`` for each run.

    Yield the results of a cell after its last round.
    """
    machine.most_s = seconds * _SLOWER + _SPARE_S
    for cell in cells:
        results = [Result(cell, peer, lacks=peer.lacks(cell)) for peer in peers]
        if cell.kind in EXTREMES:
            _measure_once(machine, results, seconds)
        else:
            if cell.is_half:
                _set_rate(machine, results, seconds)
            _measure_in_turns(machine, results, rounds, seconds)
        yield from results


@contextmanager
def _told(machine: Machine, result: Result) -> Iterator[None]:
    """Record a failure of a broker as its result, and restart that broker for the next run."""
    try:
        yield
    except _FAULTS as error:
        result.fault = str(error)
        machine.drop(result.peer, result.cell)


def _measure_once(machine: Machine, results: list[Result], seconds: float) -> None:
    for result in results:
        if result.is_due:
            progress(f"{result.cell.name}: {result.peer.name}")
            with _told(machine, result):
                result.runs.append(machine.run_extreme(result.peer, result.cell, seconds))


def _measure_in_turns(machine: Machine, results: list[Result], rounds: int, seconds: float) -> None:
    counts = {}
    for result in results:
        if result.is_due:
            with _told(machine, result):
                counts[result.peer.name] = _count(machine, result, seconds)
    for number in range(rounds):
        # Rotate the order, so that each broker is first in one round only.
        turn = number % len(results)
        for result in results[turn:] + results[:turn]:
            if not result.is_due:
                continue
            name = result.peer.name
            progress(f"{result.cell.name}: round {number + 1} of {rounds}: {name}")
            with _told(machine, result):
                result.runs.append(machine.run(result.peer, result.cell, counts[name]))


def _set_rate(machine: Machine, results: list[Result], seconds: float) -> None:
    """Measure the maximum rate of each, and set the rate of all to half of the slowest one's."""
    limits: dict[str, float] = {}
    for result in results:
        if result.is_due:
            with _told(machine, result):
                count = _count(machine, result, seconds)
                report = machine.run(result.peer, result.cell, count)
                limits[result.peer.name] = report["per_second"]
    if not limits:
        return
    slowest = min(limits, key=limits.__getitem__)
    rate = max(1, int(limits[slowest] / 2))
    for result in results:
        found = f"{rate:,} messages a second: half of what {slowest} can"
        about = result.cell.about.replace(HALF, found)
        result.cell = replace(result.cell, about=about, rate=rate)


def _count(machine: Machine, result: Result, seconds: float) -> int:
    """Return the number of messages of a run."""
    cell, peer = result.cell, result.peer
    progress(f"{cell.name}: warming up {peer.name}")
    if cell.rate:
        machine.run(peer, cell, cell.rate)
        return max(_LEAST, int(cell.rate * seconds * _LONGER))
    least = _LEAST_CHURN if cell.kind == "churn" else _LEAST
    first = max(least, min(_FIRST[cell.kind], (64 << 20) // cell.body_bytes))
    if cell.window:
        first = min(first, 1_000 if cell.window == 1 else 5_000)
    while True:
        report = machine.run(peer, cell, first)
        wanted = int(max(least, min(_MOST, first * seconds / report["seconds"])))
        # A short run is a bad estimate for a much longer one.
        if wanted < _FACTOR * first:
            return wanted
        first = wanted // 2
