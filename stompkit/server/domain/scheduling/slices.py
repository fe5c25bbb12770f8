"""Do large amounts of work in slices, serving others in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from stompkit.server.domain.scheduling.scheduler import Scheduler

__all__ = ["STEP", "SlicedWork", "Slices"]

_T = TypeVar("_T")

#: Maximum time in seconds of a slice, and number of destinations between two checks of the clock.
_TURN_S: Final = 0.003
STEP: Final = 32


class SlicedWork:
    """Runs steps within a time limit now, and the remaining ones later."""

    def __init__(self, scheduler: Scheduler, take_step: Callable[[], bool], *, steps: int) -> None:
        """Start idle; *take_step* returns True if there is more to do.

        The clock is checked after every *steps* steps.
        """
        self._scheduler = scheduler
        self._take_step = take_step
        self._steps = steps
        self._is_busy = False

    def go_on(self) -> None:
        """Run steps, unless they are already running: a step may add others."""
        if not self._is_busy:
            self._is_busy = True
            self._work()

    def _work(self) -> None:
        clock = self._scheduler.clock
        began = clock.seconds()
        while True:
            for _ in range(self._steps):
                if not self._take_step():
                    self._is_busy = False
                    return
            if clock.seconds() - began > _TURN_S:
                self._scheduler.later(0.0, self._work)
                return


class Slices(Generic[_T]):
    """Applies a function to each of many items, in order, within a time limit now and later."""

    def __init__(
        self, scheduler: Scheduler, act: Callable[[_T], None], *, step: int = STEP
    ) -> None:
        """Start without items; the clock is checked after each *step* items."""
        self._act = act
        self._left: deque[_T] = deque()
        self._work = SlicedWork(scheduler, self._take_step, steps=step)

    def add(self, things: Iterable[_T]) -> None:
        """Add items to process."""
        self._left.extend(things)
        self._work.go_on()

    def finish(self) -> None:
        """Process all remaining items, however long it takes."""
        while self._left:
            self._act(self._left.popleft())

    def clear(self) -> None:
        """Discard all remaining items."""
        self._left.clear()

    def _take_step(self) -> bool:
        if self._left:
            self._act(self._left.popleft())
        return bool(self._left)
