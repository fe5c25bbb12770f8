"""STOMP over WebSocket (RFC 6455): the broker's protocol on a transport of messages.

A :class:`BrokerProtocol` runs on it exactly as on TCP. To embed it in a program:
``serverFromString(reactor, "tcp:15674").listen(WebSocketFactory(broker_factory))``. It requires
``pip install 'stompkit[websocket]'``.
"""

from __future__ import annotations

from http import HTTPStatus
from ipaddress import IPv6Address as IPv6
from ipaddress import ip_address
from typing import cast

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IHalfCloseableDescriptor,
    IPushProducer,
    IReactorTime,
    ISSLTransport,
    ITCPTransport,
    ITransport,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from wsproto.connection import Connection, ConnectionState
from wsproto.events import (
    BytesMessage,
    CloseConnection,
    Event,
    Message,
    Ping,
    Pong,
    TextMessage,
)
from zope.interface import implementer

from stompkit._common.addresses import address_text
from stompkit.server.interfaces import Clock, Timer
from stompkit.server.listen.origins import Origins
from stompkit.server.listen.protocol import BrokerProtocol
from stompkit.server.listen.stream import StreamTransport
from stompkit.server.log import client_events
from stompkit.server.settings.websocket import WebSocketListener
from stompkit.server.websocket.closing import goodbye
from stompkit.server.websocket.handshake import Handshake, Refused, http_answer
from stompkit.server.websocket.transport import MessageTransport

__all__ = ["WebSocketProtocol"]


@implementer(IPushProducer)
class WebSocketProtocol(Protocol):
    """One client's WebSocket: handshake, messages, pings and closing."""

    def __init__(
        self,
        broker: BrokerProtocol,
        listener: WebSocketListener,
        origins: Origins,
        clock: IReactorTime,
        closing_clock: Clock,
        *,
        linger_s: float,
        drain_timeout_s: float,
    ) -> None:
        """Wait for the transport; ``broker`` is the STOMP protocol on top of it.

        ``clock`` is used for pings, and ``closing_clock`` for closing. Closing may take
        ``linger_s`` seconds, or ``drain_timeout_s`` if the client has requested it.
        """
        self._broker = broker
        self._listener = listener
        self._origins = origins
        self._clock = clock
        self._closing_clock = closing_clock
        self._linger_s = linger_s
        self._drain_timeout_s = drain_timeout_s
        self._handshake: Handshake | None = None
        self._connection: Connection | None = None
        #: Messages to send once the WebSocket is open.
        self._held: list[bytes] = []
        self._is_opening = True
        #: True if the broker's protocol has closed its transport.
        self._is_leaving = False
        #: True if further input is ignored.
        self._ignores_input = False
        #: The close frame to send; None to derive it from the broker's error.
        self._goodbye: CloseConnection | None = None
        self._sends_text = listener.messages != "binary"
        self._is_full = False
        #: The response to the last ping that arrived while the buffer was full.
        self._pong: Pong | None = None
        self._last_received = 0.0
        self._is_pinged = False
        self._ping_timer: IDelayedCall | None = None
        self._end_timer: Timer | None = None

    @property
    def _below(self) -> StreamTransport:
        return cast("StreamTransport", self.transport)

    @property
    def who(self) -> str:
        """The user's name; empty before login."""
        return self._broker.who

    # Called by Twisted.

    def connectionMade(self) -> None:
        """Wait for the request; the broker's login deadline starts now."""
        if ITCPTransport.providedBy(self.transport):
            # One write holds the output of a whole cycle; delaying it (Nagle) has no benefit.
            self.transport.setTcpNoDelay(True)
        below = self._below
        below.registerProducer(self, True)
        self._messages = MessageTransport(self, below)
        host = cast("ITransport", below).getHost()
        self._handshake = Handshake(self._listener, self._origins, on_loopback=_is_loopback(host))
        self._broker.limit_writes(self._listener.max_message_bytes)
        self._broker.makeConnection(  # type: ignore[no-untyped-call]  # Twisted's
            cast("ITransport", self._messages)
        )
        self._is_opening = False

    def dataReceived(self, data: bytes) -> None:
        """Process bytes: first those of the request, then those of messages."""
        if self._ignores_input:
            return
        self._last_received = self._clock.seconds()
        self._is_pinged = False
        if self._handshake is not None:
            self._shake_hands(self._handshake, data)
        else:
            self._receive(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Notify the broker's protocol."""
        self._ignores_input = True
        timers: tuple[Timer | None, ...] = (self._ping_timer, self._end_timer)
        for timer in timers:
            if timer is not None and timer.active():
                timer.cancel()
        self._broker.connectionLost(reason)

    def pauseProducing(self) -> None:
        """Notify the broker's protocol that the transport's buffer is full."""
        self._is_full = True
        if self._messages.producer is not None:
            self._messages.producer.pauseProducing()

    def resumeProducing(self) -> None:
        """Notify the broker's protocol that the transport's buffer is empty."""
        self._is_full = False
        pong, self._pong = self._pong, None
        if pong is not None and self._state is ConnectionState.OPEN:
            self._send(pong)
        if self._messages.producer is not None:
            self._messages.producer.resumeProducing()

    def stopProducing(self) -> None:
        """Do nothing: ``connectionLost`` follows."""

    # The request.

    def _shake_hands(self, handshake: Handshake, data: bytes) -> None:
        outcome = handshake.receive(data)
        if outcome is None:
            return
        self._handshake = None
        if isinstance(outcome, Refused):
            self._broker.refusals.add(
                client_events.websocket_refused,
                peer=address_text(self._below.getPeer()),
                reason=outcome.reason,
            )
            self._below.write(outcome.answer)
            self._hang_up()
            return
        self._connection = outcome.connection
        self._below.write(outcome.answer)
        held, self._held = self._held, []
        for each in held:
            self.send(each)
        if self._is_leaving:
            self._say_goodbye(outcome.connection)
        elif self._listener.ping_interval_s:
            self._look_again(self._listener.ping_interval_s)
        if outcome.rest:
            self._receive(outcome.rest)

    # Input.

    @property
    def _state(self) -> ConnectionState:
        return ConnectionState.CONNECTING if self._connection is None else self._connection.state

    def _receive(self, data: bytes) -> None:
        connection = self._connection
        assert connection is not None  # there has been a request
        connection.receive_data(data)
        pieces: list[bytes] = []
        for event in connection.events():
            if isinstance(event, Message):
                is_text = isinstance(event, TextMessage)
                pieces.append(event.data.encode() if is_text else bytes(event.data))
                if self._listener.messages == "as-received":
                    self._sends_text = is_text
            elif isinstance(event, Ping):
                self._answer_ping(event)
            elif isinstance(event, CloseConnection):
                if connection.state is ConnectionState.REMOTE_CLOSING:
                    # Earlier input, such as DISCONNECT, may make the broker close, too.
                    self._goodbye = event.response()
                self._deliver(pieces)
                self._end_of_messages(connection, event)
                return
        self._deliver(pieces)

    def _deliver(self, pieces: list[bytes]) -> None:
        """Pass on the content of one chunk, from any number of messages."""
        data = b"".join(pieces)
        pieces.clear()
        if data and not self._is_leaving:
            self._broker.dataReceived(data)

    def _answer_ping(self, ping: Ping) -> None:
        if self._is_full:
            # Only the last ping needs a response (5.5.3), so that pings cannot fill the memory.
            self._pong = ping.response()
        elif self._state is ConnectionState.OPEN:
            self._send(ping.response())

    def _end_of_messages(self, connection: Connection, event: CloseConnection) -> None:
        self._ignores_input = True
        if connection.state is ConnectionState.CLOSED:
            # The response to this end's close frame.
            self._drop()
        elif connection.state is ConnectionState.REMOTE_CLOSING:
            # Frames already received are still processed, as for a client that closes its end of
            # TCP.
            self._end_timer = self._closing_clock.callLater(
                self._drain_timeout_s, self._below.abortConnection
            )
            self._broker.readConnectionLost()
        else:
            self._goodbye = event
            if self._is_leaving:
                self._hang_up()
            else:
                self._broker.fail(f"this is no WebSocket: {event.reason}", "websocket-protocol")

    # Output.

    def send(self, data: bytes) -> None:
        """Send the output of the broker's protocol as one message."""
        if self._handshake is not None:
            self._held.append(data)
        elif self._state is ConnectionState.OPEN:
            self._send(self._message(data))

    def _message(self, data: bytes) -> Event:
        if self._sends_text:
            try:
                return TextMessage(data.decode())
            except UnicodeDecodeError:
                # A text message must be UTF-8, which frame bodies need not be.
                pass
        return BytesMessage(data)

    def _send(self, event: Event) -> None:
        assert self._connection is not None  # sending requires an open connection
        self._below.write(self._connection.send(event))

    # Pings.

    def _look_again(self, delay_s: float) -> None:
        self._ping_timer = self._clock.callLater(delay_s, self._look)

    def _look(self) -> None:
        """Send a ping to a silent client, or close the connection if a ping was not answered."""
        interval_s, timeout_s = self._listener.ping_interval_s, self._listener.ping_timeout_s
        now = self._clock.seconds()
        if self._is_full or not self._broker.is_reading or self._broker.has_unread:
            # Either it is unknown if the client is silent, or it is not.
            self._last_received, self._is_pinged = now, False
        if self._is_pinged:
            self._broker.fail(
                f"no answer to a ping within {timeout_s:g} seconds", "heart-beat-timeout"
            )
        elif now < self._last_received + interval_s:
            self._look_again(self._last_received + interval_s - now)
        else:
            self._is_pinged = True
            self._send(Ping())
            self._look_again(timeout_s)

    # Closing.

    def leave(self) -> None:
        """Close on behalf of the broker's protocol, with the matching close code."""
        self._is_leaving = True
        if self._ping_timer is not None and self._ping_timer.active():
            self._ping_timer.cancel()
        if self._connection is not None:
            self._say_goodbye(self._connection)
        elif self._handshake is not None and not self._is_opening:
            # Too late for the handshake. A client over the limit still gets a WebSocket with the
            # error, since a page in a browser cannot read an HTTP response.
            self._handshake = None
            failure = self._broker.failure
            is_late = failure is not None and failure.code == "login-timeout"
            self._below.write(
                http_answer(
                    HTTPStatus.REQUEST_TIMEOUT if is_late else HTTPStatus.SERVICE_UNAVAILABLE,
                    "the connection is closed" if failure is None else failure.message,
                )
            )
            self._hang_up()

    def _say_goodbye(self, connection: Connection) -> None:
        if connection.state is ConnectionState.REMOTE_CLOSING:
            assert self._goodbye is not None  # it is the answer to what the client has said
            self._send(self._goodbye)
            self._drop()
        elif connection.state is ConnectionState.OPEN:
            self._send(self._goodbye or goodbye(self._broker.failure))
            if self._ignores_input:
                self._hang_up()
            else:
                # Wait for the client's close frame. The broker's protocol limits the time.
                self._below.resumeProducing()

    def _drop(self) -> None:
        """Close the transport: both sides have sent a close frame."""
        self._ignores_input = True
        self._below.unregisterProducer()
        self._below.loseConnection()

    def _hang_up(self) -> None:
        """Close the transport, after the client has had time to read the reason."""
        self._ignores_input = True
        below = self._below
        below.unregisterProducer()
        if IHalfCloseableDescriptor.providedBy(below) and not ISSLTransport.providedBy(below):
            below.loseWriteConnection()
        else:
            below.loseConnection()
        self._end_timer = self._closing_clock.callLater(self._linger_s, below.abortConnection)


def _is_loopback(address: IAddress) -> bool:
    if not isinstance(address, IPv4Address | IPv6Address):
        return False
    ip = ip_address(address.host.partition("%")[0])
    # An IPv4 client of an IPv6 socket.
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6) else None
    return ip.is_loopback if mapped is None else mapped.is_loopback
