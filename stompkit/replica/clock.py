"""A hybrid logical clock: wall-clock time that never goes back, nor behind a timestamp seen.

It breaks ties and is shown to users. A wrong clock loses no data.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["HybridClock", "seconds_of", "time_of"]

_PER_SECOND: Final = 1_000_000
_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)


class HybridClock:
    """A source of increasing numbers: microseconds since 1970, unless a clock runs ahead.

    It is not thread-safe.
    """

    __slots__ = ("_max_ahead", "_now", "last")

    def __init__(
        self, now: Callable[[], float], last: int = 0, max_ahead_s: float = 86_400.0
    ) -> None:
        """Start after ``last``; ``now`` returns seconds since 1970.

        Timestamps more than ``max_ahead_s`` ahead are rejected. Otherwise, one node with a clock
        years ahead would advance the clocks of all others permanently.
        """
        self._now = now
        self._max_ahead = round(max_ahead_s * _PER_SECOND)
        #: Greatest number issued or seen.
        self.last = last

    def next(self) -> int:
        """Return a number for an event that happens now, greater than all before."""
        self.last = max(self._wall(), self.last + 1)
        return self.last

    def see(self, hlc: int) -> bool:
        """Take a timestamp of another clock into account; returns False if it was rejected."""
        if hlc <= self.last:
            return True
        if hlc > self._wall() + self._max_ahead:
            return False
        self.last = hlc
        return True

    def _wall(self) -> int:
        return int(self._now() * _PER_SECOND)


def seconds_of(hlc: int) -> float:
    """Return the seconds since 1970 of a timestamp."""
    return hlc / _PER_SECOND


def time_of(hlc: int) -> datetime:
    """Return the time in UTC, or the last representable one if it is later."""
    try:
        return _BEGIN + timedelta(microseconds=hlc)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
