"""Time that one rejected change costs a batch of a pipeline, by wall-clock seconds and processor.

A spool has new rows, ten in a message. Spark applies them as one batch by two tasks: without
errors, with a value that does not fit its column, with such a value before many changes of its row,
and with a row that violates a unique key (databases only). To try::

    python -m benchmarks.rejected --target sqlite --changes 20000 --rounds 1
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Any, Final

from pyspark.sql import SparkSession
from sqlalchemy import create_engine

from benchmarks._process import need_proc
from benchmarks._report import Figure, broken, make_parser, positive, progress, report
from benchmarks.apply import processor_times, start_server
from stompkit.replication.model.events import RowChange, Source, encode, make_changeset
from stompkit.spark import spark_session
from stompkit.spark.apply import apply_changes
from stompkit.spark.targets import open_target
from stompkit.spool import Record, SpoolReader, SpoolWriter

#: Number of changes in a message, and of later changes of the row with the rejected value.
_MESSAGE: Final = 10
_LATER: Final = 2000
_SERVERS: Final = ("postgresql", "mariadb")
_FILES: Final = ("delta", "parquet")
_TABLE: Final = "CREATE TABLE t (id INTEGER PRIMARY KEY, a VARCHAR(40), b INTEGER UNIQUE)"
_KINDS: Final = {
    "good": "no error",
    "value": "a value that does not fit",
    "hot": "a value that does not fit, before many changes of its row",
    "unique": "a row that violates a unique key",
}


def main() -> int:
    """Measure and print."""
    parser = make_parser("rejected", __doc__ or "")
    targets = ("sqlite", *_SERVERS, *_FILES)
    parser.add_argument("--target", choices=targets, action="append")
    parser.add_argument("--changes", type=positive, default=100_000, metavar="N")
    parser.add_argument("--rounds", type=positive, default=3, metavar="N", help="take the medians")
    options = parser.parse_args()
    need_proc()
    found: list[Figure] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stompkit-")))
        for kind in _KINDS:
            _fill(folder / kind, list(_changes(kind, options.changes)))
        _fill(folder / "first", [_write(-1, -1)])
        spark = spark_session("rejected", master="local[2]")
        stack.callback(spark.stop)
        for target in options.target or targets:
            url = ""
            if target in _SERVERS:
                url = start_server(target, stack)
            kinds = [kind for kind in _KINDS if kind != "unique" or target not in _FILES]
            # The first batches warm up the Java virtual machine.
            rounds = ["good", "good", *(kind for _ in range(options.rounds) for kind in kinds)]
            took: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
            for number, kind in enumerate(rounds):
                place = folder / f"{target}-{number}"
                place.mkdir()
                seconds = _measured(spark, folder, kind, url or _url(target, place))
                progress(f"{target}, {kind}: {seconds[0]:.2f} s")
                if number >= 2:
                    took[kind].append(seconds)
            for kind in kinds:
                for at, (name, unit) in enumerate((("s", "seconds"), ("cpu_s", "processor"))):
                    value = median(each[at] for each in took[kind])
                    title = f"{target}, {_KINDS[kind]}: {unit}"
                    found.append(Figure(f"{target}_{kind}_{name}", title, value, ",.2f"))
    return report(parser, options.json, found, [])


def _url(target: str, place: Path) -> str:
    return f"sqlite:///{place}/copy.sqlite" if target == "sqlite" else f"{target}://{place}/tables"


def _write(number: int, value: object) -> RowChange:
    after = {"id": number, "a": f"text {number}", "b": value}
    return RowChange(table="t", action="write", key={"id": number}, after=after)


def _changes(kind: str, count: int) -> Iterator[RowChange]:
    bad = count // 2
    step = max(1, (count - bad) // _LATER)
    for number in range(count):
        value: Any = number
        if number == bad and kind != "good":
            value = 3 if kind == "unique" else "many"
        if kind == "hot" and number > bad and (number - bad) % step == 0:
            told = {"a": f"again {number}"}
            yield RowChange(table="t", action="update", key={"id": bad}, after=told)
        else:
            yield _write(number, value)


def _fill(folder: Path, changes: list[RowChange]) -> None:
    source = Source(kind="test")
    headers = (("content-type", "application/json"),)
    with SpoolWriter(folder, sync=False) as writer:
        group = []
        for at in range(0, len(changes), _MESSAGE):
            made = make_changeset("shop", at, changes[at : at + _MESSAGE], source, id=f"{at:032}")
            group.append(Record(0, "/queue/changes", "", made.id, "", headers, encode(made)))
        for at in range(0, len(group), 500):
            writer.append(group[at : at + 500])


def _measured(spark: SparkSession, folder: Path, kind: str, url: str) -> tuple[float, float]:
    """Apply a batch with dead letters; return the seconds, and those of processor."""
    if url.partition("://")[0] not in _FILES:
        engine = create_engine(url)
        with engine.begin() as connection:
            for name in ("t", "stompkit_pipeline_fence", "stompkit_pipeline_dead_letters"):
                connection.exec_driver_sql(f"DROP TABLE IF EXISTS {name}")
            connection.exec_driver_sql(_TABLE)
        engine.dispose()
    _apply(spark, folder / "first", url)
    before, begun = sum(processor_times().values()), time.perf_counter()
    letters = _apply(spark, folder / kind, url)
    took = time.perf_counter() - begun
    if letters != (kind != "good"):
        raise broken(f"{kind}: {letters} dead letters")
    return took, sum(processor_times().values()) - before


def _apply(spark: SparkSession, spool: Path, url: str) -> int:
    options = {"spool": str(spool), "payload": "ranges", "minPartitions": "2"}
    ranges = spark.read.format("stomp").options(**options).load()
    name = SpoolReader(spool).id
    with closing(open_target(url, create=url.partition("://")[0] in _FILES)) as target:
        done = apply_changes(
            ranges, target, pipeline="benchmark", spool=name, on_problem="dead-letter"
        )
    return done.dead_letters


if __name__ == "__main__":
    sys.exit(main())
