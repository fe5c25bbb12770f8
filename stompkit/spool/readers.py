"""Registered readers of a spool: retention removes no segment that one of them still needs.

Reading does not require registration. A registered reader reports its progress from time to time.
Retention can ignore a reader that has not reported for long.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

from stompkit._common.files import sync_path
from stompkit.spool._errors import BrokenSpoolError
from stompkit.spool._files import checksum, read_json, replace
from stompkit.spool._identity import identity_of

__all__ = ["Reader", "forget", "listed", "progress", "register"]

_FOLDER: Final = "readers"
_SUFFIX: Final = ".json"
_IS_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}").fullmatch


class Reader(NamedTuple):
    """Progress of a reader."""

    #: Ordinal of each partition before which the reader has read everything.
    positions: tuple[int, ...]
    #: Time of the last report, in seconds since 1970.
    updated_s: float


def register(
    folder: str | PathLike[str],
    name: str,
    positions: Sequence[int],
    *,
    clock: Callable[[], float] = time.time,
) -> Reader:
    """Register a reader, for which the spool keeps messages; a registered one keeps its positions.

    Raises ValueError for a name that is not 1 to 100 ASCII letters, digits and any of ``._-``. Also
    raises ValueError if the number of positions is not the number of partitions, and the errors of
    :func:`listed`.
    """
    known = listed(folder).get(name)
    return progress(folder, name, positions, clock=clock) if known is None else known


def progress(
    folder: str | PathLike[str],
    name: str,
    positions: Sequence[int],
    *,
    clock: Callable[[], float] = time.time,
) -> Reader:
    """Record the progress of a reader, registered or not; raises the errors of :func:`register`."""
    path = _path(folder, name)
    partitions = identity_of(Path(folder)).partitions
    if len(positions) != partitions:
        raise ValueError(f"{len(positions)} positions for the {partitions} partitions of {folder}")
    reader = Reader(tuple(map(int, positions)), float(clock()))
    path.parent.mkdir(mode=0o700, exist_ok=True)
    content = {"p": reader.positions, "updated": reader.updated_s, "crc": _checksum(reader)}
    replace(path, content, mark=f".{os.getpid()}")
    return reader


def forget(folder: str | PathLike[str], name: str) -> bool:
    """Unregister a reader; return True if it was registered. Raises ValueError."""
    path = _path(folder, name)
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    sync_path(path.parent)
    return True


def listed(folder: str | PathLike[str]) -> dict[str, Reader]:
    """Return all registered readers by name.

    Raises :class:`~stompkit.spool.BrokenSpoolError` for a reader file that cannot be read. Remove
    the file if the reader is no longer needed.
    """
    found: dict[str, Reader] = {}
    for path in sorted((Path(folder) / _FOLDER).glob(f"*{_SUFFIX}")):
        try:
            content = read_json(path)
            reader = Reader(tuple(map(int, content["p"])), float(content["updated"]))
            # Files of earlier versions have no checksum.
            if content.get("crc", expected := _checksum(reader)) != expected:
                raise ValueError("another checksum")
            found[path.name.removesuffix(_SUFFIX)] = reader
        except FileNotFoundError:
            continue  # unregistered meanwhile
        except (AttributeError, KeyError, TypeError, ValueError):
            raise BrokenSpoolError(path, 0, "it does not say how far a reader is") from None
    return found


def _checksum(reader: Reader) -> str:
    return checksum(repr(reader))


def _path(folder: str | PathLike[str], name: str) -> Path:
    if _IS_NAME(name) is None:
        raise ValueError(
            f"{name[:100]!r} is no name of a reader: that is 1 to 100 ASCII letters, digits and"
            " any of '.', '_' and '-'"
        )
    return Path(folder) / _FOLDER / (name + _SUFFIX)
