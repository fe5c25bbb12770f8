"""Assembly of changesets in several messages, across the bounds of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from typing import Final, NamedTuple

import msgspec

from stompkit.replication.model.events import EventError
from stompkit.spark.stream.envelopes import Envelope, read_envelope
from stompkit.spark.stream.headers import CHANGESET, first_values, several_parts
from stompkit.spark.stream.pieces import Reader, Wholes
from stompkit.spool import Block, DataLostError

__all__ = ["Assembly", "Large", "Whole"]

#: Maximum distance before a task's range to look for the other parts of a changeset, in messages of
#: the partition and in bytes; for ranges that the driver has not scanned.
_BACK_MESSAGES: Final = 100_000
_BACK_BYTES: Final = 16 * 1024**3
#: Maximum distance in messages to look for parts that were redelivered in another order: more than
#: brokers send ahead of acknowledgements.
_UNORDERED: Final = 2_000
#: Number of messages in one step back.
_STEP: Final = 500
#: Maximum size in bytes of waiting parts in memory; more are in a temporary file.
_MOST_WAITING: Final = 32 * 1024 * 1024
#: Maximum size in bytes of a changeset that is assembled in memory; the parts of a larger one are
#: read one by one.
_MOST_WHOLE: Final = 32 * 1024 * 1024

#: Changeset id and number of parts: a publisher that is restarted may split a changeset in another
#: way.
_Copy = tuple[str, int]


class Whole(NamedTuple):
    """A completed changeset, or its error."""

    ordinal: int
    received_us: int
    #: None if there is an error.
    envelope: Envelope | None
    problem: str | None = None


class Large(NamedTuple):
    """A completed changeset that is too large for memory."""

    ordinal: int
    received_us: int
    #: Function that reads the parts in order; it can be called again.
    parts: Callable[[], Iterator[Envelope]]


class _Place(NamedTuple):
    """The place of a body: an ordinal or an offset, and a size in bytes."""

    at: int
    size: int


@dataclass
class _Partial:
    """An incomplete changeset."""

    #: Places of the parts in the task's range, by number.
    own: dict[int, _Place] = field(default_factory=dict)
    #: Ordinal and reception time of the message with the last part by number, once found.
    last: tuple[int, int] | None = None


class Assembly:
    """Assembles the changesets that one task completes.

    A changeset belongs to the message that completes it: the first one by which all parts have
    arrived, in any order. The task that reads this message looks back for the parts before its
    range. Few parts are in memory at a time: those of the task's own range wait in a temporary
    file, and the others in the spool.

    The driver determines these messages if it scans a range in advance. Otherwise the task
    searches: at most 100,000 messages or 16 GiB before its range, and 2,000 messages for parts in
    another order.
    """

    def __init__(
        self, reader: Reader, partition: int, start: int, end: int, wholes: Wholes | None = None
    ) -> None:
        """Start for a task that reads a partition from ``start`` up to ``end``."""
        self._behind = _Behind(reader, partition, start)
        self._reader = reader
        self._partition = partition
        self._end = end
        self._wholes = wholes
        self._partials: dict[_Copy, _Partial] = {}
        self._done: set[str] = set()
        self._bodies = _Bodies()

    def add(
        self,
        ordinal: int,
        received_us: int,
        name: str | None,
        body: memoryview,
        part: tuple[str, str],
    ) -> Whole | Large | None:
        """Add a part of the changeset with the id *name*, with the headers ``part``.

        Returns the changeset that it completes, or its error, or None. Raises
        :class:`~stompkit.replication.model.events.EventError`.
        """
        number, of = (_number(text) for text in part)
        if number > of:
            raise EventError(f"part {number} of {of}")
        wholes = self._wholes
        if wholes is not None and not wholes.places:
            return None
        copy = (name or read_envelope(body).id, of)
        if copy[0] in self._done:
            return None
        partial = self._partials.get(copy)
        if partial is None:
            partial = self._partials[copy] = _Partial()
            if wholes is None:
                self._behind.look(copy, set(range(1, of + 1)), _UNORDERED)
        if wholes is None and number in self._behind.found(copy):
            return None
        if number not in partial.own:
            partial.own[number] = self._bodies.put(body)
        if number == of:
            partial.last = (ordinal, received_us)
        if wholes is not None:
            if ordinal not in wholes.places:
                return None
            self._behind.look_to(wholes.since)
        elif of in partial.own or of in self._behind.found(copy):
            # Only then the changeset can be complete.
            self._behind.look(copy, set(range(1, of + 1)).difference(partial.own), _BACK_MESSAGES)
        missing = self._missing(copy)
        if missing and wholes is None:
            return None
        del self._partials[copy]
        self._done.add(copy[0])
        if missing:
            return Whole(ordinal, received_us, None, self._incomplete(copy, missing))
        return self._completed(ordinal, received_us, copy, partial)

    def _missing(self, copy: _Copy) -> list[int]:
        """Return the numbers of the parts that were not found."""
        behind, own = self._behind.found(copy), self._partials[copy].own
        return [n for n in range(1, copy[1] + 1) if n not in own and n not in behind]

    def _incomplete(self, copy: _Copy, missing: Sequence[int], where: str = "") -> str:
        """Return the error of a changeset some of whose parts are missing."""
        name, of = copy
        numbers = ", ".join(map(str, missing[:10])) + (", ..." if missing[10:] else "")
        return (
            f"of the {of} parts of changeset {name} these are not in the spool{where}: "
            f"{numbers}{self._behind.lost(missing)}"
        )

    def _completed(
        self, ordinal: int, received_us: int, copy: _Copy, partial: _Partial
    ) -> Whole | Large:
        name, of = copy
        behind = self._behind.found(copy)
        own = partial.own
        places = [own.get(number) or behind[number] for number in range(1, of + 1)]

        def parts() -> Iterator[Envelope]:
            earlier = self._behind.bodies(
                [behind[number].at for number in range(1, of + 1) if number not in own]
            )
            for number, place in enumerate(places, 1):
                body = self._bodies.get(place) if number in own else next(earlier)
                envelope = read_envelope(body)
                if envelope.id != name:
                    raise EventError(f"part {number} of changeset {name} is of {envelope.id}")
                yield envelope

        if sum(place.size for place in places) > _MOST_WHOLE:
            return Large(ordinal, received_us, parts)
        try:
            found = list(parts())
        except EventError as problem:
            return Whole(ordinal, received_us, None, str(problem))
        if not self._partials:
            self._bodies.clear()
        changes = [change for each in found for change in each.changes]
        return Whole(ordinal, received_us, msgspec.structs.replace(found[-1], changes=changes))

    def close(self) -> None:
        """Remove the temporary file."""
        self._bodies.clear()

    def rest(self) -> Iterator[Whole]:
        """Yield the errors of changesets that no later message completes.

        If the driver has scanned the range, the gaps of origins include them.
        """
        for copy, partial in self._partials.items() if self._wholes is None else ():
            missing = self._missing(copy)
            if partial.last is not None and self._ahead(copy, missing) != set(missing):
                problem = self._incomplete(copy, missing, " before the last one")
                yield Whole(*partial.last, None, problem)

    def _ahead(self, copy: _Copy, missing: Sequence[int]) -> set[int]:
        """Return those of the missing parts that are in the next messages after the range."""
        end = min(self._end + _UNORDERED, self._reader.head()[self._partition])
        found: set[int] = set()
        for block in self._reader.blocks(self._partition, self._end, max(self._end, end)):
            found.update(number for each, number, _ in _parts_of(block) if each == copy)
        return found.intersection(missing)


class _Bodies:
    """Bodies of waiting parts, in memory or, if they are many, in a temporary file."""

    def __init__(self) -> None:
        self._opened: SpooledTemporaryFile[bytes] | None = None
        self._size = 0

    @property
    def _file(self) -> SpooledTemporaryFile[bytes]:
        if self._opened is None:
            self._opened = SpooledTemporaryFile(max_size=_MOST_WAITING)
        return self._opened

    def put(self, body: memoryview) -> _Place:
        self._file.seek(self._size)
        self._file.write(body)
        place = _Place(self._size, len(body))
        self._size += len(body)
        return place

    def get(self, place: _Place) -> memoryview:
        self._file.seek(place.at)
        return memoryview(self._file.read(place.size))

    def clear(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self._opened, self._size = None, 0


class _Behind:
    """The parts before the range of a task, as far as it had to look back."""

    def __init__(self, reader: Reader, partition: int, start: int) -> None:
        self._reader = reader
        self._partition = partition
        self._start = self._at = start
        self._size = 0
        self._is_at_end = False
        #: Ordinals and sizes of parts, by changeset and number.
        self._found: dict[_Copy, dict[int, _Place]] = {}

    def found(self, copy: _Copy) -> dict[int, _Place]:
        """Return the parts of a changeset that were found so far; updated by :meth:`look`."""
        return self._found.setdefault(copy, {})

    def look(self, copy: _Copy, wanted: set[int], most: int) -> None:
        """Look back for some parts of a changeset, at most this number of messages."""
        found = self.found(copy)
        while not (self._is_at_end or self._at <= self._start - most or wanted <= found.keys()):
            self._step_back(self._start - _BACK_MESSAGES)
            self._is_at_end = self._is_at_end or self._size > _BACK_BYTES

    def look_to(self, since: int) -> None:
        """Look back to an ordinal."""
        while not (self._is_at_end or self._at <= since):
            self._step_back(since)

    def bodies(self, ordinals: Sequence[int]) -> Iterator[memoryview]:
        """Yield the bodies of messages in the given order; raises DataLostError."""
        for first, count in _runs(ordinals):
            for block in self._reader.blocks(self._partition, first, first + count):
                offsets, data = block.body
                for row in range(block.count):
                    yield data[offsets[row] : offsets[row + 1]]

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

    def _step_back(self, lowest: int) -> None:
        try:
            floor = self._reader.floor()[self._partition]
            low = max(self._at - _STEP, lowest, floor)
            self._is_at_end = low >= self._at
            if self._is_at_end:
                return
            for block in self._reader.blocks(self._partition, low, self._at):
                self._collect(block)
        except DataLostError:  # removed by retention meanwhile
            self._is_at_end = True
        self._at = low

    def _collect(self, block: Block) -> None:
        offsets = block.body.offsets
        self._size += offsets[block.count] - offsets[0]
        for copy, number, row in _parts_of(block):
            place = _Place(block.first + row, offsets[row + 1] - offsets[row])
            self.found(copy)[number] = place


def _parts_of(block: Block) -> Iterator[tuple[_Copy, int, int]]:
    """Yield changeset, number and row of the parts in a block."""
    parts = several_parts(block)
    names = first_values(block, CHANGESET) if parts else {}
    offsets, data = block.body
    for row, each in parts.items():
        try:
            number, of = map(_number, each)
            # Decoding the body takes much longer.
            name = names.get(row) or read_envelope(data[offsets[row] : offsets[row + 1]]).id
        except EventError:
            continue  # the task that reads that message reports it
        yield (name, of), number, row


def _runs(ordinals: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield consecutive ordinals as their first one and their number."""
    first, count = 0, 0
    for ordinal in ordinals:
        if count and ordinal == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = ordinal, 1
    if count:
        yield first, count


def _number(text: str) -> int:
    # The length is checked first: int() raises another error for thousands of digits.
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0):
        raise EventError(f"{text[:20]!r} is no number of a part")
    return int(text)
