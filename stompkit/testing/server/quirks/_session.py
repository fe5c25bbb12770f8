"""A session that leaves the validation of frames to the rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from stompkit.frames import (
    BEFORE_LOGIN,
    Frame,
    FrameDecoder,
    Limits,
    RemoteProtocolError,
    Role,
    Session,
    State,
    Tolerance,
    Version,
)
from stompkit.testing.server.quirks._heart_beats import Agreement
from stompkit.testing.server.quirks._wire import encoded

__all__ = ["Decoder", "LooseSession"]


_FIRST: Final[Version] = "1.0"


class Decoder(Protocol):
    """Decodes frames, as :class:`FrameDecoder` does."""

    def feed(self, data: bytes) -> list[Frame]:
        """Return the complete frames; raises RemoteProtocolError for invalid bytes."""

    def negotiated(self, version: Version, limits: Limits | None = None) -> None:
        """Decode the following frames by the rules of a version."""


class LooseSession(Session):
    """Checks only the syntax of frames; the connection does all other checks.

    ``agreement`` has the heart-beats for CONNECTED, and ``accepted`` is called before it is sent.
    """

    def __init__(
        self,
        now: float,
        accepted: Callable[[], None],
        *,
        limits: Limits,
        limits_before_login: Limits = BEFORE_LOGIN,
        tolerance: Tolerance,
    ) -> None:
        """Start in the state OPENING."""
        super().__init__(Role.SERVER, now)
        self.agreement = Agreement()
        self.decoder: Decoder = FrameDecoder(limits=limits_before_login, tolerance=tolerance)
        #: True if an invalid frame ends the connection without an ERROR.
        self.is_silent = False
        #: Codes of errors after which nothing more is read, while the connection stays open.
        self.wedging: frozenset[str] = frozenset()
        self._is_wedged = False
        self._accepted = accepted
        self._most = limits

    def receive(self, data: bytes, now: float) -> list[Frame]:
        """Process bytes and return the frames they complete; raises RemoteProtocolError."""
        if data:
            self.heart_beat.last_received = now
        if self._is_wedged:
            return []
        try:
            return self.decoder.feed(data)
        except RemoteProtocolError as error:
            if error.code in self.wedging:
                self._is_wedged = True
                return []
            if self.is_silent and error.code != "unknown-command":
                raise RemoteProtocolError(error.message, code=error.code) from None
            raise

    def receive_eof(self) -> None:
        """Record the end of the stream, even within a frame."""
        self.state = State.CLOSED

    def accept(self, headers: dict[str, str], now: float) -> bytes:
        """Encode CONNECTED; version and heart-beats are added to ``headers``."""
        version = self.version
        assert version is not None  # the connection has negotiated it
        own: dict[str, str] = {"version": version}
        if self.agreement.header is not None:
            own["heart-beat"] = self.agreement.header
        self.heart_beat = self.agreement.heart_beat(now)
        self.state = State.CONNECTED
        self.decoder.negotiated(version, self._most)
        self._accepted()
        return encoded(Frame("CONNECTED", own | headers), version)

    def send(self, frame: Frame, now: float) -> bytes:
        """Encode any frame."""
        self.heart_beat.last_sent = now
        # Until CONNECTED the client does not know the version.
        settled: Version | None = self.version if self.state is State.CONNECTED else None
        return encoded(frame, settled or _FIRST)
