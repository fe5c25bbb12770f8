"""Reading a spool as a batch: the messages that exist when the batch is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from stompkit.spark.stream.offsets import check_end, planned, resolve
from stompkit.spark.stream.options import SourceOptions
from stompkit.spark.stream.partitions import plan, read
from stompkit.spool import SpoolReader

__all__ = ["BatchReader", "FilteringReader"]

_Ends = tuple[tuple[int, ...], tuple[int, ...]]


class BatchReader(DataSourceReader):
    """Reads the messages between two bounds, or what a stream has read between two offsets."""

    def __init__(self, options: SourceOptions) -> None:
        """Start without open files: Spark creates readers in several processes."""
        self._options: Final = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the input partitions once the broker has no more messages; raises SpoolError."""
        reader = self._received()
        if self._options.batch is not None:
            return list(planned(reader, *self._options.batch, self._options))
        start, end = self._ends(reader)
        return list(plan(reader, start, end, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        return read(partition)

    def _received(self) -> SpoolReader:
        """Return the spool; with ``hosts``, after receiving all messages from the broker."""
        if self._options.broker is None:
            return self._options.open()
        # The import loads Twisted, which processes that only read do not need.
        from stompkit.spark.stream.intake import Intake

        with closing(Intake(self._options)) as intake:
            reader = intake.open()
            intake.drain()
        return reader

    def _ends(self, reader: SpoolReader) -> _Ends:
        start = resolve(reader, self._options.starting)
        head = check_end(reader, start)
        end = resolve(reader, self._options.ending)
        # Ordinals after the end do not exist yet.
        bounded = tuple(min(last, most) for last, most in zip(end, head, strict=True))
        return start, bounded


class FilteringReader(BatchReader):
    """Reads fewer messages if a query filters by partition, ordinal or reception time.

    Spark applies all filters again. It calls this only if its configuration allows filter pushdown.
    """

    def __init__(self, options: SourceOptions) -> None:
        """Start without filters."""
        super().__init__(options)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Store the filters that bound a position or time; return all filters to Spark as well."""
        self._filters = [each for each in filters if _bounds(each) is not None]
        return filters

    def _ends(self, reader: SpoolReader) -> _Ends:
        start, end = (list(each) for each in super()._ends(reader))
        for each in self._filters:
            bounds = _bounds(each)
            assert bounds is not None
            column, kind, value = bounds
            if column == "_partition" and kind is EqualTo:
                for number in range(reader.partitions):
                    if number != value:
                        end[number] = min(start[number], end[number])
                continue
            low: Sequence[int] | None = None
            high: Sequence[int] | None = None
            if column == "_ordinal" and isinstance(value, int):
                low = (value,) * reader.partitions
                high = (value + 1,) * reader.partitions
            elif column == "_received" and isinstance(value, datetime):
                low = reader.position_at(value.timestamp())
            if low is not None and kind in (EqualTo, GreaterThan, GreaterThanOrEqual):
                start = [max(pair) for pair in zip(start, low, strict=True)]
            if high is not None and kind in (EqualTo, LessThan, LessThanOrEqual):
                end = [min(pair) for pair in zip(end, high, strict=True)]
        return tuple(start), tuple(max(pair) for pair in zip(start, end, strict=True))


def _bounds(wanted: Filter) -> tuple[str, type[Filter], object] | None:
    """Return the column, comparison and value of a filter that can exclude messages, or None."""
    if isinstance(
        wanted, (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    ) and wanted.attribute in (("_partition",), ("_ordinal",), ("_received",)):
        return wanted.attribute[0], type(wanted), wanted.value
    return None
