"""Files of an event store as data frames of Spark."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from stompkit.spark.eventstore.files import Entry

__all__ = ["changesets_frame", "times_frame"]

_EVENTS_COLUMNS: Final = "namespace string, event string, key string, ts double, expires double"
_HISTORY_COLUMNS: Final = (
    "namespace string, id string, number bigint, ts double, expires double, body binary"
)


def times_frame(spark: SparkSession, folder: Path, entries: Sequence[Entry]) -> DataFrame:
    """Return the latest unexpired time of each key in the files."""
    rows = _scan(spark, folder, entries, _EVENTS_COLUMNS)
    return rows.groupBy("namespace", "event", "key").agg(F.max("ts").alias("ts"))


def changesets_frame(spark: SparkSession, folder: Path, entries: Sequence[Entry]) -> DataFrame:
    """Return the unexpired changesets in the files, each once."""
    bases = [(Path(entry.path).name, entry.base) for entry in entries]
    files = spark.createDataFrame(bases, "file string, base bigint")
    rows = _scan(spark, folder, entries, _HISTORY_COLUMNS).join(F.broadcast(files), "file")
    rows = rows.withColumn("number", F.col("number") + F.col("base"))
    first = F.row_number().over(Window.partitionBy("namespace", "id").orderBy("number"))
    return (
        rows.withColumn("place", first)
        .where("place = 1")
        .select("namespace", "id", "number", "ts", F.col("body").cast("string").alias("body"))
    )


def _scan(spark: SparkSession, folder: Path, entries: Sequence[Entry], columns: str) -> DataFrame:
    """Return the unexpired rows of files, with the name of the file."""
    if not entries:
        return spark.createDataFrame([], f"{columns}, file string")
    paths = [f"file://{folder / entry.path}" for entry in entries]
    rows = spark.read.schema(columns).parquet(*paths)
    rows = rows.withColumn("file", F.col("_metadata.file_name"))
    return rows.where(F.col("expires") > time.time())
