"""Addresses of the network as text."""

from __future__ import annotations

import ipaddress
import os
import re
from typing import Final

__all__ = [
    "address_text",
    "has_scheme",
    "host_port",
    "parse_host_port",
    "parse_url_host",
    "separate_urls",
]

#: Port of STOMP in a URL without a port.
_STOMP_PORT: Final = 61613
_LAST_PORT: Final = 65_535
#: A number of more digits is no port, and is not converted.
_MOST_PORT_DIGITS: Final = 5
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FAILOVER: Final = re.compile(r"failover:\((.*)\)", re.DOTALL)
_NEXT_URL: Final = re.compile(r",(?=[A-Za-z]+://)")
_BROKER_SCHEME: Final = re.compile(r"^\s*[A-Za-z]+://")
_NOT_IN_A_NAME: Final = re.compile(r"[\s\x00-\x1f\x7f/:\[\]]")


def has_scheme(text: str) -> bool:
    """Return True for a URL, which is not the path of a file: ``Path`` would remove its slashes."""
    return _SCHEME.match(text) is not None


def host_port(host: str, port: int) -> str:
    """Return ``HOST:PORT``, as in a URL and on command lines; an IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_host_port(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``, in which an IPv6 address is in brackets; the host has none.

    Raises ``ValueError``, which quotes the text.
    """
    host, _, port = text.rpartition(":")
    name = _without_brackets(host)
    if name is None or not port:
        raise ValueError(f"{text!r} is not HOST:PORT, as in localhost:61613 or [::1]:61613")
    # isdigit() alone accepts digits of every script.
    is_number = port.isascii() and port.isdigit() and len(port) <= _MOST_PORT_DIGITS
    if not is_number or not 0 < int(port) <= _LAST_PORT:
        raise ValueError(f"{port!r} is not a port: 1 to {_LAST_PORT}")
    return name, int(port)


def separate_urls(text: str) -> list[str]:
    """Return the addresses in ``URL,URL`` or ``failover:(URL,URL)``; any other text is one.

    The schemes become lower case. Hosts within one URL are not separated, nor is a text with a
    login: a comma may be part of a passcode.
    """
    wrapped = _FAILOVER.fullmatch(text)
    text = wrapped[1] if wrapped else text
    parts = [text] if "@" in text else _NEXT_URL.split(text)
    return [_BROKER_SCHEME.sub(lambda found: found[0].lower(), each, count=1) for each in parts]


def parse_url_host(text: str) -> tuple[str, int]:
    """Parse ``HOST`` or ``HOST:PORT`` of a ``stomp://`` URL; the default port is 61613.

    Raises ``ValueError``, which quotes the text.
    """
    has_port = ":" in text and not text.endswith("]")
    return parse_host_port(text if has_port or not text else f"{text}:{_STOMP_PORT}")


def _without_brackets(host: str) -> str | None:
    """Return a host's name or address; None if it is neither."""
    if not host.startswith("["):
        return None if not host or _NOT_IN_A_NAME.search(host) else host
    if not host.endswith("]"):
        return None
    try:
        ipaddress.IPv6Address(host[1:-1])
    except ValueError:
        return None
    return host[1:-1]


def address_text(address: object) -> str:
    """Return an address of Twisted as text: ``HOST:PORT``, ``unix:PATH``, or ``unix``.

    A client of a Unix socket has no path. Returns an empty string for an unknown kind of address.
    """
    host, port = getattr(address, "host", None), getattr(address, "port", None)
    if isinstance(host, str) and isinstance(port, int):
        return host_port(host, port)
    if not hasattr(address, "name"):
        return ""
    # The name is bytes, str or None, by the version of Twisted and the kind of socket.
    name = getattr(address, "name", None)
    return f"unix:{os.fsdecode(name)}" if name else "unix"
