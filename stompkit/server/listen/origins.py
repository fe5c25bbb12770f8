"""Which web pages may connect: a browser says of what origin the page is (RFC 6454)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

__all__ = ["Origins", "host_of", "is_local_name", "origin_of"]

_PORTS: Final = {"http": 80, "https": 443}
_LOCAL: Final = "localhost"
#: A host and perhaps a port, and nothing that some would read as user, path or fragment.
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._~-]+)(?::[0-9]{1,5})?")


class Origins:
    """The origins whose pages may connect."""

    def __init__(self, allowed: Iterable[str]) -> None:
        """Take them as they are in the settings; ValueError for what is none."""
        self._allowed = {each if each == "*" else origin_of(each) for each in allowed}

    def allows(self, origin: str, host: str, *, on_loopback: bool) -> bool:
        """Whether a page of ``origin`` may connect to ``host``, the header of that name.

        A page of the same host may, whatever its port. On a loopback address only ``localhost``
        and numbers are this host: everybody can have a name point there, and a page of that name
        would be one of "the same host" (DNS rebinding).
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
    """Return the host that a ``Host`` header names; empty for what is not just host and port."""
    found = _AUTHORITY.fullmatch(header)
    return "" if found is None else found[1].strip("[]").rstrip(".").lower()


def origin_of(text: str) -> str:
    """An origin as it is compared: in small letters, with its port; ValueError if it is none."""
    if text == "null":
        return text
    parts = urlsplit(text.lower())
    port = parts.port or _PORTS.get(parts.scheme, 0)
    if not parts.hostname or f"{parts.scheme}://{parts.netloc}" != text.lower() or "@" in text:
        raise ValueError(f"{text[:100]!r} is not an origin, as https://shop.example is")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def is_local_name(host: str) -> bool:
    """Whether a name is that of this machine, or a number, which nobody can have point here."""
    if host == _LOCAL or host.endswith(f".{_LOCAL}"):
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
