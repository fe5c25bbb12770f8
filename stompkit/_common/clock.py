"""A clock for waits in programs whose tests freeze or move the time."""

from __future__ import annotations

import sys
import time
from functools import partial

__all__ = ["monotonic"]

if sys.platform == "win32":
    # Libraries such as freezegun replace time.monotonic in modules, but not within a partial.
    _read = partial(time.monotonic)
else:
    # The clock of time.monotonic. Libraries such as freezegun do not replace this function.
    _read = partial(time.clock_gettime, time.CLOCK_MONOTONIC)


def monotonic() -> float:
    """Return seconds since an arbitrary time; they also pass while a test has frozen the time."""
    return _read()
