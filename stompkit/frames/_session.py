"""One STOMP connection without I/O: bytes in and out, states, negotiation, heart-beats."""

from __future__ import annotations

from typing import Final

from stompkit.frames._checks import first_unusual
from stompkit.frames._commands import COMMANDS, Role
from stompkit.frames._decoder import FrameDecoder
from stompkit.frames._encoder import encode
from stompkit.frames._errors import LocalProtocolError, RemoteProtocolError, refusal
from stompkit.frames._frame import Frame
from stompkit.frames._grammar import (
    AFTER_LOGIN,
    BEFORE_LOGIN,
    VERSIONS,
    Limits,
    Tolerance,
    Version,
)
from stompkit.frames._heartbeat import HeartBeat, HeartBeatOffer, parse_heart_beat
from stompkit.frames._states import TRANSITIONS, State

__all__ = ["Session"]

_CLIENT, _SERVER = Role.CLIENT, Role.SERVER

#: Required headers by version and command: one look-up on the hot path.
_REQUIRED: Final[dict[Version, dict[str, tuple[tuple[str, ...], ...]]]] = {
    version: {
        row.name: row.required[version] for row in COMMANDS.values() if version in row.required
    }
    for version in VERSIONS
}

#: The frames that keep the state of a connected session, each with its required headers. All
#: others, and those with alternative headers, take the slow path.
_USUAL: Final[dict[tuple[Role, Version], dict[str, tuple[str, ...]]]] = {
    (role, version): {
        command: tuple(names[0] for names in _REQUIRED[version][command])
        for command, following in TRANSITIONS[role, State.CONNECTED].items()
        if following is State.CONNECTED
        and command in _REQUIRED[version]
        and all(len(names) == 1 for names in _REQUIRED[version][command])
    }
    for role in Role
    for version in VERSIONS
}


class Session:
    """One end of a STOMP connection.

    ``heart_beat`` holds the intervals that this end offers and wants, in milliseconds. ``now`` is
    always the time in seconds on a monotonic clock that the owner chooses.

    Bytes that arrive after DISCONNECT (at the server) or after ERROR (at either end) are dropped
    unread.

    With ``eol`` a line feed follows the NUL of each frame that is sent.

    A server passes input to :meth:`receive` and answers CONNECT with :meth:`accept`; a client
    begins with :meth:`connect`. Both use :meth:`send` for every other frame.
    """

    def __init__(
        self,
        role: Role,
        now: float = 0.0,
        *,
        versions: tuple[Version, ...] = VERSIONS,
        heart_beat: HeartBeatOffer = (0, 0),
        limits: Limits = AFTER_LOGIN,
        limits_before_login: Limits = BEFORE_LOGIN,
        tolerance: Tolerance = Tolerance.NONE,
        eol: bool = False,
    ) -> None:
        """Start in the state OPENING."""
        self.role = role
        self.state = State.OPENING
        self.version: Version | None = None
        self.heart_beat = HeartBeat(now)
        self._offer = heart_beat
        self._peer_offer: HeartBeatOffer = (0, 0)
        self._peer = _SERVER if role is _CLIENT else _CLIENT
        self._versions = versions
        self._limits = limits
        self._early_limit = limits_before_login.max_frame_bytes
        self._tolerance = tolerance
        self._eol = eol
        self._decoder = FrameDecoder(
            limits=limits_before_login if role is _SERVER else limits, tolerance=tolerance
        )
        self._early = bytearray()
        self._usual: dict[str, tuple[str, ...]] = {}
        self._error: RemoteProtocolError | None = None

    # Receiving.

    def receive(self, data: bytes, now: float) -> list[Frame]:
        """Return the frames that *data* completes, checked against the table of states.

        Raises :class:`RemoteProtocolError` as :meth:`FrameDecoder.feed` does: after the frames
        before the error have been returned. Therefore call again with ``b""`` until the list is
        empty. A CONNECT or CONNECTED frame is returned alone.
        """
        if data:
            self.heart_beat.last_received = now
        if self._error is not None:
            raise self._error
        if self._is_deaf():
            return []
        if self.role is _SERVER and self.state is State.CONNECTING:
            return self._hold(data)
        if self._early:
            data = bytes(self._early) + data
            self._early.clear()
        return self._checked(self._decoder.feed(data))

    @property
    def missing_bytes(self) -> int:
        """Number of bytes that complete the frame being received; 0 if that is unknown."""
        return self._decoder.missing_bytes

    def receive_eof(self) -> None:
        """Record the end of the stream; raises :class:`RemoteProtocolError` within a frame."""
        # Frames that a client sent before CONNECTED are never read: their completeness does not
        # matter.
        deaf = self._is_deaf() or (self.role is _SERVER and self.state is State.CONNECTING)
        self.state = State.CLOSED
        if not deaf:
            self._decoder.eof()

    def _is_deaf(self) -> bool:
        state = self.state
        return (
            state is State.FAILED
            or state is State.CLOSED
            or (state is State.DISCONNECTING and self.role is _SERVER)
        )

    def _hold(self, data: bytes) -> list[Frame]:
        """Buffer bytes that a client sends before CONNECTED until its version is negotiated."""
        self._early += data
        if len(self._early) > self._early_limit:
            self._error = refusal(
                f"more than {self._early_limit} octets sent before CONNECTED", "frame-too-large"
            )
            raise self._error
        return []

    def _checked(self, frames: list[Frame]) -> list[Frame]:
        index = first_unusual(frames, 0, self._usual)
        while index < len(frames):
            frame = frames[index]
            try:
                self._check(frame)
            except RemoteProtocolError as error:
                self._error = error
                if index == 0:
                    raise
                return frames[:index]
            index += 1
            if self._is_deaf():
                return frames[:index]
            index = first_unusual(frames, index, self._usual)
        return frames

    def _check(self, frame: Frame) -> None:
        """Check one frame and make its state transition."""
        command = frame.command
        following = TRANSITIONS[self._peer, self.state].get(command)
        if following is None:
            raise self._unexpected(frame)
        if self.version is not None:
            self._check_headers(frame, self.version)
        elif command != "ERROR":
            self._negotiate(frame)
        self.state = following
        self._usual = {}
        if following is State.CONNECTED:
            self._usual = _USUAL[self._peer, self.version or "1.0"]

    def _check_headers(self, frame: Frame, version: Version) -> None:
        required = _REQUIRED[version].get(frame.command)
        if required is None:
            raise refusal(
                f"STOMP {version} has no {frame.command} frame",
                "unknown-command",
                receipt=frame.headers.get("receipt"),
            )
        for names in required:
            if not any(name in frame.headers for name in names):
                raise self._missing(frame, names)

    def _unexpected(self, frame: Frame) -> RemoteProtocolError:
        if self.state is State.OPENING and self.role is _SERVER:
            message = f"the first frame must be CONNECT, not {frame.command}"
        else:
            message = f"unexpected {frame.command} frame: the session is {self.state.value}"
        return refusal(message, "unexpected-frame", receipt=frame.headers.get("receipt"))

    def _missing(self, frame: Frame, names: tuple[str, ...]) -> RemoteProtocolError:
        return refusal(
            f"{frame.command} needs the header {' or '.join(names)} on STOMP {self.version}",
            "missing-header",
            receipt=frame.headers.get("receipt"),
        )

    def _negotiate(self, frame: Frame) -> None:
        """Read the version and heart-beat headers of CONNECT or CONNECTED."""
        headers = frame.headers
        if self.role is _SERVER:
            version = self._highest_common(headers.get("accept-version", "1.0"))
        else:
            version = self._answered(headers.get("version", "1.0"))
        if version != "1.0":  # where the header means nothing
            try:
                self._peer_offer = parse_heart_beat(headers.get("heart-beat"))
            except ValueError as error:
                raise refusal(str(error), "bad-heart-beat") from None
        self.version = version
        if self.role is _CLIENT:
            self._begin(version)

    def _highest_common(self, accept_version: str) -> Version:
        """Pick the version of the session (1.2, "Protocol Negotiation")."""
        offered = {word.strip(" ") for word in accept_version.split(",")}
        for version in reversed(VERSIONS):
            if version in offered and version in self._versions:
                return version
        supported = ",".join(self._versions)
        raise refusal(
            f"no common protocol version: supported are {supported.replace(',', ' ')}",
            "no-common-version",
            extra={"version": supported},
        )

    def _answered(self, version: str) -> Version:
        for known in self._versions:
            if version == known:
                return known
        raise refusal(
            f"the server answered with version {version[:20]!a}, which was not offered",
            "no-common-version",
        )

    def _begin(self, version: Version) -> None:
        self.heart_beat.negotiate(self._offer, self._peer_offer, version)
        self._decoder.negotiated(version, self._limits)

    # Sending.

    def connect(self, headers: dict[str, str], now: float) -> bytes:
        """Encode the client's CONNECT; versions and heart-beats are added to ``headers``."""
        own = {"accept-version": ",".join(self._versions), "heart-beat": self._offered()}
        return self.send(Frame("CONNECT", {**own, **headers}), now)

    def accept(self, headers: dict[str, str], now: float) -> bytes:
        """Encode the server's CONNECTED; version and heart-beats are added to ``headers``.

        Afterwards call :meth:`receive` with ``b""``: the client may have sent more already.
        Raises :class:`LocalProtocolError` where no CONNECT is waiting for an answer.
        """
        version = self.version
        following = TRANSITIONS[self.role, self.state].get("CONNECTED")
        if version is None or following is None:
            raise LocalProtocolError(
                f"CONNECTED answers CONNECT, and none is waiting: the session is {self.state.value}"
            )
        own: dict[str, str] = {"version": version}
        if version != "1.0":
            own["heart-beat"] = self._offered()
        data = self._encoded(Frame("CONNECTED", {**own, **headers}), following, now)
        self._usual = _USUAL[self._peer, version]
        self._begin(version)
        return data

    def _offered(self) -> str:
        can, wants = self._offer
        return f"{can},{wants}"

    def send(self, frame: Frame, now: float) -> bytes:
        """Check a frame against the table and encode it.

        Raises :class:`LocalProtocolError`, and then nothing has changed.
        """
        following = TRANSITIONS[self.role, self.state].get(frame.command)
        if following is None:
            raise LocalProtocolError(
                f"a {self.role.value} cannot send {frame.command}: the session is"
                f" {self.state.value}"
            )
        # Until CONNECTED the peer does not know the version, so nothing is escaped.
        version = self._decoder.version
        if version is not None:
            required = _REQUIRED[version].get(frame.command)
            if required is None:
                raise LocalProtocolError(f"STOMP {version} has no {frame.command} frame")
            headers = frame.headers
            for names in required:
                if names[0] not in headers and headers.keys().isdisjoint(names):
                    raise LocalProtocolError(f"{frame.command} needs {' or '.join(names)}")
        elif following is State.CONNECTED:
            raise LocalProtocolError("CONNECTED is sent by accept, which settles the version")
        return self._encoded(frame, following, now)

    def _encoded(self, frame: Frame, following: State, now: float) -> bytes:
        data = encode(frame, self._decoder.version, tolerance=self._tolerance, eol=self._eol)
        self.state = following
        self.heart_beat.last_sent = now
        return data
