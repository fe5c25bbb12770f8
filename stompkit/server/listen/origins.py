"""Check the origin of web pages that connect, as sent by browsers (RFC 6454)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

__all__ = ["Origins", "host_of", "is_local_name", "origin_of"]

_PORTS: Final = {"http": 80, "https": 443}
_LOCAL: Final = "localhost"
#: A host with an optional port, and no characters that some would parse as user, path or fragment.
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._~-]+)(?::[0-9]{1,5})?")


class Origins:
    """The origins whose pages may connect."""

    def __init__(self, allowed: Iterable[str]) -> None:
        """Parse the configured origins; raises ValueError for an invalid one."""
        self._allowed = {each if each == "*" else origin_of(each) for each in allowed}

    def allows(self, origin: str, host: str, *, on_loopback: bool) -> bool:
        """Return True if a page of ``origin`` may connect to ``host``, the ``Host`` header.

        A page of the same host is allowed, on any port. On a loopback address only ``localhost``
        and numeric addresses count as this host. Any other name could be made to resolve to it, and
        a page of that name would seem to be of "the same host" (DNS rebinding).
        """
        if "*" in self._allowed:
            return True
        try:
            if origin_of(origin) in self._allowed:
                return True
            theirs = urlsplit(origin_of(origin))
        except ValueError:
            return False
        own = host_of(host)
        is_page = theirs.scheme in _PORTS and theirs.hostname == own
        return bool(own) and is_page and (not on_loopback or is_local_name(own))


def host_of(header: str) -> str:
    """Return the host of a ``Host`` header; empty if it is not a host with optional port."""
    found = _AUTHORITY.fullmatch(header)
    return "" if found is None else found[1].strip("[]").rstrip(".").lower()


def origin_of(text: str) -> str:
    """Return an origin in lower case, with its port; raises ValueError if it is invalid."""
    if text == "null":
        return text
    parts = urlsplit(text.lower())
    port = parts.port or _PORTS.get(parts.scheme, 0)
    if not parts.hostname or f"{parts.scheme}://{parts.netloc}" != text.lower() or "@" in text:
        raise ValueError(f"{text[:100]!r} is not an origin, as https://shop.example is")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def is_local_name(host: str) -> bool:
    """Return True if a name is local, or a numeric address, which DNS cannot redirect."""
    if host == _LOCAL or host.endswith(f".{_LOCAL}"):
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
