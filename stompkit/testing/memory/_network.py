"""An in-memory network between Twisted programs and brokers, driven by tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar, cast

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IProtocol,
    IProtocolFactory,
    IPushProducer,
    IStreamClientEndpoint,
    ITransport,
)
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from stompkit.testing.memory._broker import MemoryBroker
from stompkit.testing.memory._client import MemoryClient

__all__ = ["ADDRESS", "ClientTransport", "MemoryEndpoint", "MemoryNetwork", "outcome_of"]

_T = TypeVar("_T")

#: The address of all peers.
ADDRESS = IPv4Address("TCP", "127.0.0.1", 61613)


@implementer(ITransport, IPushProducer)
class ClientTransport:
    """The client's end of a stream, with the interface of Twisted's transports."""

    disconnecting = False

    def __init__(self, clock: Clock) -> None:
        """Open a stream whose buffer is not full."""
        self.outgoing = bytearray()
        self.incoming = bytearray()
        self.protocol: IProtocol | None = None
        #: True if the buffer is full.
        self.is_full = False
        self.lost = False
        self.aborted = False
        self._clock = clock
        self._producer: IPushProducer | None = None
        self._is_read = True

    # Called by the network.

    def reads(self) -> bool:
        """Return True if the client reads."""
        return self._is_read

    def open(self, protocol: IProtocol) -> None:
        """Notify the client's protocol of the connection."""
        self.protocol = protocol
        protocol.makeConnection(self)

    def deliver(self) -> bool:
        """Deliver received data to the client, if it reads; return False if there was none."""
        if not self.incoming or not self._is_read or self.protocol is None:
            return False
        data = bytes(self.incoming)
        self.incoming.clear()
        self.protocol.dataReceived(data)
        return True

    def stop_taking(self) -> None:
        """Mark the transport's buffer as full."""
        self.is_full = True
        if self._producer is not None:
            self._producer.pauseProducing()

    def start_taking(self) -> None:
        """Mark the transport's buffer as empty."""
        self.is_full = False
        if self._producer is not None:
            self._producer.resumeProducing()

    def lose(self, reason: Exception) -> None:
        """Close the connection in both directions."""
        protocol, self.protocol = self.protocol, None
        if protocol is not None:
            self.lost = True
            self.incoming.clear()
            protocol.connectionLost(Failure(reason))  # type: ignore[no-untyped-call]  # Twisted's

    # Called by the client.

    def write(self, data: bytes) -> None:
        """Buffer bytes, even if the buffer is full: the producer must respect that."""
        if not self.lost and not self.disconnecting:
            self.outgoing += data

    def writeSequence(self, data: list[bytes]) -> None:  # type: ignore[override]  # fewer types
        """Write several pieces."""
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        """Close once all data is written and no producer is registered."""
        self.disconnecting = True
        if self._producer is None:
            self._clock.callLater(0, self.lose, ConnectionDone())

    def abortConnection(self) -> None:
        """Close immediately."""
        self.disconnecting = self.aborted = True
        self.outgoing.clear()
        self._clock.callLater(0, self.lose, ConnectionAborted())

    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None:  # noqa: FBT001 (Twisted's)
        """Register a producer, which is paused while the buffer is full."""
        assert streaming
        self._producer = producer

    def unregisterProducer(self) -> None:
        """Unregister the producer."""
        self._producer = None
        if self.disconnecting:
            self._clock.callLater(0, self.lose, ConnectionDone())

    def pauseProducing(self) -> None:
        """Stop reading."""
        self._is_read = False

    def resumeProducing(self) -> None:
        """Read again."""
        self._is_read = True

    def stopProducing(self) -> None:
        """Close."""
        self.loseConnection()

    def getPeer(self) -> IPv4Address:
        """Return a fixed address."""
        return ADDRESS

    def getHost(self) -> IPv4Address:
        """Return a fixed address."""
        return ADDRESS


@implementer(IStreamClientEndpoint)
class MemoryEndpoint:
    """An endpoint for connections to a broker in memory, used as ``HostnameEndpoint`` is."""

    def __init__(self, network: MemoryNetwork, broker: MemoryBroker) -> None:
        """Create an endpoint of a broker."""
        self.broker = broker
        #: True if connections are refused.
        self.is_down = False
        self.lines: list[tuple[ClientTransport, MemoryClient]] = []
        self._network = network
        network.carriers.append(self.carry)
        if broker.clock not in network.clocks:
            network.clocks.append(broker.clock)

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect a client."""
        if self.is_down:
            return fail(OSError("connection refused"))
        transport = ClientTransport(self._network.clock)
        protocol = cast("IProtocol", factory.buildProtocol(ADDRESS))
        self.lines.append((transport, self.broker.connect()))
        transport.open(protocol)
        return succeed(protocol)

    def carry(self) -> bool:
        """Transfer data in both directions; return True if there was any."""
        moved = False
        for transport, far in list(self.lines):
            if transport.outgoing and not transport.is_full and not far.lost:
                data = bytes(transport.outgoing)
                transport.outgoing.clear()
                far.write(data)
                moved = True
            data = far.transport.take()
            transport.incoming += data
            moved = transport.deliver() or bool(data) or moved
            if transport.lost or far.lost or far.eof:
                self._part(transport, far)
                moved = True
        return moved

    def drop(self) -> None:
        """Simulate a failure of the network: data in transit is lost."""
        for transport, far in list(self.lines):
            self._part(transport, far)

    def _part(self, transport: ClientTransport, far: MemoryClient) -> None:
        self.lines.remove((transport, far))
        far.drop()
        transport.lose(ConnectionLost())


class MemoryNetwork:
    """The connections between programs and brokers, and their clocks.

    Data is transferred, and calls that are due are made, only in :meth:`run`, :meth:`advance` and
    :meth:`wait`.
    """

    def __init__(self) -> None:
        """Start without connections."""
        #: The clock of all participants; pass it to a program as its reactor.
        self.clock = Clock()
        self.clocks = [self.clock]
        #: Functions that transfer data; each returns True if there was any.
        self.carriers: list[Callable[[], bool]] = []

    def broker(self, broker: MemoryBroker | None = None) -> MemoryEndpoint:
        """Add a broker, by default one with default settings, and return its endpoint."""
        return MemoryEndpoint(self, MemoryBroker(clock=self.clock) if broker is None else broker)

    def run(self) -> None:
        """Transfer data until there is none, and make the calls that are due."""
        moved = True
        while moved:
            for clock in self.clocks:
                clock.advance(0)
            moved = any([carry() for carry in self.carriers])

    def advance(self, seconds: float, step_s: float = 1 / 16) -> None:
        """Advance the clocks by at least *seconds*, in small steps that a float can represent."""
        self.run()
        for _ in range(math.ceil(seconds / step_s)):
            for clock in self.clocks:
                clock.advance(step_s)
            self.run()

    def wait(self, deferred: Deferred[_T]) -> _T:
        """Transfer data and return the result of the Deferred, or raise its error.

        Raises AssertionError if it has not fired.
        """
        self.run()
        outcome = outcome_of(deferred)
        if isinstance(outcome, Failure):
            outcome.raiseException()
        return outcome


def outcome_of(deferred: Deferred[_T]) -> _T | Failure:
    """Return the result of a Deferred that has fired; an error counts as handled."""
    outcomes: list[_T | Failure] = []

    def keep(outcome: _T | Failure) -> _T | None:
        outcomes.append(outcome)
        return None if isinstance(outcome, Failure) else outcome

    deferred.addBoth(keep)
    assert outcomes, "the Deferred has not fired"
    return outcomes[0]
