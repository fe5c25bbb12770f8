"""Reading a spool as a stream, from offset to offset."""

from __future__ import annotations

import logging
import time
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

from stompkit.spark.stream.offsets import (
    check_end,
    initial,
    made_offset,
    ordinals_of,
    origins_of,
    planned,
)
from stompkit.spark.stream.options import SourceOptions
from stompkit.spark.stream.origins import Gap, Origins
from stompkit.spark.stream.partitions import read
from stompkit.spark.stream.scans import WAY_OUT, Begins, Skips, settled
from stompkit.spool import SpoolError, SpoolReader

if TYPE_CHECKING:
    from stompkit.spark.stream.intake import Intake

__all__ = ["StreamReader"]

_log: Final = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a spool in micro-batches, and fills it if brokers are given.

    Spark creates one reader in a process that lives as long as the query, and others that only
    read.
    """

    def __init__(self, options: SourceOptions) -> None:
        """Start without open files."""
        self._options: Final = options
        self._intake: Intake | None = None
        self._reader: SpoolReader | None = None
        #: End of a query that stops after the messages available now.
        self._target: tuple[int, ...] | None = None
        self._is_registered = False
        #: Progress last reported to retention.
        self._noted: tuple[int, ...] | None = None
        #: Time since when changesets are missing, by origin and number; then the time of the last
        #: warning.
        self._waits: dict[tuple[str, int], float] = {}
        #: The same for changesets of which some parts are there, and nothing waits for the others.
        self._partial: dict[tuple[str, int], float] = {}
        self._reminded = float("-inf")

    def initialOffset(self) -> dict[str, Any]:
        """Return the start offset of a query without checkpoint."""
        return initial(self._open(), self._options)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the maximum size of a micro-batch."""
        return ReadMaxRows(self._options.max_records)

    def prepareForTriggerAvailableNow(self) -> None:
        """Record the current end; with brokers, after receiving all their messages."""
        reader = self._open()
        if self._intake is not None:
            self._intake.drain()
        self._target = reader.head()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end offset of the next micro-batch.

        Raises :class:`~stompkit.spool.OtherSpoolError`, :class:`~stompkit.spool.DataLostError`, and
        SpoolError if the spool ends before ``start``.
        """
        reader = self._open()
        begin = ordinals_of(reader, start)
        self._register(begin)
        # Spark reports a finished batch only when it starts the next one. It asks for offsets
        # before that, so a query that waits for messages does not appear to lag.
        self._note(begin)
        head = check_end(reader, begin)
        end = head if self._target is None else self._target
        if end == begin:
            self._watch(origins_of(start))
            return start
        if not isinstance(limit, ReadAllAvailable):
            # Lost messages do not count towards the limits.
            floor = reader.floor()
            begin = tuple(max(pair) for pair in zip(begin, floor, strict=True))
            most = reader.bytes_limit(begin, self._options.max_bytes)
            end = tuple(min(pair) for pair in zip(end, most, strict=True))
            if isinstance(limit, ReadMaxRows):
                end = _fewer(begin, end, limit.max_rows)
        if self._options.payload == "raw":
            return made_offset(reader, end)
        end, origins = self._ordered(reader, start, begin, end)
        return start if end == ordinals_of(reader, start) else made_offset(reader, end, origins)

    def _ordered(
        self,
        reader: SpoolReader,
        start: Mapping[str, Any],
        begin: tuple[int, ...],
        end: tuple[int, ...],
    ) -> tuple[tuple[int, ...], Origins]:
        """Return the end of a batch of ordered changesets; raises SpoolError."""
        head = reader.head() if self._target is None else self._target
        bounds = list(zip(begin, end, head, strict=True))
        policy = self._options.gap
        scans, origins = settled(reader, bounds, lambda: origins_of(start), self._decide, policy)
        ends = tuple(each.end for each in scans)
        if ends == head:
            self._watch(origins)
        return ends, origins

    def _decide(
        self,
        gaps: Sequence[Gap],
        skips: Skips,
        begins: Begins,
        *,
        is_stuck: bool,
    ) -> bool:
        """Decide how to handle gaps; return True if some are skipped.

        Raises SpoolError, but only after everything that can be applied has been applied.
        """
        options, now = self._options, time.monotonic()
        if self._target is None:
            # The time of a gap begins when the gap before it is passed, as in a consumer.
            gaps = [gap for gap in gaps if gap.is_first]
        self._waits = {
            (gap.origin, gap.missing): self._waits.get((gap.origin, gap.missing), now)
            for gap in gaps
        }
        goes_on = False
        for gap in gaps:
            assert gap.found is not None
            waited_s = now - self._waits[gap.origin, gap.missing]
            is_first = gap.is_beginning or gap.has_joined
            limit_s = options.beginning_wait_s if is_first else options.gap_timeout_s
            # A query that stops at the current end receives no further messages.
            if self._target is None and waited_s < limit_s:
                continue
            if gap.is_beginning:
                begins[gap.origin] = gap.found
                goes_on = True
            elif gap.has_joined:
                _log.warning("%s; the spool begins behind its first part, and it is left out", gap)
                skips.setdefault(gap.origin, []).append((gap.missing, gap.missing))
                goes_on = True
            elif options.gap == "skip":
                _log.warning("%s; it is passed over", gap)
                skips.setdefault(gap.origin, []).append((gap.missing, gap.found - 1))
                goes_on = True
            elif is_stuck and (options.gap == "stop" or self._target is not None):
                raise SpoolError(f"{gap}. {WAY_OUT}")
            else:
                self._remind(gap, now)
        return goes_on

    def _watch(self, origins: Origins) -> None:
        """Log changesets at the end of the spool that remain incomplete."""
        now = time.monotonic()
        partial = {
            (name, origin.last + 1): origin for name, origin in origins.known.items() if origin.seen
        }
        self._partial = {each: self._partial.get(each, now) for each in partial}
        for (name, missing), since in self._partial.items():
            if self._target is not None or now - since >= self._options.gap_timeout_s:
                parts = partial[name, missing].parts
                self._remind(Gap(name, missing, None, 0, parts=parts), now)

    def _remind(self, gap: Gap, now: float) -> None:
        """Log a gap, at a limited rate."""
        if now - self._reminded >= self._options.gap_timeout_s:
            self._reminded = now
            _log.warning("%s", gap)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the end of the spool: its distance from the query's offset is the lag."""
        reader = self._open()
        return made_offset(reader, reader.head())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the input partitions; raises the errors of :meth:`latestOffset`."""
        reader = self._open()
        self._register(ordinals_of(reader, start))
        return planned(reader, start, end, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        return read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Allow retention to remove the messages before an offset."""
        self._note(ordinals_of(self._open(), end))

    def _note(self, positions: tuple[int, ...]) -> None:
        """Report the progress of the query to retention."""
        if self._options.reader and positions != self._noted:
            self._open().progress(self._options.reader, positions)
            self._noted = positions

    def stop(self) -> None:
        """Stop receiving; no message is lost if the process is killed instead."""
        if self._intake is not None:
            self._intake.close()

    def _open(self) -> SpoolReader:
        if self._intake is not None:
            self._intake.ensure()
        if self._reader is None:
            if self._options.broker is None:
                self._reader = self._options.open()
            else:
                # The import loads Twisted, which processes that only read do not need.
                from stompkit.spark.stream.intake import Intake

                self._intake = self._intake or Intake(self._options)
                self._reader = self._intake.open()
        return self._reader

    def _register(self, positions: tuple[int, ...]) -> None:
        if self._options.reader and not self._is_registered:
            self._open().register(self._options.reader, positions)
            self._is_registered = True


def _fewer(start: tuple[int, ...], end: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Return an end with at most *most* messages, shared proportionally among partitions."""
    waiting = [max(last - first, 0) for first, last in zip(start, end, strict=True)]
    total = sum(waiting)
    if total <= most:
        return end
    shares = [most * each // total for each in waiting]
    for number in range(len(shares)):
        # Distribute the rounding remainder, so that a limit of one message makes progress.
        if sum(shares) < most and shares[number] < waiting[number]:
            shares[number] += 1
    return tuple(first + share for first, share in zip(start, shares, strict=True))
