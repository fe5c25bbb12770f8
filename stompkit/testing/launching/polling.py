"""Polling for conditions without a notification."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from stompkit._common.clock import monotonic

__all__ = ["wait_until"]

_T = TypeVar("_T")


def wait_until(condition: Callable[[], _T], timeout_s: float, *, interval_s: float = 0.02) -> _T:
    """Call ``condition`` until it returns a true value, and return that value.

    After ``timeout_s`` seconds the last, false value is returned instead.  The condition is called
    at least once; the thread sleeps ``interval_s`` seconds between two calls.
    """
    deadline = monotonic() + timeout_s
    while True:
        value = condition()
        if value or monotonic() >= deadline:
            return value
        time.sleep(interval_s)
