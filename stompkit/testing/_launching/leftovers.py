"""Folders that outlive a broker: for those who read its log, or for others on the same store."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["is_shared", "remove_at_exit", "shared_folder"]

#: Each folder, with the process that is to remove it.
_OWNERS: Final[dict[Path, int]] = {}
#: Folders that brokers of this process share.
_SHARED: Final[set[Path]] = set()


def remove_at_exit(folder: Path) -> None:
    """Keep a folder until this process ends."""
    if not _OWNERS:
        atexit.register(_remove_all)
    _OWNERS[folder] = os.getpid()


def _remove_all() -> None:
    """Remove the folders of this process, and not those that it knows as a forked copy."""
    for folder, owner in _OWNERS.items():
        if owner == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Yield a folder for several brokers, which is removed at the end.

    Where this process dies before, the guards of the brokers in it remove it.
    """
    folder = Path(tempfile.mkdtemp(prefix="stompkit-shared-"))
    _SHARED.add(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _SHARED.discard(folder)


def is_shared(folder: Path) -> bool:
    """Return whether brokers of this process share a folder that nobody wants after them."""
    return folder in _SHARED
