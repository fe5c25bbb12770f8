"""The broker's end of a stream in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.interfaces import (
    IHalfCloseableDescriptor,
    IHalfCloseableProtocol,
    IProducer,
    IProtocol,
    IPushProducer,
    ITransport,
)
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

__all__ = ["HalfCloseableTransport", "MemoryTransport"]


@implementer(ITransport, IPushProducer)
class MemoryTransport:
    """The broker's end of a client's stream.

    It has two buffers, as a socket has: octets from the broker that the client has not read,
    and octets from the client that the broker does not want to read now.
    """

    disconnecting = False

    def __init__(self, clock: Clock, peer: IPv4Address) -> None:
        """Open a stream whose client reads all that comes."""
        self._clock = clock
        self._peer = peer
        self._protocol: IProtocol | None = None
        self._producer: IPushProducer | None = None
        self._producer_paused = False
        self._taken = bytearray()
        self._waiting = bytearray()
        self._inbound = bytearray()
        self._room_bytes: int | None = None
        self._write_closed = False
        self._delivering = False
        self._is_ending = False
        self._read_closed = False
        #: Whether the broker reads what the client sends.
        self.is_read = True
        #: Whether the client has read the end of the broker's stream.
        self.eof = False
        #: Whether the connection is gone, both ways, and whether it was the broker that cut it.
        self.lost = False
        self.aborted = False
        #: How often the broker has handed octets to the transport.
        self.writes = 0

    # The client's side.

    @property
    def unread_bytes(self) -> int:
        """Octets written by the broker that the client has not read."""
        return len(self._waiting)

    def open(self, protocol: IProtocol) -> None:
        """Tell the broker's protocol that it is connected."""
        self._protocol = protocol
        protocol.makeConnection(self)

    def deliver(self, data: bytes) -> None:
        """Take octets from the client, and hand on what the broker wants to read."""
        self._inbound += data
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._inbound and self.is_read and self._protocol is not None:
                chunk = bytes(self._inbound)
                self._inbound.clear()
                self._protocol.dataReceived(chunk)
        finally:
            self._delivering = False
        if self._is_ending and self.is_read and self._protocol is not None:
            self._is_ending = False
            self._read_closed = True
            self._end_read(self._protocol)

    def end(self) -> None:
        """Have the broker see the end of what the client sends, behind all of it."""
        self._is_ending = not self._read_closed
        self.deliver(b"")

    def take(self) -> bytes:
        """The octets that the client has read since the last call."""
        data = bytes(self._taken)
        self._taken.clear()
        return data

    def stop_reading(self, room_bytes: int) -> None:
        """Read no more; ``room_bytes`` waiting octets fill the transport."""
        self._room_bytes = room_bytes
        self._pause_if_full()

    def read_waiting(self) -> None:
        """Read all that waits, which empties the transport's buffer."""
        self._taken += self._waiting
        self._waiting.clear()
        if self._producer is not None and self._producer_paused:
            # As Twisted's, which does not end as long as there is a producer to be asked for more.
            self._producer_paused = False
            self._producer.resumeProducing()
        elif self._write_closed and not self.eof:
            self._ended()
        self.deliver(b"")

    def start_reading(self) -> None:
        """Read all that waits and all that comes."""
        self._room_bytes = None
        self.read_waiting()

    def lose(self, reason: Exception) -> None:
        """End the connection now, both ways."""
        protocol, self._protocol = self._protocol, None
        if protocol is None:
            return
        self.lost = True
        self._inbound.clear()
        if self._producer is not None:
            self._producer.stopProducing()
            self._producer = None
        protocol.connectionLost(Failure(reason))  # type: ignore[no-untyped-call]  # Twisted's

    def _end_read(self, protocol: IProtocol) -> None:
        """Tell the protocol that nothing more comes: here, that both ways are closed."""
        self.lose(ConnectionDone())

    def _pause_if_full(self) -> None:
        if self._room_bytes is None or len(self._waiting) < self._room_bytes:
            return
        if self._producer is not None:
            self._producer_paused = True
            self._producer.pauseProducing()

    def _ended(self) -> None:
        """Let the client see the end of the stream, once it has read what was before it."""
        self.eof = True
        if self.disconnecting or self._read_closed:
            self._lose_soon(ConnectionDone())

    def _lose_soon(self, reason: Exception) -> None:
        # No transport calls connectionLost from within the call that asked for it.
        self._clock.callLater(0, self.lose, reason)

    # The broker's side: what Twisted's transports have.

    def write(self, data: bytes) -> None:
        """Buffer octets for the client; pauses the producer before it returns if that is full."""
        if self.lost or self.eof or not data:
            return
        self.writes += 1
        if self._room_bytes is None:
            self._taken += data
        else:
            self._waiting += data
            self._pause_if_full()

    def writeSequence(self, data: Iterable[bytes]) -> None:
        """Write several pieces."""
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        """Close both ways once the client has read what was written."""
        self.disconnecting = True
        self.is_read = False
        if self.eof:
            self._lose_soon(ConnectionDone())
        else:
            self._close_write()

    def abortConnection(self) -> None:
        """Close both ways at once."""
        if not self.lost:
            self.disconnecting = self.aborted = True
            self._waiting.clear()
            self._lose_soon(ConnectionAborted())

    def _close_write(self) -> None:
        if not self._write_closed:
            self._write_closed = True
            if not self._waiting:
                self._ended()

    def registerProducer(self, producer: IProducer, streaming: bool) -> None:  # noqa: FBT001 (Twisted's)
        """Have a producer paused while the transport is full."""
        assert streaming, "only push producers"
        self._producer = cast("IPushProducer", producer)

    def unregisterProducer(self) -> None:
        """Pause nobody any more."""
        self._producer = None

    def pauseProducing(self) -> None:
        """Stop reading what the client sends."""
        self.is_read = False

    def resumeProducing(self) -> None:
        """Read on; what has waited comes in a turn of its own, as from a real transport."""
        if not self.is_read and (self._inbound or self._is_ending):
            self._clock.callLater(0, self.deliver, b"")
        self.is_read = True

    def stopProducing(self) -> None:
        """Close."""
        self.loseConnection()

    def getPeer(self) -> IPv4Address:
        """The client's address, a made-up one."""
        return self._peer

    def getHost(self) -> IPv4Address:
        """The broker's address, a made-up one."""
        return IPv4Address("TCP", "127.0.0.1", 61613)


@implementer(IHalfCloseableDescriptor)
class HalfCloseableTransport(MemoryTransport):
    """A stream of which one direction can be closed."""

    def loseWriteConnection(self) -> None:
        """Close the direction to the client once it has read what was written."""
        self._close_write()

    def _end_read(self, protocol: IProtocol) -> None:
        """Tell the protocol, which has to close the other direction, as with Twisted's."""
        IHalfCloseableProtocol(protocol).readConnectionLost()

    def readConnectionLost(self, reason: Failure) -> None:
        """Not called: this is what Twisted's reactor tells a transport."""

    def writeConnectionLost(self, reason: Failure) -> None:
        """Not called: nobody closes only the client's end of this direction."""
