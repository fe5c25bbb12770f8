"""The address of a broker in text form."""

from __future__ import annotations

from typing import Final

from stompkit._common.addresses import host_port, parse_host_port, parse_url_host

__all__ = ["format_address", "parse_address"]

_SCHEME: Final = "stomp://"
_OVER_TLS: Final = "stomps://"


def format_address(host: str, port: int) -> str:
    """Return ``HOST:PORT``, as in a URL and on command lines; an IPv6 address is in brackets."""
    return host_port(host, port)


def parse_address(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT`` or ``stomp://HOST:PORT``; an IPv6 address is in brackets.

    In a URL the port may be left out. Raises ``ValueError`` with the expected format, also for
    ``stomps://``: nothing that takes such an address supports TLS.
    """
    if text.startswith(_OVER_TLS):
        raise ValueError(
            f"{_OVER_TLS} is STOMP over TLS, which is not spoken here: name a port without TLS"
        )
    if not text.startswith(_SCHEME):
        return parse_host_port(text)
    if "@" in text:
        raise ValueError(
            f"the URL of a broker is {_SCHEME}HOST:PORT here: login and passcode are options"
        )
    return parse_url_host(text.removeprefix(_SCHEME).removesuffix("/"))
