"""Free TCP ports for brokers that can't choose one by themselves."""

from __future__ import annotations

import errno
import socket
import sys
from typing import Final

__all__ = ["IPV4_LOOPBACK", "Ports", "is_listening", "is_taken", "loopback"]

IPV4_LOOPBACK: Final = "127.0.0.1"
_IPV6_LOOPBACK: Final = "::1"

#: How long a connection may take to be made, in seconds.
_CONNECT_S = 2.0
#: All addresses of IPv4.
_EVERYWHERE = "0.0.0.0"


class Ports:
    """Takes free ports of one address, and keeps them free for a broker that is to use them.

    On Linux sockets stay bound to each port, without listening: nobody else gets the port, from
    the kernel or by choosing one in the same way, but a server that sets SO_REUSEADDR, as they
    all do, can listen on it.  That is so at all addresses of IPv4, since RabbitMQ looks whether it
    can have a port at all of them.  Elsewhere a port is only known to have been free.
    """

    def __init__(self, host: str) -> None:
        """Take ports of the address ``host``, an IPv4 or IPv6 literal."""
        self._host = host
        self._held: list[socket.socket] = []

    def take(self) -> int:
        """Return the number of a free port.

        Raises OSError where the address is not one of this machine's.
        """
        while True:
            port = self._take_here()
            # One that somebody uses at another address stays held, so that it is not given again.
            if sys.platform != "linux" or self._take_everywhere(port):
                return port

    def _take_here(self) -> int:
        held = _socket(self._host)
        try:
            held.bind((self._host, 0))
            port: int = held.getsockname()[1]
            if sys.platform == "linux":
                # Only now: with the option set before bind() two such sockets could be given
                # the same port.
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._held.append(held)
        finally:
            if held not in self._held:
                held.close()
        return port

    def _take_everywhere(self, port: int) -> bool:
        """Hold a port that is held here at all other addresses; tell whether it is free there."""
        held = _socket(_EVERYWHERE)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind((_EVERYWHERE, port))
        except OSError as error:
            held.close()
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        self._held.append(held)
        return True

    def close(self) -> None:
        """Give the ports up."""
        while self._held:
            self._held.pop().close()


def loopback() -> str:
    """Return the address that only this machine has: 127.0.0.1, or ::1 where there is no IPv4."""
    return IPV4_LOOPBACK if _has(IPV4_LOOPBACK) or not _has(_IPV6_LOOPBACK) else _IPV6_LOOPBACK


def _has(host: str) -> bool:
    """Tell whether this machine has an address; also where no descriptor is left to find out."""
    try:
        is_taken(host, 0)
    except OSError as error:
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True


def is_taken(host: str, port: int) -> bool:
    """Tell whether somebody listens on the port, so that a broker can't.

    Raises OSError where the address is not one of this machine's.
    """
    with _socket(host) as attempt:
        # As servers do, so that connections of a stopped broker that are still closing don't count.
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise
    return False


def _socket(host: str) -> socket.socket:
    """Make a TCP socket for the address's family."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.socket(family, socket.SOCK_STREAM)


def is_listening(host: str, port: int) -> bool:
    """Tell whether somebody takes connections there."""
    try:
        with socket.create_connection((host, port), _CONNECT_S):
            return True
    except OSError:
        return False
