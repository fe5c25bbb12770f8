"""The head file and the floor file: the bounds of each partition.

The head is the end of each partition, published by the writer to readers. The file is written in
place, since on some file systems a replacement costs nearly as much as a sync. A reader detects a
partial write by the checksum, and reads again.

The floor is the first ordinal that retention has left. Retention writes it before it removes
segments. Older segments that are missing later were removed by someone else.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from stompkit._common.files import sync_path
from stompkit._common.spelling import amount
from stompkit.spool._errors import BrokenSpoolError
from stompkit.spool._files import checksum, part_folder, replace_octets, segments, write_at

__all__ = [
    "MISSING_ADVICE",
    "Head",
    "check_partitions",
    "ensure_floor",
    "new_head",
    "raise_floor",
    "read_floor",
    "read_head",
]

_NAME: Final = "head.json"
_FLOOR_NAME: Final = "floor.json"
#: Remedy for missing oldest segments.
MISSING_ADVICE: Final = (
    f"Bring it back from a copy. If it was removed on purpose, remove {_FLOOR_NAME} as well"
)
#: Number of attempts to read the file: far more than a write lasts.
_TRIES: Final = 10_000
_REPAIR: Final = "whoever opens the spool for writing recreates it"


class _Content(msgspec.Struct):
    #: The next ordinal of each partition.
    p: tuple[int, ...]
    #: Checksum of the ordinals, see :func:`_checksum`.
    crc: str


_CONTENT: Final = msgspec.json.Decoder(_Content)


class Head:
    """The head file; after a power failure it may be older than the data, never newer."""

    def __init__(self, folder: Path, ordinals: tuple[int, ...], *, sync: bool) -> None:
        """Create the file with initial ordinals; raises OSError."""
        new_head(folder, ordinals, sync=sync)
        self._descriptor = os.open(folder / _NAME, os.O_WRONLY)

    def publish(self, ordinals: tuple[int, ...]) -> None:
        """Publish ordinals that are not below the former ones; raises OSError."""
        # Ordinals never decrease, so the content never becomes shorter and overwrites all of the
        # former.
        write_at(self._descriptor, _encoded(ordinals), 0)

    def close(self, *, sync: bool) -> None:
        """Close the file; raises OSError."""
        try:
            if sync:
                os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)


def new_head(folder: Path, ordinals: tuple[int, ...], *, sync: bool = True) -> None:
    """Write the file atomically; raises OSError."""
    replace_octets(folder / _NAME, _encoded(ordinals), sync=sync)


def check_partitions(place: str | Path, partitions: int, head: tuple[int, ...]) -> None:
    """Raise :class:`BrokenSpoolError` if the head is not that of so many partitions.

    Otherwise a wrong number would hide the messages of the other partitions.
    """
    if len(head) != partitions:
        raise BrokenSpoolError(
            Path(place, _NAME),
            0,
            f"it has the ends of {amount(len(head), 'partition')}, and spool.json is for"
            f" {partitions}. Bring back the one that is wrong; {_NAME} can be removed:"
            f" {_REPAIR}",
        )


def read_head(folder: Path) -> tuple[int, ...]:
    """Return the next ordinal of each partition, up to which all messages are synced.

    Raises :class:`BrokenSpoolError` if the file is invalid.
    """
    path = folder / _NAME
    for _ in range(_TRIES):
        try:
            found = _decoded(path.read_bytes())
        except FileNotFoundError:
            raise BrokenSpoolError(path, 0, f"it is missing: {_REPAIR}") from None
        if found is not None:
            return found
    raise BrokenSpoolError(path, 0, f"it does not say where partitions end: {_REPAIR}")


def read_floor(folder: Path) -> tuple[int, ...] | None:
    """Return the floors; None if the file is missing or damaged, as in earlier versions."""
    try:
        return _decoded((folder / _FLOOR_NAME).read_bytes(), _FLOOR_NAME)
    except FileNotFoundError:
        return None


def ensure_floor(folder: Path, partitions: int, *, sync: bool = True) -> None:
    """Write the floors of the existing segments, unless the file has floors."""
    known = read_floor(folder)
    if known is None or len(known) != partitions:
        listed = (segments(part_folder(folder, number)) for number in range(partitions))
        _write_floor(folder, tuple(part[0].first if part else 0 for part in listed), sync=sync)


def raise_floor(folder: Path, floors: tuple[int, ...]) -> None:
    """Write floors before the removal of segments; not if the file is missing or damaged."""
    known = read_floor(folder)
    if known is not None and len(known) == len(floors):
        raised = tuple(map(max, known, floors))
        if raised != known:
            try:
                _write_floor(folder, raised, sync=True)
            except OSError:
                # Retention makes room on a full disk. Without the file nothing is missed.
                (folder / _FLOOR_NAME).unlink()
                sync_path(folder)


def _write_floor(folder: Path, floors: tuple[int, ...], *, sync: bool) -> None:
    replace_octets(folder / _FLOOR_NAME, _encoded(floors, _FLOOR_NAME), sync=sync)


def _encoded(ordinals: tuple[int, ...], kind: str = "") -> bytes:
    """Return an ordinal for each partition as JSON with a checksum, also of the kind of file."""
    return msgspec.json.encode(_Content(ordinals, _checksum(ordinals, kind)))


def _decoded(octets: bytes, kind: str = "") -> tuple[int, ...] | None:
    """Return the encoded ordinals; None for damaged bytes, and for another kind of file."""
    try:
        content = _CONTENT.decode(octets)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return content.p if content.crc == _checksum(content.p, kind) else None


def _checksum(ordinals: tuple[int, ...], kind: str) -> str:
    return checksum(f"{kind}{ordinals!r}")
