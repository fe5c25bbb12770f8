"""Intervals of heart-beats, and the detection of dead clients."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

from stompkit.frames import HeartBeat

__all__ = ["Agreement", "CheckedHeartBeat"]


@dataclass(frozen=True, slots=True)
class Agreement:
    """The result of the negotiation of heart-beats in CONNECT."""

    header: str | None = None
    """Value of the ``heart-beat`` header of CONNECTED; ``None``: CONNECTED has no such header."""
    send_s: float = 0.0
    """Interval in seconds between two heart-beats of the broker; 0 for none."""
    receive_s: float = 0.0
    """Interval in seconds between two heart-beats of the client; 0 for none."""
    tolerance: float = 2.0
    """Number of intervals without data after which the client counts as dead."""
    checks: int = 0
    """If not 0, the client is checked once per interval, and dead after this number of failures."""

    def heart_beat(self, now: float) -> HeartBeat:
        """Return the heart-beat state for the agreement from ``now`` on."""
        if self.checks:
            made: HeartBeat = CheckedHeartBeat(now, self.checks)
        else:
            made = HeartBeat(now, tolerance=self.tolerance)
        made.send_s, made.receive_s = self.send_s, self.receive_s
        return made


class CheckedHeartBeat(HeartBeat):
    """Checks the client at fixed times, independent of its last data."""

    __slots__ = ("_checks", "_start")

    def __init__(self, now: float, checks: int) -> None:
        """Start the checks; the client is dead after ``checks`` consecutive checks without data."""
        super().__init__(now)
        self._start = now
        self._checks = checks

    @property
    def tolerance(self) -> float:
        """Number of intervals from the last data to the check that detects the dead client."""
        if not self.receive_s:
            return 0.0
        passed = (self.last_received - self._start) / self.receive_s
        # The first check after the last data still finds it.
        return floor(passed) + 1 + self._checks - passed

    @tolerance.setter
    def tolerance(self, value: float) -> None:
        """Ignore the value: it follows from the checks."""
