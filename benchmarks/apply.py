"""How fast a pipeline applies changes to a target, and whose processor time that takes.

A spool is filled with changesets of ten changes each of one table with ten columns. Then a stream
of Spark reads it, so many rows at a time, and applies them: first some batches that only warm up
the Java virtual machine, then those that are measured. That is done with two loads. ``mixed``: a
row changes three times in a batch, one in ten changes is a delete, three are writes and the others
are updates, half of which tell of two columns only. ``new``: every change is a new row.

Time is from the end of one batch to the end of another, and so is processor time: of this process,
which is the driver and commits; of Spark's workers, which are Python too; of the Java virtual
machine; and of the database's server where this program has started it. SQLite's is the driver's.

To try::

    python -m benchmarks.apply --target sqlite --rows 20000 --warm-up 1 --batches 2
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession
from sqlalchemy import create_engine, text

from benchmarks._process import Process, need_proc, processes
from benchmarks._report import Figure, broken, make_parser, positive, progress, report, unusable
from stompkit.replication.model.events import RowChange as Change
from stompkit.replication.model.events import Source, encode, make_changeset
from stompkit.spark import spark_session
from stompkit.spark.apply import Applied, applier
from stompkit.spool import Record, SpoolWriter
from tests.servers import MariaDb, PostgreSql, ServerMissing, SqlServer

#: Changes of one changeset, and so of one message.
_CHANGES: Final = 10
#: Number of changes of a row in a batch of the mixed load.
_REPEATS: Final = 3
_TABLE: Final = "orders"
_COLUMNS: Final = (
    "id INTEGER NOT NULL PRIMARY KEY, customer INTEGER NOT NULL, name TEXT, note TEXT,"
    " price NUMERIC(12, 2), amount INTEGER, ratio DOUBLE PRECISION, is_paid BOOLEAN,"
    " due DATE, made_at TIMESTAMP"
)
_LOADS: Final = ("mixed", "new")
#: Servers that this program starts.
_SERVERS: Final[dict[str, type[SqlServer]]] = {"postgresql": PostgreSql, "mariadb": MariaDb}
_PROCESSES: Final = ("driver", "workers", "jvm", "server")


class Moment(NamedTuple):
    """The state after a batch has been applied."""

    at_s: float
    #: Seconds of processor time until then, by process.
    processor_s: dict[str, float]
    applied: Applied


def changes(load: str, count: int, rows: int, draw: random.Random) -> Iterator[Change]:
    """Yield ``count`` changes, of as many rows as a batch of ``rows`` changes has."""
    keys = max(rows // _REPEATS, 1)
    for number in range(count):
        if load == "new":
            yield Change(table=_TABLE, action="write", key={"id": number}, after=_row(number, draw))
            continue
        key = draw.randrange(keys)
        kind = draw.random()
        if kind < 0.1:
            yield Change(table=_TABLE, action="delete", key={"id": key})
        elif kind < 0.4:
            yield Change(table=_TABLE, action="write", key={"id": key}, after=_row(key, draw))
        elif kind < 0.7:
            yield Change(table=_TABLE, action="update", key={"id": key}, after=_row(key, draw))
        else:
            told = {"customer": draw.randrange(10_000), "amount": number}
            yield Change(table=_TABLE, action="update", key={"id": key}, after=told)


def _row(key: int, draw: random.Random) -> dict[str, Any]:
    number = draw.randrange(1_000_000)
    made_at = datetime.fromtimestamp(1_700_000_000 + number, UTC).replace(tzinfo=None)
    return {
        "id": key,
        "customer": number % 10_000,
        "name": f"customer {number}",
        "note": None if number % 3 else f"to be delivered in the morning, {number}",
        "price": Decimal(number).scaleb(-2),
        "amount": number % 100,
        "ratio": number / 7,
        "is_paid": number % 2 == 0,
        "due": made_at.date(),
        "made_at": made_at,
    }


def fill(folder: Path, load: str, count: int, rows: int) -> None:
    """Create a spool with this many changes."""
    draw = random.Random(8)
    source = Source(kind="postgresql")
    group: list[Record] = []
    waiting: list[Change] = []
    headers = (("content-type", "application/json"),)
    with SpoolWriter(folder, sync=False) as writer:
        for number, change in enumerate(changes(load, count, rows, draw), 1):
            waiting.append(change)
            if len(waiting) == _CHANGES or number == count:
                sequence = -(-number // _CHANGES)
                made = make_changeset("shop", sequence, waiting, source, id=f"{sequence:032}")
                record = Record(0, "/queue/changes", "", made.id, "", headers, encode(made))
                group.append(record)
                waiting = []
            if len(group) == 500 or number == count:
                writer.append(group)
                group = []
                progress(f"{load}: {number:,} of {count:,} changes in the spool")


def run(
    spark: SparkSession, payload: str, folder: Path, url: str, load: str, rows: int, batches: int
) -> list[Moment]:
    """Apply a spool; return the state after each batch."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"DROP TABLE IF EXISTS {_TABLE}"))
        connection.execute(text(f"CREATE TABLE {_TABLE} ({_COLUMNS})"))
    engine.dispose()
    moments: list[Moment] = []

    def note(number: int, applied: Applied) -> None:
        moments.append(Moment(time.perf_counter(), processor_times(), applied))
        progress(f"{load}: batch {number + 1} of {batches} applied")

    spool = folder / "spool"
    stream = (
        spark.readStream.format("stomp")
        .option("spool", str(spool))
        .option("payload", payload)
        .option("maxRecordsPerTrigger", max(rows // _CHANGES, 1))
        .option("minPartitions", 2)
        .load()
    )
    query = (
        stream.writeStream.foreachBatch(applier(url, pipeline=load, on_applied=note))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    if sum(moment.applied.changes for moment in moments) != rows * batches:
        raise broken("not all changes were applied")
    return moments


def processor_times() -> dict[str, float]:
    """Return the seconds of processor time of this process and its children, by process."""
    there = processes()
    found = dict.fromkeys(_PROCESSES, 0.0)
    found["driver"] = time.process_time()
    for number, process in there.items():
        above = [each.name for each in _above(number, there)]
        if above:
            kind = "jvm" if process.name == "java" else "workers" if "java" in above else "server"
            found[kind] += process.own_s + process.ended_s
    return found


def _above(number: int, there: dict[int, Process]) -> list[Process]:
    """Return the ancestors of a process up to this one; none if this is not an ancestor."""
    found: list[Process] = []
    while number in there:
        number = there[number].parent
        if number in there:
            found.append(there[number])
        if number == os.getpid():
            return found
    return []


def figures(target: str, load: str, moments: list[Moment], rows: int) -> list[Figure]:
    """Return the figures of a run."""
    first, last = moments[0], moments[-1]
    count = rows * (len(moments) - 1)
    name = f"{target}_{load}"
    rate = count / (last.at_s - first.at_s)
    made = [Figure(f"{name}_changes_per_s", f"{target}, {load}: changes per second", rate)]
    each = {
        process: (last.processor_s[process] - first.processor_s[process]) / count * 1e6
        for process in _PROCESSES
    }
    each["all"] = sum(each.values())
    for process, microseconds in each.items():
        title = f"{target}, {load}: {process}, processor microseconds per change"
        made.append(Figure(f"{name}_{process}_us", title, microseconds, ",.1f"))
    return made


def main() -> int:
    """Measure and print."""
    parser = make_parser("apply", __doc__ or "")
    parser.add_argument("--target", choices=("sqlite", *_SERVERS), action="append")
    parser.add_argument("--url", help="a database of a server that is there: postgresql://...")
    parser.add_argument("--payload", choices=("ranges", "changeset"), default="ranges")
    parser.add_argument("--load", choices=_LOADS, action="append")
    parser.add_argument("--rows", type=positive, default=100_000, metavar="N", help="of a batch")
    parser.add_argument("--warm-up", type=positive, default=4, metavar="BATCHES")
    parser.add_argument("--batches", type=positive, default=5, metavar="N", help="measured ones")
    options = parser.parse_args()
    need_proc()
    batches = options.warm_up + options.batches
    rows = options.rows - options.rows % _CHANGES or _CHANGES
    found: list[Figure] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stompkit-")))
        targets = options.target or (["url"] if options.url else ["sqlite", "postgresql"])
        loads = options.load or _LOADS
        for load in loads:
            fill(directory / load / "spool", load, rows * batches, rows)
        spark = spark_session("apply", master="local[2]")
        stack.callback(spark.stop)
        for target in targets:
            url = options.url or f"sqlite:///{directory / 'target.sqlite'}"
            if target in _SERVERS and not options.url:
                url = start_server(target, stack)
            for load in loads:
                folder = directory / f"{target}-{load}"
                folder.mkdir()
                (folder / "spool").symlink_to(directory / load / "spool")
                moments = run(spark, options.payload, folder, url, load, rows, batches)
                found += figures(target, load, moments[options.warm_up - 1 :], rows)
    return report(parser, options.json, found, [])


def start_server(target: str, stack: ExitStack) -> str:
    """Start a server until ``stack`` ends; return the URL of a database of it."""
    try:
        server = _SERVERS[target]()
    except ServerMissing as missing:
        raise unusable(str(missing)) from None
    stack.callback(server.remove)
    server.start()
    return server.url(server.new_database())


if __name__ == "__main__":
    sys.exit(main())
