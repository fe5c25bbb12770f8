"""Export stores to text files, and import them into stores of another kind or version.

An export has one JSON object on each line, each with its ``kind``:

- ``store``, the first, has the version of the format and the numbers of lanes, messages and records
  that follow;
- ``lane`` is followed by its messages, by their places;
- ``message`` belongs to the last lane; its ``body`` is base64, its ``lines`` are the header lines;
- ``record`` has a ``value`` in base64;
- ``end``, the last, repeats the numbers: an export without it is truncated.

In texts, a byte that is not UTF-8 is a lone surrogate from U+DC80 to U+DCFF. Numbers are as in
:mod:`stompkit.server.interfaces`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, BinaryIO, Final, TypeAlias

import msgspec

from stompkit.server.interfaces import (
    CreateLane,
    Delivered,
    DropLane,
    Mark,
    MessageStore,
    Operation,
    Put,
    Remove,
    SetRecord,
    StoreError,
)

__all__ = ["Progress", "export_store", "import_store"]

#: Called with the number of messages completed and the total.
Progress: TypeAlias = Callable[[int, int], object]

_VERSION: Final = 1
_MOST: Final = 2**63 - 1
#: Maximum number of messages, and bytes of their sizes, held in memory at a time.
_BATCH: Final = 1_000
_BATCH_OCTETS: Final = 4 * 1024 * 1024

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
_Time: TypeAlias = Annotated[int, msgspec.Meta(ge=-_MOST, le=_MOST)]
_Place: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=_MOST)]


class _Line(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """One line of an export."""


class _Store(_Line, frozen=True, tag="store"):
    """The first line."""

    version: int
    lanes: _Number
    messages: _Number
    records: _Number


class _Lane(_Line, frozen=True, tag="lane"):
    """A lane."""

    lane: _Number
    queue: str
    part: _Number
    last_place: _Number
    delivered_place: _Number


class _Message(_Line, frozen=True, tag="message"):
    """A message of the last lane."""

    place: _Place
    deliveries: _Number
    size: _Number
    expires_ms: _Time
    due_ms: _Time
    id: str
    lines: str
    body: bytes


class _Record(_Line, frozen=True, tag="record"):
    """A record."""

    key: str
    value: bytes


class _End(_Line, frozen=True, tag="end"):
    """The last line."""

    lanes: _Number
    messages: _Number
    records: _Number


_AnyLine: TypeAlias = _Store | _Lane | _Message | _Record | _End


def export_store(store: MessageStore, file: BinaryIO, progress: Progress) -> None:
    """Write the content of an open store to a file.

    No broker may use the store meanwhile, or the export would be inconsistent. Raises
    :class:`StoreError`, and OSError if the file cannot be written.
    """
    lanes = store.lanes()
    records = store.records()
    total = sum(lane.messages for lane in lanes)

    def write(line: _AnyLine) -> None:
        file.write(json.dumps(msgspec.to_builtins(line)).encode("ascii") + b"\n")

    write(_Store(_VERSION, len(lanes), total, len(records)))
    done = 0
    progress(done, total)
    for lane in lanes:
        write(_Lane(lane.lane, lane.queue, lane.part, lane.last_place, lane.delivered_place))
        after = 0
        while messages := store.read(lane.lane, after, _BATCH, _BATCH_OCTETS):
            for message in messages:
                place, deliveries, size, expires_ms, due_ms, id, lines, body = message
                text = lines.decode("utf-8", "surrogateescape")
                write(_Message(place, deliveries, size, expires_ms, due_ms, id, text, body))
            after = messages[-1].place
            done += len(messages)
            progress(done, total)
    for key, value in records.items():
        write(_Record(key, value))
    write(_End(len(lanes), done, len(records)))


def import_store(store: MessageStore, file: BinaryIO, progress: Progress) -> None:
    """Load an export into an open store, which must be empty.

    Raises :class:`StoreError` if the store is not empty, or the export is invalid, truncated or too
    large, and OSError if it cannot be read. The store is then empty again. If that removal fails
    too, the message says so. Only a killed process leaves a partial import behind.
    """
    if store.lanes() or store.records():
        raise StoreError("the store to import into is not empty")
    importer = _Importer(store, progress)
    try:
        number = 0
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                raise StoreError(f"the export is cut off in line {number}")
            try:
                importer.take(_parse(line))
            except _BadLineError as error:
                raise StoreError(f"line {number} of the export is wrong: {error}") from None
        importer.finish(number)
    except BaseException as error:
        try:
            importer.undo()
        except StoreError as again:
            raise StoreError(
                f"{error}; and what was imported until then could not be removed ({again}): this"
                " store has a part of the export in it"
            ) from error
        raise


class _BadLineError(Exception):
    """An invalid line; the message says why."""


def _parse(line: bytes) -> _AnyLine:
    try:
        # Not by msgspec alone, which rejects lone surrogates.
        found: _AnyLine = msgspec.convert(json.loads(line), type=_AnyLine)
    except (ValueError, RecursionError) as error:
        raise _BadLineError(str(error)) from None
    return found


class _Importer:
    """Imports lines in batches."""

    def __init__(self, store: MessageStore, progress: Progress) -> None:
        """Start with an empty batch."""
        self._store = store
        self._progress = progress
        self._operations: list[Operation] = []
        self._octets = 0
        self._first: _Store | None = None
        self._lane: _Lane | None = None
        self._place = 0
        self._end: _End | None = None
        self._messages = 0
        self._lanes: set[int] = set()
        self._records: set[str] = set()

    def take(self, line: _AnyLine) -> None:
        """Import one line, now or with later ones; raises :class:`_BadLineError`."""
        if self._end is not None:
            raise _BadLineError("there is more after the end")
        if isinstance(line, _Store):
            self._begin(line)
        elif self._first is None:
            raise _BadLineError("an export does not begin like this")
        elif isinstance(line, _Message):
            self._add_message(line)
        else:
            self._end_lane()
            if isinstance(line, _Lane):
                self._begin_lane(line)
            elif isinstance(line, _Record):
                self._add_record(line)
            else:
                self._end = line

    def finish(self, lines: int) -> None:
        """Apply the last batch; raises :class:`StoreError` if the export is incomplete."""
        if self._end is None:
            raise StoreError(f"the export is cut off after line {lines}")
        counted = (len(self._lanes), self._messages, len(self._records))
        stated = (self._end.lanes, self._end.messages, self._end.records)
        if counted != stated:
            raise StoreError(
                "the export is not complete: of lanes, messages and records it has"
                f" {counted}, and says that it has {stated}"
            )
        self._flush()

    def undo(self) -> None:
        """Remove the imported lanes and records."""
        self._operations.clear()
        self._store.apply([DropLane(lane) for lane in self._lanes])
        self._store.apply([SetRecord(key, None) for key in self._records])

    def _begin(self, line: _Store) -> None:
        if self._first is not None:
            raise _BadLineError("an export has one beginning")
        if line.version != _VERSION:
            raise _BadLineError(
                f"the format is of version {line.version}, and this stompkit knows {_VERSION}"
            )
        self._first = line
        self._progress(0, line.messages)

    def _begin_lane(self, line: _Lane) -> None:
        if line.lane in self._lanes:
            raise _BadLineError(f"lane {line.lane} comes twice")
        self._lanes.add(line.lane)
        self._lane = line
        self._place = 0
        self._operations.append(CreateLane(line.lane, line.queue, line.part))
        self._operations.append(Delivered(line.lane, line.delivered_place))

    def _add_message(self, line: _Message) -> None:
        lane = self._lane
        if lane is None:
            raise _BadLineError("a message has to follow its lane")
        if not self._place < line.place <= lane.last_place:
            raise _BadLineError(
                f"place {line.place} is out of order, or above the lane's last place"
            )
        self._place = line.place
        try:
            lines = line.lines.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise _BadLineError(f"the header lines cannot be: {error.reason}") from None
        self._operations.append(
            Put(
                lane.lane,
                line.place,
                line.size,
                line.expires_ms,
                line.due_ms,
                line.id,
                lines,
                line.body,
            )
        )
        if line.deliveries > int(line.place <= lane.delivered_place):
            self._operations.append(Mark(lane.lane, line.place, line.deliveries))
        self._messages += 1
        self._octets += len(lines) + len(line.body)
        if len(self._operations) >= _BATCH or self._octets >= _BATCH_OCTETS:
            self._flush()

    def _add_record(self, line: _Record) -> None:
        if line.key in self._records:
            raise _BadLineError(f"record {line.key!a} comes twice")
        self._records.add(line.key)
        self._operations.append(SetRecord(line.key, line.value))

    def _end_lane(self) -> None:
        """Restore the last place of the lane, even if its last messages were removed."""
        lane = self._lane
        if lane is not None and self._place < lane.last_place:
            self._operations += (
                Put(lane.lane, lane.last_place, 0, 0, 0, "", b"", b""),
                Remove(lane.lane, lane.last_place),
            )
        self._lane = None

    def _flush(self) -> None:
        operations, self._operations = self._operations, []
        self._octets = 0
        self._store.apply(operations)
        assert self._first is not None
        self._progress(self._messages, self._first.messages)
