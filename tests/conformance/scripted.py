"""TCP servers with a scripted behaviour, as targets of the suite."""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Self

_READ_BYTES = 65_536
#: Longer than any connection of a test, in seconds: this ends only tests with a bug.
_LONG_S = 60.0

Behaviour = Callable[["Line"], None]


class Gone(Exception):
    """The peer has ended the connection."""


class Line:
    """The server's end of one connection; ``number`` counts them from 1."""

    def __init__(self, connection: socket.socket, number: int) -> None:
        """Take over an accepted connection."""
        connection.settimeout(_LONG_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = number
        self._socket = connection
        self._pending = b""
        self._closed = threading.Event()

    def send(self, octets: bytes) -> None:
        """Send bytes; raises :class:`Gone` if the peer has closed."""
        try:
            self._socket.sendall(octets)
        except OSError:
            raise Gone from None

    def receive(self) -> bytes:
        """Return received bytes; raises :class:`Gone` at the end."""
        try:
            octets = self._socket.recv(_READ_BYTES)
        except OSError:
            raise Gone from None
        if not octets:
            raise Gone
        return octets

    def frame(self) -> tuple[str, dict[str, str]]:
        """Return command and headers of the next frame, which has no NUL in its body."""
        while b"\0" not in self._pending:
            self._pending += self.receive()
        octets, _, self._pending = self._pending.partition(b"\0")
        head = octets.lstrip(b"\r\n").partition(b"\n\n")[0].decode("utf-8", "surrogateescape")
        command, *lines = head.split("\n")
        pairs = (line.partition(":") for line in reversed(lines))
        return command, {name: value for name, _, value in pairs}

    def frames(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield all frames to the end of the connection."""
        while True:
            yield self.frame()

    def wait(self) -> None:
        """Read until the peer ends the connection."""
        while True:
            self.receive()

    def hold(self) -> None:
        """Wait without reading until the server is stopped."""
        self._closed.wait(_LONG_S)
        raise Gone

    def reset(self) -> None:
        """Reset the connection; only for the thread that reads from it."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def end(self) -> None:
        """End the connection from any thread; a thread that waits for bytes from it wakes up."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection and free the socket; only for the thread that reads from it."""
        self.end()
        self._socket.close()


class ScriptedServer:
    """Listens on a free port; each connection has a thread that runs the behaviour.

    A connection is closed when its behaviour returns. :meth:`stop` raises the exceptions of
    behaviours, except for :class:`Gone`.
    """

    def __init__(self, behaviour: Behaviour, host: str = "127.0.0.1") -> None:
        """Start listening."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self.port: int = self._listener.getsockname()[1]
        self.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self.connections = 0
        self._behaviour = behaviour
        self._errors: list[Exception] = []
        self._lines: list[Line] = []
        self._lock = threading.Lock()
        self._is_stopped = False
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        """Return the server."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop the server."""
        self.stop()

    def stop_listening(self) -> None:
        """Refuse all connections from now on."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def stop(self) -> None:
        """End everything; raises an exception of a behaviour, if there was one."""
        with self._lock:
            self._is_stopped = True
            lines = list(self._lines)
        self.stop_listening()
        for line in lines:
            line.end()
        for thread in self._threads:
            thread.join(_LONG_S)
            assert not thread.is_alive(), "a behaviour does not end"
        if self._errors:
            raise self._errors[0]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with self._lock:
                    if self._is_stopped:
                        connection.close()
                        return
                    self.connections += 1
                    line = Line(connection, self.connections)
                    self._lines.append(line)
                    thread = threading.Thread(target=self._serve, args=(line,))
                    self._threads.append(thread)
                    thread.start()

    def _serve(self, line: Line) -> None:
        try:
            self._behaviour(line)
        except Gone:
            pass
        except Exception as error:
            self._errors.append(error)
        finally:
            line.close()


# Behaviours, and functions for them.


def frame(command: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    """Return a frame without escapes."""
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    return f"{command}\n{lines}\n".encode("utf-8", "surrogateescape") + body + b"\0"


def connected(line: Line, **extra: str) -> None:
    """Read CONNECT, and reply with CONNECTED of the version that it requests."""
    _, headers = line.frame()
    line.send(connected_frame(headers, **extra))


def connected_frame(headers: dict[str, str], **extra: str) -> bytes:
    """Return the CONNECTED in reply to a CONNECT with these headers."""
    version = headers.get("accept-version", "1.0").split(",")[-1]
    return frame("CONNECTED", {"version": version, "session": secrets.token_hex(4), **extra})


def receipts(line: Line) -> None:
    """Confirm all frames, but deliver nothing."""
    connected(line)
    for _, headers in line.frames():
        if "receipt" in headers:
            line.send(frame("RECEIPT", {"receipt-id": headers["receipt"]}))
