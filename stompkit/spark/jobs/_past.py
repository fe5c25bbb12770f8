"""What changes there were up to some time: from an event store, or from a spool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from stompkit.spark._columns import APPLIED, CHANGES
from stompkit.spark._options import SourceOptions
from stompkit.spark._partitions import SpoolRange, read
from stompkit.spark._parts import Envelope, read_envelope
from stompkit.spark.eventstore import SparkEventStore
from stompkit.spark.jobs.settings import PipelineProblem, PipelineSettings, life
from stompkit.spool import SpoolProblem, SpoolReader

__all__ = ["SCHEMA", "Past", "open_past"]

#: What a change needs to be applied. Ordinals are counted from 1; those of a spool are its own.
SCHEMA: Final = pa.schema(
    [CHANGES.arrow.field(name) for name in (*APPLIED, "committed", "problem")]
)
#: Changes of a batch, about.
_BATCH: Final = 10_000
_NULL: Final = b"null"


class Past(Protocol):
    """Where the changes of the past are."""

    @property
    def name(self) -> str:
        """What it is, for people."""

    @property
    def fence(self) -> tuple[str, dict[int, int]] | None:
        """The id of the spool, and the ordinals of its last messages that are in here.

        ``None`` where not all is in here that is in the spool up to there.
        """

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All changes, also later ones, in the order in which they were applied.

        Where a time is given they have theirs, except for those that can't be read.
        """


def open_past(settings: PipelineSettings, at: datetime | None, until_ordinal: int | None) -> Past:
    """The past up to a time, and to an ordinal of a spool.

    That is the event store where it has a history, else the spool. Raises PipelineProblem where
    nothing has all of it.
    """
    events = settings.events
    if until_ordinal is None and events is not None and events.history:
        return _Stored(settings, at)
    try:
        return _Spooled(settings, at, until_ordinal)
    except SpoolProblem as problem:
        raise PipelineProblem(str(problem)) from None


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
            raise PipelineProblem(
                f"there is no event store {path}: `stompkit pipeline run events` makes it"
            )
        if self._store.has_lost_changesets():
            raise PipelineProblem(
                f"{self.name} has lost the oldest of its history, which is past the ttl in"
                ' [events]: a replica can\'t be made of the rest. Have ttl = "forever" there, and'
                " a snapshot in a store with another path; or, where the spool reaches back to its"
                " begin, leave out history"
            )
        try:
            spool = SpoolReader(settings.spool()).id
        except SpoolProblem:
            spool = ""
        # Both at once: the job events may be adding more.
        fence, self._end = self._store.reached(spool=spool, pipeline=settings.name)
        has_all = events.tables is None or (
            settings.apply.tables is not None and set(settings.apply.tables) <= set(events.tables)
        )
        self.fence: Final = (spool, fence) if spool and has_all and at is None else None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Changesets in the order of the spool."""
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
    """A spool from which nothing was removed."""

    def __init__(
        self, settings: PipelineSettings, at: datetime | None, until_ordinal: int | None
    ) -> None:
        reader = SpoolReader(settings.spool())
        self.name: Final = f"the spool {reader.folder}"
        floor = reader.floor()
        if any(floor):
            raise PipelineProblem(
                f"{self.name} begins with the message {max(floor)}: those before are removed, and a"
                " replica can't be made of the rest. The history of an event store can have them:"
                " history = true in [events]"
            )
        heads = reader.head()
        end = max(heads) if until_ordinal is None else until_ordinal + 1
        ends = [min(head, end) for head in heads]
        given = {**settings.source_options("replicate"), "payload": "changeset"}
        options = SourceOptions.parse(given)
        self._ranges: Final = [
            SpoolRange(reader, number, 0, last, options) for number, last in enumerate(ends)
        ]
        self.fence: Final = (
            None
            if at is not None
            else (reader.id, {number: last - 1 for number, last in enumerate(ends) if last})
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Changes, one partition after the other."""
        for part in self._ranges:
            for batch in read(part):
                yield batch.select(SCHEMA.names)


def _text(document: Any) -> str | None:
    octets = bytes(document)
    return None if octets == _NULL else octets.decode()
