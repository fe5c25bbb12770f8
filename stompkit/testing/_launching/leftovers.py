"""Folders that outlive a broker, to keep its log readable or its store available to others."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["is_shared", "remove_at_exit", "remove_when_killed", "shared_folder"]

_SWEEPER: Final = Path(__file__).with_name("sweeper.py")

#: Folders and the id of the process that removes each of them.
_OWNERS: Final[dict[Path, int]] = {}
#: Folders that brokers of this process share.
_SHARED: Final[set[Path]] = set()


class _Sweeper:
    """A process that removes folders after this process has ended, however it ends."""

    def __init__(self) -> None:
        """Start the process; raises OSError on failure."""
        self.owner = os.getpid()
        self._folders: set[Path] = set()
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_SWEEPER), str(self.owner)],
            stdin=subprocess.PIPE,
            # Readers of this process's output must not wait for the other process.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            # Not in this process's group, so that Ctrl-C and signals to the group do not end it.
            start_new_session=True,
        )

    def add(self, folder: Path) -> None:
        """Register another folder."""
        if folder in self._folders:
            return
        assert self._process.stdin is not None
        self._process.stdin.write(os.fsencode(folder) + b"\0")
        self._process.stdin.flush()
        self._folders.add(folder)

    def close(self) -> None:
        """Make the process remove the remaining folders and end; do nothing in a forked child."""
        if self.owner != os.getpid():
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            # Forked children may keep the pipe open, so its end is not sufficient.
            self._process.stdin.write(b"\0")
            self._process.stdin.close()
        self._process.wait()


_SWEEPERS: Final[list[_Sweeper]] = []
_LOCK: Final = threading.Lock()


def remove_at_exit(folder: Path) -> None:
    """Keep a folder until this process ends."""
    remove_when_killed(folder)
    if not _OWNERS:
        atexit.register(_remove_all)
    _OWNERS[folder] = os.getpid()


def remove_when_killed(folder: Path) -> None:
    """Remove a temporary folder if this process is killed while no guard is responsible for it."""
    # If no process or descriptor is available, the folder remains only in that case.
    with contextlib.suppress(OSError), _LOCK:
        if not _SWEEPERS or _SWEEPERS[-1].owner != os.getpid():
            # A sweeper inherited by a fork ends with its own owner.
            _SWEEPERS[:] = [_Sweeper()]
            atexit.register(_SWEEPERS[-1].close)
        _SWEEPERS[-1].add(folder)


def _remove_all() -> None:
    """Remove the folders of this process, but not those inherited by a fork."""
    for folder, owner in _OWNERS.items():
        if owner == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Yield a folder for several brokers, which is removed at the end.

    If this process dies earlier, the guards of the brokers in it remove it.
    """
    folder = Path(tempfile.mkdtemp(prefix="stompkit-shared-"))
    _SHARED.add(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _SHARED.discard(folder)


def is_shared(folder: Path) -> bool:
    """Return True if brokers of this process share a folder that is removed after them."""
    return folder in _SHARED
