"""Retries while the store is busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from stompkit._common.retry import Backoff
from stompkit.replica.store import StoreBusyError

__all__ = ["BUSY_S", "within"]

_Given = TypeVar("_Given")

#: Back-off: first and maximum delay in seconds. The delay doubles each time.
BUSY_S: Final = 0.02
_BUSY_MOST_S: Final = 1.0


def within(seconds: float, function: Callable[[], _Given]) -> _Given:
    """Retry a function while the store is busy, for at most ``seconds``; raises StoreBusyError."""
    until_s = time.monotonic() + seconds
    backoff = Backoff(BUSY_S, _BUSY_MOST_S)
    while True:
        pause_s = backoff.fail()
        try:
            return function()
        except StoreBusyError:
            if time.monotonic() + pause_s > until_s:
                raise
        time.sleep(pause_s)
