"""How much memory ten million changes take, from a spool through an event store to its compaction.

A spool is filled with changesets of some changes each, without a broker. Then two commands run, one
after the other, each in a process of its own: the job ``events`` with whole changesets, until it
has all that there is, and the job ``compact``. The memory is all that was resident, at its highest
moment, of the driver, of the Java virtual machine, and of the largest of Spark's workers in Python,
as ``/proc`` tells. In the end it is counted what is stored.

Memory does not grow with the number of changes: compare two sizes to see that. To try::

    python -m benchmarks.compaction --changes 100000
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks._process import MIB, Process, processes
from benchmarks._report import Bound, Figure, broken, make_parser, positive, progress, report
from stompkit.spark.eventstore import SparkEventStore
from stompkit.spool import Record, SpoolWriter

_LOOK_S: Final = 0.5
#: Messages that are appended to the spool at once.
_GROUP: Final = 10_000
#: Average number of changes of a key.
_PER_KEY: Final = 4
_BEGIN_US: Final = 1_790_000_000_000_000
_ROLES: Final = ("driver", "jvm", "worker")
_PROGRAM: Final = (
    "import sys; from stompkit._commands.pipeline.command import main; sys.exit(main(sys.argv[1:]))"
)

_FILE: Final = """name = "big"
state-dir = "{folder}/state"
[source]
spool = "{folder}/spool"
maxRecordsPerTrigger = {rows}
[events]
path = "{folder}/events"
history = true
ttl = "forever"
[spark]
master = "local[2]"
"""


class Run(NamedTuple):
    """The resources that a command has used."""

    seconds: float
    processor_s: float
    #: Peak memory in bytes, by role.
    peaks: dict[str, int]


def records(changes: int, per_changeset: int) -> Iterator[list[Record]]:
    """Yield the messages in groups: changesets as JSON, built from texts for speed."""
    group: list[Record] = []
    keys = max(1, changes // _PER_KEY)
    for number, first in enumerate(range(0, changes, per_changeset)):
        rows = ",".join(
            f'{{"action":"update","after":{{"amount":{each % 1000},"id":{each * 7919 % keys},'
            f'"note":"note {each}","state":"paid"}},"before":{{"state":"new"}},'
            f'"key":{{"id":{each * 7919 % keys}}},"schema":"public","table":"orders"}}'
            for each in range(first, min(first + per_changeset, changes))
        )
        second, micros = divmod(number * 1000, 1_000_000)
        hours, rest = divmod(second, 3600)
        days, hours = divmod(hours, 24)
        stamp = f"2026-11-{days + 1:02}T{hours:02}:{rest // 60:02}:{rest % 60:02}.{micros:06}Z"
        body = (
            f'{{"changes":[{rows}],"format":1,"id":"changeset-{number}","origin":"shop",'
            f'"sequence":{number},"source":{{"kind":"postgresql","position":"0/{number:X}",'
            f'"transaction":"{number}"}},"timestamp":"{stamp}"}}'
        ).encode()
        name = f"c-{number}"
        group.append(
            Record(_BEGIN_US + number, "/queue/changes", name, name, "application/json", (), body)
        )
        if len(group) >= _GROUP:
            yield group
            group = []
    if group:
        yield group


def fill(folder: Path, changes: int, per_changeset: int) -> float:
    """Fill a spool; return the seconds taken."""
    begun = time.perf_counter()
    with SpoolWriter(folder, sync=False) as writer:
        for group in records(changes, per_changeset):
            writer.append(group)
            progress(f"{writer.head[0] * per_changeset:,} of {changes:,} changes in the spool")
    return time.perf_counter() - begun


def run(what: str, *arguments: str) -> Run:
    """Run a job, and sample its processes."""
    progress(f"the job {what} runs")
    begun = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", _PROGRAM, "run", what, *arguments]) as process:
        watch = Watch(process.pid)
        watch.start()
        status = process.wait()
        watch.end()
    if status:
        raise broken(f"the job {what} has ended with {status}")
    return Run(time.perf_counter() - begun, watch.processor_s, watch.peaks)


class Watch(threading.Thread):
    """Samples a process and all its descendants."""

    def __init__(self, pid: int) -> None:
        """Start without samples."""
        super().__init__(daemon=True)
        self._pid = pid
        self._ended = threading.Event()
        self._seconds: dict[int, float] = {}
        self.peaks = dict.fromkeys(_ROLES, 0)

    @property
    def processor_s(self) -> float:
        """Seconds of processor time of all of them, as far as sampled."""
        return sum(self._seconds.values())

    def run(self) -> None:
        """Sample until stopped."""
        while not self._ended.wait(_LOOK_S):
            there = processes()
            for pid, each in there.items():
                if pid != self._pid and not _is_below(pid, self._pid, there):
                    continue
                role = "driver" if pid == self._pid else "jvm" if each.name == "java" else "worker"
                self._seconds[pid] = each.own_s
                self.peaks[role] = max(self.peaks[role], peak(pid))

    def end(self) -> None:
        """Stop sampling."""
        self._ended.set()
        self.join()


def peak(pid: int) -> int:
    """Return the peak resident memory of a process in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def _is_below(pid: int, ancestor: int, there: dict[int, Process]) -> bool:
    while pid in there and pid > 1:
        pid = there[pid].parent
        if pid == ancestor:
            return True
    return False


def count(folder: Path) -> tuple[int, int]:
    """Return the number of changesets, without duplicates, and of the keys of one event."""
    store = SparkEventStore(folder, ttl=None, history=True, strict=True)
    changesets = sum(1 for _ in store.changesets())
    return changesets, len(store.replay("orders_update"))


def figures(name: str, made: Run, changes: int) -> list[Figure]:
    """Return the figures of a run."""
    found = [
        Figure(f"{name}_changes_per_s", f"{name}: changes per second", changes / made.seconds),
        Figure(f"{name}_s", f"{name}: seconds", made.seconds, ",.1f"),
        Figure(f"{name}_processor_s", f"{name}: processor, seconds", made.processor_s, ",.1f"),
    ]
    for role, peak in made.peaks.items():
        if peak:
            title = f"{name}: most memory of the {role}, MiB"
            found.append(Figure(f"{name}_{role}_mib", title, peak / MIB))
    return found


def main() -> int:
    """Measure and print."""
    parser = make_parser("compaction", __doc__ or "")
    parser.add_argument("--changes", type=positive, default=10_000_000, metavar="N")
    parser.add_argument("--changes-each", type=positive, default=5, metavar="N")
    parser.add_argument(
        "--rows", type=positive, default=100_000, metavar="N", help="messages of a batch"
    )
    parser.add_argument("--bound-mib", type=positive, metavar="N", help="for each process")
    options = parser.parse_args()
    changes: int = options.changes
    with tempfile.TemporaryDirectory(prefix="stompkit-") as name:
        folder = Path(name)
        filled_s = fill(folder / "spool", changes, options.changes_each)
        file = folder / "big.toml"
        file.write_text(_FILE.format(folder=folder, rows=options.rows), encoding="utf-8")
        config = ("--config", str(file), "--quiet")
        stored = run("events", *config, "--once")
        compacted = run("compact", *config)
        progress("counting")
        found = count(folder / "events")
        expected = -(-changes // options.changes_each), min(changes, max(1, changes // _PER_KEY))
        if found[0] != expected[0] or found[1] > expected[1]:
            raise broken(f"there are {found[0]} changesets instead of {expected[0]}")
    all_figures = [
        Figure("filled_changes_per_s", "spool: changes per second", changes / filled_s),
        *figures("events", stored, changes),
        *figures("compact", compacted, changes),
        Figure("changesets", "changesets that are stored, each once", found[0]),
        Figure("keys", "keys that are stored, each once", found[1]),
    ]
    bounds = []
    if options.bound_mib is not None:
        memory = [figure for figure in all_figures if figure.name.endswith("_mib")]
        bounds = [Bound(figure, options.bound_mib) for figure in memory]
    return report(parser, options.json, all_figures, bounds)


if __name__ == "__main__":
    sys.exit(main())
