"""What a protocol on a WebSocket has for a transport."""

from __future__ import annotations

from typing import Protocol, cast

from twisted.internet.interfaces import IAddress, IPushProducer, ITransport
from zope.interface import implementer

from stompkit.server.listen.protocol import StreamTransport

__all__ = ["Carrier", "MessageTransport"]


class Carrier(Protocol):
    """What sends messages."""

    def send(self, data: bytes) -> None:
        """Send octets as one message."""

    def leave(self) -> None:
        """Close behind what was sent."""


@implementer(ITransport)
class MessageTransport:
    """What the broker's protocol has for a transport."""

    disconnecting = False

    def __init__(self, websocket: Carrier, below: StreamTransport) -> None:
        """Have messages sent by ``websocket``, which is on the transport ``below``."""
        self._websocket = websocket
        self._below = below
        #: Whom to tell that there is no room, or that there is again.
        self.producer: IPushProducer | None = None

    def write(self, data: bytes) -> None:
        """Send a message."""
        self._websocket.send(data)

    def writeSequence(self, data: list[bytes]) -> None:  # type: ignore[override]  # fewer types
        """Send pieces in one message."""
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        """Close behind what was sent."""
        self.disconnecting = True
        self._websocket.leave()

    def abortConnection(self) -> None:
        """Close at once."""
        self._below.abortConnection()

    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None:  # noqa: FBT001 (Twisted's)
        """Tell a producer when there is no room."""
        assert streaming, "only push producers"
        self.producer = producer

    def unregisterProducer(self) -> None:
        """Tell nobody any more."""
        self.producer = None

    def pauseProducing(self) -> None:
        """Stop reading."""
        self._below.pauseProducing()

    def resumeProducing(self) -> None:
        """Read again."""
        self._below.resumeProducing()

    def getPeer(self) -> IAddress:
        """The client's address."""
        return self._below.getPeer()

    def getHost(self) -> IAddress:
        """The broker's address."""
        return cast("ITransport", self._below).getHost()

    def fileno(self) -> int:
        """The descriptor of the socket below, or -1."""
        fileno = getattr(self._below, "fileno", None)
        return -1 if fileno is None else int(fileno())

    def getHandle(self) -> object:
        """What has the client's certificate, if it has shown one."""
        handle = getattr(self._below, "getHandle", None)
        return None if handle is None else handle()
