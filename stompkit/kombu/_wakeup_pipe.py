"""A pipe that wakes threads and event loops that wait for messages."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

__all__ = ["WakeupPipe"]


class WakeupPipe:
    """Wakes waiters across threads; ``rings`` counts the wake-ups."""

    def __init__(self) -> None:
        """Create the pipe."""
        self.rings = 0
        self._rang = threading.Condition()
        self._in, self._out = os.pipe()
        self._is_closed = False
        self._is_set = False
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)

    def fileno(self) -> int:
        """Return the descriptor that is readable from :meth:`ring` until :meth:`hush`."""
        return self._in

    def ring(self) -> None:
        """Wake all waiters."""
        with self._rang:
            self.rings += 1
            self._rang.notify_all()
            if not self._is_set and not self._is_closed:
                self._is_set = True
                os.write(self._out, b"!")

    def hush(self) -> None:
        """Drain the descriptor until the next ring."""
        with self._rang:
            if self._is_set and not self._is_closed:
                self._is_set = False
                with suppress(BlockingIOError):
                    os.read(self._in, 16)

    def wait(self, rings: int, timeout_s: float | None) -> bool:
        """Wait until the count exceeds ``rings``; return True if it does."""
        with self._rang:
            return self._rang.wait_for(lambda: self.rings != rings, timeout_s)

    def close(self) -> None:
        """Close the descriptors."""
        # A child of a fork must not wait for a lock that a thread of its parent held.
        if not self._is_closed:
            self._is_closed = True
            os.close(self._in)
            os.close(self._out)
