"""Reading a spool as a batch: what it has when the batch is planned."""

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

from stompkit.spark._options import SourceOptions
from stompkit.spark._partitions import plan, read, resolve
from stompkit.spool import SpoolReader

__all__ = ["BatchReader", "FilteringReader"]

_Ends = tuple[tuple[int, ...], tuple[int, ...]]


class BatchReader(DataSourceReader):
    """Reads from one bound to another."""

    def __init__(self, options: SourceOptions) -> None:
        """Open nothing yet: it is made in several processes."""
        self._options: Final = options

    def partitions(self) -> Sequence[InputPartition]:
        """What tasks have to read, once the broker has no more; raises SpoolProblem."""
        reader = self._received()
        start, end = self._ends(reader)
        return list(plan(reader, start, end, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read(partition)

    def _received(self) -> SpoolReader:
        """The spool; with ``hosts`` it has what the broker had."""
        if self._options.broker is None:
            return SpoolReader(self._options.spool)
        # It brings Twisted, which processes that only read need not load.
        from stompkit.spark._intake import Intake

        with closing(Intake(self._options)) as intake:
            reader = intake.open()
            intake.drain()
        return reader

    def _ends(self, reader: SpoolReader) -> _Ends:
        head = reader.head()
        start = resolve(reader, self._options.starting)
        end = resolve(reader, self._options.ending)
        # What is asked for beyond the end is what there is not yet.
        bounded = tuple(min(last, most) for last, most in zip(end, head, strict=True))
        return start, bounded


class FilteringReader(BatchReader):
    """Reads less where a query wants only some places or times, which it is told before.

    Spark filters all rows again. It calls this only where its configuration allows.
    """

    def __init__(self, options: SourceOptions) -> None:
        """Know no filter yet."""
        super().__init__(options)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what bounds a place or a time, and leave all of it to Spark as well."""
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
    """The column, the comparison and the value of a filter that can leave out messages."""
    if isinstance(
        wanted, (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    ) and wanted.attribute in (("_partition",), ("_ordinal",), ("_received",)):
        return wanted.attribute[0], type(wanted), wanted.value
    return None
