"""Run seeds that have not been run, or report the results; see the package."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

from tests.campaign.disk import NoCompiler, built
from tests.campaign.faults import FAULTS, fault_of
from tests.campaign.lease.report import write_lease_report
from tests.campaign.lease.run import LEASE, run_lease_seed
from tests.campaign.report import write_report
from tests.campaign.results import Results
from tests.campaign.running import Verdict, run_seed
from tests.campaign.stage import Line

_REPORT = Path("report")


def _seeds(text: str) -> range:
    first, dash, last = text.partition("-")
    return range(int(first), int(last if dash else first) + 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign",
        description="Has clients work with a broker to which things happen, and looks whether it "
        "keeps its promises. What has been run is in a file, and not run again.",
    )
    add = parser.add_argument
    add(
        "do",
        nargs="?",
        choices=("run", "report", "lease", "lease-report"),
        default="run",
        help="lease: brokers with a lease in PostgreSQL (default: %(default)s)",
    )
    add("--seeds", type=_seeds, metavar="A-B", help="(default: 1-1000, of the lease 1-300)")
    add("--jobs", type=int, default=2, help="runs side by side (default: %(default)s)")
    add("--only", choices=sorted(FAULTS), metavar="FAULT", help="one of " + ", ".join(FAULTS))
    add("--minutes", type=float, help="begin no more runs after so many")
    add("--again", action="store_true", help="run seeds also that have been run")
    add(
        "--results",
        type=Path,
        metavar="FILE",
        help="(default: campaign.jsonl or lease.jsonl in report)",
    )
    add("--sync", default="always", help="the broker's, to see what it is good for")
    add(
        "--into", type=Path, default=Path("docs/explanation"), help="report: the folder of the page"
    )
    options = parser.parse_args()
    is_lease = options.do.startswith("lease")
    if options.seeds is None:
        options.seeds = range(1, 301) if is_lease else range(1, 1_001)
    if options.results is None:
        options.results = _REPORT / ("lease.jsonl" if is_lease else "campaign.jsonl")
    return options


def main() -> int:
    """Run the command line; return 1 if a run found a violation, 2 if no run could be made."""
    options = _options()
    results = Results(options.results)
    if options.do == "report":
        return write_report(results, options.into)
    if options.do == "lease-report":
        return write_lease_report(results, options.into)
    folder = options.results.parent
    try:
        built(folder)
    except NoCompiler as error:
        print(error, file=sys.stderr)
        return 2
    seeds = [seed for seed in options.seeds if options.again or seed not in results]
    run: Callable[[int], Verdict]
    if options.do == "lease":
        run = partial(run_lease_seed, report=folder)
        missing = LEASE.missing()
        if missing:
            print(f"the brokers with a lease need {missing}", file=sys.stderr)
            return 2
    else:
        run = partial(run_seed, report=folder, sync=options.sync)
        seeds = _possible([each for each in seeds if options.only in (None, fault_of(each))])
    deadline = None if options.minutes is None else time.monotonic() + options.minutes * 60
    runs = _Runs(results, len(seeds), folder)
    with suppress(KeyboardInterrupt):
        runs.make(seeds, options.jobs, deadline, run)
    return runs.end(options.seeds)


def _possible(seeds: list[int]) -> list[int]:
    """Return the faults that can be run here; print those that cannot."""
    missing = {}
    for name in sorted({fault_of(seed) for seed in seeds}):
        fault = FAULTS[name]
        if isinstance(fault, Line) and (what := fault.missing()):
            missing[name] = what
            print(f"{name} is left out, since it needs {what}", flush=True)
    return [seed for seed in seeds if fault_of(seed) not in missing]


class _Runs:
    """Runs, several in parallel, and the output about them."""

    def __init__(self, results: Results, total: int, folder: Path) -> None:
        self._results = results
        self._total = total
        self._folder = folder
        self._made = self._receipted = 0
        self._begun = time.monotonic()

    def make(
        self,
        seeds: Iterable[int],
        jobs: int,
        deadline: float | None,
        run: Callable[[int], Verdict],
    ) -> None:
        """Run seeds until none is left or the time is over."""
        left = iter(seeds)
        with ProcessPoolExecutor(jobs) as pool:
            running: set[Future[Verdict]] = set()
            while True:
                if deadline is None or time.monotonic() < deadline:
                    for seed in islice(left, jobs - len(running)):
                        running.add(pool.submit(run, seed))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    self._tell(each.result())

    def _tell(self, verdict: Verdict) -> None:
        self._results.add(verdict)
        self._made += 1
        self._receipted += verdict.counts.get("receipted", 0)
        passed_s = time.monotonic() - self._begun
        print(
            f"{self._made}/{self._total}  {self._receipted:,} messages  {passed_s / 60:.1f} min"
            f"  seed {verdict.seed} {verdict.fault}: {verdict.took_s:.1f} s",
            end="\n" if not verdict.is_good or not sys.stdout.isatty() else "\033[K\r",
            flush=True,
        )
        if not verdict.is_good:
            print("\n".join(_lines(verdict, self._folder)), flush=True)

    def end(self, seeds: range) -> int:
        """Print the summary; return the exit status."""
        bad = [each for each in self._results if each.seed in seeds and not each.is_good]
        known = [each for each in self._results if each.seed in seeds]
        receipted = sum(each.counts.get("receipted", 0) for each in known)
        print(f"\n{len(known)} of {len(seeds)} seeds, {receipted:,} messages with their receipts")
        if bad:
            print(f"{len(bad)} have found something: {', '.join(str(each.seed) for each in bad)}")
        return 1 if bad else 0


def _lines(verdict: Verdict, folder: Path) -> Iterator[str]:
    """Yield the lines that describe a bad verdict and the command that repeats the run."""
    yield from (f"  {text}" for text in verdict.texts)
    if verdict.problem:
        yield verdict.problem
    yield f"  its history is in {folder / f'campaign-{verdict.seed}.jsonl'}; to run it again:"
    kind = " lease" if verdict.fault.startswith("lease") else ""
    yield f"  python -m tests.campaign{kind} --seeds {verdict.seed} --again"


if __name__ == "__main__":
    sys.exit(main())
