"""A client with little overhead, so that the broker is measured: one blocking socket."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final, Self

from stompkit.frames import Frame, FrameDecoder, RemoteProtocolError, encode

__all__ = ["Client", "RefusedError", "fill", "message", "number_of"]

_CONNECT: Final = {"accept-version": "1.2", "host": "benchmark"}
#: Longer than any working broker takes, in seconds.
_TIMEOUT_S: Final = 60.0
_RECEIVE_BYTES: Final = 1 << 18
#: Messages that are written to the socket at a time.
_CHUNK_MESSAGES: Final = 100
#: Number of digits of the number at the start of a body.
_DIGITS: Final = 8


class RefusedError(Exception):
    """The broker has answered ERROR, or has closed the connection."""


class Client:
    """A connection to a broker."""

    def __init__(
        self, port: int, *, source: str = "", receive_buffer_bytes: int = 0, login: str = ""
    ) -> None:
        """Connect to 127.0.0.1 and send CONNECT; :meth:`log_in` has to follow.

        ``source`` is the address to connect from, if given; 0 for ``receive_buffer_bytes`` leaves
        the size of the socket's buffer to the system. ``login`` is USER:PASSCODE. Raises OSError.
        """
        self.socket = socket.socket()
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(_TIMEOUT_S)
        if source:
            self.socket.bind((source, 0))
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = FrameDecoder()
        user, _, passcode = login.partition(":")
        known = {"login": user, "passcode": passcode} if login else {}
        self.send("CONNECT", _CONNECT | known)

    def log_in(self) -> Self:
        """Wait for CONNECTED; raise as :meth:`receive` does."""
        self.expect("CONNECTED")
        self._decoder.negotiated("1.2")
        return self

    def write(self, octets: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(octets)

    def send(self, command: str, headers: dict[str, str]) -> None:
        """Send a frame without a body."""
        self.write(encode(Frame(command, headers), "1.2"))

    def receive(self) -> list[Frame]:
        """Wait for data and return the frames completed by it, possibly none.

        Raise :class:`RefusedError` and TimeoutError.
        """
        return self.decode(self.read())

    def read(self) -> bytes:
        """Return the next received bytes, waiting for them; raise as :meth:`receive` does."""
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise RefusedError("the broker has closed the connection")
        return data

    def decode(self, data: bytes) -> list[Frame]:
        """Return the frames completed by *data*; raise :class:`RefusedError` for ERROR."""
        try:
            frames = self._decoder.feed(data)
        except RemoteProtocolError as error:
            raise RefusedError(f"what the broker sends is no STOMP: {error}") from error
        for frame in frames:
            if frame.command == "ERROR":
                raise RefusedError(f"ERROR: {frame.headers.get('message')}")
        return frames

    def expect(self, command: str) -> Frame:
        """Return the next frame, which must have this command; raise RefusedError otherwise."""
        while not (frames := self.receive()):
            pass
        if len(frames) > 1 or frames[0].command != command:
            raise RefusedError(f"{frames[0].command} came, not {command} alone")
        return frames[0]

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


def message(destination: str, number: int, body_bytes: int, **more: str) -> bytes:
    """Return a SEND frame whose body starts with its number of 8 digits; ``more`` are headers."""
    headers = {"destination": destination, **more}
    body = b"%0*d" % (_DIGITS, number)
    return encode(Frame("SEND", headers, body.ljust(body_bytes, b"x")), "1.2")


def number_of(frame: Frame) -> int:
    """Return the number of a message made by :func:`message`."""
    return int(frame.body[:_DIGITS])


def fill(
    client: Client,
    destination: str,
    messages: int,
    body_bytes: int,
    window: int,
    tell: Callable[[int], None] = lambda _: None,
) -> None:
    """Send numbered messages, from 0 on, each with a receipt; return after the last receipt.

    At most ``window`` messages are without their receipt at a time. ``tell`` is called repeatedly
    with the number of receipts. Raise :class:`RefusedError` and TimeoutError.
    """
    sent = confirmed = 0
    while confirmed < messages:
        while sent < (most := min(confirmed + window, messages)):
            end = min(sent + _CHUNK_MESSAGES, most)
            numbers = range(sent, end)
            client.write(
                b"".join(message(destination, n, body_bytes, receipt=str(n)) for n in numbers)
            )
            sent = end
        for frame in client.receive():
            if frame.command != "RECEIPT":
                raise RefusedError(f"{frame.command} came, not RECEIPT")
            confirmed += 1
        tell(confirmed)
