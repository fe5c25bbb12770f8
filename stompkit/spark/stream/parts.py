"""Assembly of changesets in several messages, across the bounds of tasks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from typing import Final, NamedTuple, Protocol

import msgspec

from stompkit.replication.model.events import EventError
from stompkit.spark.stream.envelopes import Envelope, read_envelope
from stompkit.spark.stream.headers import header_values, several_parts
from stompkit.spool import Block, DataLostError

__all__ = ["Assembly", "Large", "Whole"]

#: Maximum distance before a task's range to look for the other parts of a changeset, in messages of
#: the partition and in bytes.
_BACK_MESSAGES: Final = 100_000
_BACK_BYTES: Final = 16 * 1024**3
#: Maximum distance in messages to look for the last part if it was redelivered in another order:
#: more than brokers send ahead of acknowledgements.
_BACK_UNORDERED: Final = 2_000
#: Number of messages in one step back.
_STEP: Final = 500
#: Maximum size in bytes of waiting parts in memory; more are in a temporary file.
_MOST_WAITING: Final = 32 * 1024 * 1024
#: Maximum size in bytes of a changeset that is assembled in memory; the parts of a larger one are
#: read one by one.
_MOST_WHOLE: Final = 32 * 1024 * 1024

_CHANGESET: Final = "stompkit-changeset"


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


class Reader(Protocol):
    """The interface that assembly needs from :class:`stompkit.spool.SpoolReader`."""

    def floor(self) -> tuple[int, ...]:
        """Return the first retained ordinal of each partition."""

    def blocks(self, partition: int, start: int, end: int) -> Iterator[Block]:
        """Yield the messages of a partition from ``start`` up to ``end``, exclusive."""


@dataclass
class _Partial:
    """An incomplete changeset."""

    of: int
    #: Places of the parts in the task's range, by number.
    own: dict[int, _Place] = field(default_factory=dict)
    #: Ordinal and reception time of the message with the last part by number, once found.
    last: tuple[int, int] | None = None

    def missing(self, others: Collection[int]) -> set[int]:
        """Return the numbers of the parts that are neither here nor among *others*."""
        return set(range(1, self.of + 1)).difference(self.own, others)


class _Place(NamedTuple):
    """The place of a body: an ordinal or an offset, and a size in bytes."""

    at: int
    size: int


class Assembly:
    """Assembles the changesets that one task completes, in the order of the messages.

    A changeset belongs to the message that contains its last part in partition order. The task that
    reads this message assembles it, and looks back for the earlier parts. Few parts are in memory
    at a time: those of the task's own range wait in a temporary file, and the others in the spool.
    """

    def __init__(self, reader: Reader, partition: int, start: int) -> None:
        """Start for a task that reads a partition from ``start`` on."""
        self._behind = _Behind(reader, partition, start)
        self._partials: dict[str, _Partial] = {}
        self._done: set[str] = set()
        self._bodies = _Bodies()

    def add(
        self, ordinal: int, received_us: int, name: str, body: memoryview, part: tuple[str, str]
    ) -> Whole | Large | None:
        """Add a part of the changeset with the id *name*, with the headers ``part``.

        Returns the changeset that it completes, or None. Raises
        :class:`~stompkit.replication.model.events.EventError`.
        """
        number, of = (_number(text) for text in part)
        if number > of:
            raise EventError(f"part {number} of {of}")
        if name in self._done:
            return None
        partial = self._partials.get(name)
        if partial is None:
            partial = self._partials[name] = _Partial(of)
            self._behind.look(name, {of}, _BACK_UNORDERED)
        if partial.of != of:
            raise EventError(f"changeset {name} had {partial.of} parts, and has {of} now")
        if number not in partial.own:
            partial.own[number] = self._bodies.put(body)
        if number == of:
            partial.last = (ordinal, received_us)
        behind = self._behind.found(name)
        if of in behind or of in partial.own:
            # Only then the changeset can be complete.
            self._behind.look(name, partial.missing(()), _BACK_MESSAGES)
        if partial.missing(behind):
            return None
        del self._partials[name]
        self._done.add(name)
        return self._completed(ordinal, received_us, name, partial)

    def _completed(
        self, ordinal: int, received_us: int, name: str, partial: _Partial
    ) -> Whole | Large:
        behind = self._behind.found(name)
        own = partial.own
        places = [own.get(number) or behind[number] for number in range(1, partial.of + 1)]

        def parts() -> Iterator[Envelope]:
            earlier = self._behind.bodies(
                [behind[number].at for number in range(1, partial.of + 1) if number not in own]
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
        """Yield the errors of incomplete changesets whose last part was read."""
        for name, partial in self._partials.items():
            if partial.last is not None:
                missing = sorted(partial.missing(self._behind.found(name)))
                numbers = ", ".join(map(str, missing[:10])) + (", ..." if missing[10:] else "")
                yield Whole(
                    *partial.last,
                    None,
                    f"of the {partial.of} parts of changeset {name} these are not in the spool "
                    f"before the last one: {numbers}{self._behind.lost(missing)}",
                )


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
        self._found: dict[str, dict[int, _Place]] = {}

    def found(self, name: str) -> dict[int, _Place]:
        """Return the parts of a changeset that were found so far; updated by :meth:`look`."""
        return self._found.setdefault(name, {})

    def look(self, name: str, wanted: set[int], most: int) -> None:
        """Look back for some parts of a changeset, at most this number of messages."""
        found = self.found(name)
        while not (self._is_at_end or self._at <= self._start - most or wanted <= found.keys()):
            self._step_back()

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
        parts = several_parts(block)
        if not parts:
            return
        rows, values = header_values(block, _CHANGESET)
        names = dict(reversed(list(zip(rows.tolist(), values.to_pylist(), strict=True))))
        for row, (number, _) in parts.items():
            start, end = offsets[row], offsets[row + 1]
            try:
                # Decoding the body takes much longer.
                name = names.get(row) or read_envelope(data[start:end]).id
                place = _Place(block.first + row, end - start)
                self._found.setdefault(name, {})[_number(number)] = place
            except EventError:
                continue  # the task that reads that message reports it


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
