"""Dates on which the certificates of a broker's TLS endpoints expire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stompkit.server.listen.endpoints import PROXIED, arguments_of
from stompkit.server.settings.process import Settings

__all__ = ["CertificateDates", "certificate_of"]

#: The kind of endpoint that reads its files again when they change.
_REREADS: Final = "stomps"


def certificate_of(description: str) -> Path | None:
    """Return the file with the certificate of an endpoint; None without TLS.

    It is also None for ``tls:``, which has a directory with one for each server name.
    """
    kind, arguments = arguments_of(description.removeprefix(PROXIED))
    if kind == "ssl":
        named = arguments.get("certKey") or arguments.get("privateKey")
    else:
        named = arguments.get("certificate") if kind == _REREADS else None
    return Path(named) if named else None


class CertificateDates:
    """Expiry dates of the certificates in use, by listener and file."""

    def __init__(self, settings: Settings) -> None:
        """Read the certificates at the start of a broker."""
        self._endpoints = [
            (listener, description, path)
            for listener, description in _endpoints(settings)
            if (path := certificate_of(description)) is not None
        ]
        self._found: dict[tuple[str, str], float] = {}
        for listener, _, path in self._endpoints:
            self._read(listener, path)

    def current(self) -> dict[tuple[str, str], float]:
        """Return the dates in seconds since 1970, after a look at the files that are read again."""
        for listener, description, path in self._endpoints:
            kind, _ = arguments_of(description.removeprefix(PROXIED))
            if kind == _REREADS:
                self._read(listener, path)
        return self._found

    def _read(self, listener: str, path: Path) -> None:
        from stompkit.server.listen.tls_endpoint import expiry_of

        try:
            self._found[listener, str(path)] = expiry_of(path).timestamp()
        except (OSError, ValueError):
            return  # the endpoint logs this, and keeps what it had


def _endpoints(settings: Settings) -> Iterator[tuple[str, str]]:
    for description in settings.descriptions:
        yield "stomp", description
    for listener in settings.websockets:
        yield "websocket", listener.endpoint
    for description in settings.beanstalk.endpoints:
        yield "beanstalk", description
    for description in settings.admin.endpoints:
        yield "admin", description
