"""Address of the server of a spool, and what it requires."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from stompkit._common.addresses import has_scheme, host_port
from stompkit._common.secrets import SecretError, first_line, mask_url

__all__ = [
    "ACCESS_PATIENCE_S",
    "MIN_TOKEN",
    "ServerAccess",
    "ServerUrl",
    "is_url",
    "other_url",
    "parse_url",
    "read_token",
]

#: Default of the time in seconds for which a reader retries while the server does not answer.
ACCESS_PATIENCE_S: Final = 300.0
#: Minimum length of a token in characters.
MIN_TOKEN: Final = 16
_SCHEMES: Final = ("http", "https")


@dataclass(frozen=True)
class ServerAccess:
    """Requirements of a server besides its URL; they travel with pickled readers."""

    token: str = field(repr=False)
    """The token in the token file of the server."""
    authorities: str = ""
    """Trusted certificates as PEM, for ``https``; empty for those of the system."""
    patience_s: float = ACCESS_PATIENCE_S
    """Time in seconds for which a reader retries while the server does not answer."""


class ServerUrl(NamedTuple):
    """The address of a server."""

    is_tls: bool
    host: str
    port: int

    def __str__(self) -> str:
        return f"{_SCHEMES[self.is_tls]}://{host_port(self.host, self.port)}"


def is_url(place: str | PathLike[str]) -> bool:
    """Return True if a place is the URL of a server, and not a folder."""
    return isinstance(place, str) and place.lower().startswith(("http://", "https://"))


def other_url(place: str | PathLike[str]) -> str | None:
    """Return why a place can be no spool, if it is the URL of something else than a server."""
    if not isinstance(place, str) or is_url(place) or not has_scheme(place):
        return None
    return (
        f"{mask_url(place)!r} is no spool: a spool is a folder on this machine, or the URL of its"
        " server, http://HOST:PORT or https://HOST:PORT, which `stompkit spool serve` starts on"
        " the machine with the folder"
    )


def parse_url(text: str) -> ServerUrl:
    """Parse the URL of a server; raises ValueError."""
    advice = "the URL of a spool's server is http://HOST:PORT or https://HOST:PORT"
    found = urlsplit(text)
    if "@" in found.netloc:
        raise ValueError(f"{advice}, without a login: its token is an option of its own")
    try:
        port = found.port
    except ValueError:
        port = None
    is_bare = found.path in ("", "/") and not (found.query or found.fragment)
    if found.scheme not in _SCHEMES or not found.hostname or not port or not is_bare:
        raise ValueError(f"{advice}, and not {text[:100]!r}")
    return ServerUrl(found.scheme == "https", found.hostname, port)


def read_token(path: Path) -> str:
    """Return the token in a file; raises ValueError."""
    try:
        token = first_line(path).strip()
    except SecretError as error:
        raise ValueError(f"the token file cannot be read: {error}") from None
    if len(token) < MIN_TOKEN or not (token.isascii() and token.isprintable()):
        raise ValueError(
            f"the first line of the token file {path} is not a token, which has {MIN_TOKEN} or more"
            " ASCII characters. Create one: openssl rand -hex 32"
        )
    return token
