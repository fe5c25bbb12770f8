"""Files and folders of a spool, regardless of their content."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from stompkit._common.files import FileLock, LockedError, write_atomically
from stompkit.spool._errors import SpoolInUseError

__all__ = [
    "LOCK",
    "Segment",
    "checksum",
    "files_of",
    "locked",
    "part_folder",
    "read_at",
    "read_json",
    "replace",
    "replace_octets",
    "segment_path",
    "segments",
    "settled_segments",
    "sync_data",
    "unfinished_path",
    "write_at",
    "write_whole",
]

#: Name of the lock file, which the writing process holds locked.
LOCK: Final = "lock"
_IS_SEGMENT: Final = re.compile(r"([0-9]{20})\.(log|arrow|parquet)").fullmatch
#: Precedence if one segment exists in two forms: the first is kept until the other is verified.
_FORMS: Final = ("log", "arrow", "parquet")

#: Syncs the data of a file descriptor, without the modification time if the platform allows it.
sync_data: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)


class Segment(NamedTuple):
    """A file of messages."""

    first: int
    path: Path

    @property
    def is_log(self) -> bool:
        """True if the file contains blocks as they were appended."""
        return self.path.suffix == ".log"

    @property
    def index_path(self) -> Path:
        """Path of the index file."""
        return self.path.with_name(self.path.name + ".idx")


def files_of(segment: Segment) -> list[Path]:
    """Return the paths that a segment can have, its present one last.

    A crash while it is sealed leaves it in several forms.
    """
    found: list[Path] = []
    for form in _FORMS:
        path = segment.path.with_suffix(f".{form}")
        found += (unfinished_path(segment, form), path.with_name(path.name + ".idx"), path)
    found.remove(segment.path)
    return [*found, segment.path]


def unfinished_path(segment: Segment, form: str) -> Path:
    """Return the path of the file that becomes the sealed form of a segment."""
    return segment.path.with_suffix(f".tmp.{form}")


def part_folder(folder: Path, partition: int) -> Path:
    """Return the folder of a partition's segments."""
    return folder / f"p{partition}"


def segment_path(folder: Path, first: int) -> Path:
    """Return the log file of the segment that begins at ordinal *first*."""
    return folder / f"{first:020}.log"


def segments(folder: Path) -> list[Segment]:
    """Return all segments in the folder of a partition, oldest first."""
    found: dict[int, tuple[int, Segment]] = {}
    for name in os.listdir(folder):
        if (match := _IS_SEGMENT(name)) is not None:
            first, rank = int(match[1]), _FORMS.index(match[2])
            if first not in found or rank < found[first][0]:
                found[first] = rank, Segment(first, folder / name)
    return [segment for _, (_, segment) in sorted(found.items())]


def settled_segments(folder: Path) -> list[Segment]:
    """Return all segments while another process may be sealing one.

    A segment that is sealed during a listing can be missed in both forms, but not twice.
    """
    listed = segments(folder)
    while (again := segments(folder)) != listed:
        listed = again
    return listed


def replace(path: Path, content: object, *, sync: bool = True, mark: str = "") -> None:
    """Write a file atomically as JSON; readers see the former content or the new one."""
    replace_octets(path, msgspec.json.encode(content), sync=sync, mark=mark)


def replace_octets(path: Path, octets: bytes, *, sync: bool = True, mark: str = "") -> None:
    """Write a file atomically; ``mark`` separates the temporary files of concurrent writers."""
    write_atomically(path, octets, durable=sync, partial=Path(f"{path}{mark}.tmp"))


def write_at(descriptor: int, octets: bytes, offset: int) -> None:
    """Write all bytes at *offset*; a single system call may write fewer."""
    view = memoryview(octets)
    while view:
        done = os.pwrite(descriptor, view, offset)
        view = view[done:]
        offset += done


def write_whole(descriptor: int, octets: bytes) -> None:
    """Write all bytes at the current position of the descriptor."""
    view = memoryview(octets)
    while view:
        view = view[os.write(descriptor, view) :]


def read_at(descriptor: int, length: int, offset: int) -> bytes:
    """Read *length* bytes; fewer only at the end of the file."""
    octets = os.pread(descriptor, length, offset)
    while len(octets) < length:
        more = os.pread(descriptor, length - len(octets), offset + len(octets))
        if not more:
            break
        octets += more
    return octets


def locked(folder: Path) -> FileLock:
    """Return the lock of a spool, acquired. Raises SpoolInUseError, which names the holder."""
    lock = FileLock(folder / LOCK)
    try:
        return lock.acquire()
    except LockedError as error:
        raise SpoolInUseError(f"{folder} is written to by {error.holder}") from None


def checksum(text: str) -> str:
    """Return the CRC-32 of a text, as the small files of a spool contain it."""
    return f"{crc32(text.encode()):08x}"


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; raises ValueError for invalid JSON."""
    return msgspec.json.decode(path.read_bytes())
