"""The other end of a connection during a replay."""

from __future__ import annotations

import socket
from typing import Final

from stompkit.frames import AFTER_LOGIN, Frame, FrameDecoder, Tolerance, Version
from stompkit.testing._transcripts.ids import Ids
from stompkit.testing._transcripts.replaying import version_of, wire_octets

__all__ = ["ReplayPeer"]

_RECEIVE_BYTES: Final = 65_536


class ReplayPeer:
    """A connection to whoever takes part in a replay: its socket, frames and ids.

    ``recorded`` is the version that this connection had in the transcript.
    """

    def __init__(self, number: int, connected: socket.socket, recorded: Version | None) -> None:
        """Take a socket over."""
        self.number = number
        self.socket = connected
        # Frames go out when they are written: whoever waits for one has nothing else to do.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        #: Frames that nobody has waited for yet.
        self.arrived: list[Frame] = []
        self.ids = Ids()
        #: Whether the other end sends nothing any more.
        self.ended = False
        self._recorded = recorded
        self._decoder = FrameDecoder(None, limits=AFTER_LOGIN, tolerance=Tolerance.LENIENT)

    @property
    def version(self) -> Version | None:
        """The version that was settled; before that, the one that the transcript came to."""
        return self._decoder.version or self._recorded

    def receive(self) -> list[Frame]:
        """Take in what comes next, add it to ``arrived`` and return it.

        Raises RemoteProtocolError for what is no frame, and TimeoutError if the socket does.
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
        """End the handshake, if this frame does."""
        if frame.command == "CONNECTED":
            self._decoder.negotiated(version_of(frame))
        elif frame.command in ("CONNECT", "STOMP") and self._recorded is not None:
            self._decoder.negotiated(self._recorded)

    def send(self, frame: Frame) -> None:
        """Send a frame, as a broker does, with a line feed behind it.

        Raises OSError, and LocalProtocolError for what STOMP can't express.
        """
        self.socket.sendall(wire_octets(frame, self.version) + b"\n")
