"""Folders of brokers that did not start: kept for those who read their logs, until the end."""

from __future__ import annotations

import atexit
import os
import shutil
from pathlib import Path
from typing import Final

__all__ = ["remove_at_exit"]

#: Each folder, with the process that is to remove it.
_OWNERS: Final[dict[Path, int]] = {}


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
