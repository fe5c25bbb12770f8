"""The tunnel: its listener, and a thread for each connection."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import sys
import threading
from importlib.util import find_spec
from types import TracebackType
from typing import Final, Self

from stompkit._common.certificates import refusal
from stompkit.testing.launching.errors import BrokerError
from stompkit.testing.launching.place import Place
from stompkit.testing.launching.ports import loopback
from stompkit.testing.proxy.sockets import owned, reset, stop_listening
from stompkit.testing.tunnel.failures import explained, trusting
from stompkit.testing.tunnel.layers import READ_BYTES, Layer, Tls

__all__ = ["Tunnel"]

#: Maximum number of bytes that wait to be written in one direction; above it, reading stops.
_MOST_WAITING_BYTES: Final = 262_144
#: Timeout in seconds for connecting to a broker, including TLS and the WebSocket handshake.
_CONNECT_S: Final = 5.0
_BACKLOG: Final = 128


class Tunnel:
    """Listens on a free local port for plain STOMP; a context manager that closes it."""

    host: str
    port: int

    def __init__(self, place: Place, *, timeout_s: float = _CONNECT_S) -> None:
        """Check that the broker can be reached, and listen.

        Raises BrokerError with the cause and the remedy.
        """
        if place.has_websockets and find_spec("wsproto") is None:
            raise BrokerError(
                f"{place}: WebSockets take the Python package wsproto, which was not found by"
                f" {sys.executable}; get it by: pip install 'stompkit[websocket]'"
            )
        self.place = place
        self._timeout_s = timeout_s
        try:
            self._context = trusting(place) if place.has_tls else None
            self._far().check()
        except (OSError, ValueError) as error:
            raise BrokerError(f"{place}: {explained(error, place)}") from error
        self.host = loopback()
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.create_server((self.host, 0), family=family, backlog=_BACKLOG)
        self._listener = owned(listener)
        self.port = self._listener.getsockname()[1]
        self._is_over = False
        self._lock = threading.Lock()
        self._forwarders: set[_Forwarder] = set()
        self._thread = threading.Thread(target=self._accept, name="tunnel", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close all connections; harmless the second time."""
        with self._lock:
            self._is_over = True
            forwarders = list(self._forwarders)
        stop_listening(self._listener)
        for each in forwarders:
            each.end()
        self._thread.join()

    def __enter__(self) -> Self:
        """Return the tunnel."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def _far(self) -> _Far:
        """Connect to the broker."""
        place = self.place
        connection = owned(socket.create_connection((place.host, place.port), self._timeout_s))
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            far = _Far(connection)
            if self._context is not None:
                far.start_tls(self._context, place.host)
            if place.has_websockets:
                far.upgrade(place)
        except BaseException:
            connection.close()
            raise
        return far

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                forwarder = _Forwarder(self, owned(near))
                with self._lock:
                    if self._is_over:
                        near.close()
                        return
                    self._forwarders.add(forwarder)
                forwarder.start()

    def _forget(self, forwarder: _Forwarder) -> None:
        with self._lock:
            self._forwarders.discard(forwarder)


class _Forwarder(threading.Thread):
    """One connection of a client, and the corresponding connection to the broker."""

    def __init__(self, tunnel: Tunnel, near: socket.socket) -> None:
        super().__init__(name="tunnel forwarder", daemon=True)
        self._tunnel = tunnel
        self._near = near

    def end(self) -> None:
        """Close both connections, from another thread."""
        with contextlib.suppress(OSError):
            self._near.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        """Forward bytes until both sides have ended."""
        near = self._near
        try:
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            far = self._tunnel._far()
        except (OSError, ValueError):
            reset(near)
            self._tunnel._forget(self)
            return
        try:
            _pass_on(near, far)
        except (OSError, ValueError):
            # One side was reset or sent invalid data: the other gets a reset, too.
            reset(near)
            reset(far.connection)
        finally:
            near.close()
            far.close()
            self._tunnel._forget(self)


def _pass_on(near: socket.socket, far: _Far) -> None:
    near.setblocking(False)
    far.connection.setblocking(False)
    to_near, to_far = bytearray(far.early), bytearray(far.layer.answers())
    has_near_ended = has_far_ended = is_near_notified = False
    while True:
        reading = []
        if not has_near_ended and len(to_far) < _MOST_WAITING_BYTES:
            reading.append(near)
        if not has_far_ended and len(to_near) < _MOST_WAITING_BYTES:
            reading.append(far.connection)
        if has_far_ended and not to_near and not is_near_notified:
            is_near_notified = True
            near.shutdown(socket.SHUT_WR)
        if has_far_ended and is_near_notified:
            return
        poll = select.poll()
        wanted = {near: 0, far.connection: 0}
        for each in reading:
            wanted[each] |= select.POLLIN
        wanted[near] |= select.POLLOUT if to_near else 0
        wanted[far.connection] |= select.POLLOUT if to_far else 0
        by_number = {each.fileno(): each for each in wanted if wanted[each]}
        for number, each in by_number.items():
            poll.register(number, wanted[each])
        ready = {by_number[number]: events for number, events in poll.poll()}
        if ready.get(near, 0) & ~select.POLLOUT and near in reading:
            octets = near.recv(READ_BYTES)
            has_near_ended = not octets
            to_far += far.layer.wrap(octets) if octets else far.layer.last()
        if ready.get(far.connection, 0) & ~select.POLLOUT and far.connection in reading:
            received = far.connection.recv(READ_BYTES)
            opened, has_far_ended = far.layer.unwrap(received)
            to_near += opened
            to_far += far.layer.answers()
        if ready.get(near, 0) & select.POLLOUT:
            del to_near[: near.send(to_near)]
        if ready.get(far.connection, 0) & select.POLLOUT:
            del to_far[: far.connection.send(to_far)]


class _Far:
    """The connection to the broker, with its TLS and WebSocket layers."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.layer = Layer()
        #: STOMP bytes received together with the handshake.
        self.early = b""

    def close(self) -> None:
        self.connection.close()

    def check(self) -> None:
        """Close; raises the error of a broker that refuses the client's certificate.

        With TLS 1.3 the handshake ends before the broker looks at the certificate. What it sends at
        the end of TLS tells whether it accepted that.
        """
        try:
            is_over = not isinstance(self.layer, Tls)
            if not is_over:
                self.connection.sendall(self.layer.last())
            while not is_over:
                _, is_over = self.layer.unwrap(self.connection.recv(READ_BYTES))
        except OSError as error:
            # Brokers that end TLS in another way may be used.
            if refusal(error) is not None:
                raise
        finally:
            self.close()

    def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Start TLS."""
        self.layer = tls = Tls(context, host)
        is_done = False
        while not is_done:
            is_done = tls.shake_hands()
            self.connection.sendall(tls.answers())
            if not is_done:
                octets = self.connection.recv(READ_BYTES)
                if not octets:
                    raise ValueError("it closes the connection instead of speaking TLS")
                tls.feed(octets)

    def upgrade(self, place: Place) -> None:
        """Start the WebSocket protocol."""
        # Imported on demand: few brokers need it.
        from stompkit.testing.tunnel.websocket import WebSocket

        self.layer = websocket = WebSocket(self.layer, place)
        is_over = False
        while not websocket.is_open:
            if is_over:
                raise ValueError("it closes the connection instead of opening a WebSocket")
            self.connection.sendall(websocket.answers())
            self.early, is_over = websocket.unwrap(self.connection.recv(READ_BYTES))
