"""A pipe that wakes threads and event loops that wait for messages."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

__all__ = ["WakeupPipe"]


class WakeupPipe:
    """Wakes waiters across threads; ``wakeups`` counts the wake-ups."""

    def __init__(self) -> None:
        """Create the pipe."""
        self.wakeups = 0
        self._has_woken = threading.Condition()
        self._in, self._out = os.pipe()
        self._is_closed = False
        self._is_set = False
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)

    def fileno(self) -> int:
        """Return the descriptor that is readable from :meth:`wake` until :meth:`drain`."""
        return self._in

    def wake(self) -> None:
        """Wake all waiters."""
        with self._has_woken:
            self.wakeups += 1
            self._has_woken.notify_all()
            if not self._is_set and not self._is_closed:
                self._is_set = True
                os.write(self._out, b"!")

    def drain(self) -> None:
        """Drain the descriptor until the next wake-up."""
        with self._has_woken:
            if self._is_set and not self._is_closed:
                self._is_set = False
                with suppress(BlockingIOError):
                    os.read(self._in, 16)

    def wait(self, wakeups: int, timeout_s: float | None) -> bool:
        """Wait until the count exceeds ``wakeups``; return True if it does."""
        with self._has_woken:
            return self._has_woken.wait_for(lambda: self.wakeups != wakeups, timeout_s)

    def close(self) -> None:
        """Close the descriptors."""
        # A child of a fork must not wait for a lock that a thread of its parent held.
        if not self._is_closed:
            self._is_closed = True
            os.close(self._in)
            os.close(self._out)
