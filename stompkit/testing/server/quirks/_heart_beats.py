"""How often the two ends of a connection send something, and when one is given up for dead."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

from stompkit.frames import HeartBeat

__all__ = ["Agreement", "CheckedHeartBeat"]


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a broker has made of the ``heart-beat`` header of CONNECT."""

    header: str | None = None
    """The header of CONNECTED; ``None``: it has none."""
    send_s: float = 0.0
    """Seconds between two beats of the broker; 0 for none."""
    receive_s: float = 0.0
    """Seconds between two beats of the client; 0 for none."""
    tolerance: float = 2.0
    """How many of these without an octet mean that the client is dead."""
    checks: int = 0
    """If not 0, the client is looked for once in each such interval instead, and is dead when so
    many looks in a row have found nothing."""

    def heart_beat(self, now: float) -> HeartBeat:
        """What goes by the agreement from ``now`` on."""
        if self.checks:
            made: HeartBeat = CheckedHeartBeat(now, self.checks)
        else:
            made = HeartBeat(now, tolerance=self.tolerance)
        made.send_s, made.receive_s = self.send_s, self.receive_s
        return made


class CheckedHeartBeat(HeartBeat):
    """Looks for the client at fixed times, whenever it last sent something."""

    __slots__ = ("_checks", "_start")

    def __init__(self, now: float, checks: int) -> None:
        """Begin to look; ``checks`` looks in a row that find nothing mean death."""
        super().__init__(now)
        self._start = now
        self._checks = checks

    @property
    def tolerance(self) -> float:
        """Intervals from the last octet to the look that gives the client up."""
        if not self.receive_s:
            return 0.0
        passed = (self.last_received - self._start) / self.receive_s
        # The first look after the last octet still finds it.
        return floor(passed) + 1 + self._checks - passed

    @tolerance.setter
    def tolerance(self, value: float) -> None:
        """Take no other: it follows from the looks."""
