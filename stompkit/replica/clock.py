"""A hybrid logical clock: the time of day, but never back, and never behind what was seen.

It breaks ties, and is shown to people. Nothing is lost if it is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["HybridClock", "seconds_of", "time_of"]

_PER_SECOND: Final = 1_000_000
_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)


class HybridClock:
    """Numbers that grow, and are microseconds since 1970 where nothing runs ahead.

    It is not for several threads at once.
    """

    __slots__ = ("_max_ahead", "_now", "last")

    def __init__(
        self, now: Callable[[], float], last: int = 0, max_ahead_s: float = 86_400.0
    ) -> None:
        """Begin behind ``last``; ``now`` gives seconds since 1970.

        What is further ahead of it than ``max_ahead_s`` is not believed: one node whose clock is
        years wrong would drag all others along for ever.
        """
        self._now = now
        self._max_ahead = round(max_ahead_s * _PER_SECOND)
        #: The greatest number that was given or seen.
        self.last = last

    def next(self) -> int:
        """The number of something that happens now: greater than any before."""
        self.last = max(self._wall(), self.last + 1)
        return self.last

    def see(self, hlc: int) -> bool:
        """Take note of a number of another clock; says whether it was believed."""
        if hlc <= self.last:
            return True
        if hlc > self._wall() + self._max_ahead:
            return False
        self.last = hlc
        return True

    def _wall(self) -> int:
        return int(self._now() * _PER_SECOND)


def seconds_of(hlc: int) -> float:
    """Seconds since 1970."""
    return hlc / _PER_SECOND


def time_of(hlc: int) -> datetime:
    """The time in UTC; the last that there is for what is later than all of them."""
    try:
        return _BEGIN + timedelta(microseconds=hlc)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
