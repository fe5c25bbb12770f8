"""The lock of a data directory: one broker uses it, another waits until the first has ended.

It is an operating system lock (flock), so that it ends with its process in any case.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stompkit._common.files import FileLock, LockedError

__all__ = ["DirectoryLock"]

_NAME: Final = "lock"


class DirectoryLock:
    """An exclusive lock on a directory, which it creates if necessary, for its owner only."""

    def __init__(self, directory: Path) -> None:
        """Start without the lock."""
        self.path = directory / _NAME
        self._mutex = threading.Lock()
        self._held: FileLock | None = None
        #: Set once the result of a waiting thread is no longer needed.
        self._abandoned: threading.Event | None = None

    @property
    def is_held(self) -> bool:
        """True if this object holds the lock."""
        return self._held is not None

    def try_acquire(self) -> bool:
        """Take the lock if it is free; return False if it is not. Raises OSError."""
        try:
            self._held = self._lock().acquire(timeout_s=0.0)
        except LockedError:
            return False
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
            lock = self._lock().acquire(timeout_s=None)
        except OSError as error:
            if not abandoned.is_set():
                failed(error)
            return
        with self._mutex:
            if abandoned.is_set():
                lock.release()
                return
            self._held = lock
            acquired()

    def holder(self) -> str:
        """Return the holder of the lock, as far as its file says."""
        return self._lock().holder()

    def release(self) -> None:
        """Release the lock, or cancel the wait for it; does nothing without either."""
        with self._mutex:
            if self._abandoned is not None:
                self._abandoned.set()
                self._abandoned = None
            held, self._held = self._held, None
        if held is not None:
            held.release()

    def _lock(self) -> FileLock:
        return FileLock(self.path, parents=True)
