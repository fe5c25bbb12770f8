"""The lock of a data directory: one broker uses it, another waits until the first has ended.

It is an operating system lock (flock), so that it ends with its process in any case.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["DirectoryLock"]

_NAME: Final = "lock"
#: Maximum length in bytes of host name and process id.
_MOST_OCTETS: Final = 512


class DirectoryLock:
    """An exclusive lock on a directory, which it creates if necessary, for its owner only."""

    def __init__(self, directory: Path) -> None:
        """Start without the lock."""
        self.path = directory / _NAME
        self._mutex = threading.Lock()
        self._descriptor: int | None = None
        #: Set once the result of a waiting thread is no longer needed.
        self._abandoned: threading.Event | None = None

    @property
    def is_held(self) -> bool:
        """True if this object holds the lock."""
        return self._descriptor is not None

    def try_acquire(self) -> bool:
        """Take the lock if it is free; return False if it is not. Raises OSError."""
        descriptor = self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)
        if descriptor is None:
            return False
        self._take(descriptor)
        return True

    def wait(self, acquired: Callable[[], None], failed: Callable[[OSError], None]) -> None:
        """Wait for the lock, and call ``acquired`` or ``failed`` from a thread.

        Neither is called after :meth:`release`.
        """
        abandoned = threading.Event()
        self._abandoned = abandoned
        # A thread that waits in the kernel cannot be woken, so that it must not keep the process
        # alive.
        threading.Thread(
            target=self._wait, args=(abandoned, acquired, failed), name="stompkit-lock", daemon=True
        ).start()

    def _wait(
        self,
        abandoned: threading.Event,
        acquired: Callable[[], None],
        failed: Callable[[OSError], None],
    ) -> None:
        try:
            descriptor = self._lock(fcntl.LOCK_EX)
        except OSError as error:
            if not abandoned.is_set():
                failed(error)
            return
        assert descriptor is not None  # the thread has waited for it
        with self._mutex:
            if abandoned.is_set():
                os.close(descriptor)
                return
            self._take(descriptor)
            acquired()

    def holder(self) -> str:
        """Return the holder of the lock, as far as its file says."""
        try:
            words = self.path.read_text(encoding="utf-8", errors="replace").split()
        except OSError:
            words = []
        if len(words) != 2 or not words[0].isdigit():
            return "another process"
        return f"process {words[0]} on {words[1]}"

    def release(self) -> None:
        """Release the lock, or cancel the wait for it; does nothing without either."""
        with self._mutex:
            if self._abandoned is not None:
                self._abandoned.set()
                self._abandoned = None
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def _lock(self, how: int) -> int | None:
        """Open the file and lock it; ``None`` if it is locked and ``how`` does not wait."""
        while True:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, how)
                if self._is_current(descriptor):
                    return descriptor
            except BlockingIOError:
                os.close(descriptor)
                return None
            except OSError:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _is_current(self, descriptor: int) -> bool:
        """Return True if the file is still the one that other processes would lock."""
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def _take(self, descriptor: int) -> None:
        words = f"{os.getpid()} {socket.gethostname()}\n".encode()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, words[:_MOST_OCTETS], 0)
        self._descriptor = descriptor
