"""A timer that can be set to an earlier time."""

from __future__ import annotations

from collections.abc import Callable

from stompkit.server.domain.scheduling.scheduler import AlarmBase, Scheduler
from stompkit.server.interfaces import Timer

__all__ = ["Alarm"]


class Alarm(AlarmBase):
    """Calls a function at the earliest of the times set, in a separate cycle."""

    __slots__ = ("_call", "_is_wall", "_scheduler", "_timer", "_when")

    def __init__(
        self, scheduler: Scheduler, call: Callable[[], None], *, is_wall: bool = False
    ) -> None:
        """Create an alarm that is not set; with ``is_wall``, for times of day.

        If the system's time changes, such an alarm also calls the function, which must then check
        the times and set the alarm again.
        """
        self._scheduler = scheduler
        self._call = call
        self._is_wall = is_wall
        self._timer: Timer | None = None
        self._when = 0.0

    def set(self, when: float) -> None:
        """Call at *when* at the latest; immediately if that is past."""
        scheduler = self._scheduler
        # The broker cancels all timers when it is reset.
        if self._timer is not None and self._timer.active():
            if when >= self._when:
                return
            scheduler.cancel(self._timer)
        self._when = when
        if self._is_wall:
            delay_s = scheduler.until(when)
            scheduler.watch(self)
        else:
            delay_s = max(0.0, when - scheduler.clock.seconds())
        self._timer = scheduler.later(delay_s, self._ring)

    def cancel(self) -> None:
        """Cancel the call."""
        if self._is_wall:
            self._scheduler.unwatch(self)
        if self._timer is not None:
            self._scheduler.cancel(self._timer)
            self._timer = None

    def ring(self) -> None:
        """Call the function now."""
        self.cancel()
        self._call()

    def _ring(self) -> None:
        self._timer = None
        if self._is_wall:
            self._scheduler.unwatch(self)
        self._call()
