"""The transport of a protocol on a WebSocket."""

from __future__ import annotations

from typing import Protocol, cast

from twisted.internet.interfaces import IAddress, IPushProducer, ITransport
from zope.interface import implementer

from stompkit.server.listen.stream import StreamTransport

__all__ = ["Carrier", "MessageTransport"]


class Carrier(Protocol):
    """An object that sends messages."""

    def send(self, data: bytes) -> None:
        """Send bytes as one message."""

    def leave(self) -> None:
        """Close after pending messages are sent."""


@implementer(ITransport)
class MessageTransport:
    """The transport of the broker's protocol on a WebSocket."""

    def __init__(self, websocket: Carrier, below: StreamTransport) -> None:
        """Send messages through ``websocket``, which runs on the transport ``below``."""
        self._websocket = websocket
        self._below = below
        #: The producer to notify when the buffer becomes full or empty.
        self.producer: IPushProducer | None = None

    def write(self, data: bytes) -> None:
        """Send a message."""
        self._websocket.send(data)

    def writeSequence(self, data: list[bytes]) -> None:  # type: ignore[override]  # fewer types
        """Send pieces in one message."""
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        """Close after pending messages are sent."""
        self._websocket.leave()

    def abortConnection(self) -> None:
        """Close at once."""
        self._below.abortConnection()

    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None:  # noqa: FBT001 (Twisted's)
        """Register the producer to notify when the buffer is full."""
        assert streaming, "only push producers"
        self.producer = producer

    def unregisterProducer(self) -> None:
        """Unregister the producer."""
        self.producer = None

    def pauseProducing(self) -> None:
        """Stop reading."""
        self._below.pauseProducing()

    def resumeProducing(self) -> None:
        """Resume reading."""
        self._below.resumeProducing()

    def getPeer(self) -> IAddress:
        """Return the client's address."""
        return self._below.getPeer()

    def getHost(self) -> IAddress:
        """Return the broker's address."""
        return cast("ITransport", self._below).getHost()

    def fileno(self) -> int:
        """Return the descriptor of the socket below, or -1."""
        fileno = getattr(self._below, "fileno", None)
        return -1 if fileno is None else int(fileno())

    def getHandle(self) -> object:
        """Return the handle that has the client's certificate, if it presented one."""
        handle = getattr(self._below, "getHandle", None)
        return None if handle is None else handle()
