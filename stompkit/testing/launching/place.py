"""The address and the transport of a broker, in text form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from stompkit._common.addresses import separate_urls
from stompkit._common.certificates import TlsFiles
from stompkit.testing.launching.address import format_address, parse_address

__all__ = ["Place"]

_USUAL_PORTS: Final = {"stomp": 61613, "stomps": 61614, "ws": 80, "wss": 443}
_FORMS: Final = "HOST:PORT, stomp://, stomps://, ws:// or wss://"


@dataclass(frozen=True, slots=True)
class Place:
    """The address and the transport of a broker."""

    host: str
    port: int
    scheme: str = "stomp"
    """``stomp``, ``stomps``, ``ws`` or ``wss``."""
    path: str = "/"
    """The path of the WebSocket URL."""
    ca: str = ""
    """A file or a directory with certificates of authorities; empty for the system's default."""
    cert: str = ""
    """A file with the client's certificate; empty to show none."""
    key: str = ""
    """A file with the key of ``cert``, unless that has it."""

    @classmethod
    def all_of(cls, text: str) -> tuple[Self, ...]:
        """Parse one address or several, separated by commas.

        Each is ``HOST:PORT``, ``stomp://HOST:PORT``, ``stomps://HOST:PORT?ca=FILE``,
        ``ws://HOST:PORT/PATH`` or ``wss://HOST:PORT/PATH?ca=FILE``; a URL may name several hosts.
        ``failover:(URL,URL)`` is accepted as well. ``cert=FILE`` and ``key=FILE`` go with ``ca``.
        Raises ``ValueError``, whose message contains no passcode.
        """
        return tuple(place for part in separate_urls(text) for place in cls._of_part(part))

    @classmethod
    def _of_part(cls, text: str) -> list[Self]:
        scheme, colons, rest = text.strip().partition("://")
        if not colons:
            return [cls(*parse_address(each.strip())) for each in text.split(",")]
        if scheme not in _USUAL_PORTS:
            raise ValueError(f"{scheme}:// is not known: an address is {_FORMS}")
        rest, _, query = rest.partition("?")
        hosts, slash, path = rest.partition("/")
        if "@" in hosts:
            raise ValueError(
                f"the URL of a broker is {scheme}://HOST:PORT here: login and passcode are options"
            )
        if path and scheme in ("stomp", "stomps"):
            raise ValueError(f"the URL of a broker is {scheme}://HOST:PORT here, without a path")
        files = TlsFiles.parse(query)
        if files is None or (query and scheme not in ("stomps", "wss")):
            raise ValueError(
                "the URL of a broker has the options ca=FILE, cert=FILE and key=FILE only,"
                " with stomps:// and wss://"
            )
        found = []
        for each in hosts.split(","):
            usual = each and (each.endswith("]") or ":" not in each)
            host, port = parse_address(f"{each}:{_USUAL_PORTS[scheme]}" if usual else each)
            found.append(cls(host, port, scheme, slash + path or "/", *files))
        return found

    def __str__(self) -> str:
        """Return the address in text form, without its options."""
        where = format_address(self.host, self.port)
        if self.scheme == "stomp":
            return where
        return f"{self.scheme}://{where}{self.path if self.has_websockets else ''}"

    @property
    def files(self) -> TlsFiles:
        """The files for TLS."""
        return TlsFiles(self.ca, self.cert, self.key)

    @property
    def has_tls(self) -> bool:
        """True if the connection uses TLS."""
        return self.scheme in ("stomps", "wss")

    @property
    def has_websockets(self) -> bool:
        """True if the transport is WebSocket."""
        return self.scheme in ("ws", "wss")

    @property
    def is_plain(self) -> bool:
        """True if the transport is plain TCP."""
        return self.scheme == "stomp"
