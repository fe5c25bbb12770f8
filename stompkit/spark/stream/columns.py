"""Columns of the rows that Spark receives, and messages as raw rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from stompkit.spool import SpoolReader
from stompkit.spool.sealing import arrow_batches

__all__ = [
    "APPLIED",
    "BATCH_BYTES",
    "BATCH_ROWS",
    "CHANGES",
    "RANGES",
    "RAW",
    "Columns",
    "raw_batches",
]

#: Minimum number of rows or bytes in a batch, if available: one batch costs Spark as much as some
#: hundred rows.
BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 8 * 1024 * 1024

_TIME: Final = pa.timestamp("us", tz="UTC")
#: Arrow types of the Spark types; batches must match them exactly.
_ARROW: Final[dict[DataType, pa.DataType]] = {
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    TimestampType(): _TIME,
    StringType(): pa.string(),
    BinaryType(): pa.binary(),
    BooleanType(): pa.bool_(),
    MapType(StringType(), StringType()): pa.map_(pa.string(), pa.string()),
}


class Columns:
    """Names and types of columns, for Spark and for Arrow."""

    def __init__(self, *columns: tuple[str, DataType]) -> None:
        """Create columns in the given order."""
        #: Schema for Spark.
        self.spark: Final = StructType([StructField(name, kind) for name, kind in columns])
        #: Schema for Arrow.
        self.arrow: Final = pa.schema([(name, _ARROW[kind]) for name, kind in columns])

    def __reduce__(self) -> tuple[object, ...]:
        columns = [(field.name, field.dataType) for field in self.spark.fields]
        return Columns, tuple(columns)


_PLACE: Final = (
    ("_partition", IntegerType()),
    ("_ordinal", LongType()),
    ("_received", TimestampType()),
)
#: Columns required to apply a change: its position and its content. Other columns are dropped.
APPLIED: Final = (
    "_partition",
    "_ordinal",
    "change",
    "operation",
    "schema",
    "table",
    "key",
    "before",
    "after",
    "old_key",
)
#: Columns of ranges that tasks are to read, instead of the rows in them.
RANGES: Final = Columns(
    ("_folder", StringType()),
    ("_spool", StringType()),
    # What the server of the spool requires, in JSON; empty for a folder. It contains the token.
    ("_access", StringType()),
    ("_partition", IntegerType()),
    ("_start", LongType()),
    ("_end", LongType()),
    ("_fail_on_data_loss", BooleanType()),
    # Ordinals in JSON if they are read out of order; otherwise empty.
    ("_order", StringType()),
    # Changesets in several messages that the range completes, in JSON; empty if unknown.
    ("_wholes", StringType()),
)
#: Columns of raw messages.
RAW: Final = Columns(
    *_PLACE,
    ("destination", StringType()),
    ("message_id", StringType()),
    ("event_id", StringType()),
    ("content_type", StringType()),
    ("headers", MapType(StringType(), StringType())),
    ("body", BinaryType()),
)
_HEADERS: Final = RAW.arrow.get_field_index("headers")
#: Columns of row changes: one row for each.
CHANGES: Final = Columns(
    *_PLACE,
    ("changeset_id", StringType()),
    ("origin", StringType()),
    ("sequence", LongType()),
    ("change", IntegerType()),
    ("changes", IntegerType()),
    ("operation", StringType()),
    ("schema", StringType()),
    ("table", StringType()),
    ("key", StringType()),
    ("before", StringType()),
    ("after", StringType()),
    ("old_key", StringType()),
    ("source_kind", StringType()),
    ("source_position", StringType()),
    ("transaction", StringType()),
    ("is_snapshot", BooleanType()),
    ("committed", TimestampType()),
    ("problem", StringType()),
)


def raw_batches(
    reader: SpoolReader, partition: int, start: int, end: int
) -> Iterator[pa.RecordBatch]:
    """Yield the raw messages of a partition; the columns of the spool are not copied."""
    for batch in arrow_batches(reader, partition, start, end, rows=BATCH_ROWS):
        number = pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows)
        columns = [number, *batch.columns]
        columns[_HEADERS] = _first_of_each(columns[_HEADERS])
        yield pa.RecordBatch.from_arrays(columns, schema=RAW.arrow)


def _first_of_each(headers: pa.MapArray) -> pa.MapArray:
    """Return the headers without repetitions: the first value of each name counts."""
    if not len(headers):
        return headers
    offsets = headers.offsets.to_numpy()
    first, end = int(offsets[0]), int(offsets[-1])
    names = headers.keys.slice(first, end - first).dictionary_encode()
    rows = np.repeat(np.arange(len(headers)), np.diff(offsets))
    places = rows * max(len(names.dictionary), 1) + names.indices.to_numpy(zero_copy_only=False)
    if pc.count_distinct(pa.array(places)).as_py() == len(places):
        return headers
    kept = np.sort(np.unique(places, return_index=True)[1])
    counts = np.bincount(rows[kept], minlength=len(headers))
    ends = np.concatenate(([0], np.cumsum(counts)))
    taken = pa.array(kept + first)
    return pa.MapArray.from_arrays(
        pa.array(ends, pa.int32()), headers.keys.take(taken), headers.items.take(taken)
    )
