"""Periodic maintenance of a replica."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

__all__ = ["PeriodicTasks"]

_log: Final = logging.getLogger(__name__)


class PeriodicTasks:
    """A thread that calls a function periodically."""

    def __init__(self, task: Callable[[], object], interval_s: float) -> None:
        """Start the thread; an interval of 0 seconds disables the calls."""
        self._task = task
        self._interval_s = interval_s
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="stompkit-replica chores", daemon=True
        )
        if interval_s:
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for a call in progress."""
        self._is_stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._is_stopping.wait(self._interval_s):
            try:
                self._task()
            except Exception:
                # The next interval retries it, and nothing depends on it.
                _log.exception("what a replica does now and then has failed")
