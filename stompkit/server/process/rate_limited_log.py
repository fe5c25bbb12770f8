"""Log lines that strangers cause: not more of them in a second than a disk can take for ever."""

from __future__ import annotations

from typing import Any, Final

from twisted.logger import Logger

from stompkit.server.interfaces import Clock

__all__ = ["MOST_PER_S", "RateLimitedLog"]

_log: Final = Logger()

#: Lines in a second: enough for what reads the log to see who it is, and 1 GB a day at the most.
MOST_PER_S: Final = 50


class RateLimitedLog:
    """Logs what it is told, and only counts what is too much."""

    def __init__(self, clock: Clock) -> None:
        """Begin with nothing logged."""
        self._clock = clock
        self._since = 0.0
        self._lines = 0
        self._left_out = 0

    def info(self, text: str, **values: Any) -> None:
        """Log a line; ``text`` is a format."""
        if self._has_room():
            _log.info(text, **values)

    def warn(self, text: str, **values: Any) -> None:
        """Log a warning in the same way."""
        if self._has_room():
            _log.warn(text, **values)

    def _has_room(self) -> bool:
        now = self._clock.seconds()
        # The clock may be set back.
        if not 0 <= now - self._since < 1.0:
            self._since, self._lines = now, 0
        if self._lines < MOST_PER_S:
            self._lines += 1
            return True
        if not self._left_out:
            self._clock.callLater(1.0, self._tell)
        self._left_out += 1
        return False

    def _tell(self) -> None:
        left_out, self._left_out = self._left_out, 0
        _log.warn(
            "{count} more clients were turned away in a second, which are not logged one by one",
            count=left_out,
        )
