"""A connection to a broker that never blocks: frames in and out, and its end."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from stompkit.frames import Frame, LocalProtocolError, RemoteProtocolError, Role, Session, encode

__all__ = ["LOCAL", "Address", "Wire"]

#: Host and port.
Address = tuple[str, int]
LOCAL: Final = "127.0.0.1"
_READ_BYTES = 1 << 18
_NO_LINGER = struct.pack("ii", 1, 0)


class Wire:
    """A client's end of a connection."""

    def __init__(self, address: Address, headers: Mapping[str, str]) -> None:
        """Start to connect and to log in; a failure is reported as the end of the connection."""
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect_ex(address)
        self._session = Session(Role.CLIENT)
        self._out = bytearray(self._session.connect({"host": "campaign", **headers}, 0.0))
        self._frames: list[Frame] = []
        self.is_over = False

    def send(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        """Queue a frame for writing."""
        self._out += encode(Frame(command, headers, body), "1.2")

    @property
    def has_output(self) -> bool:
        """True if data waits to be written."""
        return bool(self._out)

    def write(self) -> None:
        """Write as much as the socket takes."""
        try:
            while self._out:
                del self._out[: self.socket.send(self._out)]
        except BlockingIOError:
            pass
        except OSError as error:
            # Received data can still be read; reading reports the end.
            self._out.clear()
            self.is_over = self.is_over or isinstance(error, ConnectionRefusedError)

    def read(self) -> None:
        """Read the available data, or note the end."""
        try:
            data = self.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.is_over = True
        # Faults cut frames in the middle; no other protocol error is expected.
        with suppress(LocalProtocolError):
            try:
                while frames := self._session.receive(data, 0.0):
                    data = b""
                    self._frames += frames
            except RemoteProtocolError as error:
                raise AssertionError(f"the broker does not keep to the protocol: {error}") from None

    def take(self) -> list[Frame]:
        """Return the frames that have arrived since the last call."""
        frames, self._frames = self._frames, []
        return frames

    def close(self, *, reset: bool = False) -> None:
        """Close the socket, with a reset if requested."""
        if reset:
            with suppress(OSError):
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.socket.close()
