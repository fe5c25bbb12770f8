"""How soon a job of a pipeline applies its first row, and its memory while it waits for more.

A spool has 50 rows. ``stompkit pipeline run replicate`` is launched, and the target, an SQLite
file, is read until it has a row. Processor time is that of all processes of the job. The first
round has an empty cache: its job writes the archive of Java's classes at its end. The medians are
of the other rounds. After the last one, the job waits for changes for some time; its memory is then
the sum of the proportional set sizes (PSS) of its processes. To try::

    python -m benchmarks.first_row --rounds 1 --idle 10
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks._job import TABLE, fill, running
from benchmarks._process import MIB, family, need_proc, processes, shared_memory
from benchmarks._report import (
    Bound,
    Figure,
    make_parser,
    positive,
    progress,
    report,
    unusable,
)

_ROWS: Final = 50
#: Longer than any start takes, in seconds.
_TIMEOUT_S: Final = 300.0
#: Interval in seconds between two reads of the target.
_INTERVAL_S: Final = 0.02


class _Start(NamedTuple):
    """Seconds from the launch to the first row, and those of processor time."""

    elapsed_s: float
    processor_s: float


def main() -> int:
    """Measure and print."""
    parser = make_parser("first_row", __doc__ or "")
    add = parser.add_argument
    add("--rounds", type=positive, default=5, metavar="N", help="take the medians")
    add("--idle", type=float, default=90.0, metavar="S", help="wait before memory is measured")
    add("--max-s", type=float, default=6.0, metavar="S", help="bound of the median")
    add("--max-mib", type=float, default=600.0, metavar="MIB", help="bound of the memory")
    options = parser.parse_args()
    need_proc()
    starts = []
    with tempfile.TemporaryDirectory(prefix="stompkit-") as name:
        folder = Path(name)
        for number in range(options.rounds + 1):
            with _running(folder, number) as (job, began):
                starts.append(_first_row(job, began, folder / f"{number}.sqlite"))
                progress(f"round {number}: {starts[-1].elapsed_s:.1f} s")
                if number == options.rounds:
                    progress(f"idle for {options.idle:g} s")
                    time.sleep(options.idle)
                    memory = sum(map(shared_memory, family(job.pid))) / MIB
    first, *others = starts
    found = [
        Figure("first_s", "first round: first row after seconds", first.elapsed_s, ",.1f"),
        Figure("first_cpu_s", "first round: processor time", first.processor_s, ",.1f"),
        Figure("later_s", "later: first row after seconds", _middle(others, 0), ",.1f"),
        Figure("later_cpu_s", "later: processor time", _middle(others, 1), ",.1f"),
        Figure("idle_mib", f"MiB after {options.idle:g} idle seconds", memory),
    ]
    bounds = [Bound(found[2], options.max_s), Bound(found[4], options.max_mib)]
    return report(parser, options.json, found, bounds)


def _middle(starts: list[_Start], at: int) -> float:
    return median(start[at] for start in starts)


@contextmanager
def _running(folder: Path, number: int) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """Launch a job with its own spool, target and state; stop it as an operator does."""
    spool, target, settings = (folder / f"{number}.{kind}" for kind in ("spool", "sqlite", "toml"))
    fill(spool, _ROWS, _ROWS)
    with closing(sqlite3.connect(target)) as database:
        database.execute(TABLE)
    settings.write_text(
        f'name = "first-row"\nstate-dir = "{folder}/{number}.state"\ntrigger = "0s"\n'
        f'[source]\nspool = "{spool}"\n[target]\nurl = "sqlite:///{target}"\n'
    )
    began = time.monotonic()
    caches = {"XDG_CACHE_HOME": str(folder / "cache")}
    with running("replicate", settings, folder / f"{number}.log", caches) as job:
        yield job, began


def _first_row(job: subprocess.Popen[bytes], began: float, target: Path) -> _Start:
    with closing(sqlite3.connect(f"file:{target}?mode=ro", uri=True)) as database:
        while not database.execute("SELECT count(*) FROM parts").fetchone()[0]:
            if job.poll() is not None or time.monotonic() - began > _TIMEOUT_S:
                log = target.with_suffix(".log").read_text(errors="replace")
                raise unusable(f"the job has applied no row:\n{log}")
            time.sleep(_INTERVAL_S)
    elapsed_s = time.monotonic() - began
    used = processes(family(job.pid)).values()
    return _Start(elapsed_s, sum(each.own_s + each.ended_s for each in used))


if __name__ == "__main__":
    sys.exit(main())
