"""How fast Spark gets what a spool has, and what each row costs.

Spools are filled once, one with messages of 200 octets, others with changesets of one
and of ten changes. Then Spark reads each as one batch, to nowhere (its format ``noop``) and into
files of Parquet. Beside each stands what the engine takes alone, with a source that has the same
batches of Arrow ready in files. All take turns in one session, after a round that does not count,
and figures are medians. Processor time is that of the Python workers and of the JVM.

To try::

    python -m benchmarks.pipeline --rows 50000 --rounds 1
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks._process import need_proc, processes
from benchmarks._report import Figure, broken, make_parser, positive, progress, report
from stompkit.replication.model.events import RowChange, Source, make_changeset
from stompkit.replication.model.frames import packets
from stompkit.spark import spark_session
from stompkit.spark.source import StompDataSource
from stompkit.spark.stream.batch import BatchReader
from stompkit.spark.stream.options import SourceOptions
from stompkit.spool import Record, SpoolWriter

_BEGIN: Final = datetime(2026, 11, 21, 12, tzinfo=UTC)
_BEGIN_US: Final = int(_BEGIN.timestamp()) * 1_000_000
_BODY: Final = b"x" * 200
#: Messages of a block of a busy receiver.
_GROUP: Final = 500
_TARGETS: Final = ("noop", "parquet")
#: Name, title, and number of changes in a message: 0 for plain messages.
_SPOOLS: Final = (
    ("raw", "messages", 0),
    ("single", "changes, 1 a message", 1),
    ("ten", "changes, 10 a message", 10),
)


class Measured(NamedTuple):
    """The time that one run has taken, in seconds."""

    seconds: float
    python_s: float
    java_s: float


# The input.


def messages(rows: int) -> Iterator[Record]:
    """Return messages as a broker delivers them."""
    for number in range(rows):
        headers = {
            "destination": "/queue/orders",
            "subscription": "1",
            "message-id": f"m-{number}",
            "event-id": f"e-{number}",
            "content-type": "text/plain",
            "content-length": "200",
        }
        yield _record(number, headers, _BODY)


def changesets(rows: int, changes: int) -> Iterator[Record]:
    """Return changesets of this many updates each."""
    for number, first in enumerate(range(0, rows, changes)):
        made = make_changeset(
            "shop",
            number + 1,
            [
                RowChange(
                    schema="public",
                    table="orders",
                    action="update",
                    key={"id": row},
                    before={"state": "new"},
                    after={"state": "paid", "amount": 100 + row, "customer": f"No. {row % 977}"},
                )
                for row in range(first, min(first + changes, rows))
            ],
            Source(kind="postgresql", position=f"0/{number:X}", transaction=f"t-{number}"),
            timestamp=_BEGIN,
        )
        for packet in packets(made):
            headers = {"destination": "/queue/changes", "message-id": f"m-{number}"}
            yield _record(number, headers | packet.headers, packet.body)


def _record(number: int, headers: dict[str, str], body: bytes) -> Record:
    return Record(
        _BEGIN_US + number,
        headers["destination"],
        headers["message-id"],
        headers["event-id"],
        headers["content-type"],
        tuple(headers.items()),
        body,
    )


def fill(folder: Path, records: Iterable[Record]) -> None:
    """Create a spool."""
    rest = iter(records)
    with SpoolWriter(folder, sync=False) as writer:
        while group := list(islice(rest, _GROUP)):
            writer.append(group)


# The engine alone.


class ReadyDataSource(DataSource):
    """A data source of prepared Arrow batches: each file of a folder is a task."""

    @classmethod
    def name(cls) -> str:
        """Return its name for ``format()``."""
        return "ready"

    def reader(self, schema: StructType) -> ReadyReader:
        """Return the reader of a batch; the schema must be given."""
        return ReadyReader(self.options["folder"])


class ReadyReader(DataSourceReader):
    """Maps the files into memory."""

    def __init__(self, folder: str) -> None:
        """Open nothing yet."""
        self._folder = folder

    def partitions(self) -> Sequence[InputPartition]:
        """Return the names of the files."""
        return [InputPartition(str(path)) for path in sorted(Path(self._folder).iterdir())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the batches of a file, without a copy."""
        file = pa.ipc.open_file(pa.memory_map(partition.value))
        return map(file.get_batch, range(file.num_record_batches))


def make_ready(options: dict[str, str], folder: Path) -> None:
    """Write the rows that each task reads of a spool into a file."""
    folder.mkdir()
    reader = BatchReader(SourceOptions.parse(options))
    for number, partition in enumerate(reader.partitions()):
        batches = reader.read(partition)
        first = next(batches)
        with pa.ipc.new_file(folder / f"{number:06}.arrow", first.schema) as file:
            file.write(first)
            for batch in batches:
                file.write(batch)


# Measurement.


def measure(spark: SparkSession, frame: DataFrame, target: str, folder: Path) -> Measured:
    """Read everything with Spark, and write it to a target."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm: int = gateway.proc.pid
    begun, java_s, python_s = time.perf_counter(), *_processor_s(jvm)
    frame.write.format(target).mode("overwrite").save(str(folder))
    seconds, (java_end_s, python_end_s) = time.perf_counter() - begun, _processor_s(jvm)
    shutil.rmtree(folder, ignore_errors=True)
    return Measured(seconds, python_end_s - python_s, java_end_s - java_s)


def _processor_s(pid: int) -> tuple[float, float]:
    """Return the processor time of a process and all its descendants, ended ones included."""
    there = processes()
    family = {pid}
    while more := {each for each, found in there.items() if found.parent in family} - family:
        family |= more
    own_s = there[pid].own_s
    return own_s, sum(there[each].own_s + there[each].ended_s for each in family) - own_s


def _figures(name: str, title: str, runs: list[Measured], rows: int) -> list[Figure]:
    python_us = median(each.python_s for each in runs) / rows * 1e6
    java_us = median(each.java_s for each in runs) / rows * 1e6
    both_us = median(each.python_s + each.java_s for each in runs) / rows * 1e6
    rate = rows / median(each.seconds for each in runs)
    return [
        Figure(f"{name}_rows_per_s", f"{title}: rows per second", rate),
        Figure(f"{name}_processor_us", f"{title}: microseconds a row", both_us, ",.2f"),
        Figure(f"{name}_python_us", "    of Python", python_us, ",.2f"),
        Figure(f"{name}_java_us", "    of the JVM", java_us, ",.2f"),
    ]


def source(spark: SparkSession, directory: Path, rows: int, rounds: int) -> list[Figure]:
    """Read spools, and the same rows without them."""
    spark.dataSource.register(StompDataSource)
    spark.dataSource.register(ReadyDataSource)
    frames: dict[tuple[str, str], DataFrame] = {}
    for name, title, changes in _SPOOLS:
        progress(f"filling: {title}")
        spool, ready = directory / name, directory / f"{name}-ready"
        fill(spool, changesets(rows, changes) if changes else messages(rows))
        options = {"spool": str(spool), "payload": "changeset" if changes else "raw"}
        make_ready(options, ready)
        frame = frames[name, "spool"] = spark.read.format("stomp").options(**options).load()
        alone = spark.read.format("ready").schema(frame.schema)
        frames[name, "engine"] = alone.option("folder", str(ready)).load()
    for (name, kind), frame in frames.items():
        if (count := frame.count()) != rows:
            raise broken(f"{name} has {count} rows instead of {rows} ({kind})")
    runs: dict[tuple[str, str, str], list[Measured]] = {}
    for number in range(rounds + 1):
        for (name, kind), frame in frames.items():
            for target in _TARGETS:
                progress(f"round {number} of {rounds}: {name}, {kind}, {target}")
                measured = measure(spark, frame, target, directory / "written")
                # In the first round the JVM compiles its code.
                if number:
                    runs.setdefault((name, kind, target), []).append(measured)
    hows = {"spool": "", "engine": ", the engine alone"}
    return [
        figure
        for name, title, _ in _SPOOLS
        for target in _TARGETS
        for kind, how in hows.items()
        for figure in _figures(
            f"{name}_{target}_{kind}", f"{title}, {target}{how}", runs[name, kind, target], rows
        )
    ]


def main() -> int:
    """Measure and print."""
    parser = make_parser("pipeline", __doc__ or "")
    parser.add_argument("--rows", type=positive, default=1_000_000, metavar="N")
    parser.add_argument("--rounds", type=positive, default=5, metavar="N")
    parser.add_argument("--cores", type=positive, default=2, metavar="N")
    options = parser.parse_args()
    need_proc()
    spark = spark_session("benchmark", master=f"local[{options.cores}]")
    try:
        with tempfile.TemporaryDirectory(prefix="stompkit-") as name:
            found = source(spark, Path(name), options.rows, options.rounds)
    finally:
        spark.stop()
    return report(parser, options.json, found, [])


if __name__ == "__main__":
    sys.exit(main())
