"""How old a change is when a replica has it: from SEND to the commit of the target.

A broker in a process of its own gets changes of one row each, so many a second. The job replicate
receives them by itself, into a spool that is synced, and applies them to a database of SQLite, as
soon as the batch before is done. Somebody else looks all the time what the target has. Of each
batch the oldest change, which has waited longest for its turn, and the newest are noted; batches of
the first seconds do not count.

To try::

    python -m benchmarks.freshness --seconds 5 --warm-up 3
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from benchmarks._process import start
from benchmarks._report import Figure, broken, make_parser, positive, progress, report
from stompkit.client.blocking import BrokerUrl
from stompkit.replication.model.events import RowChange, Source, make_changeset
from stompkit.replication.model.frames import packets
from stompkit.spark.jobs import Pipeline
from stompkit.spark.jobs.settings import parse
from stompkit.testing import RunningBroker

_QUEUE: Final = "/queue/changes"
#: Interval in seconds between two looks at the target.
_LOOK_S: Final = 0.002
#: Longer than anything takes, in seconds.
_TIMEOUT_S: Final = 120.0


class Seen:
    """The times of the sent changes, and of their arrival in the target."""

    def __init__(self) -> None:
        """Start empty."""
        self.sent: list[float] = []
        #: The time and the number of changes at that time, for each batch.
        self.batches: list[tuple[float, int]] = []

    def ages(self, since: float) -> Iterator[tuple[float, float]]:
        """Return the ages of the oldest and of the newest change of each batch, in seconds."""
        before = 0
        for at, count in self.batches:
            if at >= since:
                yield at - self.sent[before], at - self.sent[count - 1]
            before = count


def publish(broker: RunningBroker, seen: Seen, per_s: float, seconds: float) -> None:
    """Send changes at a constant interval."""
    source = Source(kind="postgresql")
    with BrokerUrl(hosts=(f"{broker.host}:{broker.port}",)).link() as link:
        link.wait_connected(_TIMEOUT_S)
        begun = time.monotonic()
        for number in range(round(per_s * seconds)):
            time.sleep(max(0.0, begun + number / per_s - time.monotonic()))
            row = {"id": number, "name": f"customer {number}", "amount": number % 100}
            change = RowChange(table="orders", action="write", key={"id": number}, after=row)
            made = make_changeset("shop", number + 1, [change], source)
            seen.sent.append(time.monotonic())
            link.send(_QUEUE, packets(made)).result(_TIMEOUT_S)


@contextmanager
def watched(path: Path, seen: Seen) -> Iterator[None]:
    """Record the contents of the target until the context ends."""
    ended = threading.Event()

    def look() -> None:
        with closing(sqlite3.connect(path, timeout=_TIMEOUT_S)) as connection:
            last = 0
            while not ended.wait(_LOOK_S):
                (count,) = connection.execute("SELECT COALESCE(MAX(id) + 1, 0) FROM orders")
                if count[0] > last:
                    last = count[0]
                    seen.batches.append((time.monotonic(), last))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def run(directory: Path, broker: RunningBroker, per_s: float, seconds: float) -> Seen:
    """Run the job while changes arrive; return the observations."""
    path = directory / "target.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT, amount INT)")
    settings = parse(
        {
            "name": "freshness",
            "state-dir": str(directory / "state"),
            "source": {
                "spool": str(directory / "spool"),
                "hosts": f"{broker.host}:{broker.port}",
                "destination": _QUEUE,
            },
            "target": {"url": f"sqlite:///{path}"},
            "spark": {"master": "local[2]"},
        }
    )
    pipeline = Pipeline(settings, "replicate", trigger_s=0.0)
    job = threading.Thread(target=pipeline.run)
    job.start()
    seen = Seen()
    try:
        with watched(path, seen):
            publish(broker, seen, per_s, seconds)
            until = time.monotonic() + _TIMEOUT_S
            while not seen.batches or seen.batches[-1][1] < len(seen.sent):
                if time.monotonic() > until or not job.is_alive():
                    raise broken(f"of {len(seen.sent)} changes some are not in the target")
                progress(f"{pipeline.progress().changes:,} changes in the target")
                time.sleep(0.05)
    finally:
        pipeline.stop()
        job.join(_TIMEOUT_S)
    return seen


def main() -> int:
    """Measure and print."""
    parser = make_parser("freshness", __doc__ or "")
    parser.add_argument("--changes-per-s", type=positive, default=50, metavar="N")
    parser.add_argument("--seconds", type=positive, default=30, metavar="N", help="measured ones")
    parser.add_argument("--warm-up", type=positive, default=20, metavar="SECONDS")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stompkit-") as name:
        directory = Path(name)
        (directory / "broker").mkdir()
        with start(directory / "broker") as broker:
            seconds = options.warm_up + options.seconds
            seen = run(directory, broker, options.changes_per_s, seconds)
    ages = list(seen.ages(seen.sent[0] + options.warm_up))
    if len(ages) < 2:
        raise broken("there were too few batches: let it run longer")
    found = []
    for which, title in enumerate(("oldest", "newest")):
        own = [each[which] * 1000 for each in ages]
        found += [
            Figure(f"{title}_median_ms", f"{title} change of a batch, ms, median", median(own)),
            Figure(
                f"{title}_p95_ms", f"{title} change of a batch, ms, p95", quantiles(own, n=20)[-1]
            ),
        ]
    batches_per_s = len(ages) / options.seconds
    found.append(Figure("batches_per_s", "batches per second", batches_per_s, ",.1f"))
    return report(parser, options.json, found, [])


if __name__ == "__main__":
    sys.exit(main())
