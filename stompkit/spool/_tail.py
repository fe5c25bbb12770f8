"""The end of a partition, to which messages are appended."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from stompkit._common.files import sync_path
from stompkit.spool._errors import BrokenSpoolError
from stompkit.spool._files import (
    Segment,
    read_at,
    replace_octets,
    segment_path,
    segments,
    sync_data,
    write_at,
    write_whole,
)
from stompkit.spool._storage import DescriptorFile
from stompkit.spool.segments.blocks import DamagedBlockError, decode, encode
from stompkit.spool.segments.entries import Entry
from stompkit.spool.segments.index import confirmed, pack, packed, seed_of, walk
from stompkit.spool.segments.place import Place
from stompkit.spool.segments.records import Record

__all__ = ["Tail"]

_log: Final = logging.getLogger(__name__)


class Tail:
    """The newest segment of a partition.

    Blocks are written, then synced, and then all of them are either kept or dropped.
    """

    def __init__(self, folder: Path, place: Place, published: int | None, *, sync: bool) -> None:
        """Open a partition's folder, and truncate an incomplete write after a crash.

        *published* is the ordinal up to which messages may have been acknowledged; None if that is
        unknown. Raises :class:`~stompkit.spool.BrokenSpoolError` if a message before it is missing,
        or might be.
        """
        self._folder = folder
        self._place = place
        self._syncs = sync
        #: Entries that are written but not kept yet.
        self._pending: list[Entry] = []
        self._has_rest = False
        self._end, self._size, self._since_us = 0, 0, 0
        self._index: int | None = None
        listed = segments(folder)
        if not listed:
            # Each spool is created with a segment in each partition.
            count = "its" if published is None else str(published)
            raise BrokenSpoolError(folder, 0, f"no segment is left of {count} messages")
        if not listed[-1].is_log:
            raise BrokenSpoolError(listed[-1].path, 0, "the segment after it is missing")
        self._segment = listed[-1]
        self._descriptor = os.open(self._segment.path, os.O_RDWR)
        self._recover(published)

    @property
    def end(self) -> int:
        """The ordinal after the last kept message."""
        return self._end

    @property
    def pending_end(self) -> int:
        """The ordinal after the last written message."""
        return self._pending[-1].end if self._pending else self._end

    def is_full(self, most_bytes: int, oldest_us: float) -> bool:
        """Return True if the segment has reached a size, or has a message from before a time."""
        return self._size >= most_bytes or (self._size > 0 and self._since_us < oldest_us)

    def roll(self) -> None:
        """Start the next segment; after OSError nothing has changed."""
        assert not self._pending  # they would span two segments
        former = self._descriptor, self._index
        self._start(self._end)
        for descriptor in former:
            if descriptor is not None:
                os.close(descriptor)

    def write(self, records: Sequence[Record]) -> None:
        """Append a block; raises OSError, and ValueError if the block is too large."""
        last = self._pending[-1] if self._pending else None
        first, offset = (self._end, self._size) if last is None else (last.end, _after(last))
        octets = encode(first, records, self._place.seed())
        if self._has_rest:
            os.ftruncate(self._descriptor, self._size)
            self._has_rest = False
        entry = Entry(
            first,
            offset,
            len(records),
            len(octets),
            records[0].received_us,
            records[-1].received_us,
        )
        self._pending.append(entry)
        write_at(self._descriptor, octets, offset)

    def sync(self) -> None:
        """Sync written blocks to disk; raises OSError."""
        if self._syncs:
            sync_data(self._descriptor)

    def keep(self) -> None:
        """Keep the written blocks."""
        entries, self._pending = self._pending, []
        if not entries:
            return
        if not self._size:
            self._since_us = entries[0].since_us
        self._end, self._size = entries[-1].end, _after(entries[-1])
        if self._index is not None:
            seed = seed_of(self._place, self._segment)
            try:
                write_whole(self._index, b"".join(pack(each, seed) for each in entries))
            except OSError:
                # The index is optional; entries after a gap would be useless.
                os.close(self._index)
                self._index = None

    def drop(self) -> None:
        """Discard the blocks that are written but not kept."""
        if self._pending:
            self._pending.clear()
            self._has_rest = True
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
                self._has_rest = False

    def close(self) -> None:
        """Close the files."""
        os.close(self._descriptor)
        if self._index is not None:
            os.close(self._index)

    def _start(self, first: int) -> None:
        path = segment_path(self._folder, first)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            if self._syncs:
                sync_path(self._folder)
        except OSError:
            os.close(descriptor)
            with suppress(OSError):
                path.unlink()
            raise
        self._segment = Segment(first, path)
        self._descriptor = descriptor
        self._end, self._size, self._since_us = first, 0, 0
        self._index = self._new_index([])

    def _recover(self, published: int | None) -> None:
        """Find the end of the partition by reading the whole segment."""
        entries: list[Entry] = []
        problem: BrokenSpoolError | None = None
        try:
            for entry in walk(DescriptorFile(self._descriptor), self._segment):
                self._check(entry)
                entries.append(entry)
        except BrokenSpoolError as error:
            problem = error
        self._end, self._size, self._since_us = self._segment.first, 0, 0
        if entries:
            self._end, self._size = entries[-1].end, _after(entries[-1])
            self._since_us = entries[0].since_us
        try:
            self._check_end(published, problem)
        except BrokenSpoolError:
            os.close(self._descriptor)
            raise
        if problem is not None:
            rest = os.fstat(self._descriptor).st_size - self._size
            _log.warning("%s; these last %d octets were never acknowledged", problem, rest)
            os.ftruncate(self._descriptor, self._size)
        # The crash may have happened between writing and syncing.
        if self._syncs:
            sync_data(self._descriptor)
            sync_path(self._folder)
        self._index = self._new_index(entries)

    def _check_end(self, published: int | None, problem: BrokenSpoolError | None) -> None:
        """Raise :class:`BrokenSpoolError` if confirmed messages are behind the readable end."""
        known = published or 0
        if problem is not None or published is None:
            # The head may be older than the index after a power failure, or be lost.
            with suppress(OSError):
                index = self._segment.index_path.read_bytes()
                known = max(known, confirmed(index, self._segment, self._place))
        if self._end < known:
            raise problem or BrokenSpoolError(
                self._segment.path,
                self._size,
                f"it ends before ordinal {self._end}, and had messages up to {known}",
            )
        if problem is not None and published is None:
            raise BrokenSpoolError(
                self._segment.path,
                self._size,
                "it is not known if messages from here on were acknowledged, because head.json"
                " cannot be read. Bring both files back from a copy. To give the messages up:"
                f" truncate -s {self._size} {self._segment.path}",
            )

    def _check(self, entry: Entry) -> None:
        try:
            decode(read_at(self._descriptor, entry.length, entry.offset), self._place.seed())
        except DamagedBlockError as error:
            raise BrokenSpoolError(self._segment.path, entry.offset, str(error)) from None

    def _new_index(self, entries: list[Entry]) -> int | None:
        path = self._segment.index_path
        with suppress(OSError):
            seed = seed_of(self._place, self._segment)
            replace_octets(path, packed(entries, seed), sync=False)
            return os.open(path, os.O_WRONLY | os.O_APPEND)
        return None


def _after(entry: Entry) -> int:
    return entry.offset + entry.length
