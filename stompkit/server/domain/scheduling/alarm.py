"""A timer that can be set to an earlier time."""

from __future__ import annotations

from collections.abc import Callable

from stompkit.server.domain.scheduling.scheduler import Scheduler
from stompkit.server.interfaces import Timer

__all__ = ["Alarm"]


class Alarm:
    """Calls a function at the earliest of the times set, in a separate cycle."""

    __slots__ = ("_call", "_scheduler", "_timer", "_when")

    def __init__(self, scheduler: Scheduler, call: Callable[[], None]) -> None:
        """Create an alarm that is not set."""
        self._scheduler = scheduler
        self._call = call
        self._timer: Timer | None = None
        self._when = 0.0

    def set(self, when: float) -> None:
        """Call at *when* at the latest; immediately if that is past."""
        # The broker cancels all timers when it is reset.
        if self._timer is not None and self._timer.active():
            if when >= self._when:
                return
            self._scheduler.cancel(self._timer)
        self._when = when
        delay_s = max(0.0, when - self._scheduler.clock.seconds())
        self._timer = self._scheduler.later(delay_s, self._ring)

    def cancel(self) -> None:
        """Cancel the call."""
        if self._timer is not None:
            self._scheduler.cancel(self._timer)
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._call()
