"""The CPU time of change data capture, beside Debezium's embedded engine.

A table gets rows of ten columns, in transactions of a given size. Publishers of stompkit and
Debezium's engine read the same rows from the log of the same database, in alternating runs over
TCP. These kinds of work are measured:

read     decode the rows and convert them to JSON, which is counted and dropped
publish  the same, and send the JSON to a broker until it has confirmed all
each     the same, with one frame for each event; only for transactions of one row

stompkit always sends one frame for each transaction. To publish, the engine has as many events in a
frame as fit.

All runs of the engine are in one Java virtual machine. The first run shows a cold machine; runs to
warm up follow, and then the measured ones. A figure is the median of the CPU time of the reading
process, with all of its threads. The rows of the first batch are left out, and so is the time until
then. Exit status 1 means that stompkit has missed its bound.

To try::

    python -m benchmarks.debezium --rows 10000 --rounds 1 --warm-up 1 --source postgresql
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks._compiled import measure_compiled
from benchmarks._report import Bound, Figure, make_parser, positive, progress, report, unusable
from benchmarks.debezium._databases import DATABASES, Database
from benchmarks.debezium._engine import Engine, application
from benchmarks.debezium._runs import BATCH_ROWS, Run, run_engine, run_stompkit
from stompkit.replication.model.frames import MAX_BODY_BYTES
from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.maven import BuildMissing
from tests.ports import free_ports
from tests.servers import ServerMissing

#: Maximum CPU time of stompkit as a share of the engine's.
_SHARE: Final = 1 / 3
_WORKS: Final = ("read", "publish", "each")
#: The readers, in the order of the figures.
_READERS: Final = ("stompkit", "debezium")
_numbers: Final = count(1)


def main() -> int:
    """Measure; return the exit status."""
    parser = make_parser("debezium", __doc__ or "")
    parser.add_argument("--source", choices=DATABASES, action="append", help="(default: all)")
    parser.add_argument("--rows", type=positive, default=50_000, help="(default: 50000)")
    parser.add_argument(
        "--transaction-rows",
        type=positive,
        action="append",
        metavar="N",
        help="rows of a transaction; may be repeated (default: 1 and 100)",
    )
    parser.add_argument(
        "--warm-up", type=positive, default=4, metavar="ROUNDS", help="(default: 4)"
    )
    parser.add_argument("--rounds", type=positive, default=5, help="(default: 5)")
    parser.add_argument(
        "--java", action="append", default=[], metavar="OPTION", help="an option of Java: -Xmx1g"
    )
    options = parser.parse_args()
    sizes = options.transaction_rows or [1, 100]
    least = 2 * max(BATCH_ROWS, *sizes)
    if options.rows < least:
        parser.error(f"--rows must be at least {least}: twice a batch or a transaction")
    measure_compiled("benchmarks.debezium")
    figures: list[Figure] = []
    bounds: list[Bound] = []
    with ExitStack() as stack:
        try:
            archives = application()
        except BuildMissing as missing:
            raise unusable(str(missing)) from None
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stompkit-")))
        data = ("--data", str(directory / "data"))
        broker = stack.enter_context(launch(LaunchConfig(arguments=data)))
        for database in _databases(stack, options.source):
            for size in sizes:
                database.fill(options.rows, size)
                name = f"{database.name}-{size}"
                with Engine(archives, directory / f"{name}.log", options.java) as engine:
                    for work in _WORKS if size == 1 else _WORKS[:2]:
                        runs = _measure(database, engine, broker, work, options)
                        title = f"{database.name}, {size} rows a transaction, {work}"
                        found = _figures(f"{database.name}_{size}_{work}", title, runs, options)
                        figures += found
                        bounds += [Bound(each, _SHARE) for each in found if "share" in each.name]
    if not figures:
        raise unusable("no database is installed")
    return report(parser, options.json, figures, bounds)


def _databases(stack: ExitStack, names: list[str] | None) -> Iterator[Database]:
    """Yield the running databases; without ``names`` the installed ones."""
    for name in names or DATABASES:
        [port] = stack.enter_context(free_ports())
        try:
            database = DATABASES[name](port)
        except ServerMissing as missing:
            if names:
                raise unusable(str(missing)) from None
            print(f"skipped: {missing}", file=sys.stderr)
            continue
        with database.server:
            yield database


def _measure(
    database: Database,
    engine: Engine,
    broker: RunningBroker,
    work: str,
    options: argparse.Namespace,
) -> dict[str, list[Run]]:
    """Return all runs by reader: a cold one, those to warm up, and the measured ones."""
    runs: dict[str, list[Run]] = {reader: [] for reader in _READERS}
    rounds = 1 + options.warm_up + options.rounds
    for number in range(rounds):
        # Each begins every second round.
        for reader in _READERS[:: -1 if number % 2 else 1]:
            progress(f"{database.name}: round {number + 1} of {rounds}, {reader}")
            target = None if work == "read" else (broker, f"/queue/changes-{next(_numbers)}")
            if reader == "debezium":
                frame_bytes = 1 if work == "each" else MAX_BODY_BYTES
                run = run_engine(database, options.rows, engine, target, frame_bytes=frame_bytes)
            else:
                run = run_stompkit(database, options.rows, target)
            runs[reader].append(run)
    return runs


def _figures(
    name: str, title: str, runs: dict[str, list[Run]], options: argparse.Namespace
) -> list[Figure]:
    figures = []
    cpu_s = {}
    for reader in _READERS:
        measured = runs[reader][-options.rounds :]
        cpu_s[reader] = median(run.cpu_s for run in measured)
        elapsed_s = median(run.elapsed_s for run in measured)
        start_s = median(run.start_cpu_s for run in measured)
        cold = runs[reader][0]
        of_reader = (
            ("per_core_s", "rows per second and core", 1 / cpu_s[reader], ",.0f"),
            ("per_s", "rows per second", 1 / elapsed_s, ",.0f"),
            ("cold_per_core_s", "rows per second and core, first run", 1 / cold.cpu_s, ",.0f"),
            ("start_s", "seconds of CPU time until the first rows", start_s, ".2f"),
            ("cold_start_s", "the same in the first run", cold.start_cpu_s, ".2f"),
            ("bytes", "bytes of JSON a row", measured[0].row_bytes, ",.0f"),
        )
        figures += [
            Figure(f"{name}_{reader}_{key}", f"{title}, {reader}: {about}", value, form)
            for key, about, value, form in of_reader
            if value
        ]
    share = cpu_s["stompkit"] / cpu_s["debezium"]
    return [*figures, Figure(f"{name}_share", f"{title}: stompkit's share", share, ".2f")]


if __name__ == "__main__":
    sys.exit(main())
