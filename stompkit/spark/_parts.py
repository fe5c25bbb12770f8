"""Changesets in several messages, put together again across the bounds of what a task reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stompkit.replication.events import FORMAT, Action, EventProblem, decode
from stompkit.spool import Block, DataLost, Texts

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

#: How far before what a task reads it looks for the earlier parts of a changeset, in messages of
#: the partition and in octets of them.
_BACK_MESSAGES: Final = 100_000
_BACK_BYTES: Final = 256 * 1024 * 1024
#: How far it looks for parts that should come later, but were delivered again in another order:
#: more than brokers send ahead of acknowledgements.
_BACK_UNORDERED: Final = 2_000
#: How many messages one step back has.
_STEP: Final = 500
#: Octets of parts that wait for others.
_MOST_WAITING: Final = 256 * 1024 * 1024

_NUMBER: Final = "stompkit-part"
_PARTS: Final = "stompkit-parts"
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Format = Annotated[int, msgspec.Meta(ge=FORMAT, le=FORMAT)]
#: What stands for a row that is not told.
NULL: Final = msgspec.Raw(b"null")


class Change(msgspec.Struct, gc=False):
    """A change whose values are left as the JSON that they are."""

    table: str
    action: Action
    key: msgspec.Raw
    before: msgspec.Raw = NULL
    after: msgspec.Raw = NULL
    old_key: msgspec.Raw = NULL
    schema: str = ""


class Source(msgspec.Struct, gc=False):
    """Where a changeset comes from, as far as there are columns for it."""

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
    #: As text, since times are made of many at once.
    timestamp: str
    source: Source
    changes: list[Change]


class Whole(NamedTuple):
    """What a message has completed: a changeset, or the knowledge of what is wrong."""

    ordinal: int
    received_us: int
    #: None where there is a problem.
    envelope: Envelope | None
    problem: str | None = None


class Reader(Protocol):
    """What is used of :class:`stompkit.spool.SpoolReader`."""

    def floor(self) -> tuple[int, ...]:
        """The first ordinal of each partition that is still there."""

    def blocks(self, partition: int, start: int, end: int) -> Iterator[Block]:
        """The messages of a partition from ``start`` on and before ``end``."""


_DECODER: Final = msgspec.json.Decoder(Envelope)
_NOT_DECODED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_OPENING, _CLOSING = b"{}"


def read_envelope(body: memoryview) -> Envelope:
    """Read the JSON of a changeset, but not its values.

    Raises :class:`~stompkit.replication.events.EventProblem`.
    """
    try:
        return _DECODER.decode(body)
    except _NOT_DECODED as error:
        reason = str(error)
    # The reader of whole changesets tells best what it is, a newer format for one.
    decode(bytes(body))
    raise EventProblem(f"this is no changeset: {reason}")


def read_envelopes(bodies: Texts) -> list[Envelope] | None:
    """Read all bodies of a block together, which saves much where they are small.

    None where any can't be read so: then :func:`read_envelope` tells which.
    """
    offsets = np.frombuffer(bodies.offsets, np.uint32)
    data = np.frombuffer(bodies.data, np.uint8)
    firsts, ends = offsets[:-1], offsets[1:]
    # A line break is in no string, and between braces like these in no value: so each body is as
    # many documents as it would be alone, and that is one where there are no more than bodies.
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
    """The messages of a block that are parts: number and count as their headers have them."""
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
    """The headers of one name: which messages of the block have them, and their values."""
    headers = block.headers
    places = np.flatnonzero(pc.equal(_array(headers.names, pa.string()), name))
    rows = np.frombuffer(headers.rows, np.uint32)
    owners = np.searchsorted(rows, places, side="right") - 1
    # Of a block that was cut there are more headers than messages.
    own = (owners >= 0) & (owners < block.count)
    return owners[own], _array(headers.values, pa.string()).take(pa.array(places[own]))


def _by_message(block: Block, values: pa.Array, are_wanted: pa.Array) -> dict[int, str]:
    """Some of the values of headers, by the message that has them; of several the first."""
    places = np.flatnonzero(are_wanted)
    rows = np.frombuffer(block.headers.rows, np.uint32)
    owners = np.searchsorted(rows, places, side="right") - 1
    found: dict[int, str] = {}
    for row, value in zip(owners.tolist(), values.take(places).to_pylist(), strict=True):
        # Of a block that was cut there are more headers than messages.
        if 0 <= row < block.count:
            found.setdefault(row, value)
    return found


class _Partial:
    """A changeset of which some parts have been found."""

    def __init__(self, of: int) -> None:
        self.of = of
        self.found: dict[int, Envelope] = {}
        self.size = 0
        #: The message with the last part by number, once it was found: when it was received, too.
        self.last: tuple[int, int] | None = None


class Assembly:
    """Puts together the changesets that one task completes, in the order of the messages.

    A changeset is there when its last part is, by the order in the partition: whoever reads that
    message gets it, and looks back for the parts before.
    """

    def __init__(self, reader: Reader, partition: int, start: int) -> None:
        """Of a task that reads a partition from ``start`` on."""
        self._behind = _Behind(reader, partition, start)
        self._partials: dict[str, _Partial] = {}
        self._done: set[str] = set()
        self._size = 0

    def add(
        self, ordinal: int, received_us: int, envelope: Envelope, size: int, part: tuple[str, str]
    ) -> Whole | None:
        """Take a part of ``size`` octets, of which the headers say ``part``.

        Gives the changeset that it completes. Raises
        :class:`~stompkit.replication.events.EventProblem`.
        """
        number, of = (_number(text) for text in part)
        if number > of:
            raise EventProblem(f"part {number} of {of}")
        if envelope.id in self._done:
            return None
        partial = self._partials.get(envelope.id)
        if partial is None:
            partial = self._partials[envelope.id] = _Partial(of)
            partial.found |= self._behind.find(envelope.id, number, of)
        if partial.of != of:
            raise EventProblem(f"changeset {envelope.id} had {partial.of} parts, and has {of} now")
        if number not in partial.found:
            if self._size + size > _MOST_WAITING:
                raise EventProblem(
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
        """What is wrong with changesets whose last part was read, and that are not whole."""
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
    """The parts in front of what a task reads, as far as it had to look back."""

    def __init__(self, reader: Reader, partition: int, start: int) -> None:
        self._reader = reader
        self._partition = partition
        self._start = self._at = start
        self._size = 0
        self._is_at_end = False
        self._found: dict[str, dict[int, Envelope]] = {}

    def find(self, name: str, number: int, of: int) -> dict[int, Envelope]:
        """Parts of a changeset, of which ``number`` was read."""
        earlier = set(range(1, number))
        later = set(range(number + 1, of + 1))
        while not self._is_at_end:
            have = self._found.get(name, {}).keys()
            if earlier <= have and (later <= have or self._at <= self._start - _BACK_UNORDERED):
                break
            self._step_back()
        return {n: each for n, each in self._found.get(name, {}).items() if n != number}

    def lost(self, missing: Sequence[int]) -> str:
        """What to do about parts that retention may have removed; empty where it has not."""
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
        except DataLost:  # retention was faster
            self._is_at_end = True
        self._at = low

    def _collect(self, block: Block) -> None:
        offsets, data = block.body
        self._size += offsets[block.count] - offsets[0]
        for row, (number, _) in several_parts(block).items():
            try:
                envelope = read_envelope(data[offsets[row] : offsets[row + 1]])
                self._found.setdefault(envelope.id, {})[_number(number)] = envelope
            except EventProblem:
                continue  # whoever reads that message is told


def _array(texts: Texts, kind: pa.DataType) -> pa.Array:
    """As Arrow has them, which is how blocks do."""
    buffers = [None, pa.py_buffer(texts.offsets), pa.py_buffer(texts.data)]
    return pa.Array.from_buffers(kind, len(texts.offsets) - 1, buffers)


def _number(text: str) -> int:
    # The length comes first: int() refuses what has thousands of digits with another error.
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0):
        raise EventProblem(f"{text[:20]!r} is no number of a part")
    return int(text)
