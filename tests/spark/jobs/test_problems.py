"""Invalid messages, split changesets, and file targets, in jobs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.spark.eventstore.files import DEAD_LETTERS, Folder
from stompkit.spark.jobs import Pipeline, PipelineError, PipelineSettings
from stompkit.spark.jobs.events import Events
from stompkit.spark.jobs.settings import parse
from stompkit.spark.jobs.status import look
from stompkit.spark.stream.options import SourceOptions
from stompkit.spark.stream.reader import StreamReader
from stompkit.spark.targets.parquet import files_of
from stompkit.spool import Record, SpoolReader
from tests.replication.sinks.sql_targets import Target
from tests.spark.messages import BEGIN, fill, plain, records_of
from tests.spark.targets.test_targets import JOB
from tests.spark.targets.test_targets import Pipeline as Applying


def order(number: int, *, rows: int = 1) -> Changeset:
    """Return a transaction that writes rows from ``10 * number`` on."""
    changes = [
        RowChange(
            table="orders", action="write", key={"id": each}, after={"id": each, "a": "x" * 99}
        )
        for each in range(10 * number, 10 * number + rows)
    ]
    source = Source(kind="postgresql", transaction=f"t-{number}")
    return make_changeset("shop", number, changes, source, id=f"c-{number}", timestamp=BEGIN)


def orders(first: int, end: int) -> list[Record]:
    return list(records_of(order(number) for number in range(first, end)))


def settings_of(folder: Path, **more: Any) -> PipelineSettings:
    """Return a pipeline with an event store, and optionally a target."""
    found = {
        "name": "shop",
        "state-dir": str(folder / "state"),
        "source": {"spool": str(folder / "spool")},
        "spark": {"master": "local[2]"},
    }
    return parse({**found, **more})


def test_a_message_that_is_no_changeset_stops_is_a_dead_letter_or_is_ignored(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill(tmp_path / "spool", [*orders(0, 3), *plain(0, 1), *orders(3, 5)])
    source = spark.read.format("stomp").options(spool=str(tmp_path / "spool"), payload="changeset")
    df = source.load()
    path = str(tmp_path / "events")

    def events(how: str | None = None, at: str = path) -> Events:
        more = {} if how is None else {"on-problem": how}
        return Events(settings_of(tmp_path, events={"path": at, "history": True, **more}))

    # The job stops at the first one, and names it; nothing of the batch is stored.
    stopping = events()
    with pytest.raises(Exception, match="message 3 in partition 0 of the spool") as at:
        stopping.apply(df, 0, "s")
    assert 'on-problem = "dead-letter" in [events]' in stopping.explain(at.value)
    assert stopping.fence("s") == {}
    # Earlier messages are stored.
    assert stopping.apply(df.where("_ordinal < 3"), 0, "s").changes == 3
    burying = events("dead-letter")
    done = burying.apply(df, 0, "s")
    assert (done.changes, done.dead_letters) == (3, 1)
    (letter,) = burying.dead_letters("s")
    assert (letter["ordinal"], letter["operation"]) == (3, "unreadable")
    assert letter["problem"]
    assert burying.fence("s") == {0: 5}
    # The repeated batch changes nothing, and does not stop the job.
    assert burying.apply(df, 1, "s")[:3] == (0, 0, 0)
    assert len(burying.dead_letters("s")) == 1
    assert stopping.apply(df, 1, "s").changes == 0
    letters = tmp_path / "events" / DEAD_LETTERS
    for each in letters.rglob("*"):
        os.utime(each, (0, 0))
    Folder(tmp_path / "events", 0.0, sync=False).sweep()
    (file,) = files_of(letters, "stompkit_pipeline_dead_letters")
    assert pq.read_table(file).column("pipeline").to_pylist() == ["shop"]
    ignoring = events("ignore", str(tmp_path / "other"))
    assert ignoring.apply(df, 0, "s")[:3] == (6, 0, 0)
    assert ignoring.dead_letters("s") == []


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_files_are_a_target_of_the_job(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    if kind == "delta":
        pytest.importorskip("deltalake")
    spool = fill(tmp_path / "spool", [*orders(0, 3), *plain(0, 1), *orders(3, 5)])
    target = {"url": f"{kind}://{tmp_path / 'copy'}", "create": True}
    settings = settings_of(tmp_path, target=target)
    assert look(settings, "replicate").lag == 6
    with pytest.raises(PipelineError, match="message 3 in partition 0"):
        Pipeline(settings, "replicate", once=True, spark=spark).run()
    settings = settings_of(tmp_path, target=target, apply={"on-problem": "dead-letter"})
    pipeline = Pipeline(settings, "replicate", once=True, spark=spark)
    pipeline.run()
    assert (pipeline.progress().changes, pipeline.progress().dead_letters) == (5, 1)
    assert look(settings, "replicate").lag == 0
    if kind == "parquet":
        rows = sum(pq.read_table(path).num_rows for path in files_of(tmp_path / "copy", "orders"))
        told = json.loads((tmp_path / "copy" / "manifest.json").read_bytes())
        assert told["fences"]["shop"][SpoolReader(spool).id] == {"0": 5}
    else:
        from deltalake import DeltaTable

        rows = DeltaTable(str(tmp_path / "copy" / "orders")).count()
    assert rows == 5


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_transaction_is_never_applied_in_part_however_small_batches_are(
    tmp_path: Path, most: int
) -> None:
    # A transaction of a source is one changeset; a large one is several messages.
    sets = [order(1, rows=9), order(2, rows=1), order(3, rows=7)]
    records = list(records_of(sets, max_body_bytes=450))
    assert len(records) > 8
    spool = fill(tmp_path / "spool", *([record] for record in records))
    target = Target("sqlite", f"sqlite:///{tmp_path / 'copy.sqlite'}")
    target.execute("CREATE TABLE orders (id INT NOT NULL PRIMARY KEY, a VARCHAR(200))")
    applying = Applying(target.url, JOB)
    options = {
        "spool": str(spool),
        "payload": "changeset",
        "maxRecordsPerTrigger": str(most),
        "reader": "",
    }
    reader = StreamReader(SourceOptions.parse(options))
    start, counts = reader.initialOffset(), []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        rows = [
            row
            for task in reader.partitions(start, end)
            for batch in reader.read(task)
            for row in batch.to_pylist()
        ]
        if rows:
            applying.run(rows)
        counts.append(len(target.table("orders")))
        start = end
    applying.target.close()
    target.engine.dispose()
    assert len(counts) >= len(records) / most
    # Whole transactions, wherever a batch has ended.
    assert set(counts) <= {0, 9, 10, 17}
    assert counts[-1] == 17
