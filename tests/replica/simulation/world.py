"""Time, chance and the record of what happened: all that a run depends on is in a seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import Clock

__all__ = ["EPOCH_S", "World"]

#: What the walls of a world say when it begins: seconds since 1970.
EPOCH_S: Final = 1_800_000_000.0


class World:
    """One source of time, one source of chance, and lines of what happened.

    Nothing else that differs from run to run may be read by anything in it.
    """

    def __init__(self, seed: int, *, is_recording: bool = False) -> None:
        """Begin at the time 0; without ``is_recording`` no lines are kept, which is faster."""
        self.seed: Final = seed
        self.random: Final = Random(seed)
        self.clock: Final = Clock()
        self.is_recording: Final = is_recording
        #: One line for each thing that happened, with the time in seconds.
        self.lines: list[str] = []
        #: How many things have happened.
        self.steps = 0

    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return float(self.clock.rightNow)

    def tell(self, who: str, what: str, **facts: object) -> None:
        """Note what has happened to whom."""
        self.steps += 1
        if self.is_recording:
            told = "".join(f" {name}={value}" for name, value in facts.items())
            self.lines.append(f"{self.now:10.3f} {who:<8} {what:<12}{told}".rstrip())

    def after(self, delay_s: float, do: Callable[[], object]) -> IDelayedCall:
        """Have something done later."""
        return self.clock.callLater(delay_s, do)

    def chance(self, probability: float) -> bool:
        """Whether something happens that happens now and then."""
        return probability > 0 and self.random.random() < probability

    def run(self, duration_s: float) -> None:
        """Let time go by, and do what is due in it."""
        self._run_until(self.now + duration_s)

    def run_until_idle(self, most_s: float, most_steps: int = 1_000_000) -> bool:
        """Let time go by until nothing is due any more; gives whether that came to be.

        It is given up after ``most_s`` seconds of this world, or so many things that have happened.
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
