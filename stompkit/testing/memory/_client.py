"""One connection to a broker in memory, seen from the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IProtocol

from stompkit.frames import AFTER_LOGIN, Frame, FrameDecoder, Version, encode
from stompkit.testing.memory._transport import MemoryTransport

__all__ = ["MemoryClient", "named"]


def named(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers given as keyword arguments, which can't have a hyphen."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


class MemoryClient:
    """One connection to a :class:`MemoryBroker`, seen from the client.

    What the broker answers is read at once, unless :meth:`stop_reading` was called. ``octets``
    is all that has been read, ``frames`` the same as frames, and :meth:`take` gives the frames
    that are new.
    """

    def __init__(
        self,
        protocol: IProtocol,
        transport: MemoryTransport,
        *,
        eol_after_frames: bool = True,
    ) -> None:
        """Connect; :meth:`MemoryBroker.connect` does it.

        ``eol_after_frames`` is the broker's setting: such a line feed is no heart-beat.
        """
        #: The transport, for what has no method here.
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

        Headers are given by mapping, by keyword with ``_`` for ``-``, or both; the encoder adds
        ``content-length`` to a body and refuses what the version can't express.
        """
        entries = dict(headers or {}) | named(more)
        self.write(encode(Frame(command, entries, body), self.version))

    def publish(self, destination: str, /, body: bytes = b"", **headers: str) -> None:
        """Send SEND."""
        self.send("SEND", {"destination": destination}, body, **headers)

    def subscribe(
        self, destination: str, /, id: str | None = "0", ack: str = "auto", **headers: str
    ) -> None:
        """Send SUBSCRIBE; only 1.0 can do without an ``id``."""
        entries = {"destination": destination, "ack": ack}
        if id is not None:
            entries["id"] = id
        self.send("SUBSCRIBE", entries, **headers)

    def ack(self, message: Frame, /, **headers: str) -> None:
        """Send ACK of a MESSAGE, named as the session's version wants it."""
        self.send("ACK", self._name_of(message), **headers)

    def nack(self, message: Frame, /, **headers: str) -> None:
        """Send NACK of a MESSAGE, named as the session's version wants it."""
        self.send("NACK", self._name_of(message), **headers)

    def _name_of(self, message: Frame) -> dict[str, str]:
        if self.version == "1.2":
            return {"id": message.headers["ack"]}
        names = ("message-id", "subscription") if self.version == "1.1" else ("message-id",)
        return {name: message.headers[name] for name in names}

    def write(self, data: bytes) -> None:
        """Send octets, whatever they are; the broker gets each call's as one chunk."""
        self.transport.deliver(data)

    def close(self) -> None:
        """Close the connection, without DISCONNECT."""
        self.transport.lose(ConnectionDone())

    def end(self) -> None:
        """Close the client's end only: it sends no more, and reads what still comes."""
        self.transport.end()

    def drop(self) -> None:
        """Have the network fail."""
        self.transport.lose(ConnectionLost())

    # Reading.

    def stop_reading(self, room_bytes: int = 0) -> None:
        """Leave what the broker writes in the transport's buffer from now on.

        The buffer is full, and the broker told so, when it holds ``room_bytes``; with 0 at once.
        """
        self.transport.stop_reading(room_bytes)

    def read_waiting(self) -> None:
        """Read what waits in the transport's buffer now, and no more."""
        self.transport.read_waiting()

    def start_reading(self) -> None:
        """Read all that waits and all that will come."""
        self.transport.start_reading()

    @property
    def octets(self) -> bytes:
        """All octets read so far."""
        self._read()
        return bytes(self._octets)

    @property
    def frames(self) -> list[Frame]:
        """All frames read so far."""
        self._read()
        return list(self._frames)

    def take(self, command: str | None = None) -> list[Frame]:
        """The frames read since the last call; of those, the ones of ``command`` if it is given."""
        self._read()
        new = self._frames[self._given :]
        self._given = len(self._frames)
        return [frame for frame in new if command is None or frame.command == command]

    def bodies(self) -> list[bytes]:
        """The bodies of the MESSAGE frames read since the last call of this or of take()."""
        return [frame.body for frame in self.take("MESSAGE")]

    @property
    def beats(self) -> int:
        """Line ends read between frames that are not the end of one: heart-beats."""
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

    # What became of the connection.

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
        """Whether the end of the broker's stream has been read."""
        return self.transport.eof

    @property
    def lost(self) -> bool:
        """Whether the connection is gone, both ways."""
        return self.transport.lost

    @property
    def aborted(self) -> bool:
        """Whether the broker has cut it."""
        return self.transport.aborted
