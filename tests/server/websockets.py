"""In-memory clients of STOMP over WebSocket: wsproto for the client, and the broker's port."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Message,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

from stompkit.frames import AFTER_LOGIN, Frame, FrameDecoder, Tolerance
from stompkit.server import Authenticator, BrokerConfig, BrokerFactory
from stompkit.server.settings.websocket import WebSocketListener
from stompkit.server.websocket import WebSocketFactory
from stompkit.testing.memory import MemoryTransport

__all__ = ["CONNECT", "SUBPROTOCOLS", "WebSocketBroker", "WebSocketClient"]

CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
SUBPROTOCOLS = ("v12.stomp", "v11.stomp", "v10.stomp")
_PORT = 15_674


class Transport(MemoryTransport):
    """The broker's end of a client's stream, at an address chosen by the test."""

    host = "127.0.0.1"

    def getHost(self) -> IPv4Address:
        """Return the address that the client has connected to."""
        return IPv4Address("TCP", self.host, _PORT)


class WebSocketBroker:
    """A broker with one port; its clock advances on request only."""

    def __init__(
        self,
        config: BrokerConfig | None = None,
        *,
        authenticator: Authenticator | None = None,
        **listener: object,
    ) -> None:
        """Create the broker; ``listener`` are settings of :class:`WebSocketListener`."""
        self.clock = Clock()
        clock = cast("IReactorTime", self.clock)
        self.factory = BrokerFactory(config, clock, authenticator=authenticator)
        self.factory.broker.open()
        settings = WebSocketListener(endpoint="tcp:0", **listener)  # type: ignore[arg-type]  # theirs
        self._websockets = WebSocketFactory(self.factory, settings, clock)
        self._last_port = 50_000

    def stream(self, *, at: str = "127.0.0.1") -> Transport:
        """Return a stream without any data; ``at`` is the broker's address."""
        self._last_port += 1
        peer = IPv4Address("TCP", "127.0.0.1", self._last_port)
        transport = Transport(self.clock, peer)
        transport.host = at
        transport.open(self._websockets.buildProtocol(peer))
        return transport

    def connect(self, subprotocols: Sequence[str] = SUBPROTOCOLS) -> WebSocketClient:
        """Return a WebSocket without any messages."""
        client = WebSocketClient(self, self.stream())
        client.ask(subprotocols)
        return client

    def client(self, connect: str | bytes = CONNECT) -> WebSocketClient:
        """Return a client that has logged in, with a text or binary message."""
        client = self.connect()
        client.send(connect)
        [connected] = client.take()
        assert connected.command == "CONNECTED"
        return client


class WebSocketClient:
    """A client, with everything that it has received."""

    def __init__(self, broker: WebSocketBroker, transport: Transport) -> None:
        """Store the stream."""
        self.transport = transport
        self.broker = broker
        self._connection = WSConnection(ConnectionType.CLIENT)
        self._decoder = FrameDecoder("1.2", limits=AFTER_LOGIN, tolerance=Tolerance.RAW_COLON)
        self._frames: list[Frame] = []
        self._given = 0
        #: The messages received, complete.
        self.messages: list[str | bytes] = []
        self._partial: list[str | bytes] = []
        self.accepted: AcceptConnection | None = None
        self.rejected: RejectConnection | None = None
        self.body = b""
        self.closed: CloseConnection | None = None
        self.pings: list[Ping] = []
        self.pongs: list[Pong] = []
        #: True if the client replies to pings and closes.
        self.is_polite = True

    # Sending.

    def ask(
        self,
        subprotocols: Sequence[str] = SUBPROTOCOLS,
        *,
        host: str = "127.0.0.1:15674",
        target: str = "/",
        headers: Iterable[tuple[bytes, bytes]] = (),
        origin: str | None = None,
    ) -> None:
        """Send the upgrade request."""
        extra = list(headers)
        if origin is not None:
            extra.append((b"Origin", origin.encode()))
        self.event(
            Request(host=host, target=target, subprotocols=list(subprotocols), extra_headers=extra)
        )

    def event(self, event: Event) -> None:
        """Send an event of wsproto."""
        self.raw(self._connection.send(event))

    def raw(self, data: bytes) -> None:
        """Send bytes, and process the replies."""
        self.transport.deliver(data)
        self.look()

    def send(self, data: str | bytes, *, is_last: bool = True) -> None:
        """Send a message, or a fragment of one."""
        self.event(message(data, is_last=is_last))

    def octets(self, data: str | bytes, *, is_last: bool = True) -> bytes:
        """Return a message, or a fragment of one, as sent on the wire."""
        return self._connection.send(message(data, is_last=is_last))

    def close_octets(self, code: int) -> bytes:
        """Return a close frame, as sent on the wire."""
        return self._connection.send(CloseConnection(code))

    def subscribe(self, destination: str = "/queue/a", ack: str = "auto") -> None:
        """Subscribe with a binary message."""
        self.send(f"SUBSCRIBE\nid:0\ndestination:{destination}\nack:{ack}\n\n\0".encode())

    # Receiving.

    def look(self) -> None:
        """Process received data, and reply as a client does."""
        data = self.transport.take()
        if data:
            self._connection.receive_data(data)
        for event in list(self._connection.events()):
            self._take(event)

    def take(self, command: str | None = None) -> list[Frame]:
        """Return the frames since the last call, or only those of one command."""
        self.look()
        new = self._frames[self._given :]
        self._given = len(self._frames)
        return [frame for frame in new if command is None or frame.command == command]

    def code(self) -> int | None:
        """Return the close code, or ``None`` if the connection is not closed."""
        self.look()
        return None if self.closed is None else int(self.closed.code)

    @property
    def lost(self) -> bool:
        """True if the connection ended without a timeout."""
        self.broker.clock.advance(0)
        return self.transport.lost

    def _take(self, event: Event) -> None:
        if isinstance(event, AcceptConnection):
            self.accepted = event
        elif isinstance(event, RejectConnection):
            self.rejected = event
        elif isinstance(event, RejectData):
            self.body += event.data
        elif isinstance(event, Message):
            self._take_message(event)
        elif isinstance(event, Ping):
            self.pings.append(event)
            if self.is_polite:
                self.event(event.response())
        elif isinstance(event, Pong):
            self.pongs.append(event)
        elif isinstance(event, CloseConnection):
            self.closed = event
            if self.is_polite and self._connection.state.name == "REMOTE_CLOSING":
                self.event(event.response())

    def _take_message(self, event: Message[Any]) -> None:
        data = event.data if isinstance(event.data, str) else bytes(event.data)
        self._partial.append(data)
        octets = data.encode() if isinstance(data, str) else data
        while frames := self._decoder.feed(octets):
            octets = b""
            self._frames += frames
        if event.message_finished:
            parts, self._partial = self._partial, []
            empty: str | bytes = "" if isinstance(data, str) else b""
            self.messages.append(empty.join(parts))  # type: ignore[arg-type]  # all of one kind


def message(data: str | bytes, *, is_last: bool = True) -> Event:
    """Return a message event of wsproto."""
    if isinstance(data, str):
        return TextMessage(data, message_finished=is_last)
    return BytesMessage(data, message_finished=is_last)
