"""Reading a spool: any number of processes, concurrently with one writer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import Final

from stompkit.spool._epochs import epoch_of, is_continued
from stompkit.spool._errors import DataLostError, OtherSpoolError, SpoolError
from stompkit.spool._head import check_partitions
from stompkit.spool._partition import Partition
from stompkit.spool._storage import FolderStorage, Storage
from stompkit.spool.address import ServerAccess, is_url, other_url
from stompkit.spool.readers import Reader
from stompkit.spool.segments.blocks import Block
from stompkit.spool.segments.entries import Entry
from stompkit.spool.segments.place import Place

__all__ = ["SpoolReader"]


class SpoolReader:
    """The messages of a spool, by ordinals, which number the messages of a partition from 0.

    A reader takes no lock and holds no file open; a pickled one opens the same spool. Use a reader
    in one thread at a time. All methods raise :class:`~stompkit.spool.BrokenSpoolError` for damaged
    files, and OSError. With a server they raise
    :class:`~stompkit.spool.SpoolUnavailableError` if it does not answer.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        expect_id: str = "",
        access: ServerAccess | None = None,
    ) -> None:
        """Open a folder, or the spool of a server by its URL, ``http://HOST:PORT`` or ``https``.

        ``access`` is required for a server. Raises :class:`~stompkit.spool.SpoolError` if there is
        no spool, and :class:`~stompkit.spool.OtherSpoolError` if the spool does not have the id
        ``expect_id``.
        """
        self._access = access
        self._storage: Final = _storage(folder, expect_id, access)
        #: Folder or URL.
        self.place: Final = self._storage.place
        # With an id, another process has seen it, such as the driver of a task of Spark.
        identity = self._storage.identity(expect_id)
        if expect_id not in ("", identity.id):
            raise OtherSpoolError(
                f"{self.place} has the spool {identity.id} instead of {expect_id}: its ordinals"
                " are others. Bring the former one back, or start over with this one"
            )
        self.id: Final = identity.id
        self.partitions: Final = identity.partitions
        self._partitions = [
            Partition(self._storage, Place(self.id, number)) for number in range(self.partitions)
        ]

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self.place, self.id, self._access)

    @property
    def access(self) -> ServerAccess | None:
        """Token and other requirements of the server; None for a folder."""
        return self._access

    @property
    def folder(self) -> Path:
        """The folder of the spool; raises :class:`~stompkit.spool.SpoolError` for a server."""
        if not self._storage.is_local:
            raise SpoolError(f"{self.place} is a server, and its folder is on another machine")
        return Path(self.place)

    def head(self) -> tuple[int, ...]:
        """Return the ordinal after the last message of each partition; cheap to call often."""
        head = self._storage.head()
        check_partitions(self.place, self.partitions, head)
        return head

    def floor(self) -> tuple[int, ...]:
        """Return the first retained ordinal of each partition."""
        return tuple(partition.floor() for partition in self._partitions)

    def blocks(
        self, partition: int, start: int, end: int, *, most_bytes: int | None = None
    ) -> Iterator[Block]:
        """Yield the messages with ordinals from ``start`` up to ``end``, exclusive, in order.

        With ``most_bytes`` it stops before it exceeds that size in bytes, but yields at least one
        block. Raises :class:`~stompkit.spool.DataLostError` if a message is missing, before it
        yields the first of those that retention has removed.
        """
        head = self.head()[partition]
        if end > head:
            raise DataLostError(
                f"ordinal {end - 1} of partition {partition} is not in {self.place}, which ends"
                f" before {head}: has it been restored from an older copy?",
                partition=partition,
                asked=end - 1,
                there=head,
            )
        octets = 0
        for block, length in self._partitions[partition].blocks(start, end):
            octets += length
            if most_bytes is not None and octets > most_bytes and octets > length:
                return
            yield block.slice(start, end)

    def after_damage(self, partition: int, start: int, end: int) -> int:
        """Return the ordinal to read on from if :meth:`blocks` fails at ``start``, up to ``end``.

        It is behind the damaged block, or behind its segment if the index is damaged as well.
        """
        return self._partitions[partition].after_damage(start, end)

    def epoch(self, ordinals: Sequence[int]) -> str:
        """Return the name of the history before the ordinals of all partitions.

        Store it with the ordinals, for :meth:`check_epoch`. It is empty if it is unknown, as in
        spools of earlier versions.
        """
        return epoch_of(self._storage.epochs(), ordinals)

    def check_epoch(self, ordinals: Sequence[int], epoch: str) -> None:
        """Check that the messages before the ordinals are still those of an epoch.

        Raises :class:`~stompkit.spool.OtherSpoolError` if the spool was replaced by an older copy,
        also if that has grown since. An empty epoch is not checked.
        """
        # Read first: an epoch is known before the head has its messages.
        head = self.head() if epoch else ()
        if not is_continued(self._storage.epochs(), head, ordinals, epoch):
            raise OtherSpoolError(
                f"{self.place} is an older copy of the spool that was read: it does not have the"
                f" same messages before {list(ordinals)}. Bring the newer one back, or move this"
                " one away to begin with a new spool, which has another id"
            )

    def readers(self) -> dict[str, Reader]:
        """Return the registered readers, as :func:`stompkit.spool.readers.listed` does."""
        return self._storage.readers()

    def register(self, name: str, positions: Sequence[int]) -> Reader:
        """Register a reader, as :func:`stompkit.spool.readers.register` does."""
        return self._storage.register(name, positions)

    def progress(self, name: str, positions: Sequence[int]) -> Reader:
        """Record the progress of a reader, as :func:`stompkit.spool.readers.progress` does."""
        return self._storage.progress(name, positions)

    def position_at(self, time_s: float) -> tuple[int, ...]:
        """Return the first ordinal of each partition that was received at or after a time.

        ``time_s`` is in seconds since 1970. If the receiver's clock was set back, the first and the
        last message of each block decide.
        """
        time_us = round(time_s * 1e6)
        return tuple(
            self._position(number, head, time_us) for number, head in enumerate(self.head())
        )

    def size(self, partition: int, start: int, end: int) -> int:
        """Return the approximate size in bytes of a range: that of all blocks that overlap it."""
        return sum(entry.length for entry in self._partitions[partition].entries(start, end))

    def split(
        self, start: Sequence[int], end: Sequence[int], parts: int
    ) -> list[tuple[int, int, int]]:
        """Return at most ``parts`` ranges of similar size for all partitions together.

        Each range is a partition, a start and an end; ranges are cut between blocks. There are more
        ranges only if more than ``parts`` partitions have messages.
        """
        found = [
            list(partition.entries(first, last))
            for partition, first, last in zip(self._partitions, start, end, strict=True)
        ]
        octets = sum(entry.length for entries in found for entry in entries)
        ranges: list[tuple[int, int, int]] = []
        done = 0
        for number, entries in enumerate(found):
            first, own = start[number], 0
            for entry in entries:
                # A block belongs to the part that contains its middle.
                part = (2 * done + entry.length) * parts // (2 * octets)
                if entry.first <= first:
                    own = part
                elif part > own:
                    ranges.append((number, first, entry.first))
                    first, own = entry.first, part
                done += entry.length
            if first < end[number]:
                ranges.append((number, first, end[number]))
        return ranges

    def bytes_limit(self, start: Sequence[int], most_bytes: int) -> tuple[int, ...]:
        """Return the end with at most ``most_bytes`` bytes after ``start``, in order of reception.

        The end is at least one block after ``start``, if there is any.
        """
        timed = map(self._timed, range(self.partitions), start, self.head())
        end = list(start)
        octets = 0
        for _, number, entry in merge(*timed, key=itemgetter(0, 1)):
            octets += entry.length
            if octets > most_bytes and octets > entry.length:
                break
            end[number] = entry.end
        return tuple(end)

    def _timed(self, number: int, start: int, end: int) -> Iterator[tuple[int, int, Entry]]:
        for entry in self._partitions[number].entries(start, end):
            yield entry.since_us, number, entry

    def _position(self, number: int, head: int, time_us: int) -> int:
        for entry in self._partitions[number].entries(0, head):
            if entry.until_us >= time_us:
                return self._within(number, entry, time_us)
        return head

    def _within(self, number: int, entry: Entry, time_us: int) -> int:
        for block in self.blocks(number, entry.first, entry.end):
            for ordinal, received_us in enumerate(block.received, block.first):
                if received_us >= time_us:
                    return ordinal
        return entry.end


def _storage(folder: str | PathLike[str], expect_id: str, access: ServerAccess | None) -> Storage:
    if problem := other_url(folder):
        raise SpoolError(problem)
    if not is_url(folder):
        return FolderStorage(Path(folder))
    # Most readers need no HTTP.
    from stompkit.spool.serving.client import ServedStorage

    if access is None:
        raise SpoolError(f"{folder} is a server, which needs its token: give access")
    return ServedStorage(str(folder), access, expect_id)


def _reopened(place: str, expect_id: str, access: ServerAccess | None = None) -> SpoolReader:
    return SpoolReader(place, expect_id=expect_id, access=access)
