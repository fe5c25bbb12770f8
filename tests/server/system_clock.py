"""A clock for tests in which an operator sets the system's time."""

from __future__ import annotations

from twisted.internet.task import Clock

__all__ = ["SystemClock"]


class SystemClock(Clock):
    """A steady clock, and the time of day that an operator sets."""

    def __init__(self, time_of_day: float = 1_700_000_000.0) -> None:
        """Start at a time of day; the steady clock starts at 0."""
        super().__init__()
        self.ahead = time_of_day

    def time_of_day(self) -> float:
        """Return the system's time in seconds since the epoch."""
        return self.seconds() + self.ahead
