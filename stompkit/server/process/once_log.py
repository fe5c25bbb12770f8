"""Log lines about destinations, each kind of which is worth one line for each of them."""

from __future__ import annotations

from typing import Any, Final

from twisted.logger import Logger

__all__ = ["OnceLog"]

_log: Final = Logger()

#: Lines in all: clients choose the names of destinations.
_MOST: Final = 1_000


class OnceLog:
    """Logs a warning once for each destination."""

    def __init__(self) -> None:
        """Begin with nothing logged."""
        self._logged: set[tuple[str, str, str]] = set()

    def warn(self, kind: str, host: str, destination: str, text: str, **values: Any) -> None:
        """Log a line of this kind, unless there was one for the destination.

        ``text`` is a format; it can have ``{destination}`` in it.
        """
        key = (kind, host, destination)
        if key in self._logged or len(self._logged) >= _MOST:
            return
        self._logged.add(key)
        _log.warn(text, destination=ascii(destination[:100]), **values)
        if len(self._logged) == _MOST:
            _log.warn("further destinations with such problems are not logged")

    def clear(self) -> None:
        """Log everything once more, as a new broker does."""
        self._logged.clear()
