"""Ordering of received changesets by origin and number.

A spool keeps messages in the order of arrival. With two brokers, one of which was unavailable for a
while, that is not the order in which their origin published them. Therefore each batch of a stream
is scanned before it is read. A message that arrived too early is read at its position, and
duplicates are dropped. A batch ends before messages that still wait for a missing one. Messages
without the headers of a changeset keep their positions.

The progress of each origin is part of the stream's offset, which Spark stores in its checkpoint.
All other state follows from the spool, so planning a batch again yields the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stompkit.spark.stream.headers import header_values, several_parts
from stompkit.spark.stream.origins import FIRST, Gap, Origin, Origins
from stompkit.spool import Block, SpoolError

__all__ = ["Piece", "Run", "Scan", "check_late", "scan"]

#: Maximum number of messages between pieces that one task reads together.
_NEAR: Final = 20_000
_ORIGIN: Final = "stompkit-origin"
_SEQUENCE: Final = "stompkit-sequence"
_PART: Final = "stompkit-part"


class Reader(Protocol):
    """The interface that ordering needs from :class:`stompkit.spool.SpoolReader`."""

    def blocks(self, partition: int, start: int, end: int) -> Iterator[Block]:
        """Yield the messages of a partition from ``start`` up to ``end``, exclusive."""


#: Consecutive messages: ordinal to assign to the first, its own ordinal, and their number.
Run = tuple[int, int, int]


@dataclass(frozen=True)
class Piece:
    """Messages of a partition that one task reads, in another order than they arrived.

    The assigned ordinals depend only on the spool, not on the batch bounds. A message beyond a
    fence is therefore beyond it in any batch.
    """

    start: int
    end: int
    #: Runs of messages to read; omitted messages are duplicates.
    runs: tuple[Run, ...]

    def blocks(self, reader: Reader, partition: int) -> Iterator[Block]:
        """Yield the messages with the ordinals of their new order."""
        for place, first, amount in self.runs:
            for block in reader.blocks(partition, first, first + amount):
                yield block.moved(place + block.first - first)

    def with_next(self, other: Piece) -> Piece:
        """Return one piece that contains both pieces and the messages between them."""
        amount = other.start - self.end
        between = ((self.end, self.end, amount),) if amount else ()
        return Piece(self.start, other.end, (*self.runs, *between, *other.runs))


def _runs(start: int, order: Sequence[int]) -> Iterator[Run]:
    """Yield ordinals as runs, which are assigned ordinals from ``start`` on."""
    at = 0
    for number in range(1, len(order) + 1):
        if number == len(order) or order[number] != order[number - 1] + 1:
            yield start + at, order[at], number - at
            at = number


@dataclass
class Scan:
    """Result of scanning a range of one partition."""

    #: End of the range: before messages that wait for a missing one.
    end: int
    pieces: list[Piece] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    #: Origins and numbers of changesets that arrived after later ones had been applied.
    late: list[tuple[str, int]] = field(default_factory=list)
    repeats: int = 0


@dataclass(frozen=True)
class _Label:
    ordinal: int
    origin: str
    sequence: int
    part: int
    of: int


def scan(
    reader: Reader,
    partition: int,
    start: int,
    end: int,
    head: int,
    origins: Origins,
    *,
    skips: Mapping[str, Sequence[tuple[int, int]]],
    begins: Mapping[str, int],
) -> Scan:
    """Scan the messages of a partition from ``start`` up to about ``end``.

    The scan ends later, but before ``head``, if messages that arrived too early are followed by
    their predecessors. ``origins`` is advanced to the end. ``skips`` are numbers to skip, and
    ``begins`` are first numbers of origins, besides 1.
    """
    made = _Scanner(reader, partition, origins, skips, begins)
    return made.run(start, end, head)


class _Scanner:
    def __init__(
        self,
        reader: Reader,
        partition: int,
        origins: Origins,
        skips: Mapping[str, Sequence[tuple[int, int]]],
        begins: Mapping[str, int],
    ) -> None:
        self._reader = reader
        self._partition = partition
        self._origins = origins
        self._skips = skips
        self._begins = begins
        self._scan = Scan(0)
        #: Messages that arrived too early: by origin, number and part.
        self._held: dict[str, dict[int, dict[int, int]]] = {}
        self._ofs: dict[tuple[str, int], int] = {}
        #: Start of the range in which messages are held or omitted; then the messages read since,
        #: in order.
        self._opened: int | None = None
        self._order: list[int] = []
        self._before: dict[str, Origin] = {}

    def run(self, start: int, end: int, head: int) -> Scan:
        made = self._scan
        made.end = max(start, end)
        if start >= end:
            return made
        for block in self._reader.blocks(self._partition, start, head):
            if self._opened is None:
                if block.first >= end:
                    made.end = block.first
                    return made
                if self._is_plain(block.slice(block.first, end)):
                    if block.end >= end:
                        return made
                    continue
            for label in _labels(block):
                if self._opened is None and _place(label) >= end:
                    made.end = _place(label)
                    return made
                self._take(label)
        if self._opened is None:
            made.end = max([made.end, *(piece.end for piece in made.pieces)])
            return made
        made.end = head
        self._pass_over()
        if self._opened is not None and not self._held:
            self._close(head)
        if self._opened is not None:
            self._cut()
        return made

    def _is_plain(self, block: Block) -> bool:
        """Process a block if each message is the next one of its origin; otherwise none of it."""
        if not block.count or several_parts(block):
            return not block.count
        (rows, names), (others, numbers) = (
            header_values(block, name) for name in (_ORIGIN, _SEQUENCE)
        )
        if not len(others):
            return True
        if len(np.unique(others)) != len(others) or not np.array_equal(rows, others):
            return False
        try:
            sequences = pc.cast(numbers, pa.int64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            return False
        codes = names.dictionary_encode()
        lasts: dict[str, int] = {}
        indices = codes.indices.to_numpy()
        for code, name in enumerate(codes.dictionary.to_pylist()):
            own = sequences[indices == code]
            origin = self._origins.known.get(name)
            is_next = origin is not None and not origin.seen and own[0] == origin.last + 1
            if not is_next or (np.diff(own) != 1).any():
                return False
            lasts[name] = int(own[-1])
        for name, last in lasts.items():
            self._origins.known[name].last = last
        return True

    def _take(self, label: _Label | int) -> None:
        place = _place(label)
        if isinstance(label, int):
            self._read(place)
        else:
            self._take_label(label)
        if self._opened is not None and not self._held:
            self._close(place + 1)

    def _take_label(self, label: _Label) -> None:
        origin = self._origins.known.get(label.origin)
        if origin is None:
            origin = self._begin(label)
            if origin is None:
                self._hold(label)
                return
        if label.sequence <= origin.last or label.sequence < origin.begun:
            if self._was_missed(origin, label.sequence):
                self._scan.late.append((label.origin, label.sequence))
            self._leave_out(label.ordinal)
        elif label.sequence > origin.last + 1:
            self._hold(label)
        elif label.part in origin.seen:
            self._leave_out(label.ordinal)
        else:
            self._read(label.ordinal)
            origin.seen.add(label.part)
            if len(origin.seen) == label.of:
                origin.last, origin.seen = label.sequence, set()
                self._release(label.origin, origin)

    def _was_missed(self, origin: Origin, sequence: int) -> bool:
        """Return True if a late number is known not to have been applied."""
        if sequence < origin.begun:
            return not self._origins.has_past
        return any(low <= sequence <= high for low, high in origin.passed)

    def _begin(self, label: _Label) -> Origin | None:
        """Return a new origin; ``None`` if another number may be its first."""
        first = self._begins.get(label.origin)
        if first is None and label.sequence <= FIRST:
            first = label.sequence
        if first is None:
            return None
        made = self._origins.known[label.origin] = Origin(first, first - 1)
        return made

    def _hold(self, label: _Label) -> None:
        self._open(label.ordinal)
        parts = self._held.setdefault(label.origin, {}).setdefault(label.sequence, {})
        self._ofs[label.origin, label.sequence] = label.of
        if label.part in parts:
            self._scan.repeats += 1
        else:
            parts[label.part] = label.ordinal

    def _release(self, name: str, origin: Origin) -> None:
        """Read the messages that waited for the one just read."""
        held = self._held.get(name, {})
        while (parts := held.pop(origin.last + 1, None)) is not None:
            for number in sorted(parts):
                self._read(parts[number])
            if len(parts) < self._ofs[name, origin.last + 1]:
                origin.seen = set(parts)
                break
            origin.last += 1
        for sequence in [each for each in held if each <= origin.last]:
            self._scan.repeats += len(held.pop(sequence))
        if not held:
            self._held.pop(name, None)

    def _read(self, ordinal: int) -> None:
        if self._opened is not None:
            self._order.append(ordinal)

    def _leave_out(self, ordinal: int) -> None:
        self._scan.repeats += 1
        self._open(ordinal)

    def _open(self, ordinal: int) -> None:
        if self._opened is None:
            self._opened = ordinal
            self._order = []
            self._before = deepcopy(self._origins.known)

    def _close(self, end: int) -> None:
        assert self._opened is not None
        piece = Piece(self._opened, end, tuple(_runs(self._opened, self._order)))
        pieces = self._scan.pieces
        if pieces and piece.start - pieces[-1].end < _NEAR:
            # A task for each of many duplicates would cost more than reading them.
            pieces[-1] = pieces[-1].with_next(piece)
        else:
            pieces.append(piece)
        self._opened = None

    def _pass_over(self) -> None:
        """Skip the numbers that no longer block an origin."""
        for name in list(self._held):
            origin = self._origins.known.get(name)
            for low, high in self._skips.get(name, ()):
                if origin is not None and origin.last + 1 == low and name in self._held:
                    origin.passed.append((low, high))
                    origin.last, origin.seen = high, set()
                    self._release(name, origin)

    def _cut(self) -> None:
        """End before waiting messages, and record the gaps."""
        assert self._opened is not None
        for name, held in self._held.items():
            origin = self._origins.known.get(name)
            missing = FIRST if origin is None else origin.last + 1
            amount = sum(map(len, held.values()))
            self._scan.gaps.append(Gap(name, missing, min(held), amount, origin is None))
        self._origins.known = self._before
        self._scan.end = self._opened


def _place(label: _Label | int) -> int:
    return label if isinstance(label, int) else label.ordinal


def _labels(block: Block) -> Iterator[_Label | int]:
    """Yield the labels of a block's messages; for a message without label only its ordinal."""
    found = {}
    for name in (_ORIGIN, _SEQUENCE, _PART):
        rows, values = header_values(block, name)
        # The first of several values of one name counts.
        pairs = list(zip(rows.tolist(), values.to_pylist(), strict=True))
        found[name] = dict(reversed(pairs))
    parts = several_parts(block)
    for row in range(block.count):
        origin, number = found[_ORIGIN].get(row), found[_SEQUENCE].get(row)
        part, of = parts.get(row, ("1", "1"))
        if origin is None or number is None or not all(map(_is_number, (number, part, of))):
            # The reader of the message reports the error.
            yield block.first + row
        else:
            yield _Label(block.first + row, origin, int(number), int(part), int(of))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def check_late(late: Sequence[tuple[str, int]]) -> None:
    """Raise SpoolError for changesets that arrived too late."""
    if late:
        origin, sequence = late[0]
        raise SpoolError(
            f"changeset {sequence} of {origin} came when others behind it had been applied, so that"
            " it can't be applied in its order. To go on without it set the option gap to skip; to"
            " have it, rebuild the target from the spool"
        )
