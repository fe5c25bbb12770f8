"""Run seeds: one with a trace, or many, in several processes."""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache

from tests.replica.simulation.databases import Databases
from tests.replica.simulation.scenario import Scenario, Summary

__all__ = ["Verdict", "campaign", "run_seed", "told", "trace_of"]

_CHUNK = 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a seed."""

    seed: int
    #: The failure; empty if there was none.
    problem: str
    summary: Summary | None
    #: Duration in seconds of the real clock.
    took_s: float


@cache
def _databases() -> Databases:
    """Return the databases of this process."""
    return Databases()


def run_seed(seed: int) -> Verdict:
    """Run a seed."""
    begun = time.perf_counter()
    scenario = Scenario(seed, _databases())
    try:
        summary = scenario.run()
    except Exception as error:
        _databases.cache_clear()
        problem = f"{scenario.plan.kind}, {scenario.plan.shape}: {_described(error)}"
        return Verdict(seed, problem, None, time.perf_counter() - begun)
    return Verdict(seed, "", summary, time.perf_counter() - begun)


def trace_of(seed: int) -> tuple[list[str], str]:
    """Run a seed again; return its trace, one line for each event, and the failure."""
    scenario = Scenario(seed, Databases(), is_recording=True)
    try:
        scenario.run()
    except Exception as error:
        return scenario.world.lines, "".join(traceback.format_exception(error))
    return scenario.world.lines, ""


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]


def campaign(seeds: Iterable[int], jobs: int) -> Iterator[Verdict]:
    """Run seeds in ``jobs`` processes; yield verdicts as they arrive."""
    if jobs < 2:
        yield from map(run_seed, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_seed, seeds, chunksize=_CHUNK)


def told(verdicts: Iterable[Verdict], *, every: int = 500) -> list[Verdict]:
    """Print the progress of a campaign to standard error; return the failed verdicts."""
    begun = time.monotonic()
    failed: list[Verdict] = []
    done: list[Summary] = []
    cpu_s = 0.0
    for number, verdict in enumerate(verdicts, 1):
        cpu_s += verdict.took_s
        if verdict.summary is not None:
            done.append(verdict.summary)
        else:
            failed.append(verdict)
            print(f"seed {verdict.seed}: {verdict.problem}", file=sys.stderr)
        if number % every == 0:
            took_s = time.monotonic() - begun
            print(f"{number} seeds, {len(failed)} failed, {took_s:.0f} s", file=sys.stderr)
    _summarise(done, failed, cpu_s, time.monotonic() - begun)
    return failed


def _summarise(done: list[Summary], failed: list[Verdict], cpu_s: float, took_s: float) -> None:
    count = len(done) + len(failed)
    if not count:
        return
    print(f"{count} seeds in {took_s:.0f} s, {1000 * cpu_s / count:.0f} ms each")
    for name, counts in (
        ("kinds", Counter(each.kind for each in done)),
        ("shapes", Counter(each.shape for each in done)),
        ("crashes", sum((each.crashes for each in done), Counter[str]())),
    ):
        print(f"{name}: " + ", ".join(f"{what} {n}" for what, n in counts.most_common()))
    print(
        f"changesets: {sum(each.committed for each in done)},"
        f" conflicts: {sum(each.conflicts for each in done)},"
        f" messages: {sum(each.messages for each in done)},"
        f" of these after the last fault: {sum(each.settling for each in done)}"
    )
    if done:
        longest = max(each.settled_s for each in done)
        print(f"longest time to silence: {longest:.0f} s")
    print(f"failed: {len(failed)}" + "".join(f" {each.seed}" for each in failed[:50]))
