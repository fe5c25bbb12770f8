"""Where the partitions of a spool end, as its writer tells readers.

The file is written in place, as replacing one costs nearly as much as syncing it on some file
systems. Who reads half of what is being written knows by the checksum, and reads again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from stompkit.spool._files import replace_octets, write_at
from stompkit.spool._problems import BrokenSpool

__all__ = ["Head", "new_head", "read_head"]

_NAME: Final = "head.json"
#: How often it is read again: for much longer than it takes to write it.
_TRIES: Final = 10_000
_REPAIR: Final = "whoever opens the spool for writing makes it anew"


class _Content(msgspec.Struct):
    #: The next ordinal of each partition.
    p: tuple[int, ...]
    #: Of these, as :func:`_checksum` has it.
    crc: str


_CONTENT: Final = msgspec.json.Decoder(_Content)


class Head:
    """What is told to readers; a power failure may bring an older one back, never a newer one."""

    def __init__(self, folder: Path, ordinals: tuple[int, ...], *, sync: bool) -> None:
        """Begin with these; raises OSError."""
        new_head(folder, ordinals, sync=sync)
        self._descriptor = os.open(folder / _NAME, os.O_WRONLY)

    def publish(self, ordinals: tuple[int, ...]) -> None:
        """Tell of ordinals that are not below the former ones; raises OSError."""
        # So it never gets shorter, and nothing is left of the former ones.
        write_at(self._descriptor, _encoded(ordinals), 0)

    def close(self, *, sync: bool) -> None:
        """Close the file; raises OSError."""
        try:
            if sync:
                os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)


def new_head(folder: Path, ordinals: tuple[int, ...], *, sync: bool = True) -> None:
    """Write the file as a whole; raises OSError."""
    replace_octets(folder / _NAME, _encoded(ordinals), sync=sync)


def read_head(folder: Path) -> tuple[int, ...]:
    """The next ordinal of each partition, up to which all is synced.

    Raises :class:`BrokenSpool` where the file does not say so.
    """
    path = folder / _NAME
    for _ in range(_TRIES):
        try:
            content = _CONTENT.decode(path.read_bytes())
        except FileNotFoundError:
            raise BrokenSpool(path, 0, f"it is missing: {_REPAIR}") from None
        except msgspec.DecodeError:
            continue
        if content.crc == _checksum(content.p):
            return content.p
    raise BrokenSpool(path, 0, f"it does not say where partitions end: {_REPAIR}")


def _encoded(ordinals: tuple[int, ...]) -> bytes:
    return msgspec.json.encode(_Content(ordinals, _checksum(ordinals)))


def _checksum(ordinals: tuple[int, ...]) -> str:
    return f"{crc32(repr(ordinals).encode()):08x}"
