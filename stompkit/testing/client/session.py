"""A STOMP session of a client for tests: opening, closing and raw frames."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from stompkit._common.clock import monotonic
from stompkit.frames import (
    VERSIONS,
    Frame,
    HeartBeatOffer,
    Tolerance,
    Version,
    encode,
    parse_heart_beat,
)
from stompkit.testing.client.errors import ClientFailureError, RefusedError
from stompkit.testing.client.stream import ClientStream
from stompkit.testing.frames.timeouts import seconds

__all__ = ["ClientSession", "check_headers"]

_NO_BEATS: Final = "0,0"


class ClientSession:
    """One connection to a broker, without knowledge of the meaning of the frames."""

    def __init__(self, stream: ClientStream, address: str) -> None:
        """Use a connection on which nothing has been sent; prefer a class method."""
        self._stream = stream
        self._address = address
        #: The headers of CONNECTED; empty without a session.
        self.connected: dict[str, str] = {}

    @classmethod
    def open(
        cls,
        host: str,
        port: int,
        *,
        timeout_s: float = 5.0,
        tls: ssl.SSLContext | None = None,
        secrets: tuple[str, ...] = (),
    ) -> Self:
        """Open a connection, with TLS if a context is given, and send nothing on it.

        ``secrets`` are texts that no failure may show. Raises OSError if the broker does not
        accept the connection in time, and ``ssl.SSLError`` if the TLS handshake fails.
        """
        deadline = monotonic() + timeout_s
        connection = socket.create_connection((host, port), timeout_s)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                connection.settimeout(max(0.001, deadline - monotonic()))
                connection = tls.wrap_socket(connection, server_hostname=host)
        except BaseException:
            connection.close()
            raise
        return cls(ClientStream(connection, timeout_s, secrets), f"{host} port {port}")

    @classmethod
    def connect(
        cls,
        host: str,
        port: int,
        *,
        version: str | None = None,
        login: str | None = None,
        passcode: str | None = None,
        vhost: str | None = None,
        heart_beat: str = _NO_BEATS,
        timeout_s: float = 5.0,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """Open a session: CONNECT, CONNECTED.

        ``version`` is the value of ``accept-version``, such as ``"1.1"`` or ``"1.0,1.1"``; by
        default all versions. The header ``host`` is ``vhost``, by default ``host``. ``headers``
        are added to those of CONNECT, or replace them. Without heart-beats their header is left
        out, which means the same: CoilMQ sends and expects heart-beats if it gets the header.

        Raises :class:`RefusedError` if no session is opened, and the errors of :meth:`open`.
        """
        wanted = {
            "accept-version": version or ",".join(VERSIONS),
            "host": host if vhost is None else vhost,
        }
        if login is not None:
            wanted["login"] = login
        if passcode is not None:
            wanted["passcode"] = passcode
        if heart_beat != _NO_BEATS:
            wanted["heart-beat"] = heart_beat
        wanted.update(headers or {})
        check_headers(wanted)
        secret = wanted.get("passcode")
        # A passcode that equals the login is not a secret.
        secrets = () if secret is None or secret == wanted.get("login") else (secret,)
        client = cls.open(host, port, timeout_s=timeout_s, tls=tls, secrets=secrets)
        try:
            client._log_in(wanted)
        except BaseException:
            client.close()
            raise
        return client

    def _log_in(self, headers: dict[str, str]) -> None:
        """Exchange CONNECT for CONNECTED."""
        stream = self._stream
        try:
            self.write_frame(Frame("CONNECT", headers))
            connected = stream.wait(lambda frame: frame.command == "CONNECTED", "CONNECTED")
        except ClientFailureError as failure:
            raise stream.trail.failure(RefusedError, failure.reason, failure.frame) from None
        offered = headers.get("accept-version", "1.0").split(",")
        answered = connected.headers.get("version", "1.0")
        version = stream.version
        if version is None or version != answered or version not in offered:
            reason = f"the broker chose STOMP {answered} where {' or '.join(offered)} was offered"
            raise stream.trail.failure(RefusedError, reason, connected)
        self.connected = connected.headers
        # The client expects no heart-beats: only a client that reads continuously can detect
        # silence.
        can_ms, _ = _heart_beat(headers)
        stream.heart_beat.negotiate((can_ms, 0), _heart_beat(connected.headers), version)

    def __repr__(self) -> str:
        """Return the version and the address."""
        return f"<{type(self).__name__} on STOMP {self.version} to {self._address}>"

    @property
    def version(self) -> Version | None:
        """The version of the session; ``None`` until CONNECTED has come."""
        return self._stream.version

    @property
    def received(self) -> list[Frame]:
        """All frames received so far, including those already taken."""
        return list(self._stream.received)

    @property
    def timeout_s(self) -> float:
        """Timeout of each wait, in seconds."""
        return self._stream.timeout_s

    @timeout_s.setter
    def timeout_s(self, seconds: float) -> None:
        self._stream.timeout_s = seconds

    # Frames.

    def write(self, octets: bytes) -> None:
        """Send bytes unchanged; raises ClientFailureError if the broker does not take them."""
        self._stream.send(octets)

    def write_frame(self, frame: Frame) -> None:
        """Send a frame unchanged, encoded for the version of the session; raises as :meth:`write`.

        Raises LocalProtocolError if the frame cannot be encoded for that version.
        """
        octets = encode(frame, self.version, tolerance=Tolerance.LENIENT)
        self._stream.send(octets, frame)

    def next_frame(self, timeout_s: float | None = None, *, timeout: float | None = None) -> Frame:
        """Return the next frame that was not taken yet, whatever its command.

        ``timeout`` is another name for ``timeout_s``.

        Raises :class:`NothingReceivedError` or :class:`ConnectionLost` if there is none.
        """
        return self._stream.wait(lambda frame: True, "frame", seconds(timeout_s, timeout))

    def wait_for_beat(
        self, timeout_s: float | None = None, *, timeout: float | None = None
    ) -> None:
        """Wait for a heart-beat of the broker; raises as :meth:`next_frame` if none comes."""
        seen = self._stream.beats
        limit_s = seconds(timeout_s, timeout)
        self._stream.wait_until(lambda: self._stream.beats > seen, "heart-beat", limit_s)

    # The end.

    @property
    def is_closed_by_broker(self) -> bool:
        """True if the broker has closed or reset the connection, as far as can be seen now."""
        until = monotonic() + self.timeout_s
        while self._stream.pump(min(until, monotonic())):
            pass
        return self._stream.is_closed_by_broker

    def wait_closed(self, timeout_s: float | None = None, *, timeout: float | None = None) -> None:
        """Wait until the broker ends the connection; the frames that come meanwhile are kept.

        Raises :class:`NothingReceivedError` if it does not.
        """
        stream, limit_s = self._stream, seconds(timeout_s, timeout)
        stream.wait_until(lambda: stream.is_closed_by_broker, "end of the connection", limit_s)

    def close(self) -> None:
        """Close the connection, without DISCONNECT; harmless the second time."""
        self._stream.close()

    def reset(self) -> None:
        """Abort the connection: the broker gets a reset (RST) instead of an end (FIN)."""
        self._stream.reset()

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.close()


def check_headers(headers: Mapping[str, object]) -> None:
    """Raise TypeError for a header that is not text; ``timeout`` is often meant for the wait."""
    for name, value in headers.items():
        if not isinstance(value, str):
            advice = "convert it"
            if name == "timeout":
                advice = "timeout_s of the client limits its waits for answers"
            elif isinstance(value, Mapping):
                advice = "headers={...} adds several"
            shown = "***" if name == "passcode" else repr(value)
            raise TypeError(
                f"header {name!r} is {shown}, which is {type(value).__name__}, not str: {advice}"
            )


def _heart_beat(headers: Mapping[str, str]) -> HeartBeatOffer:
    """Return the numbers of the header; a header that cannot be parsed means no heart-beats."""
    try:
        return parse_heart_beat(headers.get("heart-beat"))
    except ValueError:
        return 0, 0
