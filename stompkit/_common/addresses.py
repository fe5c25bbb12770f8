"""Addresses of the network as text."""

from __future__ import annotations

import os

__all__ = ["address_text", "host_port"]


def host_port(host: str, port: int) -> str:
    """Return ``HOST:PORT``, as in a URL and on command lines; an IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
