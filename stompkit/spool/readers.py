"""Who reads a spool: retention removes nothing that a registered reader still needs.

Reading needs no registration. A reader that registers says from time to time how far it is, and
one that has not done so for long can be left out of account.
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
from stompkit.spool._files import read_json, replace
from stompkit.spool._identity import identity_of
from stompkit.spool._problems import BrokenSpool

__all__ = ["Reader", "forget", "listed", "progress", "register"]

_FOLDER: Final = "readers"
_SUFFIX: Final = ".json"
_IS_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}").fullmatch


class Reader(NamedTuple):
    """How far a reader is."""

    #: The ordinal of each partition before which it has everything.
    positions: tuple[int, ...]
    #: When it has last said so, in seconds since 1970.
    updated_s: float


def register(
    folder: str | PathLike[str],
    name: str,
    positions: Sequence[int],
    *,
    clock: Callable[[], float] = time.time,
) -> Reader:
    """Have a spool keep what a reader needs; one that is registered stays where it is.

    Raises ValueError for a name that is not 1 to 100 ASCII letters, digits and any of ``._-``, and
    for another number of positions than the spool has partitions; and as :func:`listed` does.
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
    """Note how far a reader is, registered before or not; raises as :func:`register` does."""
    path = _path(folder, name)
    partitions = identity_of(Path(folder)).partitions
    if len(positions) != partitions:
        raise ValueError(f"{len(positions)} positions for the {partitions} partitions of {folder}")
    reader = Reader(tuple(positions), clock())
    path.parent.mkdir(mode=0o700, exist_ok=True)
    replace(path, {"p": reader.positions, "updated": reader.updated_s}, mark=f".{os.getpid()}")
    return reader


def forget(folder: str | PathLike[str], name: str) -> bool:
    """Keep nothing for a reader any more; says whether it was registered. Raises ValueError."""
    path = _path(folder, name)
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    sync_path(path.parent)
    return True


def listed(folder: str | PathLike[str]) -> dict[str, Reader]:
    """All registered readers by their names.

    Raises :class:`~stompkit.spool.BrokenSpool` for one whose file can't be read: whoever knows that
    it is needed no more removes it.
    """
    found: dict[str, Reader] = {}
    for path in sorted((Path(folder) / _FOLDER).glob(f"*{_SUFFIX}")):
        try:
            content = read_json(path)
            positions = tuple(map(int, content["p"]))
            found[path.name.removesuffix(_SUFFIX)] = Reader(positions, float(content["updated"]))
        except FileNotFoundError:
            continue  # it was forgotten meanwhile
        except (KeyError, TypeError, ValueError):
            raise BrokenSpool(path, 0, "it does not say how far a reader is") from None
    return found


def _path(folder: str | PathLike[str], name: str) -> Path:
    if _IS_NAME(name) is None:
        raise ValueError(
            f"{name[:100]!r} is no name of a reader: that is 1 to 100 ASCII letters, digits and"
            " any of '.', '_' and '-'"
        )
    return Path(folder) / _FOLDER / (name + _SUFFIX)
