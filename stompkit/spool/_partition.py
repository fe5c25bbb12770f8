"""The partitions of a spool, as readers see them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Final, TypeVar

from stompkit.spool._errors import BrokenSpoolError, DataLostError
from stompkit.spool._files import Segment
from stompkit.spool._head import MISSING_ADVICE
from stompkit.spool._storage import OpenFile, Storage
from stompkit.spool.segments.blocks import Block, DamagedBlockError, decode
from stompkit.spool.segments.entries import Entry
from stompkit.spool.segments.index import Index
from stompkit.spool.segments.optional import sealed_files
from stompkit.spool.segments.place import Place

__all__ = ["Partition"]

_T = TypeVar("_T")
#: Yields the blocks of a segment for index entries, with the size in bytes of each.
_Blocks = Callable[[list[Entry]], Iterator[tuple[Block, int]]]

#: Maximum size in bytes of consecutive blocks that are read together.
_READ_OCTETS: Final = 1 << 20


class Partition:
    """The segments of a partition and their indexes."""

    def __init__(self, storage: Storage, place: Place) -> None:
        """Create the description without reading files."""
        self._storage = storage
        self._place = place
        self._number = place.partition
        #: Segments found by the last listing, and the first ordinal that retention has left.
        self._listed: list[Segment] = []
        self._floor = 0
        self._indexes: dict[Path, Index] = {}

    def floor(self) -> int:
        """Return the first ordinal that is still retained."""
        self._list()
        return self._floor

    def entries(self, start: int, end: int) -> Iterator[Entry]:
        """Yield the entries that overlap a range; the range starts at the floor or later."""
        start = max(start, self.floor())
        while start < end:
            _, found = self._run(start, end, lambda segment: None)
            yield from found
            start = found[-1].end

    def after_damage(self, start: int, end: int) -> int:
        """Return the first ordinal behind the block of ``start``, or behind its whole segment.

        The segment is passed over if its index cannot be read.
        """
        self._list()
        place = bisect_right(self._listed, start, key=attrgetter("first")) - 1
        if place < 0:
            return max(min(self._listed[0].first, end), start + 1)
        bound = end
        if place + 1 < len(self._listed):
            bound = min(end, self._listed[place + 1].first)
        try:
            return max(self._index(self._listed[place]).between(start, bound)[0].end, start + 1)
        except (BrokenSpoolError, FileNotFoundError, IndexError):
            return max(bound, start + 1)

    def blocks(self, start: int, end: int) -> Iterator[tuple[Block, int]]:
        """Yield blocks from ``start`` on, the last one whole, and sizes; raises DataLostError."""
        while start < end:
            reader, found = self._run(start, end, self._opened)
            try:
                for block, length in reader(found):
                    # A block of a sealed segment may contain some that were yielded before.
                    yield block.slice(start, block.end), length
                    start = block.end
            except FileNotFoundError:
                # A server keeps no file open: the segment was sealed or removed between two reads.
                self._list()

    def _run(self, start: int, end: int, use: Callable[[Segment], _T]) -> tuple[_T, list[Entry]]:
        """Return the result of ``use`` for one segment of a range, and its entries in the range."""
        if self._listed:
            # Segments are listed again only if the known segments do not cover the range.
            with suppress(BrokenSpoolError, DataLostError, FileNotFoundError):
                return self._within(start, end, use)
        self._list()
        while True:
            try:
                return self._within(start, end, use)
            except FileNotFoundError:
                self._list()  # sealed or removed since the last listing

    def _within(self, start: int, end: int, use: Callable[[Segment], _T]) -> tuple[_T, list[Entry]]:
        listed = self._listed
        place = bisect_right(listed, start, key=attrgetter("first")) - 1
        if place < 0:
            raise self._missing(start) if start >= self._floor else self._lost(start)
        segment = listed[place]
        is_last = place + 1 == len(listed)
        bound = end if is_last else min(end, listed[place + 1].first)
        found = self._index(segment).between(start, bound)
        return use(segment), found

    def _list(self) -> None:
        """List the current segments."""
        listed, self._floor = self._storage.listing(self._number)
        if not listed:
            raise BrokenSpoolError(
                Path(self._storage.place, f"p{self._number}"), 0, "it has no segment"
            )
        self._listed = listed
        for path in self._indexes.keys() - {segment.path for segment in listed}:
            del self._indexes[path]

    def _index(self, segment: Segment) -> Index:
        index = self._indexes.get(segment.path)
        if index is None:
            index = self._indexes[segment.path] = Index(segment, self._storage, self._place)
        return index

    def _opened(self, segment: Segment) -> _Blocks:
        """Return the block reader of a segment; raises FileNotFoundError if it was removed."""
        storage = self._storage
        if segment.is_log:
            return partial(_of_log, storage.opened(segment), segment.path, self._place.seed())
        sealed = sealed_files()
        if storage.is_local:
            reader: _Blocks = sealed.opened(segment.path, self._place)
            return reader
        # The index has an entry for each batch, whose counts need not be read from the file.
        counts = [entry.messages for entry in self._index(segment).known]
        file = storage.opened(segment)
        return partial(_of_file, file, sealed, segment.path, self._place, counts)

    def _missing(self, asked: int) -> BrokenSpoolError:
        folder, oldest = Path(self._storage.place, f"p{self._number}"), self._listed[0].first
        return BrokenSpoolError(
            folder,
            0,
            f"ordinal {asked} is in no segment, although retention has not removed it: segment"
            f" {self._floor:020} or one after it is missing, up to {oldest:020}. {MISSING_ADVICE}",
        )

    def _lost(self, asked: int) -> DataLostError:
        since, oldest = "", self._listed[0]
        with suppress(BrokenSpoolError, FileNotFoundError):
            entry = self._index(oldest).upto(oldest.first + 1)[0]
            received = datetime.fromtimestamp(entry.since_us / 1e6, UTC)
            since = f", received since {received.isoformat(timespec='seconds')}"
        return DataLostError(
            f"ordinal {asked} of partition {self._number} is not in {self._storage.place} any more:"
            f" it begins with {self._floor}{since}. Read on from there, or restore the files that"
            " are missing; a registered reader is one for whom retention keeps what it needs",
            partition=self._number,
            asked=asked,
            there=self._floor,
        )


def _of_log(
    file: OpenFile, path: Path, seed: int, entries: list[Entry]
) -> Iterator[tuple[Block, int]]:
    with closing(file):
        for together in _together(entries):
            start = together[0].offset
            octets = memoryview(
                file.read_at(together[-1].offset + together[-1].length - start, start)
            )
            for entry in together:
                offset = entry.offset - start
                try:
                    block = decode(octets[offset : offset + entry.length], seed)
                except DamagedBlockError as error:
                    raise BrokenSpoolError(path, entry.offset, str(error)) from None
                if (block.first, block.count) != (entry.first, entry.messages):
                    raise BrokenSpoolError(path, entry.offset, f"it has no ordinal {entry.first}")
                yield block, entry.length


def _of_file(
    file: OpenFile,
    sealed: ModuleType,
    path: Path,
    place: Place,
    counts: list[int],
    entries: list[Entry],
) -> Iterator[tuple[Block, int]]:
    with closing(file):
        yield from sealed.opened(path, place, file, counts)(entries)


def _together(entries: list[Entry]) -> Iterator[list[Entry]]:
    some: list[Entry] = []
    octets = 0
    for entry in entries:
        if some and octets + entry.length > _READ_OCTETS:
            yield some
            some, octets = [], 0
        some.append(entry)
        octets += entry.length
    if some:
        yield some
