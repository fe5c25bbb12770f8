"""Times at which messages arrived, derived from the numbers in their ids."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

__all__ = ["Arrivals"]

#: Maximum number of samples; with one a second, the first five hours are exact to the second.
_MOST: Final = 20_000


class Arrivals:
    """Samples of the number of the newest message, once a second.

    Messages themselves have no time of arrival, which would cost each of them. When there are too
    many samples, every second one of the older half is dropped.
    """

    def __init__(self) -> None:
        """Start without samples."""
        self._numbers: list[int] = []
        self._times: list[float] = []

    def sample(self, number: int, now: float) -> None:
        """Record the number of the newest message, if there are new ones."""
        if number <= (self._numbers[-1] if self._numbers else 0):
            return
        self._numbers.append(number)
        self._times.append(now)
        if len(self._numbers) > _MOST:
            for each in (self._numbers, self._times):
                del each[: _MOST // 2 : 2]

    def time_of(self, number: int) -> float | None:
        """Return about when a message arrived; None if it is newer than the last sample."""
        place = bisect_left(self._numbers, number)
        return self._times[place] if place < len(self._times) else None
