"""Indexes of segments: the positions of their blocks.

A file beside the segment has an entry of fixed length for each block, with a checksum: readers and
retention rely on its times without reading blocks. The file is optional: it is not synced, and
damaged entries are rebuilt from the segment itself. The checksums include the place of the segment,
so a copy of another segment's index is not used. Those of earlier versions do not, or are missing.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import closing
from operator import attrgetter
from typing import Final, NamedTuple
from zlib import crc32

from stompkit.spool._errors import BrokenSpoolError
from stompkit.spool._files import Segment
from stompkit.spool._storage import OpenFile, Storage
from stompkit.spool.segments.blocks import FIXED, DamagedBlockError, Heading
from stompkit.spool.segments.entries import Entry
from stompkit.spool.segments.optional import sealed_files
from stompkit.spool.segments.place import Place

__all__ = ["Index", "confirmed", "pack", "packed", "seed_of", "walk"]

#: Begin of a file whose entries have checksums; no ordinal is as large as these bytes.
_HEADING: Final = b"stompid2"
#: Begin of files of earlier versions whose checksums do not include the place.
_HEADING_1: Final = b"stompidx"
_ENTRY: Final = struct.Struct("<QQIIqq")
_CRC: Final = struct.Struct("<I")
_RECEIVED: Final = struct.Struct("<q")
_first_of: Final = attrgetter("first")


class _Layout(NamedTuple):
    """Form of an index file."""

    #: Offset of the first entry in bytes.
    begin: int
    #: Size of an entry in bytes.
    length: int
    #: True if checksums include the place.
    has_place: bool = False


#: Form of earlier versions.
_PLAIN: Final = _Layout(0, _ENTRY.size)
_CHECKED: Final = _Layout(len(_HEADING_1), _ENTRY.size + _CRC.size)
_PLACED: Final = _Layout(len(_HEADING), _ENTRY.size + _CRC.size, has_place=True)


def seed_of(place: Place, segment: Segment) -> int:
    """Return the number with which the checksums of a segment's index begin."""
    return place.seed(segment.path.name)


def pack(entry: Entry, seed: int) -> bytes:
    """Return the encoded form of an entry in an index with this seed."""
    octets = _ENTRY.pack(*entry)
    return octets + _CRC.pack(crc32(octets, seed))


def packed(entries: Iterable[Entry], seed: int) -> bytes:
    """Return the content of a file with these entries."""
    return b"".join((_HEADING, *(pack(entry, seed) for entry in entries)))


def confirmed(octets: bytes, segment: Segment, place: Place) -> int:
    """Return the ordinal up to which an index proves that messages were confirmed.

    An entry is written after its messages were synced and published.
    """
    if _layout_of(octets) is not _PLACED:
        return segment.first
    rows = octets[_PLACED.begin :]
    entries = list(_unpacked(rows, _PLACED, segment, seed_of(place, segment), None))
    return entries[-1].end if entries else segment.first


def _layout_of(octets: bytes) -> _Layout:
    if octets.startswith(_HEADING):
        return _PLACED
    return _CHECKED if octets.startswith(_HEADING_1) else _PLAIN


def _unpacked(
    octets: bytes, layout: _Layout, segment: Segment, seed: int, after: Entry | None
) -> Iterator[Entry]:
    """Yield the entries that follow one, up to the first damaged or inconsistent one."""
    first, offset = _after(after, segment)
    whole = len(octets) - len(octets) % layout.length
    for start in range(0, whole, layout.length):
        row = octets[start : start + layout.length]
        entry = Entry._make(_ENTRY.unpack_from(row))
        if layout is not _PLAIN and row != pack(entry, seed if layout.has_place else 0):
            return
        if (entry.first, entry.offset) != (first, offset) or not entry.messages:
            return
        yield entry
        first, offset = entry.end, offset + entry.length


def walk(file: OpenFile, segment: Segment, after: Entry | None = None) -> Iterator[Entry]:
    """Yield the blocks of a log after an entry, by their headings alone.

    Raises :class:`BrokenSpoolError` if a valid block does not follow.
    """
    first, offset = _after(after, segment)
    size = file.size()
    while offset < size:
        octets = file.read_at(FIXED, offset)
        try:
            heading = Heading.read(octets)
        except DamagedBlockError as error:
            raise BrokenSpoolError(segment.path, offset, str(error)) from None
        if heading.first != first or offset + heading.length > size:
            raise BrokenSpoolError(
                segment.path, offset, f"it has no whole block of ordinal {first}"
            )
        last = file.read_at(_RECEIVED.size, offset + FIXED + 8 * (heading.messages - 2))
        (since_us,) = _RECEIVED.unpack_from(octets, FIXED - _RECEIVED.size)
        (until_us,) = _RECEIVED.unpack(last)
        yield Entry(first, offset, heading.messages, heading.length, since_us, until_us)
        first, offset = first + heading.messages, offset + heading.length


def _after(entry: Entry | None, segment: Segment) -> tuple[int, int]:
    """Return the ordinal and the file offset after an entry."""
    return (segment.first, 0) if entry is None else (entry.end, entry.offset + entry.length)


class Index:
    """Index of a segment, loaded on demand."""

    def __init__(self, segment: Segment, storage: Storage, place: Place) -> None:
        """Start with no entries loaded; ``place`` is that of the segment."""
        self._storage = storage
        self._place = place
        self.segment: Final = segment
        self._entries: list[Entry] = []
        #: Form of the file, once it was read.
        self._layout: _Layout | None = None

    @property
    def known(self) -> list[Entry]:
        """The entries loaded so far, from the first on."""
        return self._entries

    def upto(self, end: int) -> list[Entry]:
        """Return all blocks up to an ordinal, possibly more.

        Raises :class:`BrokenSpoolError` if the segment ends earlier, and FileNotFoundError if it
        was removed.
        """
        entries = self._entries
        if self._lacks(end):
            self._load()
        if self._lacks(end):
            if self.segment.is_log:
                self._walk(end)
            else:
                entries[:] = self._sealed_entries()
        if self._lacks(end):
            there = entries[-1].end if entries else self.segment.first
            offset = entries[-1].offset + entries[-1].length if entries else 0
            raise BrokenSpoolError(
                self.segment.path,
                offset,
                f"it ends before ordinal {there} instead of {end}: the rest of it is missing, or"
                f" the segment after it, {there:020}. Bring the file back from a copy",
            )
        return entries

    def between(self, start: int, end: int) -> list[Entry]:
        """Return the blocks that overlap a range; raises the errors of :meth:`upto`."""
        entries = self.upto(end)
        low = bisect_right(entries, start, key=_first_of) - 1
        high = bisect_left(entries, end, key=_first_of)
        return entries[max(low, 0) : high]

    def _lacks(self, end: int) -> bool:
        entries = self._entries
        return (entries[-1].end if entries else self.segment.first) < end

    def _load(self) -> None:
        entries, layout = self._entries, self._layout
        start = 0 if layout is None else layout.begin + len(entries) * layout.length
        octets = self._storage.index(self.segment, start)
        if not octets:
            return
        if layout is None:
            layout = self._layout = _layout_of(octets)
            octets = octets[layout.begin + len(entries) * layout.length :]
        seed = seed_of(self._place, self.segment)
        entries += _unpacked(octets, layout, self.segment, seed, entries[-1] if entries else None)

    def _sealed_entries(self) -> list[Entry]:
        path = self.segment.path
        if self._storage.is_local:
            found: list[Entry] = sealed_files().entries(path, self._place)
        else:
            with closing(self._storage.opened(self.segment)) as file:
                found = sealed_files().entries(path, self._place, file)
        return found

    def _walk(self, end: int) -> None:
        entries = self._entries
        with closing(self._storage.opened(self.segment)) as file:
            for entry in walk(file, self.segment, entries[-1] if entries else None):
                entries.append(entry)
                if entry.end >= end:
                    return
