"""Plain STOMP on this side, and STOMP over TLS or WebSockets to the broker.

A test that sends raw bytes to a broker then needs neither TLS nor WebSockets: it connects to a
tunnel.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import select
import socket
import ssl
import struct
import threading
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from stompkit.testing.launching.address import format_address
from stompkit.testing.launching.errors import BrokerError
from stompkit.testing.launching.place import Place
from stompkit.testing.launching.ports import loopback

__all__ = ["Place", "Tunnel"]

_READ_BYTES: Final = 65_536
#: Maximum number of bytes that wait to be written in one direction; above it, reading stops.
_MOST_WAITING_BYTES: Final = 262_144
#: Timeout in seconds for connecting to a broker, including TLS and the WebSocket handshake.
_CONNECT_S: Final = 5.0
_BACKLOG: Final = 128
_MOST_HEAD_BYTES: Final = 16_384
_SUBPROTOCOLS: Final = "v12.stomp, v11.stomp, v10.stomp"
_RESET_NOW: Final = struct.pack("ii", 1, 0)
#: OpenSSL's error code for a certificate of another host name.
_WRONG_NAME: Final = 62


class Tunnel:
    """Listens on a free local port for plain STOMP; a context manager that closes it."""

    host: str
    port: int

    def __init__(self, place: Place, *, timeout_s: float = _CONNECT_S) -> None:
        """Check that the broker can be reached, and listen.

        Raises BrokerError with the cause and the remedy.
        """
        self.place = place
        self._timeout_s = timeout_s
        try:
            self._context = _trusting(place) if place.has_tls else None
            self._far().close()
        except (OSError, ValueError) as error:
            raise BrokerError(f"{place}: {_explained(error, place)}") from error
        self.host = loopback()
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self._listener = socket.create_server((self.host, 0), family=family, backlog=_BACKLOG)
        self.port = self._listener.getsockname()[1]
        self._is_over = False
        self._lock = threading.Lock()
        self._lines: set[_Line] = set()
        self._thread = threading.Thread(target=self._accept, name="tunnel", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close all connections; harmless the second time."""
        with self._lock:
            self._is_over = True
            lines = list(self._lines)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in lines:
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
        connection = socket.create_connection((place.host, place.port), self._timeout_s)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            far = _Far(connection, _Clear())
            if self._context is not None:
                far.layer = _Tls(self._context, place.host)
                far.shake_hands()
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
                line = _Line(self, near)
                with self._lock:
                    if self._is_over:
                        near.close()
                        return
                    self._lines.add(line)
                line.start()

    def _forget(self, line: _Line) -> None:
        with self._lock:
            self._lines.discard(line)


class _Line(threading.Thread):
    """One connection of a client, and the corresponding connection to the broker."""

    def __init__(self, tunnel: Tunnel, near: socket.socket) -> None:
        super().__init__(name="tunnel line", daemon=True)
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
            _reset(near)
            self._tunnel._forget(self)
            return
        try:
            _pass_on(near, far)
        except (OSError, ValueError):
            # One side was reset or sent invalid data: the other gets a reset, too.
            _reset(near)
            _reset(far.connection)
        finally:
            near.close()
            far.close()
            self._tunnel._forget(self)


def _pass_on(near: socket.socket, far: _Far) -> None:
    near.setblocking(False)
    far.connection.setblocking(False)
    to_near, to_far = bytearray(far.early), bytearray()
    has_near_ended = has_far_ended = is_near_told = False
    while True:
        reading = []
        if not has_near_ended and len(to_far) < _MOST_WAITING_BYTES:
            reading.append(near)
        if not has_far_ended and len(to_near) < _MOST_WAITING_BYTES:
            reading.append(far.connection)
        if has_far_ended and not to_near and not is_near_told:
            is_near_told = True
            near.shutdown(socket.SHUT_WR)
        if has_far_ended and is_near_told:
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
            octets = near.recv(_READ_BYTES)
            has_near_ended = not octets
            to_far += far.layer.wrap(octets) if octets else far.layer.last()
        if ready.get(far.connection, 0) & ~select.POLLOUT and far.connection in reading:
            received = far.connection.recv(_READ_BYTES)
            opened, has_far_ended = far.layer.unwrap(received)
            to_near += opened
            to_far += far.layer.answers()
        if ready.get(near, 0) & select.POLLOUT:
            del to_near[: near.send(to_near)]
        if ready.get(far.connection, 0) & select.POLLOUT:
            del to_far[: far.connection.send(to_far)]


def _reset(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_NOW)
    connection.close()


# Transport layers.


class _Layer(Protocol):
    """Converts STOMP bytes to bytes on the wire, and back."""

    def wrap(self, octets: bytes) -> bytes:
        """Return the bytes for the wire."""

    def unwrap(self, octets: bytes) -> tuple[bytes, bool]:
        """Decode bytes; return the result, and True at the end. Empty input is the end of file."""

    def answers(self) -> bytes:
        """Return the bytes that the layer itself has to send now."""

    def last(self) -> bytes:
        """Return the bytes that signal the end of the stream."""


class _Clear:
    def wrap(self, octets: bytes) -> bytes:
        return octets

    def unwrap(self, octets: bytes) -> tuple[bytes, bool]:
        return octets, not octets

    def answers(self) -> bytes:
        return b""

    def last(self) -> bytes:
        return b""


class _Tls:
    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.ssl = context.wrap_bio(self._in, self._out, server_hostname=host)

    def shake_hands(self) -> bool:
        """Continue the handshake; return True if it is complete."""
        try:
            self.ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def feed(self, octets: bytes) -> None:
        if octets:
            self._in.write(octets)
        else:
            self._in.write_eof()

    def wrap(self, octets: bytes) -> bytes:
        self.ssl.write(octets)
        return self._out.read()

    def unwrap(self, octets: bytes) -> tuple[bytes, bool]:
        self.feed(octets)
        found = bytearray()
        while True:
            try:
                read = self.ssl.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                return bytes(found), False
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                read = b""
            if not read:
                return bytes(found), True
            found += read

    def answers(self) -> bytes:
        return self._out.read()

    def last(self) -> bytes:
        with contextlib.suppress(ssl.SSLError):
            self.ssl.unwrap()
        return self._out.read()


class _WebSocket:
    """The client's side of RFC 6455 over another layer: binary messages, one for each read."""

    _TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10

    def __init__(self, below: _Layer) -> None:
        self._below = below
        self._pending = bytearray()
        self._answers = bytearray()
        self._is_closed = False

    def wrap(self, octets: bytes) -> bytes:
        return self._below.wrap(self._frame(self._BINARY, octets))

    def unwrap(self, octets: bytes) -> tuple[bytes, bool]:
        came, is_over = self._below.unwrap(octets)
        found = self.opened(came)
        return found, is_over or self._is_closed

    def opened(self, came: bytes) -> bytes:
        """Return the payload of the messages that have been received completely."""
        self._pending += came
        found = bytearray()
        while (frame := self._next()) is not None:
            kind, payload = frame
            if kind == self._CLOSE:
                self._answers += self._below.wrap(self._frame(self._CLOSE, payload[:2]))
                self._is_closed = True
            elif kind == self._PING:
                self._answers += self._below.wrap(self._frame(self._PONG, payload))
            elif kind != self._PONG:
                found += payload
        return bytes(found)

    def answers(self) -> bytes:
        said, self._answers = bytes(self._answers), bytearray()
        return said + self._below.answers()

    def last(self) -> bytes:
        return self._below.wrap(self._frame(self._CLOSE, struct.pack(">H", 1000)))

    def _next(self) -> tuple[int, bytes] | None:
        data = self._pending
        if len(data) < 2:
            return None
        length, begin = data[1] & 0x7F, 2
        for mark, size in ((126, 2), (127, 8)):
            if length == mark:
                begin += size
                if len(data) < begin:
                    return None
                length = int.from_bytes(data[2:begin], "big")
                break
        if len(data) < begin + length:
            return None
        kind, payload = data[0] & 0x0F, bytes(data[begin : begin + length])
        del data[: begin + length]
        return kind, payload

    @staticmethod
    def _frame(kind: int, payload: bytes) -> bytes:
        length = len(payload)
        if length < 126:
            head = bytes([0x80 | kind, 0x80 | length])
        elif length < 65_536:
            head = bytes([0x80 | kind, 0x80 | 126]) + length.to_bytes(2, "big")
        else:
            head = bytes([0x80 | kind, 0x80 | 127]) + length.to_bytes(8, "big")
        # A mask of zeros is sufficient: masking only protects intermediate proxies.
        return head + bytes(4) + payload


class _Far:
    """The connection to the broker, with its TLS and WebSocket layers."""

    def __init__(self, connection: socket.socket, layer: _Layer) -> None:
        self.connection = connection
        self.layer: _Layer = layer
        #: STOMP bytes received together with the handshake.
        self.early = b""

    def close(self) -> None:
        self.connection.close()

    def shake_hands(self) -> None:
        """Start TLS."""
        tls = self.layer
        assert isinstance(tls, _Tls)
        is_done = False
        while not is_done:
            is_done = tls.shake_hands()
            self.connection.sendall(tls.answers())
            if not is_done:
                octets = self.connection.recv(_READ_BYTES)
                if not octets:
                    raise ValueError("it closes the connection instead of speaking TLS")
                tls.feed(octets)

    def upgrade(self, place: Place) -> None:
        """Start the WebSocket protocol."""
        head = (
            f"GET {place.path} HTTP/1.1\r\nHost: {format_address(place.host, place.port)}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n"
            f"Sec-WebSocket-Protocol: {_SUBPROTOCOLS}\r\n\r\n"
        )
        self.connection.sendall(self.layer.wrap(head.encode("ascii", "backslashreplace")))
        answer, is_over = b"", False
        while b"\r\n\r\n" not in answer and not is_over and len(answer) < _MOST_HEAD_BYTES:
            octets, is_over = self.layer.unwrap(self.connection.recv(_READ_BYTES))
            answer += octets
        status = answer.partition(b"\r\n")[0].decode("ascii", "backslashreplace")
        if not re.match(r"HTTP/1\.1 101\b", status):
            raise ValueError(
                f"it answers the handshake of WebSockets with {status[:60]!r}: name the port and"
                " the path where it speaks STOMP over WebSockets"
            )
        self.layer = layer = _WebSocket(self.layer)
        self.early = layer.opened(answer.partition(b"\r\n\r\n")[2])


# Certificates, and explanations of errors.


def _trusting(place: Place) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not place.ca:
        return context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    path = Path(place.ca)
    files = sorted(path.glob("*.pem")) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"ca={path} has no certificates in files that end with .pem")
    for each in files:
        try:
            context.load_verify_locations(each)
        except ssl.SSLError:
            raise ValueError(f"ca={each} has no certificate of an authority, as PEM") from None
        except OSError as error:
            raise ValueError(f"ca={each} can't be read: {error.strerror}") from None
    return context


def _explained(error: OSError | ValueError, place: Place) -> str:
    """Return the cause and the remedy for an error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code == _WRONG_NAME or "match" in error.verify_message:
            return (
                f"its certificate is for another name ({error.verify_message}): use a host name"
                " that is in it"
            )
        return (
            f"its certificate is not trusted ({error.verify_message}): name the certificate of"
            " the authority that signed it, with ?ca=FILE behind the address"
        )
    if isinstance(error, ssl.SSLError):
        plain = replace(place, scheme={"stomps": "stomp", "wss": "ws"}[place.scheme])
        return (
            f"it does not speak TLS that can be used ({error.reason or error}): see whether"
            f" this is its port with TLS; without TLS it would be {plain}"
        )
    if isinstance(error, TimeoutError):
        return "it gave no answer in time: see whether this is the right kind of port"
    if isinstance(error, OSError):
        return f"there is no connection ({error.strerror or error}): see whether it runs"
    return str(error)
