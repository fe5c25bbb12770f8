"""The other end of a connection during a replay."""

from __future__ import annotations

import socket
from typing import Final

from stompkit.frames import AFTER_LOGIN, Frame, FrameDecoder, Tolerance, Version
from stompkit.testing.transcripts.ids import Ids
from stompkit.testing.transcripts.replaying import version_of, wire_octets

__all__ = ["ReplayPeer"]

_RECEIVE_BYTES: Final = 65_536


class ReplayPeer:
    """A connection to the peer of a replay: its socket, frames and ids.

    ``recorded`` is the version of this connection in the transcript.
    """

    def __init__(self, number: int, connected: socket.socket, recorded: Version | None) -> None:
        """Take a socket over."""
        self.number = number
        self.socket = connected
        # Send frames immediately: the receiver of a frame has nothing else to do.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        #: Frames that were received and not yet taken.
        self.arrived: list[Frame] = []
        self.ids = Ids()
        #: True if the peer has closed its direction.
        self.ended = False
        self._recorded = recorded
        self._decoder = FrameDecoder(None, limits=AFTER_LOGIN, tolerance=Tolerance.LENIENT)

    @property
    def version(self) -> Version | None:
        """The negotiated version; before that, the one of the transcript."""
        return self._decoder.version or self._recorded

    def receive(self) -> list[Frame]:
        """Receive data, add its frames to ``arrived`` and return them.

        Raises RemoteProtocolError for invalid frames, and TimeoutError if the socket does.
        """
        try:
            octets = self.socket.recv(_RECEIVE_BYTES)
        except ConnectionError:
            octets = b""
        self.ended = not octets
        received = []
        while frames := self._decoder.feed(octets):
            if self._decoder.version is None:
                self._settle(frames[0])
            received += frames
            octets = b""
        self.arrived += received
        return received

    def _settle(self, frame: Frame) -> None:
        """Finish the handshake if this frame is CONNECTED."""
        if frame.command == "CONNECTED":
            self._decoder.negotiated(version_of(frame))
        elif frame.command in ("CONNECT", "STOMP") and self._recorded is not None:
            self._decoder.negotiated(self._recorded)

    def send(self, frame: Frame) -> None:
        """Send a frame as a broker does, followed by a line feed.

        Raises OSError, and LocalProtocolError for a frame that STOMP cannot encode.
        """
        self.socket.sendall(wire_octets(frame, self.version) + b"\n")
