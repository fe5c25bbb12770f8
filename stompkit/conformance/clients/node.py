"""An address that a client gets."""

from __future__ import annotations

import socket

__all__ = ["Node"]


class Node:
    """A port that accepts or refuses connections; it stays reserved meanwhile."""

    def __init__(self, host: str, port: int = 0, *, refuses: bool = False) -> None:
        """Reserve a port, by default any free one; raises ``OSError`` on failure."""
        self.host = host
        #: True if it refuses connections initially, and after each case.
        self.refuses = refuses
        if port:
            # The port may be in use; only sockets of the suite may share it.
            _bound(host, port, shares=False).close()
        #: A socket that reserves the port, with or without a listener.
        self._keeper = _bound(host, port)
        self.port: int = self._keeper.getsockname()[1]
        #: The listening socket, unless it refuses connections.
        self.listener: socket.socket | None = None
        try:
            self.restore()
        except BaseException:
            self._keeper.close()
            raise

    def restore(self) -> None:
        """Restore the initial behaviour."""
        if not self.refuses and self.listener is None:
            self.listener = _bound(self.host, self.port)
            self.listener.listen()
            # A client that disconnects before it is accepted must not block.
            self.listener.setblocking(False)

    def refuse(self) -> None:
        """Refuse connections from now on; those not yet accepted are reset."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    def close(self) -> None:
        """Release the port."""
        self.refuse()
        self._keeper.close()


def _bound(host: str, port: int, *, shares: bool = True) -> socket.socket:
    """Return a socket bound to a port that other sockets of the suite can share."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shares)
        made.bind((host, port))
    except BaseException:
        made.close()
        raise
    return made
