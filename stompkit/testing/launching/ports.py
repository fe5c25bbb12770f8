"""Free TCP ports for brokers that cannot choose one themselves."""

from __future__ import annotations

import errno
import socket
import sys
from typing import Final

__all__ = ["IPV4_LOOPBACK", "Ports", "is_listening", "is_taken", "loopback", "usable"]

IPV4_LOOPBACK: Final = "127.0.0.1"
_IPV6_LOOPBACK: Final = "::1"

#: Timeout in seconds for opening a connection.
_CONNECT_S = 2.0
#: The wildcard address of IPv4.
_EVERYWHERE = "0.0.0.0"


class Ports:
    """Reserves free ports of one address for a broker that will use them.

    On Linux sockets stay bound to each port, without listening. No other process gets the port,
    from the kernel or by the same method. A server that sets SO_REUSEADDR, as they all do, can
    listen on it.  The ports are reserved at all addresses of IPv4, since RabbitMQ checks a port at
    all of them.  On other systems a port is only known to have been free.
    """

    def __init__(self, host: str) -> None:
        """Reserve ports of the address ``host``, an IPv4 or IPv6 literal."""
        self._host = host
        self._held: list[socket.socket] = []

    def take(self) -> int:
        """Return the number of a free port.

        Raises OSError if the address does not belong to this machine.
        """
        while True:
            port = self._take_here()
            # A port that is in use at another address stays reserved, so that it is not returned
            # again.
            if sys.platform != "linux" or self._take_everywhere(port):
                return port

    def _take_here(self) -> int:
        held = _socket(self._host)
        try:
            held.bind((self._host, 0))
            port: int = held.getsockname()[1]
            if sys.platform == "linux":
                # Set it after bind(): otherwise two such sockets could get the same port.
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._held.append(held)
        finally:
            if held not in self._held:
                held.close()
        return port

    def _take_everywhere(self, port: int) -> bool:
        """Reserve a port at all other addresses, too; return True if it is free there."""
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
        """Release the ports."""
        while self._held:
            self._held.pop().close()


def loopback() -> str:
    """Return the loopback address: 127.0.0.1, or ::1 if there is no IPv4."""
    return IPV4_LOOPBACK if _has(IPV4_LOOPBACK) or not _has(_IPV6_LOOPBACK) else _IPV6_LOOPBACK


def usable(host: str) -> str:
    """Return the address to listen on: ``host``, but ::1 for 127.0.0.1 if there is no IPv4."""
    return loopback() if host == IPV4_LOOPBACK else host


def _has(host: str) -> bool:
    """Return True if this machine has an address; also if no descriptor is left to check."""
    try:
        is_taken(host, 0)
    except OSError as error:
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True


def is_taken(host: str, port: int) -> bool:
    """Return True if another process listens on the port, so that a broker cannot.

    Raises OSError if the address does not belong to this machine.
    """
    with _socket(host) as attempt:
        # Set the option as servers do, so that closing connections of a stopped broker do not
        # count.
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise
    return False


def _socket(host: str) -> socket.socket:
    """Create a TCP socket for the address's family."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.socket(family, socket.SOCK_STREAM)


def is_listening(host: str, port: int) -> bool:
    """Return True if connections are accepted at that address."""
    try:
        with socket.create_connection((host, port), _CONNECT_S):
            return True
    except OSError:
        return False
