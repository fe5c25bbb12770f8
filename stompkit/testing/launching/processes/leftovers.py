"""Removal of the folders of brokers, in whatever order the processes concerned end.

A process that launches brokers removes their folders, as soon as each has stopped or at its exit.
If it is killed, its sweeper does that, another process that waits for its end. A folder that is in
use is not removed: the guard of each broker holds a lock on its folder for as long as it runs.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from stompkit.testing.launching.polling import wait_until

__all__ = [
    "lock_of",
    "make_folder",
    "remove",
    "remove_at_exit",
    "remove_when_killed",
    "shared_folder",
]

_SWEEPER: Final = Path(__file__).with_name("sweeper.py")
#: Timeout in seconds for the end of guards when a folder is removed: they end with their orders.
_RELEASE_S: Final = 2.0


class _Sweeper:
    """A process that removes folders after this process has ended, however it ends."""

    def __init__(self) -> None:
        """Start the process; raises OSError on failure."""
        self.owner = os.getpid()
        self.folders: set[Path] = set()
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

    @property
    def is_usable(self) -> bool:
        """True if it runs, and for this process: that of a parent ends with the parent."""
        return self.owner == os.getpid() and self._process.poll() is None

    def add(self, folder: Path) -> None:
        """Register another folder."""
        if folder in self.folders:
            return
        assert self._process.stdin is not None
        self._process.stdin.write(os.fsencode(folder) + b"\0")
        self._process.stdin.flush()
        self.folders.add(folder)

    def close(self) -> None:
        """Make the process remove the remaining folders and end; do nothing in a forked child."""
        if self.owner != os.getpid():
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            # Forked children may keep the pipe open, so its end is not sufficient.
            self._process.stdin.write(b"\0")
            self._process.stdin.close()
        # It may have to wait for guards that end after this process: do not wait for it.
        self._process.returncode = 0


_SWEEPERS: Final[list[_Sweeper]] = []
_LOCK: Final = threading.Lock()


def make_folder(prefix: str) -> Path:
    """Create a temporary folder that is removed after this process has ended, however it ends.

    Raises OSError if it cannot be created.
    """
    # As long as the name that mkdtemp() makes: the paths of sockets are limited.
    name = f"{prefix}{secrets.token_urlsafe(6)}"
    parents = _temporary_directories()
    for parent in parents:
        folder = Path(parent, name)
        with contextlib.suppress(OSError):
            if folder.exists():
                continue
            # Before it exists: a signal may end this process between any two instructions.
            remove_when_killed(folder)
            folder.mkdir(0o700)
            return folder
    raise FileNotFoundError(
        errno.ENOENT, f"no temporary directory can be written to: {', '.join(parents)}"
    )


def _temporary_directories() -> list[str]:
    """Return the candidates for the directory of temporary files, as ``tempfile`` orders them.

    Not ``tempfile.gettempdir()``: it tries each by a file, which stays if a signal ends this
    process meanwhile.
    """
    if tempfile.tempdir is not None:
        return [os.fsdecode(tempfile.tempdir)]
    chosen = filter(None, map(os.environ.get, ("TMPDIR", "TEMP", "TMP")))
    return [os.path.abspath(each) for each in (*chosen, "/tmp", "/var/tmp", "/usr/tmp", ".")]


def remove_when_killed(folder: Path) -> None:
    """Remove a temporary folder when this process has ended without removing it."""
    # If no process or descriptor is available, the folder remains only in that case.
    with contextlib.suppress(OSError), _LOCK:
        if not _SWEEPERS or not _SWEEPERS[-1].is_usable:
            _replace_sweeper()
        _SWEEPERS[-1].add(folder)


def _replace_sweeper() -> None:
    """Start a sweeper, which takes over the folders of one that has been killed."""
    sweeper = _Sweeper()
    atexit.register(sweeper.close)
    for folder in [each for old in _SWEEPERS if old.owner == os.getpid() for each in old.folders]:
        sweeper.add(folder)
    _SWEEPERS[:] = [sweeper]


def remove(folder: Path) -> None:
    """Remove a temporary folder, unless guards of brokers in it run: then the sweeper does it.

    A guard can run although its start was interrupted, and its broker would write to the folder.
    """
    if wait_until(lambda: _is_free(folder), _RELEASE_S):
        shutil.rmtree(folder, ignore_errors=True)


def _is_free(folder: Path) -> bool:
    """Return True if no guard holds the lock on a folder, as far as can be seen."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # A network's file system may have no locks.
        return True
    finally:
        os.close(descriptor)
    return True


def remove_at_exit(folder: Path) -> None:
    """Keep a temporary folder until this process ends."""
    remove_when_killed(folder)
    atexit.register(_remove, folder, os.getpid())


def _remove(folder: Path, owner: int) -> None:
    """Remove a folder of this process, but not one inherited by a fork."""
    if owner == os.getpid():
        remove(folder)


@contextmanager
def lock_of(folder: Path) -> Iterator[int]:
    """Yield a descriptor that keeps a folder, to be inherited by the guard of a broker in it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # A network's file system may have no locks.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Yield a folder for several brokers, which is removed at the end."""
    folder = make_folder("stompkit-shared-")
    try:
        yield folder
    finally:
        remove(folder)
