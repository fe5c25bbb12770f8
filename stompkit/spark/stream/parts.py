"""Assembly of changesets in several messages, across the bounds of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stompkit.replication.model.events import FORMAT, Action, EventError, decode
from stompkit.spool import Block, DataLostError, Texts

__all__ = [
    "NULL",
    "Assembly",
    "Change",
    "Envelope",
    "Source",
    "header_values",
    "read_envelope",
    "read_envelopes",
    "several_parts",
]

#: Maximum distance before a task's range to look for earlier parts of a changeset, in messages of
#: the partition and in bytes.
_BACK_MESSAGES: Final = 100_000
_BACK_BYTES: Final = 256 * 1024 * 1024
#: Maximum distance in messages to look for later parts that were redelivered in another order: more
#: than brokers send ahead of acknowledgements.
_BACK_UNORDERED: Final = 2_000
#: Number of messages in one step back.
_STEP: Final = 500
#: Maximum size in bytes of parts that wait for others.
_MOST_WAITING: Final = 256 * 1024 * 1024

_NUMBER: Final = "stompkit-part"
_PARTS: Final = "stompkit-parts"
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Format = Annotated[int, msgspec.Meta(ge=FORMAT, le=FORMAT)]
#: Value of a row image that is not included.
NULL: Final = msgspec.Raw(b"null")


class Change(msgspec.Struct, gc=False):
    """A change whose values remain JSON."""

    table: str
    action: Action
    key: msgspec.Raw
    before: msgspec.Raw = NULL
    after: msgspec.Raw = NULL
    old_key: msgspec.Raw = NULL
    schema: str = ""


class Source(msgspec.Struct, gc=False):
    """Origin of a changeset, with the fields that have columns."""

    kind: str
    position: str = ""
    transaction: str = ""
    is_snapshot: bool = False


class Envelope(msgspec.Struct, gc=False):
    """A changeset, or a part of one."""

    format: _Format
    id: str
    origin: str
    sequence: _Int64
    #: Text, since many times are converted together.
    timestamp: str
    source: Source
    changes: list[Change]


class Whole(NamedTuple):
    """A completed changeset, or its error."""

    ordinal: int
    received_us: int
    #: None if there is an error.
    envelope: Envelope | None
    problem: str | None = None


class Reader(Protocol):
    """The interface that assembly needs from :class:`stompkit.spool.SpoolReader`."""

    def floor(self) -> tuple[int, ...]:
        """Return the first retained ordinal of each partition."""

    def blocks(self, partition: int, start: int, end: int) -> Iterator[Block]:
        """Yield the messages of a partition from ``start`` up to ``end``, exclusive."""


_DECODER: Final = msgspec.json.Decoder(Envelope)
_NOT_DECODED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_OPENING, _CLOSING = b"{}"


def read_envelope(body: memoryview) -> Envelope:
    """Parse the JSON of a changeset, but not its values.

    Raises :class:`~stompkit.replication.model.events.EventError`.
    """
    try:
        return _DECODER.decode(body)
    except _NOT_DECODED as error:
        reason = str(error)
    # The full parser reports the cause best, for example a newer format.
    decode(bytes(body))
    raise EventError(f"this is no changeset: {reason}")


def read_envelopes(bodies: Texts) -> list[Envelope] | None:
    """Parse all bodies of a block together, which is faster for small ones.

    Returns None if a body cannot be parsed that way; :func:`read_envelope` then determines which.
    """
    offsets = np.frombuffer(bodies.offsets, np.uint32)
    data = np.frombuffer(bodies.data, np.uint8)
    firsts, ends = offsets[:-1], offsets[1:]
    # A raw line break occurs in no JSON string. So each body contains as many documents as it would
    # alone, which is one if there are no more documents than bodies.
    if (
        not (firsts < ends).all()
        or (data[firsts] != _OPENING).any()
        or (data[ends - 1] != _CLOSING).any()
    ):
        return None
    lines = pa.ListArray.from_arrays(
        pa.array([0, len(firsts)], pa.int32()), _array(bodies, pa.binary())
    )
    try:
        found = _DECODER.decode_lines(pc.binary_join(lines, b"\n")[0].as_buffer())
    except _NOT_DECODED:
        return None
    return found if len(found) == len(firsts) else None


def several_parts(block: Block) -> Mapping[int, tuple[str, str]]:
    """Return the messages of a block that are parts, with number and count from their headers."""
    headers = block.headers
    names = _array(headers.names, pa.string())
    has_counts = pc.equal(names, _PARTS)
    values = _array(headers.values, pa.string())
    if pc.all(pc.equal(values.filter(has_counts), "1"), min_count=0).as_py():
        return {}
    counts = _by_message(block, values, has_counts)
    numbers = _by_message(block, values, pc.equal(names, _NUMBER))
    return {row: (numbers.get(row, "1"), of) for row, of in counts.items() if of != "1"}


def header_values(block: Block, name: str) -> tuple[np.ndarray, pa.Array]:
    """Return the rows of a block that have a header, and the values."""
    headers = block.headers
    places = np.flatnonzero(pc.equal(_array(headers.names, pa.string()), name))
    rows = np.frombuffer(headers.rows, np.uint32)
    owners = np.searchsorted(rows, places, side="right") - 1
    # A sliced block has more headers than messages.
    own = (owners >= 0) & (owners < block.count)
    return owners[own], _array(headers.values, pa.string()).take(pa.array(places[own]))


def _by_message(block: Block, values: pa.Array, are_wanted: pa.Array) -> dict[int, str]:
    """Return selected header values by message; the first of several."""
    places = np.flatnonzero(are_wanted)
    rows = np.frombuffer(block.headers.rows, np.uint32)
    owners = np.searchsorted(rows, places, side="right") - 1
    found: dict[int, str] = {}
    for row, value in zip(owners.tolist(), values.take(places).to_pylist(), strict=True):
        # A sliced block has more headers than messages.
        if 0 <= row < block.count:
            found.setdefault(row, value)
    return found


class _Partial:
    """An incomplete changeset."""

    def __init__(self, of: int) -> None:
        self.of = of
        self.found: dict[int, Envelope] = {}
        self.size = 0
        #: Ordinal and reception time of the message with the last part by number, once found.
        self.last: tuple[int, int] | None = None


class Assembly:
    """Assembles the changesets that one task completes, in the order of the messages.

    A changeset belongs to the message that contains its last part in partition order. The task that
    reads this message assembles it, and looks back for the earlier parts.
    """

    def __init__(self, reader: Reader, partition: int, start: int) -> None:
        """Start for a task that reads a partition from ``start`` on."""
        self._behind = _Behind(reader, partition, start)
        self._partials: dict[str, _Partial] = {}
        self._done: set[str] = set()
        self._size = 0

    def add(
        self, ordinal: int, received_us: int, envelope: Envelope, size: int, part: tuple[str, str]
    ) -> Whole | None:
        """Add a part of ``size`` bytes with the headers ``part``.

        Returns the changeset that it completes, or None. Raises
        :class:`~stompkit.replication.model.events.EventError`.
        """
        number, of = (_number(text) for text in part)
        if number > of:
            raise EventError(f"part {number} of {of}")
        if envelope.id in self._done:
            return None
        partial = self._partials.get(envelope.id)
        if partial is None:
            partial = self._partials[envelope.id] = _Partial(of)
            partial.found |= self._behind.find(envelope.id, number, of)
        if partial.of != of:
            raise EventError(f"changeset {envelope.id} had {partial.of} parts, and has {of} now")
        if number not in partial.found:
            if self._size + size > _MOST_WAITING:
                raise EventError(
                    f"parts of {len(self._partials)} changesets that are not whole take more than "
                    f"{_MOST_WAITING} octets"
                )
            partial.size += size
            self._size += size
        partial.found[number] = envelope
        if number == of:
            partial.last = (ordinal, received_us)
        if len(partial.found) < of:
            return None
        self._size -= partial.size
        del self._partials[envelope.id]
        self._done.add(envelope.id)
        changes = [change for n in range(1, of + 1) for change in partial.found[n].changes]
        return Whole(ordinal, received_us, msgspec.structs.replace(envelope, changes=changes))

    def rest(self) -> Iterator[Whole]:
        """Yield the errors of incomplete changesets whose last part was read."""
        for name, partial in self._partials.items():
            if partial.last is not None:
                missing = sorted(set(range(1, partial.of + 1)) - partial.found.keys())
                numbers = ", ".join(map(str, missing[:10])) + (", ..." if missing[10:] else "")
                yield Whole(
                    *partial.last,
                    None,
                    f"of the {partial.of} parts of changeset {name} these are not in the spool "
                    f"before the last one: {numbers}{self._behind.lost(missing)}",
                )


class _Behind:
    """The parts before the range of a task, as far as it had to look back."""

    def __init__(self, reader: Reader, partition: int, start: int) -> None:
        self._reader = reader
        self._partition = partition
        self._start = self._at = start
        self._size = 0
        self._is_at_end = False
        self._found: dict[str, dict[int, Envelope]] = {}

    def find(self, name: str, number: int, of: int) -> dict[int, Envelope]:
        """Return the other parts of a changeset of which part ``number`` was read."""
        earlier = set(range(1, number))
        later = set(range(number + 1, of + 1))
        while not self._is_at_end:
            have = self._found.get(name, {}).keys()
            if earlier <= have and (later <= have or self._at <= self._start - _BACK_UNORDERED):
                break
            self._step_back()
        return {n: each for n, each in self._found.get(name, {}).items() if n != number}

    def lost(self, missing: Sequence[int]) -> str:
        """Return advice about parts that retention may have removed; otherwise an empty string."""
        floor = self._reader.floor()[self._partition]
        if not floor or missing[0] != 1:
            return ""
        return (
            f". Retention has removed all messages before {floor}. To go on without this"
            " changeset, set on-problem to dead-letter and the source's gap to skip; to have its"
            " rows, copy the tables from the source again"
        )

    def _step_back(self) -> None:
        try:
            floor = self._reader.floor()[self._partition]
            low = max(self._at - _STEP, self._start - _BACK_MESSAGES, floor)
            self._is_at_end = low >= self._at or self._size > _BACK_BYTES
            if self._is_at_end:
                return
            for block in self._reader.blocks(self._partition, low, self._at):
                self._collect(block)
        except DataLostError:  # removed by retention meanwhile
            self._is_at_end = True
        self._at = low

    def _collect(self, block: Block) -> None:
        offsets, data = block.body
        self._size += offsets[block.count] - offsets[0]
        for row, (number, _) in several_parts(block).items():
            try:
                envelope = read_envelope(data[offsets[row] : offsets[row + 1]])
                self._found.setdefault(envelope.id, {})[_number(number)] = envelope
            except EventError:
                continue  # the task that reads that message reports it


def _array(texts: Texts, kind: pa.DataType) -> pa.Array:
    """Return texts as an Arrow array; the layout is the same."""
    buffers = [None, pa.py_buffer(texts.offsets), pa.py_buffer(texts.data)]
    return pa.Array.from_buffers(kind, len(texts.offsets) - 1, buffers)


def _number(text: str) -> int:
    # The length is checked first: int() raises another error for thousands of digits.
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0):
        raise EventError(f"{text[:20]!r} is no number of a part")
    return int(text)
