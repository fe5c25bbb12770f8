"""Run the suite, in parts side by side.

The quick lane is what each change has to pass: style, types, all tests but those marked "matrix".
Tests of the broker and of the codec run on compiled modules; those of the codec also as Python,
without its properties. The matrix lane has the tests marked "matrix": other brokers and versions,
long series of kills, a short campaign of faults; and everything as Python.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.suite import lanes
from tests.suite.memory import files_in_memory
from tests.suite.parts import ROOT, TIMES, Part, Times, read_times
from tests.suite.progress import Progress, announce, summarise
from tests.suite.running import Outcome, Runner

#: Parts at a time for each processor, by lane: tests spend much time waiting, those of the matrix
#: lane less.
_SLOTS: Final = {"quick": 5, "matrix": 3, "all": 3}
#: Variable with the database servers that tests use.
_SERVERS: Final = "STOMPKIT_TEST_SERVERS"
#: Shortest duration of a file that is recorded, in seconds.
_LEAST_S: Final = 0.1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that are chosen; return the exit status."""
    options = _parser().parse_args(arguments)
    if options.slots is None:
        options.slots = _SLOTS[options.lane] * len(os.sched_getaffinity(0))
    times = read_times()
    if options.servers:
        os.environ[_SERVERS] = options.servers
    parts = _chosen(options, times)
    if options.list:
        for each in parts:
            print(f"{each.expected_s:6.0f} s  {each.name}")
        return 0
    if not parts:
        print("No part has such a name; --list prints all names.", file=sys.stderr)
        return 2
    announce(parts, options.slots)
    started = time.monotonic()
    try:
        with files_in_memory():
            outcomes = _run(parts, options)
    except KeyboardInterrupt:
        print("\nStopped.")
        return 130
    if options.record:
        _record(outcomes, times)
    return summarise(outcomes, time.monotonic() - started, options.logs)


def _run(parts: Sequence[Part], options: argparse.Namespace) -> list[Outcome]:
    progress = Progress(parts)
    runner = Runner(options.logs, options.slots)
    return runner.run(parts, progress.ended, lambda: progress.show(runner.running))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.suite",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--lane",
        choices=("quick", "matrix", "all"),
        default="quick",
        help="what to run (default: quick)",
    )
    add(
        "--only",
        nargs="+",
        default=[],
        metavar="NAME",
        help="run only the parts whose names begin so; --list prints the names",
    )
    add("--list", action="store_true", help="print the parts and their durations, and run nothing")
    add(
        "--slots",
        type=int,
        metavar="N",
        help="how many parts run at a time (default: five for each processor; three in the lanes"
        " matrix and all)",
    )
    add(
        "--pytest",
        type=shlex.split,
        default=[],
        metavar="OPTIONS",
        help="more options of pytest, in one word: --pytest='-k heartbeat'",
    )
    add(
        "--turn",
        type=int,
        metavar="DAY",
        help="of the matrix lane, only the parts whose turn it is on this day of the year",
    )
    add(
        "--limit",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="how long the parts of a --turn may take (default: 600)",
    )
    add(
        "--servers",
        metavar="NAMES",
        help="databases that `make servers` has fetched, in place of those that are installed: "
        "newest, or names such as 'postgresql-18 mysql-9', where MySQL takes MariaDB's place",
    )
    add(
        "--logs",
        type=Path,
        default=ROOT / "report" / "tests",
        metavar="DIR",
        help="folder for logs and JUnit reports (default: report/tests)",
    )
    add(
        "--record",
        action="store_true",
        help=f"keep the durations in {TIMES.relative_to(ROOT)}; the parts are made by them",
    )
    return parser


def _chosen(options: argparse.Namespace, times: Times) -> list[Part]:
    """Return the parts to run, the longest first."""
    parts: list[Part] = []
    if options.lane != "matrix":
        parts += lanes.quick(times, options.pytest)
    if options.lane != "quick":
        rest = list(lanes.matrix(times, options.pytest))
        if options.turn is not None:
            rest = lanes.turn(rest, options.turn, options.limit, options.slots)
        parts += rest
    if options.only:
        parts = [each for each in parts if each.name.startswith(tuple(options.only))]
    return sorted(parts, key=lambda part: -part.expected_s)


def _record(outcomes: Iterable[Outcome], times: Times) -> None:
    """Keep the durations of parts and files; those that did not run stay as they are."""
    new = {**times}
    for each in outcomes:
        new.update(_durations(each))
    kept = {name: round(seconds, 1) for name, seconds in sorted(new.items()) if seconds > _LEAST_S}
    TIMES.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _durations(outcome: Outcome) -> Mapping[str, float]:
    if not outcome.part.has_tests:
        return {outcome.part.name: outcome.duration_s}
    kind, files = outcome.part.kind, outcome.files
    # A file whose tests have all gone to another lane would keep its duration otherwise. The tests
    # of a state machine are reported in a file of Hypothesis.
    named = (word for word in outcome.part.command if word.endswith(".py"))
    return {f"{kind}{file}": files.get(file, 0.0) for file in named}


if __name__ == "__main__":
    sys.exit(main())
