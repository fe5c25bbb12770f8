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

    It has two buffers, as a socket has: data from the broker that the client has not read, and data
    from the client that the broker does not read now.
    """

    disconnecting = False

    def __init__(self, clock: Clock, peer: IPv4Address) -> None:
        """Open a stream whose client reads all data."""
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
        #: True if the broker reads the client's data.
        self.is_read = True
        #: True if the client has read the end of the broker's stream.
        self.eof = False
        #: True if the connection is closed in both directions, and True if the broker aborted it.
        self.lost = False
        self.aborted = False
        #: Number of writes of the broker to the transport.
        self.writes = 0

    # Called by the client.

    @property
    def unread_bytes(self) -> int:
        """Number of bytes written by the broker that the client has not read."""
        return len(self._waiting)

    def open(self, protocol: IProtocol) -> None:
        """Notify the broker's protocol of the connection."""
        self._protocol = protocol
        protocol.makeConnection(self)

    def deliver(self, data: bytes) -> None:
        """Take data from the client, and pass it to the broker if it reads."""
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
        """Deliver the end of the client's stream to the broker, after all its data."""
        self._is_ending = not self._read_closed
        self.deliver(b"")

    def take(self) -> bytes:
        """Return the bytes that the client has read since the last call."""
        data = bytes(self._taken)
        self._taken.clear()
        return data

    def stop_reading(self, room_bytes: int) -> None:
        """Stop reading; the transport is full with ``room_bytes`` unread bytes."""
        self._room_bytes = room_bytes
        self._pause_if_full()

    def read_waiting(self) -> None:
        """Read all buffered data, which empties the transport's buffer."""
        self._taken += self._waiting
        self._waiting.clear()
        if self._producer is not None and self._producer_paused:
            # As in Twisted: the transport does not close while a producer is registered.
            self._producer_paused = False
            self._producer.resumeProducing()
        elif self._write_closed and not self.eof:
            self._ended()
        self.deliver(b"")

    def start_reading(self) -> None:
        """Read all buffered data and all later data."""
        self._room_bytes = None
        self.read_waiting()

    def lose(self, reason: Exception) -> None:
        """Close the connection in both directions immediately."""
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
        """Notify the protocol of the end of the stream: here both directions are closed."""
        self.lose(ConnectionDone())

    def _pause_if_full(self) -> None:
        if self._room_bytes is None or len(self._waiting) < self._room_bytes:
            return
        if self._producer is not None:
            self._producer_paused = True
            self._producer.pauseProducing()

    def _ended(self) -> None:
        """Deliver the end of the stream to the client, after the data before it."""
        self.eof = True
        if self.disconnecting or self._read_closed:
            self._lose_soon(ConnectionDone())

    def _lose_soon(self, reason: Exception) -> None:
        # Transports never call connectionLost from within the call that requested the close.
        self._clock.callLater(0, self.lose, reason)

    # Called by the broker: the interface of Twisted's transports.

    def write(self, data: bytes) -> None:
        """Buffer data for the client; pauses the producer before it returns if this is full."""
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
        """Close both directions once the client has read the data."""
        self.disconnecting = True
        self.is_read = False
        if self.eof:
            self._lose_soon(ConnectionDone())
        else:
            self._close_write()

    def abortConnection(self) -> None:
        """Close both directions immediately."""
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
        """Register a producer, which is paused while the buffer is full."""
        assert streaming, "only push producers"
        self._producer = cast("IPushProducer", producer)

    def unregisterProducer(self) -> None:
        """Unregister the producer."""
        self._producer = None

    def pauseProducing(self) -> None:
        """Stop reading what the client sends."""
        self.is_read = False

    def resumeProducing(self) -> None:
        """Resume reading; buffered data comes in a later iteration, as from a real transport."""
        if not self.is_read and (self._inbound or self._is_ending):
            self._clock.callLater(0, self.deliver, b"")
        self.is_read = True

    def stopProducing(self) -> None:
        """Close."""
        self.loseConnection()

    def getPeer(self) -> IPv4Address:
        """Return the client's address, a fixed one."""
        return self._peer

    def getHost(self) -> IPv4Address:
        """Return the broker's address, a fixed one."""
        return IPv4Address("TCP", "127.0.0.1", 61613)


@implementer(IHalfCloseableDescriptor)
class HalfCloseableTransport(MemoryTransport):
    """A stream whose directions can be closed separately."""

    def loseWriteConnection(self) -> None:
        """Close the direction to the client once it has read the data."""
        self._close_write()

    def _end_read(self, protocol: IProtocol) -> None:
        """Notify the protocol, which must close the other direction, as with Twisted."""
        IHalfCloseableProtocol(protocol).readConnectionLost()

    def readConnectionLost(self, reason: Failure) -> None:
        """Do nothing: only Twisted's reactor calls this method of a transport."""

    def writeConnectionLost(self, reason: Failure) -> None:
        """Do nothing: the client's end of this direction is never closed alone."""
