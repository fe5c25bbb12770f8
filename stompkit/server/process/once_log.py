"""Log warnings once for each kind and destination."""

from __future__ import annotations

from typing import Any, Final

from twisted.logger import Logger

__all__ = ["OnceLog"]

_log: Final = Logger()

#: Maximum number of lines in total, since clients choose the names of destinations.
_MOST: Final = 1_000


class OnceLog:
    """Logs a warning once for each destination."""

    def __init__(self) -> None:
        """Start with nothing logged."""
        self._logged: set[tuple[str, str, str]] = set()

    def warn(self, kind: str, host: str, destination: str, text: str, **values: Any) -> None:
        """Log a line of this kind, unless it was already logged for the destination.

        ``text`` is a format, which may contain ``{destination}``.
        """
        key = (kind, host, destination)
        if key in self._logged or len(self._logged) >= _MOST:
            return
        self._logged.add(key)
        _log.warn(text, destination=ascii(destination[:100]), **values)
        if len(self._logged) == _MOST:
            _log.warn("further destinations with such problems are not logged")

    def clear(self) -> None:
        """Forget what was logged, as a new broker does."""
        self._logged.clear()
