"""Time, random numbers and the trace: a run depends on its seed only."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import Clock

__all__ = ["EPOCH_S", "World"]

#: Initial time of day: seconds since 1970.
EPOCH_S: Final = 1_800_000_000.0


class World:
    """One source of time, one source of random numbers, and a trace of events.

    Nothing else that differs from run to run may be read by anything in it.
    """

    def __init__(self, seed: int, *, is_recording: bool = False) -> None:
        """Start at the time 0; without ``is_recording`` no trace is kept, which is faster."""
        self.seed: Final = seed
        self.random: Final = Random(seed)
        self.clock: Final = Clock()
        self.is_recording: Final = is_recording
        #: One line for each event, with the time in seconds.
        self.lines: list[str] = []
        #: Number of events.
        self.steps = 0

    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return float(self.clock.rightNow)

    def tell(self, who: str, what: str, **facts: object) -> None:
        """Record an event."""
        self.steps += 1
        if self.is_recording:
            told = "".join(f" {name}={value}" for name, value in facts.items())
            self.lines.append(f"{self.now:10.3f} {who:<8} {what:<12}{told}".rstrip())

    def after(self, delay_s: float, do: Callable[[], object]) -> IDelayedCall:
        """Schedule a call."""
        return self.clock.callLater(delay_s, do)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return probability > 0 and self.random.random() < probability

    def run(self, duration_s: float) -> None:
        """Advance the time, and run the due calls."""
        self._run_until(self.now + duration_s)

    def run_until_idle(self, most_s: float, most_steps: int = 1_000_000) -> bool:
        """Advance the time until no call is scheduled; return False if the limits are reached.

        The limits are ``most_s`` simulated seconds and ``most_steps`` events.
        """
        end = self.now + most_s
        last = self.steps + most_steps
        while self.clock.calls:
            following = self.clock.calls[0].getTime()
            if following > end or self.steps > last:
                return False
            self._run_until(following)
        return True

    def _run_until(self, end: float) -> None:
        clock = self.clock
        while clock.calls and clock.calls[0].getTime() <= end:
            clock.advance(clock.calls[0].getTime() - clock.rightNow)
        clock.advance(end - clock.rightNow)
