"""An address that a client is given."""

from __future__ import annotations

import socket

__all__ = ["Node"]


class Node:
    """A port that takes connections, or refuses them; nobody else gets it meanwhile."""

    def __init__(self, host: str, port: int = 0, *, refuses: bool = False) -> None:
        """Take a port, any free one unless told; raises ``OSError`` where it can't be had."""
        self.host = host
        #: Whether it refuses at first, and after each case.
        self.refuses = refuses
        if port:
            # Others may have it; only among ourselves it is to be shared.
            _bound(host, port, shares=False).close()
        #: Keeps the port, whether somebody listens there or not.
        self._keeper = _bound(host, port)
        self.port: int = self._keeper.getsockname()[1]
        #: What takes connections, unless it refuses them.
        self.listener: socket.socket | None = None
        try:
            self.restore()
        except BaseException:
            self._keeper.close()
            raise

    def restore(self) -> None:
        """Do what it does at first."""
        if not self.refuses and self.listener is None:
            self.listener = _bound(self.host, self.port)
            self.listener.listen()
            # Who has gone again before being accepted keeps nobody waiting.
            self.listener.setblocking(False)

    def refuse(self) -> None:
        """Refuse connections from now on; those that nobody has accepted yet are reset."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    def close(self) -> None:
        """Give the port back."""
        self.refuse()
        self._keeper.close()


def _bound(host: str, port: int, *, shares: bool = True) -> socket.socket:
    """A socket that has a port, which others of ours can have as well."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shares)
        made.bind((host, port))
    except BaseException:
        made.close()
        raise
    return made
