"""Reading and writing frames of a client on a raw socket, without faults."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from itertools import count

__all__ = ["Frames", "Headers", "Lost"]

Headers = list[tuple[str, str]]


class Lost(Exception):
    """The session has ended with an error."""


class Frames:
    """One connection after the other, each with its negotiated heart-beats."""

    def __init__(self) -> None:
        """Start without a connection."""
        self.numbers = count(1)
        self.aborted = threading.Event()
        self.begin()

    def begin(self) -> None:
        """Reset the state of the connection."""
        self.socket: socket.socket | None = None
        self.pending = b""
        self.version = "1.0"
        #: Interval in seconds of heart-beats to the server and from it; 0 for none.
        self.send_s = 0.0
        self.receive_s = 0.0
        self.last_sent = self.last_received = time.monotonic()

    def open(self, host: str, port: int) -> None:
        """Open a connection."""
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.aborted.is_set():
            raise Lost("aborted")

    def close(self) -> None:
        """Close the connection."""
        if self.socket is not None:
            self.socket.close()

    def abort(self) -> None:
        """Abort the connection; from any thread."""
        self.aborted.set()
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)

    # Writing frames.

    def ask(self, command: str, headers: Headers, body: bytes = b"") -> str:
        """Send a frame with a receipt; return the receipt."""
        receipt = self.receipt()
        self.send(command, [*headers, ("receipt", receipt)], body)
        return receipt

    def receipt(self) -> str:
        """Return an unused receipt."""
        return f"r{next(self.numbers)}"

    def send(self, command: str, headers: Headers, body: bytes = b"") -> None:
        """Send a frame."""
        length = self.length(body)
        if command == "SEND" and length is not None:
            headers = [*headers, ("content-length", str(length))]
        lines = [self.line(command, name, value) for name, value in headers]
        self.write("\n".join([command, *lines, "", ""]).encode() + body + b"\0")

    def length(self, body: bytes) -> int | None:
        """Return the content-length of a body."""
        return len(body)

    def line(self, command: str, name: str, value: str) -> str:
        """Return an encoded header line."""
        if command == "CONNECT":
            return f"{name}:{value}"
        return f"{self.escape(name)}:{self.escape(value)}"

    def escape(self, text: str) -> str:
        """Escape characters that a header cannot contain."""
        if self.version == "1.0" and "\n" in text:
            raise Lost("1.0 has no line ends in headers")
        if self.version != "1.0":
            text = text.replace("\\", "\\\\").replace("\n", "\\n").replace(":", "\\c")
        return text.replace("\r", "\\r") if self.version == "1.2" else text

    def write(self, octets: bytes) -> None:
        """Send bytes."""
        if self.socket is None:
            raise Lost("not connected")
        self.socket.sendall(octets)
        self.last_sent = time.monotonic()

    # Reading frames.

    def frame(self, until: float | None = None) -> tuple[str, dict[str, str], bytes]:
        """Wait for the next frame: command, headers and body."""
        self.skip_line_ends(until)
        while (end := self.head_end()) is None:
            self.fill(until)
        command, *lines = self.lines(self.pending[: end[0]])
        headers = self.headers(command, lines)
        self.pending = self.pending[end[1] :]
        size = self.body_size(headers)
        while size is None or len(self.pending) <= size:
            if size is None and b"\0" in self.pending:
                size = self.pending.index(b"\0")
                continue
            self.fill(until)
        body = self.pending[:size]
        if self.pending[size] != 0:
            raise Lost("no NUL at the end of a frame")
        self.pending = self.pending[size + 1 :]
        return command, headers, self.body(body)

    def skip_line_ends(self, until: float | None) -> None:
        """Skip line ends before a frame."""
        while not self.pending.lstrip(b"\r\n"):
            self.pending = b""
            self.fill(until)
        self.pending = self.pending.lstrip(b"\r\n")

    def head_end(self) -> tuple[int, int] | None:
        """Return the end of the head and the start of the body, ``None`` if incomplete."""
        ends = [(self.pending.find(gap), gap) for gap in (b"\n\n", b"\n\r\n")]
        found = [(place, place + len(gap)) for place, gap in ends if place >= 0]
        return min(found, default=None)

    def lines(self, head: bytes) -> list[str]:
        """Return the lines of a head."""
        lines = self.text(head).split("\n")
        return [each.removesuffix("\r") for each in lines] if self.version == "1.2" else lines

    def text(self, octets: bytes) -> str:
        """Return decoded text."""
        return octets.decode()

    def headers(self, command: str, lines: list[str]) -> dict[str, str]:
        """Parse header lines; the first of repeated headers is valid."""
        pairs = [line.partition(":")[::2] for line in lines]
        if self.reads_escapes(command):
            pairs = [(self.unescape(name), self.unescape(value)) for name, value in pairs]
        return dict(reversed(pairs))

    def reads_escapes(self, command: str) -> bool:
        """Return True if the headers of a frame are escaped."""
        return command != "CONNECTED" and self.version != "1.0"

    def unescape(self, text: str) -> str:
        """Unescape a text."""
        known = {"\\": "\\", "n": "\n", "c": ":"} | ({"r": "\r"} if self.version == "1.2" else {})
        first, *rest = text.split("\\")
        read = first
        while rest:
            piece = rest.pop(0)
            if not piece and rest:  # between two backslashes
                read += "\\" + rest.pop(0)
            elif not piece:
                read += self.undefined("")
            elif piece[0] in known:
                read += known[piece[0]] + piece[1:]
            else:
                read += self.undefined(piece)
        return read

    def undefined(self, piece: str) -> str:
        """Handle an undefined escape sequence, given without its backslash."""
        raise Lost(f"undefined escape \\{piece}")

    def body_size(self, headers: dict[str, str]) -> int | None:
        """Return the size of the body, if the headers have it."""
        return int(headers["content-length"]) if "content-length" in headers else None

    def body(self, body: bytes) -> bytes:
        """Return the body, which subclasses may change."""
        return body

    def fill(self, until: float | None) -> None:
        """Wait for bytes, and send heart-beats meanwhile."""
        before = time.monotonic()
        times = [] if until is None else [until]
        if self.send_s:
            times.append(self.last_sent + self.send_s / 2)
        if self.receive_s:
            times.append(self.last_received + 2 * self.receive_s)
        wait_s = max(0.0, min(times) - before) if times else None
        if self.socket is None:
            raise Lost("not connected")
        if select.select([self.socket], [], [], wait_s)[0]:
            octets = self.socket.recv(65_536)
            if not octets:
                self.end_came()
            self.pending += octets
            self.heard(octets)
        now = time.monotonic()
        if self.send_s and now >= self.last_sent + self.send_s / 2:
            self.write(b"\n")
        if self.receive_s and now >= self.last_received + 2 * self.receive_s:
            raise Lost("the server is silent")
        if until is not None and now >= until:
            raise TimeoutError

    def heard(self, octets: bytes) -> None:
        """Record that the server is alive."""
        self.last_received = time.monotonic()

    def end_came(self) -> None:
        """Handle the end of the connection."""
        raise Lost("closed")
