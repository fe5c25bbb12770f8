"""The client's side of WebSocket over another layer, without I/O."""

from __future__ import annotations

from urllib.parse import quote

from wsproto import WSConnection
from wsproto.connection import ConnectionState, ConnectionType
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Message,
    Ping,
    RejectConnection,
    Request,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import RemoteProtocolError

from stompkit.frames import VERSIONS
from stompkit.testing.launching.address import format_address
from stompkit.testing.launching.place import Place
from stompkit.testing.tunnel.layers import Layer

__all__ = ["WebSocket"]

#: Characters of a path that are not escaped, beside letters and digits.
_SAFE = "%/?:@!$&'()*+,;=~"
_SUBPROTOCOLS = [f"v{version.replace('.', '')}.stomp" for version in VERSIONS[::-1]]


class WebSocket(Layer):
    """A WebSocket that carries STOMP: one binary message for each piece that is sent."""

    def __init__(self, below: Layer, place: Place) -> None:
        """Prepare the request that opens the WebSocket; ``answers`` has it."""
        self._below = below
        self._connection = WSConnection(ConnectionType.CLIENT)
        host = format_address(place.host, place.port)
        self._answers = bytearray()
        target = quote(place.path, safe=_SAFE)
        self._send(Request(host=host, target=target, subprotocols=_SUBPROTOCOLS))
        self.is_open = False
        """True if the broker has accepted the request."""
        self._has_ended = False

    def wrap(self, octets: bytes) -> bytes:
        """Return the bytes of a message; nothing if the WebSocket is being closed."""
        if self._connection.state is not ConnectionState.OPEN:
            return b""
        return self._below.wrap(self._connection.send(BytesMessage(data=octets)))

    def unwrap(self, octets: bytes) -> tuple[bytes, bool]:
        """Decode bytes; raises ValueError if they are not those of a WebSocket."""
        came, is_over = self._below.unwrap(octets)
        if came and not self._has_ended:
            try:
                self._connection.receive_data(came)
                found = b"".join(map(self._content, self._connection.events()))
            except RemoteProtocolError as error:
                raise ValueError(
                    f"it does not speak the protocol of WebSockets ({error})"
                ) from None
            return found, is_over or self._has_ended
        return b"", is_over or self._has_ended

    def answers(self) -> bytes:
        """Return the bytes that the layer itself has to send now."""
        sent, self._answers = bytes(self._answers), bytearray()
        return sent + self._below.answers()

    def last(self) -> bytes:
        """Return the close frame, unless one was sent before."""
        if self._connection.state is ConnectionState.OPEN:
            self._send(CloseConnection(code=CloseReason.NORMAL_CLOSURE))
        return self.answers()

    def _send(self, event: Event) -> None:
        self._answers += self._below.wrap(self._connection.send(event))

    def _content(self, event: Event) -> bytes:
        """Handle an event; return the STOMP bytes in it."""
        if isinstance(event, Message):
            return event.data.encode() if isinstance(event.data, str) else bytes(event.data)
        if isinstance(event, AcceptConnection):
            self.is_open = True
        elif isinstance(event, RejectConnection):
            raise ValueError(
                f"it answers the handshake of WebSockets with 'HTTP/1.1 {event.status_code}': name"
                " the port and the path where it speaks STOMP over WebSockets"
            )
        elif isinstance(event, Ping) and self._connection.state is ConnectionState.OPEN:
            self._send(event.response())
        elif isinstance(event, CloseConnection):
            self._close(event)
        return b""

    def _close(self, event: CloseConnection) -> None:
        """Handle the end of the WebSocket; raises ValueError if an invalid frame is its cause."""
        self._has_ended = True
        if self._connection.state is ConnectionState.OPEN:
            raise ValueError(f"it sends an invalid frame of WebSockets ({event.reason})")
        if self._connection.state is ConnectionState.REMOTE_CLOSING:
            self._send(event.response())
