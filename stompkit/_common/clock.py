"""A clock for waits in programs whose tests freeze or move the time."""

from __future__ import annotations

import sys
import time
from functools import partial

__all__ = ["monotonic"]

if sys.platform == "win32":
    # Libraries such as freezegun replace functions in modules, but no arguments of others.
    _read = partial(time.monotonic)
else:
    # The same clock as that of time.monotonic, by a function that such libraries leave alone.
    _read = partial(time.clock_gettime, time.CLOCK_MONOTONIC)


def monotonic() -> float:
    """Return seconds since an arbitrary time; they also pass while a test has frozen the time."""
    return _read()
