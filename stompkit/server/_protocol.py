"""The broker's Twisted shell: transports and clocks around the domain."""

from __future__ import annotations

from typing import Final, cast
from typing import Protocol as TypingProtocol

from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IHalfCloseableDescriptor,
    IPushProducer,
    IReactorTime,
    ISSLTransport,
    ITCPTransport,
)
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from stompkit.server._broker import Broker
from stompkit.server._config import BrokerConfig
from stompkit.server._connection import Connection

__all__ = ["BrokerFactory", "BrokerProtocol"]

#: Not an attribute of the protocol's class: its events would hold on to the protocol.
_log: Final = Logger()


class _StreamTransport(TypingProtocol):
    """What the protocol uses of a stream transport, TCP or TLS."""

    def write(self, data: bytes) -> None: ...
    def loseConnection(self) -> None: ...
    def abortConnection(self) -> None: ...
    def loseWriteConnection(self) -> None: ...
    def pauseProducing(self) -> None: ...
    def resumeProducing(self) -> None: ...
    def registerProducer(self, producer: object, streaming: bool) -> None: ...  # noqa: FBT001 (Twisted's)
    def unregisterProducer(self) -> None: ...
    def getPeer(self) -> IAddress: ...


@implementer(IPushProducer)
class BrokerProtocol(Protocol):
    """One client's transport, as the outlet of a :class:`Connection`."""

    def __init__(self, broker: Broker, clock: IReactorTime) -> None:
        """Wait for the transport."""
        self._broker = broker
        self._clock = clock
        self._connection = Connection(broker, self, clock.seconds())
        self._timer: IDelayedCall | None = None
        self._paused = False
        self._closing = False
        self._backlog_bytes = 0

    @property
    def _stream(self) -> _StreamTransport:
        return cast("_StreamTransport", self.transport)

    # What Twisted calls.

    def connectionMade(self) -> None:
        """Begin, with a deadline for CONNECT."""
        if ITCPTransport.providedBy(self.transport):
            # One write holds all of a turn; waiting for more could only delay it.
            self.transport.setTcpNoDelay(True)
        self._stream.registerProducer(self, True)
        self._connection.opened()
        if not self._closing:
            self._timer = self._clock.callLater(
                self._broker.config.login_timeout_s, self._login_timeout
            )
        self._broker.flush()

    def dataReceived(self, data: bytes) -> None:
        """Hand a chunk to the connection, and end the broker's turn."""
        connection = self._connection
        was_logged_in = connection.is_logged_in
        connection.receive(data, self._clock.seconds())
        self._broker.flush()
        if not was_logged_in and connection.is_logged_in and not self._closing:
            self._schedule()

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Give back what the client had."""
        self._closing = True
        self._cancel()
        self._connection.lost()
        self._broker.flush()

    def pauseProducing(self) -> None:
        """Let messages wait in their queues: the transport's buffer is full."""
        self._paused = True
        self._connection.set_writable(False, self._clock.seconds())

    def resumeProducing(self) -> None:
        """Go on: the transport's buffer is empty."""
        if self._backlog_bytes > self._broker.config.max_reply_backlog_bytes:
            self._stream.resumeProducing()
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

    # What the connection calls: the Outlet.

    def write(self, data: bytes) -> None:
        """Send octets; a client that lets too many replies pile up is not read any more."""
        if self._paused:
            limit = self._broker.config.max_reply_backlog_bytes
            was_over = self._backlog_bytes > limit
            self._backlog_bytes += len(data)
            if self._backlog_bytes > limit and not was_over:
                self._stream.pauseProducing()
        self._stream.write(data)

    def close(self) -> None:
        """Close after what was written, and linger until the client has had time to read it."""
        if self._closing:
            return
        self._closing = True
        self._cancel()
        stream = self._stream
        failure = self._connection.failure
        if failure is not None:
            _log.info(
                "{peer} refused: {code}: {reason}",
                peer=stream.getPeer(),
                code=failure.code,
                reason=failure.message,
            )
        if self._paused:
            # The last frame waits behind others; resumeProducing tells when they are gone.
            timeout_s = self._broker.config.drain_timeout_s
            self._timer = self._clock.callLater(timeout_s, stream.abortConnection)
        else:
            self._close_stream()

    def _close_stream(self) -> None:
        stream = self._stream
        stream.unregisterProducer()
        if IHalfCloseableDescriptor.providedBy(stream) and not ISSLTransport.providedBy(stream):
            # Closing at once would reset the connection where octets of the client are still
            # unread, and the reset would overtake the last frame. TLS can't be half closed: its
            # transport offers what that of TCP beneath it can do.
            stream.loseWriteConnection()
        else:
            stream.loseConnection()
        self._timer = self._clock.callLater(self._broker.config.linger_s, stream.abortConnection)

    # Deadlines.

    def _login_timeout(self) -> None:
        self._timer = None
        seconds = self._broker.config.login_timeout_s
        self._connection.fail(f"no CONNECT within {seconds:g} seconds", "login-timeout")
        self._broker.flush()

    def _schedule(self) -> None:
        """Set the timer for the next heart-beat deadline."""
        self._cancel()
        deadline = self._connection.next_deadline()
        if deadline is not None:
            delay = max(0.0, deadline - self._clock.seconds())
            self._timer = self._clock.callLater(delay, self._on_deadline)

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


class BrokerFactory(Factory):
    """Makes a :class:`BrokerProtocol` for each client; give it to a Twisted endpoint."""

    noisy = False

    def __init__(
        self, config: BrokerConfig | None = None, clock: IReactorTime | None = None
    ) -> None:
        """Make a broker; ``clock`` is the reactor if not given."""
        if clock is None:
            from twisted.internet import reactor

            clock = cast("IReactorTime", reactor)
        self.broker = Broker(config)
        self._clock = clock

    def buildProtocol(self, addr: IAddress | None) -> BrokerProtocol:
        """Make the protocol of one client."""
        protocol = BrokerProtocol(self.broker, self._clock)
        protocol.factory = self
        return protocol
