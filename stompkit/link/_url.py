"""Brokers and a destination, in one line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import parse_qsl, unquote

from stompkit.link._link import Link

__all__ = ["BrokerUrl"]

_DEFAULT_PORT: Final = 61613


@dataclass(frozen=True, kw_only=True)
class BrokerUrl:
    """Brokers and a destination, in one line."""

    hosts: tuple[str, ...]
    """``host:port`` each; more than one is failover."""
    destination: str = ""
    """As the broker calls it; empty where the URL names none."""
    login: str | None = None
    passcode: str | None = field(default=None, repr=False)
    virtual_host: str | None = None
    tls: bool = False
    ca: str = ""
    """A directory with the certificates of authorities, for TLS."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read ``stomp://login:passcode@a:61613,b:61613/topic/x?vhost=/``.

        ``stomps`` is STOMP over TLS, with ``?ca=DIRECTORY`` for authorities of one's own. The path
        is the destination, its slash included; login, passcode and destination are
        percent-encoded. Raises ``ValueError``, with nothing of the URL that may be a passcode.
        """
        scheme, found, rest = url.partition("://")
        if not found or scheme not in ("stomp", "stomps"):
            raise ValueError("the URL of a broker is stomp://HOST:PORT/DESTINATION, or stomps://")
        rest, _, query = rest.partition("?")
        authority, slash, path = rest.partition("/")
        user, at, hosts = authority.rpartition("@")
        login, colon, passcode = user.partition(":")
        options = dict(parse_qsl(query, keep_blank_values=True))
        unknown = options.keys() - {"vhost", "ca"}
        if unknown:
            # Nor may the name be quoted: there may have been a question mark in the passcode.
            raise ValueError(
                "the URL of a broker has the options vhost and ca, and no others; elsewhere, as in "
                "a passcode, ? is percent-encoded"
            )
        return cls(
            hosts=tuple(_host(each) for each in hosts.split(",")),
            destination=slash + unquote(path) if path else "",
            login=unquote(login) if at else None,
            passcode=unquote(passcode) if colon else None,
            virtual_host=options.get("vhost"),
            tls=scheme == "stomps",
            ca=options.get("ca", ""),
        )

    def link(self, **settings: Any) -> Link:
        """Connect; ``settings`` are further ones of :class:`Link`."""
        return Link(
            self.endpoints(),
            login=self.login,
            passcode=self.passcode,
            virtual_host=self.virtual_host,
            **settings,
        )

    def endpoints(self) -> list[str]:
        """The hosts as :class:`Link` and :class:`stompkit.client.Client` take them."""
        return [self._endpoint(each) for each in self.hosts] if self.tls else [*self.hosts]

    def _endpoint(self, host: str) -> str:
        name, _, port = host.rpartition(":")
        name = name.strip("[]").replace(":", "\\:")
        trust = self.ca.replace(":", "\\:")
        return f"tls:{name}:{port}" + (f":trustRoots={trust}" if trust else "")


def _host(text: str) -> str:
    name, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        name, port = text, str(_DEFAULT_PORT)
    if not name or not (port.isascii() and port.isdecimal() and 0 < int(port) < 65_536):
        # The text may be half of a passcode that has a slash in it.
        raise ValueError(
            "the URL of a broker has HOST:PORT, and in front of that LOGIN:PASSCODE@, in which "
            "/ ? @ , and % are percent-encoded"
        )
    return f"{name}:{port}"
