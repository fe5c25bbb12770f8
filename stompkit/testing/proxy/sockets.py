"""Sockets of threads that relay data, such as those of the proxy."""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

__all__ = [
    "READ_BYTES",
    "Address",
    "is_loop",
    "is_writable",
    "owned",
    "reset",
    "resolved",
    "stop_listening",
]

#: Family and address, as ``socket.getaddrinfo`` returns them.
Address = tuple[socket.AddressFamily, Any]

#: Maximum number of bytes per read.
READ_BYTES: Final = 65_536
#: Linger time of zero: close() sends a reset.
_NO_LINGER: Final = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
#: Sockets that forked children close.
_OWNED: Final[WeakSet[socket.socket]] = WeakSet()


def owned(opened: socket.socket) -> socket.socket:
    """Return a socket that only this process uses: its forked children close their copies.

    A child has no thread that serves a copy. But the copy would keep accepting clients on a port
    that is closed here, and would keep the other side from seeing the end of a connection.
    """
    _OWNED.add(opened)
    return opened


def _close_owned() -> None:
    for each in list(_OWNED):
        each.close()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_close_owned)


def resolved(host: str, port: int) -> list[Address]:
    """Return the addresses of a host, in the order in which to try them."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


def is_loop(connection: socket.socket) -> bool:
    """Return True if a socket is connected to itself, which is possible without a listener."""
    with suppress(OSError):
        return bool(connection.getsockname() == connection.getpeername())
    return False


def is_writable(connection: socket.socket) -> bool:
    """Return True if a socket takes data, or its attempt to connect is over."""
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    return bool(poll.poll(0))


def stop_listening(listener: socket.socket) -> None:
    """Close a listener, also for processes that have a copy: between fork and exec, for example."""
    with suppress(OSError):  # macOS refuses it
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def reset(connection: socket.socket) -> None:
    """Close with a TCP reset."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    connection.close()
