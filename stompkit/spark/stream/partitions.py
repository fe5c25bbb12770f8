"""Ranges of a spool to read, and their rows."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from stompkit.spark.stream.changes import change_batches
from stompkit.spark.stream.columns import RANGES, raw_batches
from stompkit.spark.stream.options import Payload, SourceOptions
from stompkit.spark.stream.order import Scan, Whole
from stompkit.spark.stream.pieces import Piece, Run, Wholes
from stompkit.spool import DataLostError, SpoolReader

__all__ = ["SpoolRange", "plan", "read"]

_log: Final = logging.getLogger(__name__)
#: Approximate size in bytes of a task, so that all cores have work.
_TASK_BYTES: Final = 16 * 1024 * 1024


class SpoolRange(InputPartition):
    """Input of one task: a range of a partition, without the messages."""

    def __init__(
        self,
        reader: SpoolReader,
        partition: int,
        start: int,
        end: int,
        options: SourceOptions,
        *,
        order: tuple[Run, ...] | None = None,
        wholes: Wholes | None = None,
    ) -> None:
        """Create a range from ``start`` up to ``end``; with ``order``, read these runs instead.

        ``wholes`` are the changesets in several messages that it completes, if that is known.
        """
        super().__init__((partition, start, end))
        self.reader: Final = reader
        self.partition: Final = partition
        self.start: Final = start
        self.end: Final = end
        self.payload: Final[Payload] = options.payload
        self.fail_on_data_loss: Final = options.fail_on_data_loss
        self.order: Final = order
        self.wholes: Final = wholes


def plan(
    reader: SpoolReader,
    start: Sequence[int],
    end: Sequence[int],
    options: SourceOptions,
    scans: Mapping[int, Scan] | None = None,
) -> list[SpoolRange]:
    """Return the ranges that tasks read; raises DataLostError if a message is no longer retained.

    ``scans`` are the results of scanning partitions for changesets, by partition. With
    ``failOnDataLoss=false`` available messages are read, and missing ones are logged.
    """
    begin = [
        _there(reader, number, first, is_strict=options.fail_on_data_loss)
        for number, first in enumerate(start)
    ]
    # After a crash of the first batch with startingOffsets=latest the start can be beyond the end.
    begin = [min(first, last) for first, last in zip(begin, end, strict=True)]
    octets = sum(
        reader.size(number, first, last)
        for number, (first, last) in enumerate(zip(begin, end, strict=True))
        if first < last
    )
    parts = max(options.min_partitions, -(-octets // _TASK_BYTES))
    ranges = reader.split(begin, end, parts)
    scans = scans or {}
    orders = {number: scan.pieces for number, scan in scans.items() if scan.pieces}
    bounds: list[tuple[int, int, int, tuple[Run, ...] | None]] = [
        (*each, None) for each in _halved(ranges, options.min_partitions) if each[0] not in orders
    ]
    for partition, pieces in orders.items():
        at = begin[partition]
        for piece in pieces:
            if at < piece.start:
                bounds.append((partition, at, piece.start, None))
            bounds.append((partition, piece.start, piece.end, piece.runs))
            at = piece.end
        if at < end[partition]:
            bounds.append((partition, at, end[partition], None))
    return [
        SpoolRange(
            reader,
            number,
            first,
            last,
            options,
            order=order,
            wholes=_within(scans[number].wholes, first, last) if number in scans else None,
        )
        for number, first, last, order in bounds
    ]


def _within(wholes: Sequence[Whole] | None, start: int, end: int) -> Wholes | None:
    """Return the changesets that a range completes; None if that is not known."""
    if wholes is None:
        return None
    own = [each for each in wholes if start <= each.place < end]
    since = min((each.since for each in own), default=start)
    return Wholes(since, tuple(each.place for each in own))


def _halved(ranges: Sequence[tuple[int, int, int]], least: int) -> list[tuple[int, int, int]]:
    """Return at least *least* ranges if there are enough messages, by splitting the largest."""
    made = list(ranges)
    while made and len(made) < least:
        largest = max(made, key=lambda each: each[2] - each[1])
        partition, start, end = largest
        if end - start < 2:
            break
        made.remove(largest)
        middle = (start + end) // 2
        made += [(partition, start, middle), (partition, middle, end)]
    return sorted(made)


def _there(reader: SpoolReader, partition: int, start: int, *, is_strict: bool) -> int:
    """Return the first ordinal from ``start`` on; raises DataLostError if that is not retained."""
    floor = reader.floor()[partition]
    if start >= floor:
        return start
    text = (
        f"messages {start} to {floor - 1} of partition {partition} of {reader.place} have been "
        "removed by retention"
    )
    if is_strict:
        raise DataLostError(
            f"{text}. To go on without them set the option failOnDataLoss to false; to have "
            "retention wait for this query, the option reader to a name",
            partition=partition,
            asked=start,
            there=floor,
        )
    _log.warning("%s, and are left out", text)
    return floor


def read(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range, as columns."""
    # If there is no range to read, Spark creates a partition itself.
    if not isinstance(partition, SpoolRange):
        return
    if partition.payload == "ranges":
        yield _told(partition)
        return
    reader, number = partition.reader, partition.partition
    start = _there(reader, number, partition.start, is_strict=partition.fail_on_data_loss)
    end = partition.end
    if start >= end:
        return
    if partition.payload == "changeset":
        if partition.order is None:
            blocks = reader.blocks(number, start, end)
        else:
            blocks = Piece(partition.start, end, partition.order).blocks(reader, number)
        yield from change_batches(reader, number, start, end, blocks, partition.wholes)
    else:
        yield from raw_batches(reader, number, start, end)


def _told(partition: SpoolRange) -> pa.RecordBatch:
    """Return the single row that describes the range."""
    access = partition.reader.access
    row = {
        "_folder": partition.reader.place,
        "_spool": partition.reader.id,
        "_access": "" if access is None else json.dumps(asdict(access)),
        "_partition": partition.partition,
        "_start": partition.start,
        "_end": partition.end,
        "_fail_on_data_loss": partition.fail_on_data_loss,
        "_order": "" if partition.order is None else json.dumps(partition.order),
        "_wholes": "" if partition.wholes is None else json.dumps(partition.wholes),
    }
    return pa.RecordBatch.from_pylist([row], schema=RANGES.arrow)
