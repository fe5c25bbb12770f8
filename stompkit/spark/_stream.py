"""Reading a spool as a stream.

An offset is ``{"v": 1, "spool": ID, "p": {"0": ORDINAL, ...}}``: the id keeps a checkpoint from
being used with another spool, whose ordinals mean other messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from stompkit.spark._options import SourceOptions
from stompkit.spark._partitions import plan, read, resolve
from stompkit.spool import OtherSpool, SpoolProblem, SpoolReader, readers

if TYPE_CHECKING:
    from stompkit.spark._intake import Intake

__all__ = ["StreamReader"]

_FORMAT: Final = 1


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a spool batch by batch, and fills it where it is told brokers.

    Spark makes one in a process that lives as long as the query, and others that only read.
    """

    def __init__(self, options: SourceOptions) -> None:
        """Open nothing yet."""
        self._options: Final = options
        self._intake: Intake | None = None
        self._reader: SpoolReader | None = None
        #: Where a query that is to end when it has what there is ends.
        self._target: tuple[int, ...] | None = None
        self._is_registered = False

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without checkpoint begins."""
        reader = self._open()
        name, starting = self._options.reader, self._options.starting
        if name and (starting == "latest" or isinstance(starting, (int, float))):
            # Whether this is the first start can be told only by that.
            known = readers.listed(self._options.spool).get(name)
            if known is not None:
                return _offset(reader, known.positions)
        return _offset(reader, resolve(reader, starting))

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a micro-batch has at most."""
        return ReadMaxRows(self._options.max_records)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note what there is; where it receives by itself, once the broker has no more."""
        reader = self._open()
        if self._intake is not None:
            self._intake.drain()
        self._target = reader.head()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends.

        Raises :class:`~stompkit.spool.OtherSpool`, :class:`~stompkit.spool.DataLost`, and
        SpoolProblem where the spool ends before ``start``.
        """
        reader = self._open()
        begin = _ordinals(reader, start)
        self._register(begin)
        head = reader.head()
        if any(there < first for there, first in zip(head, begin, strict=True)):
            raise SpoolProblem(
                f"{reader.folder} ends at {list(head)}, and this query has read up to "
                f"{list(begin)}: the spool is an older copy. Bring back the newer one, or begin "
                "with a new checkpoint"
            )
        end = head if self._target is None else self._target
        if end == begin:
            return start
        if not isinstance(limit, ReadAllAvailable):
            # What was lost is no part of the bounds.
            floor = reader.floor()
            begin = tuple(max(pair) for pair in zip(begin, floor, strict=True))
            if self._options.max_bytes is not None:
                most = reader.bytes_limit(begin, self._options.max_bytes)
                end = tuple(min(pair) for pair in zip(end, most, strict=True))
            if isinstance(limit, ReadMaxRows):
                end = _fewer(begin, end, limit.max_rows)
        return _offset(reader, end)

    def reportLatestOffset(self) -> dict[str, Any]:
        """The end of the spool: what is between that and the query's is its lag."""
        reader = self._open()
        return _offset(reader, reader.head())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What tasks have to read; raises as :meth:`latestOffset` does."""
        reader = self._open()
        begin = _ordinals(reader, start)
        self._register(begin)
        return list(plan(reader, begin, _ordinals(reader, end), self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Note that retention may remove what is before."""
        if self._options.reader:
            positions = _ordinals(self._open(), end)
            readers.progress(self._options.spool, self._options.reader, positions)

    def stop(self) -> None:
        """Receive no more; where the process is killed instead nothing is lost, either."""
        if self._intake is not None:
            self._intake.close()

    def _open(self) -> SpoolReader:
        if self._intake is not None:
            self._intake.ensure()
        if self._reader is None:
            if self._options.broker is None:
                self._reader = SpoolReader(self._options.spool)
            else:
                # It brings Twisted, which processes that only read need not load.
                from stompkit.spark._intake import Intake

                self._intake = self._intake or Intake(self._options)
                self._reader = self._intake.open()
        return self._reader

    def _register(self, positions: tuple[int, ...]) -> None:
        if self._options.reader and not self._is_registered:
            readers.register(self._options.spool, self._options.reader, positions)
            self._is_registered = True


def _offset(reader: SpoolReader, ordinals: Sequence[int]) -> dict[str, Any]:
    positions = {str(number): ordinal for number, ordinal in enumerate(ordinals)}
    return {"v": _FORMAT, "spool": reader.id, "p": positions}


def _ordinals(reader: SpoolReader, offset: Mapping[str, Any]) -> tuple[int, ...]:
    """The ordinals of an offset; raises SpoolProblem where it is not one of this spool."""
    if offset.get("v") != _FORMAT:
        raise SpoolProblem(
            f"the checkpoint has offsets of format {offset.get('v')}, and {_FORMAT} is known"
        )
    if offset["spool"] != reader.id:
        raise OtherSpool(
            f"{reader.folder} has the spool {reader.id}, and the checkpoint is about "
            f"{offset['spool']}, whose ordinals are others: bring the former one back, or begin "
            "with a new checkpoint"
        )
    return tuple(offset["p"].get(str(number), 0) for number in range(reader.partitions))


def _fewer(start: tuple[int, ...], end: tuple[int, ...], most: int) -> tuple[int, ...]:
    """An end with at most so many messages, of each partition a share of what it has."""
    waiting = [max(last - first, 0) for first, last in zip(start, end, strict=True)]
    total = sum(waiting)
    if total <= most:
        return end
    shares = [most * each // total for each in waiting]
    for number in range(len(shares)):
        # What rounding has left, so that even a bound of one gets on.
        if sum(shares) < most and shares[number] < waiting[number]:
            shares[number] += 1
    return tuple(first + share for first, share in zip(start, shares, strict=True))
