"""The client's end of a connection to a broker in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IProtocol

from stompkit.frames import AFTER_LOGIN, Frame, FrameDecoder, Version, encode
from stompkit.testing.memory._transport import MemoryTransport

__all__ = ["MemoryClient", "named"]


def named(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers given as keyword arguments, with hyphens for underscores."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


class MemoryClient:
    """The client's end of a connection to a :class:`MemoryBroker`.

    Data from the broker is read immediately, unless :meth:`stop_reading` was called. ``octets`` is
    all data read so far, ``frames`` the same as frames, and :meth:`take` returns the new frames.
    """

    def __init__(
        self,
        protocol: IProtocol,
        transport: MemoryTransport,
        *,
        eol_after_frames: bool = True,
    ) -> None:
        """Connect; called by :meth:`MemoryBroker.connect`.

        ``eol_after_frames`` is the broker's setting: such a line feed does not count as a
        heart-beat.
        """
        #: The transport, for operations without a method here.
        self.transport = transport
        self._octets = bytearray()
        self._frames: list[Frame] = []
        self._given = 0
        self._decoder = FrameDecoder(limits=AFTER_LOGIN)
        self._headers: dict[str, str] = {}
        self._has_eol = eol_after_frames
        transport.open(protocol)

    # Sending.

    def send(
        self,
        command: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        /,
        **more: str,
    ) -> None:
        """Send one frame.

        Headers are given by mapping, by keyword with ``_`` for ``-``, or both. The encoder adds
        ``content-length`` to a body and rejects frames that the version cannot express.
        """
        entries = dict(headers or {}) | named(more)
        self.write(encode(Frame(command, entries, body), self.version))

    def publish(self, destination: str, /, body: bytes = b"", **headers: str) -> None:
        """Send a SEND frame."""
        self.send("SEND", {"destination": destination}, body, **headers)

    def subscribe(
        self, destination: str, /, id: str | None = "0", ack: str = "auto", **headers: str
    ) -> None:
        """Send SUBSCRIBE; only 1.0 allows it without an ``id``."""
        entries = {"destination": destination, "ack": ack}
        if id is not None:
            entries["id"] = id
        self.send("SUBSCRIBE", entries, **headers)

    def ack(self, message: Frame, /, **headers: str) -> None:
        """Send ACK of a MESSAGE, identified by the headers of the session's version."""
        self.send("ACK", self._name_of(message), **headers)

    def nack(self, message: Frame, /, **headers: str) -> None:
        """Send NACK of a MESSAGE, identified by the headers of the session's version."""
        self.send("NACK", self._name_of(message), **headers)

    def _name_of(self, message: Frame) -> dict[str, str]:
        if self.version == "1.2":
            return {"id": message.headers["ack"]}
        names = ("message-id", "subscription") if self.version == "1.1" else ("message-id",)
        return {name: message.headers[name] for name in names}

    def write(self, data: bytes) -> None:
        """Send raw bytes; the broker gets the bytes of each call as one chunk."""
        self.transport.deliver(data)

    def close(self) -> None:
        """Close the connection, without DISCONNECT."""
        self.transport.lose(ConnectionDone())

    def end(self) -> None:
        """Close the client's direction only: it sends no more, but still reads."""
        self.transport.end()

    def drop(self) -> None:
        """Simulate a failure of the network."""
        self.transport.lose(ConnectionLost())

    # Reading.

    def stop_reading(self, room_bytes: int = 0) -> None:
        """Leave data from the broker in the transport's buffer from now on.

        The buffer is full, and the broker is notified, when it holds ``room_bytes``; with 0
        immediately.
        """
        self.transport.stop_reading(room_bytes)

    def read_waiting(self) -> None:
        """Read the data that is in the transport's buffer now, and no more."""
        self.transport.read_waiting()

    def start_reading(self) -> None:
        """Read all buffered data and all later data."""
        self.transport.start_reading()

    @property
    def octets(self) -> bytes:
        """All bytes read so far."""
        self._read()
        return bytes(self._octets)

    @property
    def frames(self) -> list[Frame]:
        """All frames read so far."""
        self._read()
        return list(self._frames)

    def take(self, command: str | None = None) -> list[Frame]:
        """Return the frames read since the last call; with ``command``, only its frames."""
        self._read()
        new = self._frames[self._given :]
        self._given = len(self._frames)
        return [frame for frame in new if command is None or frame.command == command]

    def bodies(self) -> list[bytes]:
        """Return the bodies of the MESSAGE frames read since the last call of this or take()."""
        return [frame.body for frame in self.take("MESSAGE")]

    @property
    def beats(self) -> int:
        """Number of heart-beats read: line ends between frames that do not end a frame."""
        self._read()
        return self._decoder.eols - len(self._frames) * self._has_eol

    def _read(self) -> None:
        data = self.transport.take()
        self._octets += data
        while frames := self._decoder.feed(data):
            data = b""
            self._frames += frames
            if frames[0].command == "CONNECTED":
                self._headers = frames[0].headers
                self._decoder.negotiated(self._version(), AFTER_LOGIN)

    def _version(self) -> Version:
        return cast("Version", self._headers.get("version", "1.0"))

    # State of the connection.

    @property
    def version(self) -> Version | None:
        """The version of the session; ``None`` before CONNECTED."""
        self._read()
        return self._version() if self._headers else None

    @property
    def connected(self) -> dict[str, str]:
        """The headers of CONNECTED; empty before it."""
        self._read()
        return self._headers

    @property
    def error(self) -> Frame | None:
        """The ERROR frame, if one has come."""
        return next((frame for frame in self.frames if frame.command == "ERROR"), None)

    @property
    def eof(self) -> bool:
        """True if the end of the broker's stream has been read."""
        return self.transport.eof

    @property
    def lost(self) -> bool:
        """True if the connection is closed in both directions."""
        return self.transport.lost

    @property
    def aborted(self) -> bool:
        """True if the broker has aborted the connection."""
        return self.transport.aborted
