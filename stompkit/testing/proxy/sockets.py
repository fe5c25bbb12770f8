"""Socket helpers of the proxy."""

from __future__ import annotations

import socket
import struct
import sys
from contextlib import suppress
from typing import Any, Final

__all__ = ["READ_BYTES", "Address", "is_loop", "reset", "resolved"]

#: Family and address, as ``socket.getaddrinfo`` returns them.
Address = tuple[socket.AddressFamily, Any]

#: Maximum number of bytes per read.
READ_BYTES: Final = 65_536
#: Linger time of zero: close() sends a reset.
_NO_LINGER: Final = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)


def resolved(host: str, port: int) -> list[Address]:
    """Return the addresses of a host, in the order in which to try them."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


def is_loop(connection: socket.socket) -> bool:
    """Return True if a socket is connected to itself, which is possible without a listener."""
    with suppress(OSError):
        return bool(connection.getsockname() == connection.getpeername())
    return False


def reset(connection: socket.socket) -> None:
    """Close with a TCP reset."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    connection.close()
