"""The right to remove or replace files of a spool: that of the writing process, if there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from stompkit._common.files import is_locked
from stompkit.spool._files import LOCK, locked
from stompkit.spool._identity import identity_of
from stompkit.spool.log import SpoolWriter

__all__ = ["Where", "is_in_use", "right_to"]

#: A spool that this process writes to, or the folder of a spool without a writer.
Where = SpoolWriter | str | PathLike[str]


@contextmanager
def right_to(where: Where) -> Iterator[Path]:
    """Yield the spool's folder with the lock held; raises SpoolInUseError."""
    if isinstance(where, SpoolWriter):
        yield where.folder
        return
    folder = Path(where)
    identity_of(folder)
    with locked(folder):
        yield folder


def is_in_use(folder: str | PathLike[str]) -> bool:
    """Return True if a process on this machine writes to the spool in that folder."""
    return is_locked(Path(folder) / LOCK)
