"""Log lines that unauthenticated clients cause, limited in rate to protect the disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, ParamSpec

from stompkit.server.interfaces import Clock
from stompkit.server.log import client_events

__all__ = ["MOST_PER_S", "RateLimitedLog"]

P = ParamSpec("P")

#: Maximum number of lines in a second: enough to identify the cause, and at most 1 GB a day.
MOST_PER_S: Final = 50


class RateLimitedLog:
    """Logs lines up to a maximum rate, and counts the others."""

    def __init__(self, clock: Clock) -> None:
        """Start with nothing logged."""
        self._clock = clock
        self._since = 0.0
        self._lines = 0
        self._left_out = 0

    def add(self, event: Callable[P, None], *args: P.args, **fields: P.kwargs) -> None:
        """Log an event with its fields, if there is room for another line."""
        if self._has_room():
            event(*args, **fields)

    def _has_room(self) -> bool:
        now = self._clock.seconds()
        # The clock may be set back.
        if not 0 <= now - self._since < 1.0:
            self._since, self._lines = now, 0
        if self._lines < MOST_PER_S:
            self._lines += 1
            return True
        if not self._left_out:
            self._clock.callLater(1.0, self._log_left_out)
        self._left_out += 1
        return False

    def _log_left_out(self) -> None:
        left_out, self._left_out = self._left_out, 0
        client_events.refusals_omitted(count=left_out)
