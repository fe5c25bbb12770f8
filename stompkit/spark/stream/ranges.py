"""Ranges of a spool instead of the changes in them: ``payload`` set to ``ranges``.

Rows passed from the source to a function of ``foreachBatch`` go through the Java virtual machine,
which is the largest cost. With ranges a row describes the input of one task, and the tasks that
apply changes read the spool.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from stompkit.spark.fence import Ranges
from stompkit.spark.stream.columns import CHANGES, RANGES
from stompkit.spark.stream.options import SourceOptions
from stompkit.spark.stream.partitions import SpoolRange, read
from stompkit.spark.stream.pieces import Wholes
from stompkit.spool import ServerAccess, SpoolReader

__all__ = ["are_ranges", "batches_of", "changes_of", "overlapping"]


def are_ranges(df: DataFrame) -> bool:
    """Return True if the rows are ranges."""
    return set(RANGES.arrow.names) <= set(df.columns)


def overlapping(batch: pa.RecordBatch, places: Ranges) -> Iterator[pa.RecordBatch]:
    """Yield the ranges of a batch that contain messages of others, one by one."""
    for number, row in enumerate(batch.to_pylist()):
        if row["_partition"] in places:
            (first, _), (last, _) = places[row["_partition"]]
            if row["_start"] <= last and first < row["_end"]:
                yield batch.slice(number, 1)


def batches_of(ranges: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the changes in ranges, with the source's columns; raises SpoolError."""
    for batch in ranges:
        for row in batch.to_pylist():
            options = SourceOptions(
                spool=row["_folder"],
                payload="changeset",
                fail_on_data_loss=row["_fail_on_data_loss"],
            )
            access = ServerAccess(**json.loads(row["_access"])) if row["_access"] else None
            reader = SpoolReader(row["_folder"], expect_id=row["_spool"], access=access)
            place = row["_partition"], row["_start"], row["_end"]
            order = tuple(map(tuple, json.loads(row["_order"]))) if row["_order"] else None
            since, places = json.loads(row["_wholes"]) if row["_wholes"] else (0, ())
            wholes = Wholes(since, tuple(places)) if row["_wholes"] else None
            yield from read(SpoolRange(reader, *place, options, order=order, wholes=wholes))


def changes_of(df: DataFrame) -> DataFrame:
    """Return the changes in ranges as a data frame."""
    return df.mapInArrow(batches_of, CHANGES.spark)
