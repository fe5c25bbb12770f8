"""Changes up to a time, from an event store or from a spool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from stompkit.spark.eventstore import SparkEventStore
from stompkit.spark.jobs.settings import PipelineError, PipelineSettings, life
from stompkit.spark.stream.columns import APPLIED, CHANGES
from stompkit.spark.stream.envelopes import Envelope, read_envelope
from stompkit.spark.stream.options import SourceOptions
from stompkit.spark.stream.partitions import plan, read
from stompkit.spark.stream.scans import present
from stompkit.spool import SpoolError

__all__ = ["SCHEMA", "Past", "open_past"]

#: Columns required to apply a change. Ordinals count from 1; those of a spool are the spool's.
SCHEMA: Final = pa.schema(
    [CHANGES.arrow.field(name) for name in (*APPLIED, "committed", "problem")]
)
#: Approximate number of changes in a batch.
_BATCH: Final = 10_000
_NULL: Final = b"null"


class Past(Protocol):
    """A source of past changes."""

    @property
    def name(self) -> str:
        """Name of the source, for users."""

    @property
    def fence(self) -> tuple[str, dict[int, int]] | None:
        """The id of the spool, and the ordinals of its last messages contained in the source.

        ``None`` if the source does not contain all messages of the spool up to there.
        """

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all changes, including later ones, in the order in which they were applied.

        If a time is given, changes contain their times, except for unreadable ones.
        """


def open_past(settings: PipelineSettings, at: datetime | None, until_ordinal: int | None) -> Past:
    """Return the past changes up to a time, and up to an ordinal of a spool.

    The source is the event store if it has a history, otherwise the spool. Raises PipelineError
    if neither is complete.
    """
    events = settings.events
    if until_ordinal is None and events is not None and events.history:
        return _Stored(settings, at)
    try:
        return _Spooled(settings, at, until_ordinal)
    except SpoolError as problem:
        raise PipelineError(str(problem)) from None


class _Stored:
    """The history of an event store."""

    def __init__(self, settings: PipelineSettings, at: datetime | None) -> None:
        events = settings.events
        assert events is not None
        path = Path(events.path).absolute()
        self.name: Final = f"the event store {path}"
        self._has_times: Final = at is not None
        self._store: Final = SparkEventStore(
            path, events.namespace, life(events.ttl), history=True, strict=True
        )
        if not path.is_dir():
            raise PipelineError(
                f"there is no event store {path}: `stompkit pipeline run events` makes it"
            )
        if self._store.has_lost_changesets():
            raise PipelineError(
                f"{self.name} has lost the oldest of its history, which is past the ttl in"
                ' [events]: a replica can\'t be made of the rest. Have ttl = "forever" there, and'
                " a snapshot in a store with another path; or, where the spool reaches back to its"
                " begin, leave out history"
            )
        self._check_covered(settings)
        try:
            spool = settings.open_spool().id
        except SpoolError:
            spool = ""
        # Both at once: the job events may add data concurrently.
        fence, self._end = self._store.reached(spool=spool, pipeline=settings.name)
        self.fence: Final = (spool, fence) if spool and at is None else None

    def _check_covered(self, settings: PipelineSettings) -> None:
        """Raise PipelineError if the history lacks changes that a replica needs."""
        covered = self._store.covered(settings.name)
        if not covered.is_whole:
            raise PipelineError(
                f"{self.name} has no complete history: the job events has begun at a later message,"
                " or has stored some without history = true. Have a store with another path, and"
                " run events again; or leave out history where the spool reaches back to its begin"
            )
        wanted = settings.apply.tables
        if covered.tables is not None and not (wanted and set(wanted) <= set(covered.tables)):
            raise PipelineError(
                f"{self.name} has all changes of these tables only: {', '.join(covered.tables)}."
                " Name no others in `tables` of [apply], or have a store of all tables with another"
                " path, and run events again"
            )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changesets in the order of the spool."""
        waiting: list[tuple[int, Envelope]] = []
        rows = 0
        for number, body in enumerate(self._store.changesets(end=self._end), 1):
            envelope = read_envelope(memoryview(body))
            waiting.append((number, envelope))
            rows += len(envelope.changes)
            if rows >= _BATCH:
                yield self._batch(waiting)
                waiting, rows = [], 0
        if waiting:
            yield self._batch(waiting)

    def _batch(self, sets: Iterable[tuple[int, Envelope]]) -> pa.RecordBatch:
        rows = [
            (
                0,
                ordinal,
                number,
                change.action,
                change.schema,
                change.table,
                bytes(change.key).decode(),
                _text(change.before),
                _text(change.after),
                _text(change.old_key),
                committed,
                None,
            )
            for ordinal, envelope in sets
            for committed in [
                datetime.fromisoformat(envelope.timestamp) if self._has_times else None
            ]
            for number, change in enumerate(envelope.changes)
        ]
        columns = zip(*rows, strict=True)
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class _Spooled:
    """A spool from which no message was removed."""

    def __init__(
        self, settings: PipelineSettings, at: datetime | None, until_ordinal: int | None
    ) -> None:
        reader = settings.open_spool()
        self.name: Final = f"the spool {reader.place}"
        floor = reader.floor()
        if any(floor):
            raise PipelineError(
                f"{self.name} begins with the message {max(floor)}: those before are removed, and a"
                " replica cannot be made of the rest. The history of an event store can have them:"
                " history = true in [events]"
            )
        heads = reader.head()
        end = max(heads) if until_ordinal is None else until_ordinal + 1
        ends = [min(head, end) for head in heads]
        given = {**settings.source_options("replicate"), "payload": "changeset"}
        options = SourceOptions.parse(given)
        # As the job replicate reads it: in the order of the origins.
        scans = present(reader, ends, options.gap)
        found = [each.end for each in scans]
        self._ranges: Final = plan(reader, floor, found, options, dict(enumerate(scans)))
        #: Ends of the partitions: messages in another order may be beyond the given ones.
        self._ends: Final = [min(pair) for pair in zip(ends, found, strict=True)]
        lasts = {number: last - 1 for number, last in enumerate(self._ends) if last}
        self.fence: Final = (reader.id, lasts) if at is None else None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes, one partition after the other."""
        for part in self._ranges:
            end = self._ends[part.partition]
            for batch in read(part):
                own = batch if part.end <= end else batch.filter(pc.less(batch["_ordinal"], end))
                yield own.select(SCHEMA.names)


def _text(document: Any) -> str | None:
    octets = bytes(document)
    return None if octets == _NULL else octets.decode()
