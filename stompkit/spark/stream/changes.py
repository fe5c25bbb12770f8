"""Messages with changesets as one row for each change.

Values are not parsed: a row's key and its columns before and after remain the JSON of the message,
with the types of :mod:`stompkit.replication.model.values`. A message that is not a changeset also
becomes a row, with the operation ``unreadable`` and the error in the column ``problem``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stompkit.replication.model.events import FORMAT, EventError
from stompkit.spark.stream.columns import BATCH_BYTES, BATCH_ROWS, CHANGES
from stompkit.spark.stream.envelopes import (
    NULL,
    Change,
    Envelope,
    Source,
    read_envelope,
    read_envelopes,
)
from stompkit.spark.stream.headers import CHANGESET, first_values, several_parts
from stompkit.spark.stream.parts import Assembly, Large, Whole
from stompkit.spark.stream.pieces import Reader, Wholes
from stompkit.spool import Block

__all__ = ["UNREADABLE", "change_batches"]

#: Operation of a message that is not a changeset.
UNREADABLE: Final = "unreadable"
#: Minimum number of messages converted to columns at a time, so that decoded data is still in the
#: processor's cache.
_STEP: Final = 500
_NONE: Any = None
_UNREADABLE: Any = UNREADABLE
#: Envelope with the column values of an unreadable message.
_NOTHING: Final = Envelope(
    format=FORMAT,
    id=_NONE,
    origin=_NONE,
    sequence=_NONE,
    timestamp=_NONE,
    source=Source(kind=_NONE, position=_NONE, transaction=_NONE, is_snapshot=_NONE),
    changes=[Change(table=_NONE, action=_UNREADABLE, key=NULL, schema=_NONE)],
)
_OPENING, _N = b"{n"


class _Step:
    """The decoded data of some messages."""

    def __init__(self) -> None:
        self.ordinals: list[int] = []
        self.received_us: list[int] = []
        self.envelopes: list[Envelope] = []
        self.problems: list[str | None] = []

    def add(self, wholes: Iterable[Whole]) -> None:
        for whole in wholes:
            self.ordinals.append(whole.ordinal)
            self.received_us.append(whole.received_us)
            self.envelopes.append(_NOTHING if whole.envelope is None else whole.envelope)
            self.problems.append(whole.problem)

    def add_block(self, block: Block, envelopes: list[Envelope]) -> None:
        """Add the messages of a block, which are all whole changesets."""
        self.ordinals += range(block.first, block.end)
        self.received_us += block.received
        self.envelopes += envelopes
        self.problems += [None] * block.count


def change_batches(
    reader: Reader,
    partition: int,
    start: int,
    end: int,
    blocks: Iterable[Block],
    wholes: Wholes | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the changes in ``blocks``, the messages of a partition from ``start`` up to ``end``.

    A changeset in several messages belongs to the message that completes it, one of ``wholes`` if
    the driver has scanned the range. Other parts are looked up in ``reader`` before ``start``. A
    large changeset is in several batches, one for each of its parts.
    """
    with closing(Assembly(reader, partition, start, end, wholes)) as assembly:
        yield from _change_batches(partition, blocks, assembly)


def _change_batches(
    partition: int, blocks: Iterable[Block], assembly: Assembly
) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    step = _Step()
    for block in blocks:
        parts = several_parts(block)
        envelopes = None if parts else read_envelopes(block.body)
        if envelopes is None:
            for whole in _read(block, parts, assembly):
                if isinstance(whole, Whole):
                    step.add([whole])
                    continue
                waiting.append(_batch(partition, step))
                yield from _together(waiting)
                waiting, rows, step = [], 0, _Step()
                yield from _in_parts(partition, whole)
        else:
            step.add_block(block, envelopes)
        size += block.body.offsets[block.count] - block.body.offsets[0]
        if len(step.ordinals) >= _STEP or size >= BATCH_BYTES:
            waiting.append(_batch(partition, step))
            rows += waiting[-1].num_rows
            step = _Step()
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield from _together(waiting)
            waiting = []
            rows = size = 0
    step.add(assembly.rest())
    waiting.append(_batch(partition, step))
    yield from _together(waiting)


def _read(
    block: Block, parts: Mapping[int, tuple[str, str]], assembly: Assembly
) -> Iterator[Whole | Large]:
    """Yield the changesets that the messages of a block complete."""
    offsets = block.body.offsets.tolist()
    data = block.body.data
    names = first_values(block, CHANGESET) if parts else {}
    for row, received_us in enumerate(block.received.tolist()):
        ordinal = block.first + row
        body = data[offsets[row] : offsets[row + 1]]
        try:
            if row in parts:
                whole = assembly.add(ordinal, received_us, names.get(row), body, parts[row])
                if whole is not None:
                    yield whole
            else:
                yield Whole(ordinal, received_us, read_envelope(body))
        except EventError as problem:
            yield Whole(ordinal, received_us, None, str(problem))


def _in_parts(partition: int, large: Large) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a large changeset, if all of its parts are valid; otherwise its error.

    The parts are read twice, so that only one of them is in memory.
    """
    total = 0
    problem = None
    try:
        for envelope in large.parts():
            total += len(envelope.changes)
            step = _step_of(large, envelope)
            _batch(partition, step)
            if step.problems[0] is not None:
                raise EventError(step.problems[0])
    except EventError as error:
        problem = str(error)
    if problem is not None:
        step = _Step()
        step.add([Whole(large.ordinal, large.received_us, None, problem)])
        yield _batch(partition, step)
        return
    start = 0
    for envelope in large.parts():
        batch = _batch(partition, _step_of(large, envelope))
        numbers = pa.array(np.arange(start, start + batch.num_rows, dtype=np.int32))
        counts = pa.repeat(pa.scalar(total, pa.int32()), batch.num_rows)
        start += batch.num_rows
        for name, column in (("change", numbers), ("changes", counts)):
            batch = batch.set_column(batch.schema.get_field_index(name), name, column)
        yield from _together([batch.cast(CHANGES.arrow)])


def _step_of(large: Large, envelope: Envelope) -> _Step:
    """Return one part of a changeset as a step."""
    step = _Step()
    step.add([Whole(large.ordinal, large.received_us, envelope)])
    return step


def _together(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    batch = pa.concat_batches(batches)
    for at in range(0, batch.num_rows, 2 * BATCH_ROWS):
        yield batch.slice(at, 2 * BATCH_ROWS)


def _batch(partition: int, step: _Step) -> pa.RecordBatch:
    """Return a batch with one row for each change."""
    try:
        return _columns(partition, step)
    except (ValueError, OverflowError):
        # A value is not text, or not an object as required, or a time has another format.
        for at, envelope in enumerate(step.envelopes):
            if envelope is not _NOTHING:
                step.problems[at] = _checked(envelope)
                if step.problems[at] is not None:
                    step.envelopes[at] = _NOTHING
        return _columns(partition, step)


def _checked(envelope: Envelope) -> str | None:
    """Return the error of a changeset, or None after normalising its timestamp."""
    try:
        time = datetime.fromisoformat(envelope.timestamp)
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        envelope.timestamp = time.astimezone(UTC).isoformat()
        for change in envelope.changes:
            for values in (change.key, change.before, change.after, change.old_key):
                text = str(bytes(values), "utf-8")
                if not text.startswith("{") and (text != "null" or values is change.key):
                    return "this is no changeset: what is told of a row is no object"
    except (ValueError, OverflowError) as problem:
        return str(problem)
    return None


def _columns(partition: int, step: _Step) -> pa.RecordBatch:
    """Return the columns of a step; raises ValueError or OverflowError for invalid values."""
    envelopes = step.envelopes
    sources = [each.source for each in envelopes]
    by_message = [each.changes for each in envelopes]
    changes = list(chain.from_iterable(by_message))
    counts = np.fromiter(map(len, by_message), np.int32, len(envelopes))
    problems = _column("problem", step.problems)
    times = pa.array([each.timestamp for each in envelopes], pa.string())
    columns = {
        "_ordinal": _column("_ordinal", step.ordinals),
        "_received": _column("_received", step.received_us),
        "changeset_id": _column("changeset_id", [each.id for each in envelopes]),
        "origin": _column("origin", [each.origin for each in envelopes]),
        "sequence": _column("sequence", [each.sequence for each in envelopes]),
        "changes": pc.if_else(problems.is_null(), pa.array(counts), None),
        "source_kind": _column("source_kind", [each.kind for each in sources]),
        "source_position": _column("source_position", [each.position for each in sources]),
        "transaction": _column("transaction", [each.transaction for each in sources]),
        "is_snapshot": _column("is_snapshot", [each.is_snapshot for each in sources]),
        "committed": times.cast(CHANGES.arrow.field("committed").type),
        "problem": problems,
    }
    places = np.zeros(len(changes), np.int32)
    if (counts != 1).any():
        # Values shared by all changes of a changeset are converted once, and repeated for each.
        owners = np.repeat(np.arange(len(counts)), counts)
        firsts = np.cumsum(counts, dtype=np.int32) - counts
        places = np.arange(len(changes), dtype=np.int32) - np.repeat(firsts, counts)
        columns = {name: column.take(owners) for name, column in columns.items()}
    columns |= {
        "_partition": pa.repeat(pa.scalar(partition, pa.int32()), len(changes)),
        "change": pa.array(places),
        "operation": _column("operation", [each.action for each in changes]),
        "schema": _column("schema", [each.schema for each in changes]),
        "table": _column("table", [each.table for each in changes]),
        "key": _objects(
            [each.key for each in changes], most_nulls=len(problems) - problems.null_count
        ),
        "before": _objects([each.before for each in changes]),
        "after": _objects([each.after for each in changes]),
        "old_key": _objects([each.old_key for each in changes]),
    }
    return pa.RecordBatch.from_pydict(columns, schema=CHANGES.arrow)


def _column(name: str, values: list[Any]) -> pa.Array:
    kind = CHANGES.arrow.field(name).type
    # Many columns have one constant value, which is detected faster than it is converted.
    if values and values[0] == values[-1] and values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0], kind), len(values))
    return pa.array(values, kind)


def _objects(values: list[msgspec.Raw], *, most_nulls: int | None = None) -> pa.Array:
    """Return JSON objects as text, and ``null`` as NULL; raises ValueError for other values."""
    count = len(values)
    octets = b"".join(values)
    if not octets.isascii():
        str(octets, "utf-8")  # each begins and ends in ASCII, so each is valid UTF-8 as well
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, count), out=offsets[1:])
    # The first character of a JSON value determines its type.
    firsts = np.frombuffer(octets, np.uint8)[offsets[:-1]]
    are_objects = firsts == _OPENING
    if not (are_objects | (firsts == _N)).all():
        raise ValueError("no object")
    nulls = count - int(are_objects.sum())
    if most_nulls is not None and nulls > most_nulls:
        raise ValueError("null where there has to be an object")
    if nulls == count:
        return pa.nulls(count, pa.string())
    are_there = pa.py_buffer(np.packbits(are_objects, bitorder="little")) if nulls else None
    buffers = [are_there, pa.py_buffer(offsets), pa.py_buffer(octets)]
    return pa.Array.from_buffers(pa.string(), count, buffers, nulls)
