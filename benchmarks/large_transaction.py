"""Memory that one large transaction takes in a pipeline: staging by a task, and the commit.

It makes a spool with one changeset in parts of about 1 MiB, and applies that to an empty target, as
the task does that reads the last part. It prints the highest memory of the process. To try::

    python -m benchmarks.large_transaction --mib 300 --target sqlite:////tmp/copy.sqlite
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

from stompkit.replication.model.events import RowChange, Source, encode, make_changeset
from stompkit.spark.stream.changes import change_batches
from stompkit.spark.targets import Job, Staged, Target, open_target
from stompkit.spark.targets.planning.evolve import merged
from stompkit.spool import Record, SpoolReader, SpoolWriter

#: Number of changes in a part, and the size of a text in each.
CHANGES: Final = 1200
TEXT: Final = "x" * 700

T = TypeVar("T")


def main() -> None:
    """Print time and memory of each step."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=300, help="size of the transaction: 300")
    parser.add_argument("--target", required=True, help="URL of an empty target")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        reader = fill(Path(folder), given.mib)
        print(f"{given.mib * CHANGES} changes in {reader.head()[0]} messages")
        target = open_target(given.target, create=True)
        target.prepare()
        job = Job("large", reader.id, fence=target.fence("large", reader.id))
        # The first time, the target lacks the table.
        parts = stage(target, reader, job)
        target.evolve(merged(part.lacking for part in parts))
        target.discard(parts)
        parts = timed("staging", lambda: stage(target, reader, job))
        sent = sum(len(part.dump()) for part in parts)
        print(f"{len(parts)} parts, {sent} bytes pass through Spark")
        print(timed("commit", lambda: target.commit(parts, job)))
        target.close()


def fill(folder: Path, parts: int) -> SpoolReader:
    """Return a spool with one changeset in so many parts."""
    with SpoolWriter(folder, sync=False) as writer:
        for number, body in enumerate(bodies(parts), 1):
            labels = {"stompkit-changeset": "large", "stompkit-origin": "shop"}
            labels |= {"stompkit-sequence": "1", "stompkit-part": str(number)}
            labels |= {"stompkit-parts": str(parts)}
            place = ("/queue/changes", f"m-{number}", f"large.{number}", "application/json")
            now = time.time_ns() // 1000
            writer.append([Record(now, *place, tuple(labels.items()), body)])
    return SpoolReader(folder)


def bodies(parts: int) -> Iterator[bytes]:
    """Yield the parts of a changeset."""
    source = Source(kind="benchmark")
    for first in range(0, parts * CHANGES, CHANGES):
        rows = [
            RowChange(table="t", action="write", key={"id": each}, after={"id": each, "a": TEXT})
            for each in range(first, first + CHANGES)
        ]
        at = datetime.now(UTC)
        yield encode(make_changeset("shop", 1, rows, source, id="large", timestamp=at))


def stage(target: Target, reader: SpoolReader, job: Job) -> list[Staged]:
    """Return what a task sends to the driver that reads the last ten messages."""
    end = reader.head()[0]
    start = max(end - 10, 0)
    found = change_batches(reader, 0, start, end, reader.blocks(0, start, end))
    return list(target.stage(found, job))


def timed(what: str, do: Callable[[], T]) -> T:
    """Run a step, and print its time and the highest memory of the process."""
    begun = time.perf_counter()
    made = do()
    took = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{what}: {took:.1f} s, {peak} MiB")
    return made


if __name__ == "__main__":
    main()
