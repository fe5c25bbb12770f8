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
        self._logged: set[tuple[str, ...]] = set()

    def warn(self, warning: _Warning, host: str, destination: str) -> None:
        """Log a warning, unless it was already logged for the destination."""
        if self._is_first(warning.name, host, destination, ""):
            warning(host=host, destination=destination)
            self._check_limit()

    def warn_slow_reader(
        self, host: str, destination: str, client: str, *, address: str, user: str
    ) -> None:
        """Log a slow subscriber, unless it was already logged for the topic and the client.

        ``client`` is the address without the port, so that a client that reconnects is logged once.
        """
        if self._is_first(client_events.slow_reader.name, host, destination, client):
            client_events.slow_reader(peer=address, user=user, host=host, destination=destination)
            self._check_limit()

    def _is_first(self, *key: str) -> bool:
        """Return True if a warning is new and the limit permits it."""
        if key in self._logged or len(self._logged) >= _MOST:
            return False
        self._logged.add(key)
        return True

    def _check_limit(self) -> None:
        """Log once that the limit is reached."""
        if len(self._logged) == _MOST:
            client_events.warnings_omitted()

    def clear(self) -> None:
        """Forget what was logged, as a new broker does."""
        self._logged.clear()
