"""Log warnings once for each kind and destination."""

from __future__ import annotations

from typing import Final, Protocol

from stompkit.server.log import client_events

__all__ = ["OnceLog"]

#: Maximum number of lines in total, since clients choose the names of destinations.
_MOST: Final = 1_000


class _Warning(Protocol):
    """A kind of event about a destination."""

    name: str

    def __call__(self, *, host: str, destination: str) -> None:
        """Log one."""


class OnceLog:
    """Logs a warning once for each destination."""

    def __init__(self) -> None:
        """Start with nothing logged."""
        self._logged: set[tuple[str, str, str]] = set()

    def warn(self, warning: _Warning, host: str, destination: str) -> None:
        """Log a warning, unless it was already logged for the destination."""
        key = (warning.name, host, destination)
        if key in self._logged or len(self._logged) >= _MOST:
            return
        self._logged.add(key)
        warning(host=host, destination=destination)
        if len(self._logged) == _MOST:
            client_events.warnings_omitted()

    def clear(self) -> None:
        """Forget what was logged, as a new broker does."""
        self._logged.clear()
