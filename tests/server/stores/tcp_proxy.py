"""A TCP proxy that can cut connections to a server, even within a request."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from enum import Enum
from pathlib import Path

__all__ = ["Cut", "Proxy"]

_LONG_S = 20.0


class Cut(Enum):
    """The moment at which a connection is cut that sends a certain word."""

    BEFORE = "the server does not hear it"
    AFTER = "the server's answer is not heard"
    WITHIN = "the server hears a part, and nothing of the end of the connection"


class Proxy:
    """Listens on a TCP port of loopback, and forwards to a Unix socket."""

    def __init__(self, target: Path) -> None:
        """Start listening."""
        self._target = target
        self._word: bytes | None = None
        self._cut = Cut.BEFORE
        self._stays_open = True
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.address = ("127.0.0.1", 0)
        self.open()

    def open(self) -> None:
        """Listen, always on the same port."""
        self._listener = socket.create_server(self.address)
        self.address = self._listener.getsockname()
        self._start(self._accept)

    def close(self) -> None:
        """Cut all connections, and stop listening."""
        self._shut_all()
        while self._threads:
            self._threads.pop().join(_LONG_S)
        while self._sockets:
            self._sockets.pop().close()
        self._listener.close()

    def cut(self) -> None:
        """Cut all connections; new ones are accepted."""
        for each in self._sockets:
            _shut(each)

    def cut_at(self, word: bytes, cut: Cut, *, stays_open: bool = True) -> None:
        """Cut the next connection that sends ``word``; accept new ones if ``stays_open``."""
        self._word, self._cut, self._stays_open = word, cut, stays_open

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        self._threads.append(thread)
        thread.start()

    def _shut_all(self) -> None:
        for each in (self._listener, *self._sockets):
            _shut(each)

    def _accept(self) -> None:
        """Accept clients until the listening socket is shut down."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._target))
            self._sockets += (client, server)
            _Connection(self, client, server)


class _Connection:
    """A connection of one client."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        """Start forwarding data."""
        self._proxy = proxy
        self._client = client
        self._server = server
        self._is_doomed = False
        proxy._start(self._pass_to_server)
        proxy._start(self._pass_to_client)

    def _pass_to_server(self) -> None:
        proxy = self._proxy
        with contextlib.suppress(OSError):
            while data := self._client.recv(65_536):
                word = proxy._word
                if word is not None and word in data:
                    proxy._word = None
                    if proxy._cut is Cut.BEFORE:
                        break
                    if proxy._cut is Cut.WITHIN:
                        self._server.sendall(data[: data.index(word)])
                        _shut(self._client)
                        return
                    self._is_doomed = True
                self._server.sendall(data)
        self._end()

    def _pass_to_client(self) -> None:
        with contextlib.suppress(OSError):
            while (data := self._server.recv(65_536)) and not self._is_doomed:
                self._client.sendall(data)
        self._end()

    def _end(self) -> None:
        if not self._proxy._stays_open:
            self._proxy._shut_all()
        _shut(self._client)
        _shut(self._server)


def _shut(each: socket.socket) -> None:
    """Shut a socket down, which also wakes other threads that wait for it."""
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
