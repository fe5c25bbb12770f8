"""Jobs whose target has less than Spark's checkpoint: restored from a backup, or emptied."""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from stompkit.spark.jobs import JobName, Pipeline, PipelineError, load
from stompkit.spool import Record
from stompkit.spool.retention import retain
from stompkit.testing.launching.polling import wait_until
from tests.effort import in_matrix
from tests.spark.jobs.test_jobs import LONG_S, SIMPLE, Shop, expected, orders
from tests.spark.messages import fill

OLDER = "older than the checkpoint"
FENCE = "stompkit_pipeline_fence"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.describe({"spool": str(tmp_path / "spool")})
    return made


def append(shop: Shop, first: int, end: int) -> None:
    """Append changesets to the spool, each in a separate segment."""
    fill(shop.folder / "spool", *([each] for each in orders(first, end)), segment_bytes=1 << 8)


def with_target(shop: Shop, url: str) -> None:
    text = shop.file.read_text().replace(f"sqlite:///{shop.copy}", url)
    shop.file.write_text(text.replace("[target]\n", "[target]\ncreate = true\n"))


class Copies:
    """The target of a job, a file or a folder, and an older copy of it."""

    def __init__(self, shop: Shop, kind: str) -> None:
        """Configure the pipeline for a target of a kind."""
        self._shop = shop
        self._kind = kind
        self.job: JobName = "events" if kind == "events" else "replicate"
        self._place = {"sqlite": shop.copy, "events": shop.events}.get(kind, shop.folder / kind)
        if kind in ("delta", "parquet"):
            with_target(shop, f"{kind}://{self._place}")

    def run(self, spark: SparkSession) -> Pipeline:
        """Run the job until the target has everything in the spool."""
        return self._shop.run(spark, self.job)

    def keep(self) -> None:
        """Copy the target."""
        kept = self._place.with_name("kept")
        if self._place.is_dir():
            shutil.copytree(self._place, kept)
        else:
            shutil.copy(self._place, kept)

    def restore(self) -> None:
        """Put the copy in place of the target."""
        self.remove()
        self._place.with_name("kept").rename(self._place)

    def empty(self) -> None:
        """Create an empty target."""
        self.remove()
        if self._kind == "sqlite":
            self._shop.execute(SIMPLE)

    def remove(self) -> None:
        """Remove the target."""
        if self._place.is_dir():
            shutil.rmtree(self._place)
        else:
            self._place.unlink()

    def check(self, count: int) -> None:
        """Check that the target is as after this many changesets."""
        if self._kind in ("sqlite", "events"):
            self._shop.check(self.job, count)
            return
        if self._kind == "delta":
            deltalake = pytest.importorskip("deltalake")
            rows = deltalake.DeltaTable(str(self._place / "orders")).to_pyarrow_table().to_pylist()
        else:
            import pyarrow.dataset as ds

            from stompkit.spark.targets.parquet import files_of

            rows = ds.dataset(files_of(self._place, "orders")).to_table().to_pylist()
        assert sorted((row["id"], row["state"], row["seen"]) for row in rows) == expected(count)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("sqlite", "restored"),
        in_matrix("sqlite", "emptied"),
        ("delta", "restored"),
        in_matrix("delta", "emptied"),
        in_matrix("parquet", "restored"),
        ("parquet", "emptied"),
        in_matrix("events", "restored"),
        ("events", "emptied"),
    ],
)
def test_spool_is_read_again_where_the_target_is_older_than_the_checkpoint(
    spark: SparkSession, shop: Shop, kind: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    target = Copies(shop, kind)
    append(shop, 0, 20)
    assert target.run(spark).progress().changes == 20
    target.keep()
    append(shop, 20, 50)
    target.run(spark)
    append(shop, 50, 60)
    if what == "restored":
        target.restore()
    else:
        target.empty()
    with caplog.at_level(logging.WARNING):
        progress = target.run(spark).progress()
    assert OLDER in caplog.text
    assert progress.changes == (40 if what == "restored" else 60)
    target.check(60)
    caplog.clear()
    append(shop, 60, 65)
    assert target.run(spark).progress().changes == 5
    assert OLDER not in caplog.text
    target.check(65)


def test_checkpoint_that_is_a_uri_is_compared_too(
    spark: SparkSession, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    text = shop.file.read_text()
    shop.file.write_text(f'checkpoint = "file://{shop.folder}/checkpoints"\n{text}')
    target = Copies(shop, "sqlite")
    append(shop, 0, 20)
    target.run(spark)
    append(shop, 20, 25)
    target.run(spark)
    assert OLDER not in caplog.text
    target.empty()
    target.run(spark)
    assert OLDER in caplog.text
    target.check(25)


def test_target_that_becomes_older_while_the_job_runs_gets_all_again(
    spark: SparkSession, shop: Shop
) -> None:
    """A standby may be promoted without the latest changes."""
    append(shop, 0, 20)
    shop.run(spark, "replicate")
    kept = shop.copy.with_name("kept")
    shutil.copy(shop.copy, kept)
    append(shop, 20, 50)
    pipeline = Pipeline(load(shop.file), "replicate", spark=spark)
    thread = threading.Thread(target=pipeline.run)
    thread.start()
    try:
        assert wait_until(lambda: shop.done("replicate") == 50, LONG_S)
        with closing(sqlite3.connect(shop.copy, timeout=30)) as connection, connection:
            connection.execute("ATTACH ? AS kept", [str(kept)])
            connection.execute("BEGIN IMMEDIATE")
            for table in ("orders", FENCE):
                connection.execute(f"DELETE FROM main.{table}")
                connection.execute(f"INSERT INTO main.{table} SELECT * FROM kept.{table}")
        append(shop, 50, 60)
        assert wait_until(lambda: shop.done("replicate") == 60, LONG_S)
    finally:
        pipeline.stop()
        thread.join(LONG_S)
    assert pipeline.progress().phase == "ended"
    shop.check("replicate", 60)


@pytest.mark.parametrize("is_checkpoint_there", [True, False])
def test_job_stops_where_the_spool_has_lost_what_the_target_lacks(
    spark: SparkSession, shop: Shop, *, is_checkpoint_there: bool
) -> None:
    source: dict[str, Any] = {"spool": str(shop.folder / "spool"), "reader": ""}
    shop.describe(source)
    target = Copies(shop, "sqlite")
    append(shop, 0, 20)
    target.run(spark)
    target.keep()
    append(shop, 20, 50)
    target.run(spark)
    retain(shop.folder / "spool", max_bytes=1)
    append(shop, 50, 60)
    target.restore()
    if not is_checkpoint_there:
        shutil.rmtree(shop.folder / "state/shop/replicate/checkpoint")
    with pytest.raises(PipelineError, match=r"lacks the changes of the messages 20 to .*Restore"):
        target.run(spark)
    target.check(20)
    shop.describe({**source, "failOnDataLoss": False})
    target.run(spark)
    assert shop.done("replicate") == 60


def test_messages_without_changes_do_not_make_a_target_older(
    spark: SparkSession, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    append(shop, 0, 20)
    shop.run(spark, "replicate")
    fill(shop.folder / "spool", [again(each) for each in orders(10, 20)])
    assert shop.run(spark, "replicate").progress().changes == 0
    checkpoint = shop.folder / "state/shop/replicate/checkpoint/offsets"
    before = {path.name for path in checkpoint.iterdir()}
    append(shop, 20, 25)
    with caplog.at_level(logging.WARNING):
        assert shop.run(spark, "replicate").progress().changes == 5
    assert OLDER not in caplog.text
    assert {path.name for path in checkpoint.iterdir()} > before
    shop.check("replicate", 25)


def again(record: Record) -> Record:
    """Return the same changeset in another message."""
    headers = tuple(
        (name, f"{value}-again" if name == "event-id" else value) for name, value in record.headers
    )
    return record._replace(event_id=f"{record.event_id}-again", headers=headers)


def test_emptied_target_of_a_job_that_began_later_stops_it(spark: SparkSession, shop: Shop) -> None:
    shop.describe({"spool": str(shop.folder / "spool"), "startingOffsets": '{"0": 10}'})
    append(shop, 0, 20)
    shop.run(spark, "replicate")
    target = Copies(shop, "sqlite")
    target.empty()
    append(shop, 20, 25)
    with pytest.raises(PipelineError, match=r"has nothing of the spool, .*remove the checkpoint"):
        shop.run(spark, "replicate")
    shutil.rmtree(shop.folder / "state/shop/replicate/checkpoint")
    assert shop.run(spark, "replicate").progress().changes == 15


def test_counts_do_not_go_on_without_their_results(spark: SparkSession, shop: Shop) -> None:
    results = shop.folder / "analytics"
    shop.describe(
        {"spool": str(shop.folder / "spool")}, f"[analytics]\npath = {json.dumps(str(results))}\n"
    )
    append(shop, 0, 20)
    shop.run(spark, "analytics")
    shutil.rmtree(results)
    append(shop, 20, 25)
    with pytest.raises(PipelineError, match="Bring the results back"):
        shop.run(spark, "analytics")
