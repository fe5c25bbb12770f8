"""Storage of a spool as readers see it: a folder, or a server that has it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from stompkit.spool._epochs import Epoch, read_epochs
from stompkit.spool._files import Segment, part_folder, read_at, settled_segments
from stompkit.spool._head import read_floor, read_head
from stompkit.spool._identity import Identity, identity_of
from stompkit.spool.readers import Reader, listed, progress, register

__all__ = ["DescriptorFile", "FolderStorage", "Listing", "OpenFile", "Storage"]


class OpenFile(Protocol):
    """A file of a spool that is open for reading."""

    def read_at(self, length: int, offset: int) -> bytes:
        """Read *length* bytes; fewer only at the end of the file."""

    def size(self) -> int:
        """Return the current size in bytes."""

    def close(self) -> None:
        """Close the file."""


class Listing(NamedTuple):
    """The segments of a partition."""

    #: Oldest first.
    segments: list[Segment]
    #: First ordinal that retention has left; the segments from there on should be listed.
    floor: int


class Storage(Protocol):
    """The interface that :class:`stompkit.spool.SpoolReader` needs."""

    #: Folder or URL.
    place: str
    #: True if paths of segments are files of this machine.
    is_local: bool

    def identity(self, expect_id: str) -> Identity:
        """Return the identity; with an id, another process has seen this spool before."""

    def head(self) -> tuple[int, ...]:
        """Return the ordinal after the last message of each partition."""

    def epochs(self) -> list[Epoch]:
        """Return the epochs of the spool, oldest first; none if they are unknown."""

    def listing(self, partition: int) -> Listing:
        """Return all segments of a partition."""

    def opened(self, segment: Segment) -> OpenFile:
        """Open a segment; raises FileNotFoundError if it was removed or sealed."""

    def index(self, segment: Segment, offset: int) -> bytes:
        """Return the index file from an offset on; empty if it cannot be read."""

    def readers(self) -> dict[str, Reader]:
        """Return the registered readers."""

    def register(self, name: str, positions: Sequence[int]) -> Reader:
        """Register a reader as :func:`stompkit.spool.readers.register` does."""

    def progress(self, name: str, positions: Sequence[int]) -> Reader:
        """Record progress as :func:`stompkit.spool.readers.progress` does."""


class DescriptorFile:
    """A file of this machine, by its descriptor."""

    def __init__(self, descriptor: int) -> None:
        """Take an open descriptor."""
        self._descriptor: Final = descriptor

    def read_at(self, length: int, offset: int) -> bytes:
        """Read *length* bytes; fewer only at the end of the file."""
        return read_at(self._descriptor, length, offset)

    def size(self) -> int:
        """Return the current size in bytes."""
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


class FolderStorage:
    """A spool in a folder."""

    is_local = True

    def __init__(self, folder: Path) -> None:
        """Open nothing."""
        self.folder: Final = folder
        self.place = str(folder)

    def identity(self, expect_id: str) -> Identity:
        """Return the identity; raises :class:`~stompkit.spool.SpoolError` if there is no spool."""
        return identity_of(self.folder, is_elsewhere=bool(expect_id))

    def head(self) -> tuple[int, ...]:
        """Return the published head; raises :class:`~stompkit.spool.BrokenSpoolError`."""
        return read_head(self.folder)

    def epochs(self) -> list[Epoch]:
        """Return the epochs of the spool, oldest first; none if they are unknown."""
        return read_epochs(self.folder)

    def listing(self, partition: int) -> Listing:
        """Return all segments of a partition."""
        listed = settled_segments(part_folder(self.folder, partition))
        # Read last: retention writes the floor before it removes segments.
        floors = read_floor(self.folder)
        first = listed[0].first if listed else 0
        if floors is None or partition >= len(floors):
            return Listing(listed, first)
        return Listing(listed, min(first, floors[partition]))

    def opened(self, segment: Segment) -> OpenFile:
        """Open a segment; raises FileNotFoundError if it was removed or sealed."""
        return DescriptorFile(os.open(segment.path, os.O_RDONLY))

    def index(self, segment: Segment, offset: int) -> bytes:
        """Return the index file from an offset on; empty if it cannot be read."""
        try:
            with segment.index_path.open("rb") as file:
                file.seek(offset)
                return file.read()
        except OSError:
            return b""

    def readers(self) -> dict[str, Reader]:
        """Return the registered readers; raises :class:`~stompkit.spool.BrokenSpoolError`."""
        return listed(self.folder)

    def register(self, name: str, positions: Sequence[int]) -> Reader:
        """Register a reader as :func:`stompkit.spool.readers.register` does."""
        return register(self.folder, name, positions)

    def progress(self, name: str, positions: Sequence[int]) -> Reader:
        """Record progress as :func:`stompkit.spool.readers.progress` does."""
        return progress(self.folder, name, positions)
