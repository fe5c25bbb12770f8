"""Indexes of segments: the positions of their blocks.

A file beside the segment has an entry of fixed length for each block. The file is optional: it is
not synced, and inconsistent entries are rebuilt from the segment itself.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import closing
from operator import attrgetter
from typing import Final

from stompkit.spool._errors import BrokenSpoolError
from stompkit.spool._files import Segment
from stompkit.spool._storage import OpenFile, Storage
from stompkit.spool.segments.blocks import FIXED, DamagedBlockError, Heading
from stompkit.spool.segments.entries import Entry
from stompkit.spool.segments.optional import sealed_files

__all__ = ["Index", "pack", "unpack", "walk"]

_ENTRY: Final = struct.Struct("<QQIIqq")
_RECEIVED: Final = struct.Struct("<q")
_first_of: Final = attrgetter("first")


def pack(entry: Entry) -> bytes:
    """Return the encoded form of an entry."""
    return _ENTRY.pack(*entry)


def unpack(octets: bytes, segment: Segment, after: Entry | None = None) -> Iterator[Entry]:
    """Yield the entries of an index file, up to the first inconsistency."""
    first, offset = (
        (segment.first, 0) if after is None else (after.end, after.offset + after.length)
    )
    whole = len(octets) - len(octets) % _ENTRY.size
    for entry in map(Entry._make, _ENTRY.iter_unpack(octets[:whole])):
        if (entry.first, entry.offset) != (first, offset) or not entry.messages:
            return
        yield entry
        first, offset = entry.end, offset + entry.length


def walk(file: OpenFile, segment: Segment, after: Entry | None = None) -> Iterator[Entry]:
    """Yield the blocks of a log after an entry, by their headings alone.

    Raises :class:`BrokenSpoolError` if a valid block does not follow.
    """
    first, offset = (
        (segment.first, 0) if after is None else (after.end, after.offset + after.length)
    )
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

    def __init__(self, segment: Segment, storage: Storage) -> None:
        """Start with no entries loaded."""
        self._storage = storage
        self.segment: Final = segment
        self._entries: list[Entry] = []

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
                self.segment.path, offset, f"it ends before ordinal {there} instead of {end}"
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
        entries = self._entries
        octets = self._storage.index(self.segment, len(entries) * _ENTRY.size)
        entries += unpack(octets, self.segment, entries[-1] if entries else None)

    def _sealed_entries(self) -> list[Entry]:
        path = self.segment.path
        if self._storage.is_local:
            found: list[Entry] = sealed_files().entries(path)
        else:
            with closing(self._storage.opened(self.segment)) as file:
                found = sealed_files().entries(path, file)
        return found

    def _walk(self, end: int) -> None:
        entries = self._entries
        with closing(self._storage.opened(self.segment)) as file:
            for entry in walk(file, self.segment, entries[-1] if entries else None):
                entries.append(entry)
                if entry.end >= end:
                    return
