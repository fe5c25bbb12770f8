"""The Twisted adapter of a client: its transport and its deadlines around a connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from twisted.internet.interfaces import (
    IHalfCloseableDescriptor,
    IHalfCloseableProtocol,
    IPushProducer,
    IReactorTime,
    ISSLTransport,
    ITCPTransport,
)
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from stompkit._common import PeerDeadline, can_write, has_unread
from stompkit._common.addresses import address_text
from stompkit.frames import RemoteProtocolError
from stompkit.server.domain.broker import Broker
from stompkit.server.domain.session.base import BrokerSession
from stompkit.server.domain.session.connection import Connection
from stompkit.server.interfaces import (
    Clock,
    Outlet,
    Timer,
)
from stompkit.server.listen.fair_poller import ANONYMOUS
from stompkit.server.listen.stream import StreamTransport
from stompkit.server.listen.tcp_transport import LargeFrameServer, read_bytes_of
from stompkit.server.listen.tls import diagnose_plain, diagnose_tls_failure, peer_certificate
from stompkit.server.log import client_events
from stompkit.server.log.rate_limited_log import RateLimitedLog

__all__ = ["BrokerProtocol"]


@implementer(IPushProducer, IHalfCloseableProtocol)
class BrokerProtocol(Protocol):
    """One client's transport, as the outlet of a :class:`Connection`."""

    def __init__(
        self,
        broker: Broker,
        clock: IReactorTime,
        peer: str = "",
        *,
        address: str = "",
        connection: Callable[[Broker, Outlet, float], BrokerSession] = Connection,
        closing_clock: Clock | None = None,
        login_clock: Clock | None = None,
    ) -> None:
        """Wait for the transport; ``peer`` is the address that counts for the client's limits.

        ``address`` is the address with the port, for logs. ``connection`` and ``closing_clock`` are
        as in ``BrokerFactory``. ``login_clock`` is the clock of the deadline for CONNECT, by
        default ``clock``.
        """
        self._broker = broker
        self._clock = clock
        given = cast("Clock", clock)
        self._closing_clock = given if closing_clock is None else closing_clock
        self._login_clock = given if login_clock is None else login_clock
        self.peer = peer
        self.address = address
        #: The user's name, empty before login: see :mod:`stompkit.server.listen.fair_poller`.
        self.who = ""
        self._connection = connection(broker, self, clock.seconds())
        self._timer: Timer | PeerDeadline | None = None
        self._paused = False
        self._closing = False
        self._backlog_bytes = 0
        #: True while reading is suspended, since the connection waits; the flag for too many
        #: pending replies follows.
        self._is_suspended = False
        self._is_choked = False
        self._read_ended = False
        self._half_closed = False
        self._is_new = True
        #: The transport, if it lets the protocol choose the size of reads.
        self._large_frames: LargeFrameServer | None = None

    @property
    def _address(self) -> str:
        # A protocol without a factory, as in tests, learns it from its transport.
        return self.address or address_text(self._stream.getPeer())

    @property
    def _stream(self) -> StreamTransport:
        return cast("StreamTransport", self.transport)

    def limit_writes(self, limit_bytes: int) -> None:
        """Limit the size in bytes of a write that contains several frames."""
        self._connection.limit_writes(limit_bytes)

    # Called by Twisted.

    def connectionMade(self) -> None:
        """Start the session, with a deadline for CONNECT."""
        if ITCPTransport.providedBy(self.transport):
            # One write holds the output of a whole cycle; delaying it (Nagle) has no benefit.
            self.transport.setTcpNoDelay(True)
        transport: object = self.transport
        if isinstance(transport, LargeFrameServer):
            self._large_frames = transport
        self._stream.registerProducer(self, True)
        self._connection.opened()
        if not self._closing:
            self._give_time(
                self._login_clock,
                self._broker.config.login_timeout_s,
                lambda: self.has_unread,
                self._login_timeout,
            )
        self._broker.flush()

    def dataReceived(self, data: bytes) -> None:
        """Pass a chunk to the connection, and end the broker's cycle."""
        connection = self._connection
        if self._is_new:
            self._is_new = False
            mistake = diagnose_plain(data)
            if mistake is not None:
                connection.fail(mistake, "wrong-protocol")
        connection.receive(data, self._clock.seconds())
        if self._large_frames is not None:
            self._large_frames.read_bytes = read_bytes_of(connection.missing_bytes)
        self._broker.flush()

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Release the client's messages and subscriptions."""
        mistake = None if reason is None else diagnose_tls_failure(reason)
        if mistake is not None:
            self.refusals.add(client_events.tls_failed, peer=self._address, reason=mistake)
        self._closing = True
        self._cancel()
        self._connection.lost()
        self._broker.flush()

    def readConnectionLost(self) -> None:
        """Answer the frames sent before the client closed its end, then close this end."""
        self._read_ended = True
        if self._half_closed:
            # This end was closed first. Twisted leaves it to the protocol to close the connection
            # then.
            self._stream.loseConnection()
            return
        self._connection.ended(self._clock.seconds())
        self._broker.flush()

    def writeConnectionLost(self) -> None:
        """Do nothing: this end was closed by :meth:`close`."""

    def pauseProducing(self) -> None:
        """Keep messages in their queues: the transport's buffer is full."""
        self._paused = True
        self._connection.set_writable(False, self._clock.seconds())

    def resumeProducing(self) -> None:
        """Resume writing: the transport's buffer is empty."""
        if self._is_choked:
            self._is_choked = False
            self._read_or_not()
        self._paused = False
        self._backlog_bytes = 0
        if self._closing:
            self._cancel()
            self._close_stream()
            return
        self._connection.set_writable(True, self._clock.seconds())
        self._broker.flush()

    def stopProducing(self) -> None:
        """Do nothing: ``connectionLost`` follows."""

    # Called by a transport that knows more about the client than a stream does.

    @property
    def refusals(self) -> RateLimitedLog:
        """The log of refused clients."""
        return self._broker.refusals

    @property
    def failure(self) -> RemoteProtocolError | None:
        """The error for which the connection was closed, if any."""
        return self._connection.failure

    def fail(self, message: str, code: str) -> None:
        """Send ERROR and close."""
        self._connection.fail(message, code)
        self._broker.flush()

    # Called by the connection: the Outlet.

    def write(self, data: bytes) -> None:
        """Send bytes; stop reading from a client with too many pending replies."""
        if self._paused:
            self._add_to_backlog(len(data))
        self._stream.write(data)

    def write_pieces(self, pieces: list[bytes]) -> None:
        """Send pieces as :meth:`write` does, without joining them first."""
        if self._paused:
            self._add_to_backlog(sum(map(len, pieces)))
        self._stream.writeSequence(pieces)

    def _add_to_backlog(self, size: int) -> None:
        self._backlog_bytes += size
        over = self._backlog_bytes > self._broker.config.max_reply_backlog_bytes
        if over and not self._is_choked:
            self._is_choked = True
            self._read_or_not()

    def logged_in(self) -> None:
        """Replace the deadline for CONNECT by those of heart-beats."""
        self.who = self._connection.user.name or ANONYMOUS
        self._schedule()

    @property
    def is_reading(self) -> bool:
        """True if the client's bytes are read as they arrive."""
        return not (self._is_suspended or self._is_choked)

    @property
    def has_unread(self) -> bool:
        """Return True if bytes of the client wait in the kernel."""
        return has_unread(self.transport)

    def pause(self) -> None:
        """Stop reading from the client, until :meth:`resume`."""
        self._is_suspended = True
        self._read_or_not()

    def resume(self) -> None:
        """Resume reading from the client."""
        self._is_suspended = False
        self._read_or_not()

    def _read_or_not(self) -> None:
        if self._read_ended:
            return
        if self.is_reading:
            self._stream.resumeProducing()
        else:
            self._stream.pauseProducing()

    def certificate(self) -> bytes | None:
        """Return the client's verified TLS certificate as DER, or None if it presented none."""
        return peer_certificate(self.transport)

    def close(self) -> None:
        """Close after the output is sent, and linger until the client has had time to read it."""
        if self._closing:
            return
        self._closing = True
        self._cancel()
        if self._is_suspended:
            # Unread bytes would reset the connection, and are no longer needed.
            self.resume()
        stream = self._stream
        failure = self._connection.failure
        if failure is not None:
            connection = self._connection
            self.refusals.add(
                client_events.client_refused,
                peer=self._address,
                code=failure.code,
                reason=failure.message,
                user=connection.user.name or connection.claimed_user,
                destination=connection.refused_destination,
            )
        if self._paused:
            # The last frame waits behind others; resumeProducing is called when they are sent.
            self._give_time(
                self._closing_clock,
                self._broker.config.drain_timeout_s,
                lambda: can_write(stream),
                stream.abortConnection,
            )
        else:
            self._close_stream()

    def _close_stream(self) -> None:
        stream = self._stream
        stream.unregisterProducer()
        half_closes = IHalfCloseableDescriptor.providedBy(stream) and not self._read_ended
        if half_closes and not ISSLTransport.providedBy(stream):
            # Closing at once would reset the connection if bytes of the client are unread, and the
            # reset would overtake the last frame. TLS cannot be half-closed: its transport offers
            # the methods of the TCP transport beneath it.
            self._half_closed = True
            stream.loseWriteConnection()
        else:
            stream.loseConnection()
        linger_s = self._broker.config.linger_s
        self._timer = self._closing_clock.callLater(linger_s, stream.abortConnection)

    # Deadlines.

    def _give_time(
        self,
        clock: Clock,
        delay_s: float,
        has_moved: Callable[[], bool],
        end: Callable[[], object],
    ) -> None:
        """Limit the time of the client; ``has_moved`` returns True if unprocessed input waits."""
        self._timer = deadline = PeerDeadline(clock, has_moved, end)
        deadline.start(delay_s)

    def _login_timeout(self) -> None:
        self._timer = None
        seconds = self._broker.config.login_timeout_s
        what = "the login was not checked" if self._connection.is_login_pending else "no CONNECT"
        self._connection.fail(f"{what} within {seconds:g} seconds", "login-timeout")
        self._broker.flush()

    def _schedule(self) -> None:
        """Set the timer for the next heart-beat deadline."""
        self._cancel()
        deadline = self._connection.next_deadline()
        if deadline is not None:
            delay = max(0.0, deadline - self._clock.seconds())
            clock = cast("Clock", self._clock)
            self._timer = clock.callLater(delay, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        self._connection.on_deadline(self._clock.seconds())
        self._broker.flush()
        if not self._closing:
            self._schedule()

    def _cancel(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
