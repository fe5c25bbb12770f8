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
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stompkit.spark.stream.headers import header_values, several_parts
from stompkit.spark.stream.labels import ORIGIN, SEQUENCE, Label, Unlabelled, labels
from stompkit.spark.stream.origins import FIRST, Gap, Origin, Origins, Seen
from stompkit.spark.stream.pieces import Piece, Reader, runs
from stompkit.spool import Block, DataLostError, SpoolError

__all__ = ["Scan", "Whole", "check_late", "scan"]

#: Maximum number of messages between pieces that one task reads together.
_NEAR: Final = 20_000
#: Maximum number of messages before the start of a query to look for parts of its first changesets.
_BACK_MESSAGES: Final = 100_000


class Whole(NamedTuple):
    """The position of a changeset in several messages: that of the message that completes it."""

    place: int
    #: Lowest ordinal in the spool of a message with one of its parts.
    since: int


@dataclass
class Scan:
    """Result of scanning a range of one partition."""

    #: End of the range: before messages that wait for a missing one.
    end: int
    pieces: list[Piece] = field(default_factory=list)
    #: Changesets in several messages that the range completes; None if a message with a part does
    #: not say of which changeset, so that its body has to be read.
    wholes: list[Whole] | None = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    #: Origins and numbers of changesets that arrived after later ones had been applied.
    late: list[tuple[str, int]] = field(default_factory=list)
    repeats: int = 0


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


#: Ordinals of held messages of a changeset, by number of parts, and part.
_Copies = dict[int, dict[int, int]]
#: The same by origin and sequence number.
_Held = dict[str, dict[int, _Copies]]


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
        self._wholes: list[Whole] = []
        self._start = 0
        #: Messages that arrived too early.
        self._held: _Held = {}
        #: Parts in the messages before the range, once needed.
        self._earlier: dict[tuple[str, int], list[Label]] | None = None
        #: Start of the range in which messages are held or omitted; then the messages read since,
        #: in order.
        self._opened: int | None = None
        self._order: list[int] = []
        self._before: dict[str, Origin] = {}

    def run(self, start: int, end: int, head: int) -> Scan:
        made = self._scan
        made.end = max(start, end)
        self._start = start
        if start < end:
            self._run(start, end, head)
        if made.wholes is not None:
            made.wholes = [whole for whole in self._wholes if whole.place < made.end]
        return made

    def _run(self, start: int, end: int, head: int) -> None:
        made = self._scan
        for block in self._reader.blocks(self._partition, start, head):
            if self._opened is None:
                if block.first >= end:
                    made.end = block.first
                    return
                if self._is_plain(block.slice(block.first, end)):
                    if block.end >= end:
                        return
                    continue
            for label in labels(block):
                if self._opened is None and label.ordinal >= end:
                    made.end = label.ordinal
                    return
                self._take(label)
        if self._opened is None:
            made.end = max([made.end, *(piece.end for piece in made.pieces)])
            return
        made.end = head
        self._pass_over()
        if self._opened is not None and not self._held:
            self._close(head)
        if self._opened is not None:
            self._cut()

    def _is_plain(self, block: Block) -> bool:
        """Process a block if each message is the next one of its origin; otherwise none of it."""
        if not block.count or several_parts(block):
            return not block.count
        (rows, names), (others, numbers) = (
            header_values(block, name) for name in (ORIGIN, SEQUENCE)
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

    def _take(self, label: Label | Unlabelled) -> None:
        if isinstance(label, Label):
            self._take_label(label)
        else:
            self._read(label.ordinal)
            if label.is_part:
                self._scan.wholes = None
        if self._opened is not None and not self._held:
            self._close(label.ordinal + 1)

    def _take_label(self, label: Label) -> None:
        origin = self._origins.known.get(label.origin) or self._begin(label)
        if origin is None:
            self._hold(label)
        elif label.sequence <= origin.last or label.sequence < origin.begun:
            if self._was_missed(origin, label.sequence):
                self._scan.late.append((label.origin, label.sequence))
            self._leave_out(label.ordinal)
        elif label.sequence > origin.last + 1:
            self._hold(label)
        elif label.of == 1:
            self._read(label.ordinal)
            self._complete(label.origin, origin)
        else:
            self._take_part(label, origin)

    def _take_part(self, label: Label, origin: Origin) -> None:
        """Read a part of the next changeset of its origin, or leave it out."""
        if self._origins.has_past and not origin.seen and label.sequence == origin.begun:
            for each in self._earlier_parts(label):
                origin.copy(each.of, each.ordinal).add(each.part, each.ordinal)
            if any(len(each.numbers) == of for of, each in origin.seen.items()):
                self._leave_out(label.ordinal)
                self._complete(label.origin, origin)
                return
        seen = origin.copy(label.of, label.ordinal)
        if label.part in seen.numbers:
            self._leave_out(label.ordinal)
            return
        seen.add(label.part, label.ordinal)
        place = self._read(label.ordinal)
        if len(seen.numbers) == label.of:
            self._wholes.append(Whole(place, seen.since))
            self._complete(label.origin, origin)

    def _earlier_parts(self, label: Label) -> list[Label]:
        """Return the parts of a changeset that arrived before the range.

        A query that does not start with the first message may start within a changeset.
        """
        if self._earlier is None:
            self._earlier = {}
            floor = self._reader.floor()[self._partition]
            low = max(floor, self._start - _BACK_MESSAGES)
            # Retention may remove messages meanwhile.
            with suppress(DataLostError):
                for block in self._reader.blocks(self._partition, low, self._start):
                    for each in labels(block) if several_parts(block) else ():
                        if isinstance(each, Label) and each.of > 1:
                            name = each.origin, each.sequence
                            self._earlier.setdefault(name, []).append(each)
        return self._earlier.get((label.origin, label.sequence), [])

    def _was_missed(self, origin: Origin, sequence: int) -> bool:
        """Return True if a late number is known not to have been applied."""
        if sequence < origin.begun:
            return not self._origins.has_past
        return any(low <= sequence <= high for low, high in origin.passed)

    def _begin(self, label: Label) -> Origin | None:
        """Return a new origin; ``None`` if another number may be its first."""
        first = self._begins.get(label.origin)
        if first is None and label.sequence <= FIRST:
            first = label.sequence
        if first is None:
            return None
        made = self._origins.known[label.origin] = Origin(first, first - 1)
        return made

    def _hold(self, label: Label) -> None:
        self._open(label.ordinal)
        copies = self._held.setdefault(label.origin, {}).setdefault(label.sequence, {})
        parts = copies.setdefault(label.of, {})
        if label.part in parts:
            self._scan.repeats += 1
        else:
            parts[label.part] = label.ordinal

    def _complete(self, name: str, origin: Origin) -> None:
        """Advance an origin, and read the messages that waited for the changeset just read."""
        origin.last, origin.seen = origin.last + 1, {}
        self._release(name, origin)

    def _release(self, name: str, origin: Origin) -> None:
        """Read the messages that waited for the last changeset."""
        held = self._held.get(name, {})
        while (copies := held.pop(origin.last + 1, None)) is not None:
            whole = next((of for of, parts in copies.items() if len(parts) == of), None)
            if whole is None:
                for of, parts in copies.items():
                    self._read_parts(parts)
                    origin.seen[of] = Seen(set(parts), min(parts.values()))
                break
            parts = copies.pop(whole)
            self._scan.repeats += sum(map(len, copies.values()))
            place = self._read_parts(parts)
            if whole > 1:
                self._wholes.append(Whole(place, min(parts.values())))
            origin.last += 1
        for sequence in [each for each in held if each <= origin.last]:
            self._scan.repeats += sum(map(len, held.pop(sequence).values()))
        if not held:
            self._held.pop(name, None)

    def _read_parts(self, parts: Mapping[int, int]) -> int:
        """Read held parts; return the assigned ordinal of the last one."""
        return [self._read(parts[number]) for number in sorted(parts)][-1]

    def _read(self, ordinal: int) -> int:
        """Read a message next; return its assigned ordinal."""
        if self._opened is None:
            return ordinal
        self._order.append(ordinal)
        return self._opened + len(self._order) - 1

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
        piece = Piece(self._opened, end, tuple(runs(self._opened, self._order)))
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
                    origin.last, origin.seen = high, {}
                    self._release(name, origin)

    def _cut(self) -> None:
        """End before waiting messages, and record the gaps."""
        assert self._opened is not None
        floor = self._reader.floor()[self._partition]
        for name, held in self._held.items():
            amount = sum(len(parts) for copies in held.values() for parts in copies.values())
            origin = self._origins.known.get(name)
            if origin is None:
                gap = Gap(name, FIRST, min(held), amount, is_beginning=True)
            else:
                parts = origin.parts
                # Earlier messages may be too many to look for the first part in all of them.
                is_known = floor > 0 or not self._origins.has_past
                is_torn = is_known and bool(parts) and origin.is_torn
                gap = Gap(
                    name,
                    origin.last + 1,
                    min(held),
                    amount,
                    is_torn=is_torn,
                    floor=floor,
                    parts=parts,
                )
            self._scan.gaps.append(gap)
            self._scan.gaps += () if origin is None else _later_gaps(name, held, amount)
        self._origins.known = self._before
        self._scan.end = self._opened


def _later_gaps(name: str, held: Mapping[int, _Copies], amount: int) -> Iterator[Gap]:
    """Yield the gaps between the held changesets of an origin."""
    for number, found in pairwise(sorted(held)):
        missing = number + any(len(parts) == of for of, parts in held[number].items())
        if missing < found:
            yield Gap(name, missing, found, amount, is_first=False)


def check_late(late: Sequence[tuple[str, int]]) -> None:
    """Raise SpoolError for changesets that arrived too late."""
    if late:
        origin, sequence = late[0]
        raise SpoolError(
            f"changeset {sequence} of {origin} came when others behind it had been applied, so that"
            " it cannot be applied in its order. To go on without it set the option gap to skip; to"
            " have it, rebuild the target from the spool"
        )
