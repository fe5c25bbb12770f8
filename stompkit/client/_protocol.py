"""One connection to a broker: a session on a transport, with its deadlines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast
from typing import Protocol as TypingProtocol

from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime, ITCPTransport
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from stompkit._common import has_unread
from stompkit.client._errors import BrokerError, LoginRefusedError, PeerSilentError
from stompkit.frames import Frame, RemoteProtocolError, Session, Version

__all__ = ["ClientProtocol", "Owner"]

#: Fraction of the interval: if a heart-beat deadline is checked later than this, the delay was
#: caused by this program and not by the broker.
_LATE: Final = 0.5


class _StreamTransport(TypingProtocol):
    """The interface that the protocol needs from a stream transport, TCP or TLS."""

    def write(self, data: bytes) -> None: ...
    def loseConnection(self) -> None: ...
    def abortConnection(self) -> None: ...
    def pauseProducing(self) -> None: ...
    def resumeProducing(self) -> None: ...
    def registerProducer(self, producer: object, streaming: bool) -> None: ...  # noqa: FBT001 (Twisted's)
    def unregisterProducer(self) -> None: ...


class Owner(TypingProtocol):
    """Receiver of the events of a connection."""

    def logged_in(self, protocol: ClientProtocol, headers: dict[str, str]) -> None:
        """Handle CONNECTED."""

    def received(self, frame: Frame) -> None:
        """Handle MESSAGE or RECEIPT."""

    def writable(self) -> None:
        """Handle a transport that has room again."""

    def ended(self, protocol: ClientProtocol, reason: Exception) -> None:
        """Handle the end of the connection, logged in or not; no event follows."""


@implementer(IPushProducer)
class ClientProtocol(Protocol):
    """The client side of a connection; it sends CONNECT as soon as the transport is connected."""

    def __init__(
        self, session: Session, headers: Mapping[str, str], clock: IReactorTime, owner: Owner
    ) -> None:
        """Wait for the transport; ``headers`` are those of CONNECT."""
        #: True if the transport has room.
        self.is_writable = True
        #: True if an ERROR was received: the frames before it are processed, and none can be sent.
        self.has_failed = False
        self._session = session
        self._headers = dict(headers)
        self._clock = clock
        self._owner = owner
        self._timer: IDelayedCall | None = None
        self._due = 0.0
        self._is_reading = True
        self._has_ended = False

    @property
    def _stream(self) -> _StreamTransport:
        return cast("_StreamTransport", self.transport)

    # Called by the client.

    @property
    def version(self) -> Version:
        """The negotiated STOMP version; 1.0 before."""
        return self._session.version or "1.0"

    def encode(self, frame: Frame) -> bytes:
        """Return a frame's bytes; raises ``LocalProtocolError`` if it cannot be encoded.

        The session has sent the frame then; pass the bytes to :meth:`write_encoded`.
        """
        return self._session.send(frame, self._clock.seconds())

    def write_encoded(self, data: bytes) -> None:
        """Send encoded frames, in the order in which they were encoded."""
        self._stream.write(data)

    def write_all(self, frames: Sequence[Frame]) -> None:
        """Send frames together; after ``LocalProtocolError`` none is sent."""
        now = self._clock.seconds()
        self._stream.write(b"".join([self._session.send(frame, now) for frame in frames]))

    def pause_reading(self) -> None:
        """Pause reading; unread data stays in the network buffers."""
        self._is_reading = False
        self._stream.pauseProducing()

    def resume_reading(self) -> None:
        """Resume reading; the time without heart-beats counts from now."""
        self._is_reading = True
        self._session.heart_beat.last_received = self._clock.seconds()
        self._stream.resumeProducing()

    @property
    def has_unread(self) -> bool:
        """Return True if bytes from the broker wait to be read."""
        return self._is_reading and has_unread(self.transport)

    def close(self) -> None:
        """Close the connection once all written data has been sent."""
        self._stream.unregisterProducer()
        self._stream.loseConnection()

    def abort(self, reason: Exception) -> None:
        """Cut the connection and notify the owner at once."""
        if self.transport is not None:
            self._stream.unregisterProducer()
            self._stream.abortConnection()
        self._end(reason)

    # Called by Twisted.

    def connectionMade(self) -> None:
        """Send CONNECT."""
        if self._has_ended:
            self._stream.abortConnection()
            return
        if ITCPTransport.providedBy(self.transport):
            # Data is written in whole frames; waiting for more would only delay them.
            self.transport.setTcpNoDelay(True)
            self.transport.setTcpKeepAlive(True)
        self._stream.registerProducer(self, True)
        self._stream.write(self._session.connect(self._headers, self._clock.seconds()))
        self._headers.clear()  # the passcode is among them

    def dataReceived(self, data: bytes) -> None:
        """Process received data, and pass complete frames to the owner."""
        try:
            while not self._has_ended:
                frames = self._session.receive(data, self._clock.seconds())
                if not frames:
                    break
                data = b""
                if frames[-1].command == "ERROR":
                    self.has_failed, self.is_writable = True, False
                for frame in frames:
                    if not self._has_ended:
                        self._handle(frame)
        except RemoteProtocolError as error:
            self.abort(error)

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Notify the owner of the end, unless it was notified already."""
        error = reason.value if reason is not None else None
        self._end(error if isinstance(error, Exception) else ConnectionError("connection lost"))

    def pauseProducing(self) -> None:
        """Pause sending: the buffer of the transport is full."""
        self.is_writable = False

    def resumeProducing(self) -> None:
        """Resume sending: the buffer of the transport is empty."""
        self.is_writable = True
        if not self._has_ended:
            self._owner.writable()

    def stopProducing(self) -> None:
        """Do nothing: ``connectionLost`` follows."""

    # Frames and deadlines.

    def _handle(self, frame: Frame) -> None:
        if frame.command == "CONNECTED":
            self._schedule()
            self._owner.logged_in(self, frame.headers)
        elif frame.command != "ERROR":
            self._owner.received(frame)
        else:
            # Some brokers leave the connection open after ERROR, but it is no longer reliable.
            refused = LoginRefusedError if self._session.version is None else BrokerError
            self.abort(refused.of(frame))

    def _schedule(self) -> None:
        deadline = self._session.heart_beat.next_deadline()
        if deadline is not None:
            now = self._clock.seconds()
            self._due = max(deadline, now)
            self._timer = self._clock.callLater(self._due - now, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        beat = self._session.heart_beat
        if not self._is_reading or self.has_unread:
            beat.last_received = now  # while reading is paused, silence does not count
        elif beat.is_dead(now):
            if now - self._due <= beat.receive_s * _LATE:
                silent_s = now - beat.last_received
                self.abort(
                    PeerSilentError(f"the broker has sent nothing for {silent_s:.1f} seconds")
                )
                return
            # This program was busy for so long that heart-beats may be waiting to be read.
            beat.last_received = now - beat.receive_s * (beat.tolerance - 1)
        if beat.must_send(now):
            beat.last_sent = now
            if self.is_writable:  # otherwise the broker has more to read than a heart-beat
                self._stream.write(b"\n")
        self._schedule()

    def _end(self, reason: Exception) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        self.is_writable = False
        self._headers.clear()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._owner.ended(self, reason)
