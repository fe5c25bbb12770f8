"""A network in memory between clients and brokers: it carries octets only when it is told to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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

from stompkit.client import Client
from stompkit.frames import Frame, FrameDecoder, Version, encode
from stompkit.testing.memory import MemoryBroker, MemoryClient

__all__ = [
    "BrokerEndpoint",
    "Network",
    "Peer",
    "ScriptedEndpoint",
    "failed",
    "online",
    "result",
    "waits",
]

_T = TypeVar("_T")
_E = TypeVar("_E", bound=Exception)
_ADDRESS = IPv4Address("TCP", "127.0.0.1", 61613)


def result(deferred: Deferred[_T]) -> _T:
    """What a Deferred has fired with; fails if it has not, or with an error."""
    outcome = _outcome(deferred)
    if isinstance(outcome, Failure):
        outcome.raiseException()
    return outcome


def failed(deferred: Deferred[_T], kind: type[_E]) -> _E:
    """The error of this kind that a Deferred has failed with."""
    outcome = _outcome(deferred)
    assert isinstance(outcome, Failure), f"the Deferred has succeeded with {outcome!r}"
    assert isinstance(outcome.value, kind), f"the error is {outcome.value!r}"
    return outcome.value


def _outcome(deferred: Deferred[_T]) -> _T | Failure:
    """What has become of a Deferred; an error counts as seen then."""
    outcomes: list[_T | Failure] = []

    def keep(outcome: _T | Failure) -> _T | None:
        outcomes.append(outcome)
        return None if isinstance(outcome, Failure) else outcome

    deferred.addBoth(keep)
    assert outcomes, "the Deferred has not fired"
    return outcomes[0]


def online(client: Client) -> bool:
    """Whether a client is connected."""
    return client.is_connected


def waits(deferred: Deferred[_T]) -> bool:
    """Whether a Deferred has not fired yet."""
    return not deferred.called or deferred.paused > 0


@implementer(ITransport, IPushProducer)
class ClientTransport:
    """The client's end of a stream, as Twisted's transports are."""

    disconnecting = False

    def __init__(self, clock: Clock) -> None:
        """Open a stream that has room for everything."""
        self.outgoing = bytearray()
        self.incoming = bytearray()
        self.protocol: IProtocol | None = None
        #: Whether it has room for no more.
        self.is_full = False
        self.lost = False
        self.aborted = False
        self._clock = clock
        self._producer: IPushProducer | None = None
        self._is_read = True

    # The network's side.

    def reads(self) -> bool:
        """Whether the client reads."""
        return self._is_read

    def open(self, protocol: IProtocol) -> None:
        """Tell the client's protocol that it is connected."""
        self.protocol = protocol
        protocol.makeConnection(self)

    def deliver(self) -> bool:
        """Give the client what has come, if it reads; false if there was nothing to give."""
        if not self.incoming or not self._is_read or self.protocol is None:
            return False
        data = bytes(self.incoming)
        self.incoming.clear()
        self.protocol.dataReceived(data)
        return True

    def stop_taking(self) -> None:
        """Let the transport's buffer be full."""
        self.is_full = True
        if self._producer is not None:
            self._producer.pauseProducing()

    def start_taking(self) -> None:
        """Let the transport's buffer be empty."""
        self.is_full = False
        if self._producer is not None:
            self._producer.resumeProducing()

    def lose(self, reason: Exception) -> None:
        """End the connection, both ways."""
        protocol, self.protocol = self.protocol, None
        if protocol is not None:
            self.lost = True
            self.incoming.clear()
            protocol.connectionLost(Failure(reason))  # type: ignore[no-untyped-call]  # Twisted's

    # The client's side.

    def write(self, data: bytes) -> None:
        """Take octets, even when full: it is for the producer to heed that."""
        if not self.lost and not self.disconnecting:
            self.outgoing += data

    def writeSequence(self, data: list[bytes]) -> None:  # type: ignore[override]  # fewer types
        """Take several pieces."""
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        """Close once all is written; not as long as a producer may have more."""
        self.disconnecting = True
        if self._producer is None:
            self._clock.callLater(0, self.lose, ConnectionDone())

    def abortConnection(self) -> None:
        """Close at once."""
        self.disconnecting = self.aborted = True
        self.outgoing.clear()
        self._clock.callLater(0, self.lose, ConnectionAborted())

    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None:  # noqa: FBT001 (Twisted's)
        """Have a producer paused while the transport is full."""
        assert streaming
        self._producer = producer

    def unregisterProducer(self) -> None:
        """Pause nobody any more."""
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
        """A made-up address."""
        return _ADDRESS

    def getHost(self) -> IPv4Address:
        """A made-up address."""
        return _ADDRESS


class Peer:
    """The broker's end of one connection, in the hands of a test.

    ``frames`` are all that have come from the client, and :meth:`take` gives those that are new.
    """

    def __init__(self, transport: ClientTransport) -> None:
        """Begin; nothing is answered by itself but by :class:`ScriptedEndpoint`."""
        self.transport = transport
        self.frames: list[Frame] = []
        self.version: Version | None = None
        self._decoder = FrameDecoder()
        self._given = 0

    @property
    def beats(self) -> int:
        """Heart-beats that have come from the client."""
        return self._decoder.eols

    def is_gone(self) -> bool:
        """Whether the connection is over."""
        return self.transport.lost

    def read(self) -> list[Frame]:
        """Read the octets that the network has carried; the new frames."""
        if self.transport.is_full:
            return []
        data = bytes(self.transport.outgoing)
        self.transport.outgoing.clear()
        new: list[Frame] = []
        while frames := self._decoder.feed(data):
            data = b""
            new += frames
        self.frames += new
        return new

    def take(self, command: str | None = None) -> list[Frame]:
        """The frames since the last call; of those, the ones of ``command`` if it is given."""
        new = self.frames[self._given :]
        self._given = len(self.frames)
        return [frame for frame in new if command is None or frame.command == command]

    def send(
        self, command: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        """Send a frame."""
        self.write(encode(Frame(command, headers, body), self.version))

    def write(self, data: bytes) -> None:
        """Send octets."""
        self.transport.incoming += data

    def accept(self, version: Version = "1.2", **headers: str) -> None:
        """Answer CONNECT by CONNECTED."""
        self.send("CONNECTED", {"version": version, "session": "s", **headers})
        self.version = version
        self._decoder.negotiated(version)

    def confirm(self, *frames: Frame) -> None:
        """Send the receipts that the frames ask for."""
        for frame in frames:
            self.send("RECEIPT", {"receipt-id": frame.headers["receipt"]})

    def message(
        self, subscription: Frame, body: bytes = b"", number: int = 1, **headers: str
    ) -> None:
        """Send a message for a SUBSCRIBE."""
        own = {
            "subscription": subscription.headers["id"],
            "destination": subscription.headers["destination"],
            "message-id": f"m{number}",
        }
        if self.version == "1.2" and subscription.headers["ack"] != "auto":
            own["ack"] = f"a{number}"
        self.send("MESSAGE", own | headers, body)

    def refuse(
        self, frame: Frame | None = None, message: str = "no", code: str | None = None
    ) -> None:
        """Send ERROR, for a frame with a receipt if one is given, with a code as our broker's."""
        names = {"message": message}
        if code is not None:
            names["stompkit-code"] = code
        if frame is not None:
            names["receipt-id"] = frame.headers["receipt"]
        self.send("ERROR", names, b"because")

    def close(self) -> None:
        """Close the connection."""
        self.transport.lose(ConnectionDone())

    def drop(self) -> None:
        """Have the network fail."""
        self.transport.lose(ConnectionLost())


@implementer(IStreamClientEndpoint)
class ScriptedEndpoint:
    """A broker that does what a test says.

    ``refuses`` has connections refused, ``hangs`` has attempts to connect not answered at all.
    With ``version`` CONNECT is answered by itself; with ``obliging`` so is all that asks for a
    receipt.
    """

    def __init__(
        self, network: Network, version: Version | None = "1.2", *, obliging: bool = False
    ) -> None:
        """Wait for clients."""
        self.version = version
        self.obliging = obliging
        self.refuses = False
        self.hangs = False
        #: Further headers of CONNECTED.
        self.headers: dict[str, str] = {}
        self.peers: list[Peer] = []
        self.attempts = 0
        self.cancelled = 0
        self._late: IProtocolFactory | None = None
        self._network = network
        network.carriers.append(self.carry)

    @property
    def peer(self) -> Peer:
        """The last connection."""
        return self.peers[-1]

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect a client."""
        self.attempts += 1
        if self.hangs:
            self._late = factory
            return Deferred(self._note_cancelled)
        if self.refuses:
            return fail(OSError("connection refused"))
        return succeed(self._open(factory))

    def connect_at_last(self) -> None:
        """Connect the client that was kept waiting."""
        assert self._late is not None
        self._open(self._late)

    def _open(self, factory: IProtocolFactory) -> IProtocol:
        transport = ClientTransport(self._network.clock)
        protocol = cast("IProtocol", factory.buildProtocol(_ADDRESS))
        self.peers.append(Peer(transport))
        transport.open(protocol)
        return protocol

    def _note_cancelled(self, _: object) -> None:
        self.cancelled += 1

    def carry(self) -> bool:
        """Carry octets, both ways."""
        moved = False
        for peer in self.peers:
            for frame in peer.read():
                moved = True
                if frame.command == "CONNECT" and self.version is not None:
                    peer.accept(self.version, **self.headers)
                elif self.obliging and "receipt" in frame.headers:
                    peer.confirm(frame)
            moved = peer.transport.deliver() or moved
        return moved


@implementer(IStreamClientEndpoint)
class BrokerEndpoint:
    """The real broker, in memory."""

    def __init__(self, network: Network, broker: MemoryBroker) -> None:
        """Wait for clients."""
        self.broker = broker
        #: Where connections are refused.
        self.is_down = False
        self.lines: list[tuple[ClientTransport, MemoryClient]] = []
        self._network = network
        network.carriers.append(self.carry)
        network.clocks.append(broker.clock)

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect a client."""
        if self.is_down:
            return fail(OSError("connection refused"))
        transport = ClientTransport(self._network.clock)
        protocol = cast("IProtocol", factory.buildProtocol(_ADDRESS))
        self.lines.append((transport, self.broker.connect()))
        transport.open(protocol)
        return succeed(protocol)

    def carry(self) -> bool:
        """Carry octets, both ways."""
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
        """Have the network fail: what was on its way is lost."""
        for transport, far in list(self.lines):
            self._part(transport, far)

    def _part(self, transport: ClientTransport, far: MemoryClient) -> None:
        self.lines.remove((transport, far))
        far.drop()
        transport.lose(ConnectionLost())


class Network:
    """Everything between clients and brokers, and the time of both."""

    def __init__(self) -> None:
        """Start with nobody connected."""
        self.clock = Clock()
        self.clocks = [self.clock]
        self.carriers: list[Callable[[], bool]] = []

    def scripted(
        self, version: Version | None = "1.2", *, obliging: bool = False
    ) -> ScriptedEndpoint:
        """Add a broker that does what the test says."""
        return ScriptedEndpoint(self, version, obliging=obliging)

    def broker(self, broker: MemoryBroker | None = None) -> BrokerEndpoint:
        """Add a real broker."""
        return BrokerEndpoint(self, broker or MemoryBroker())

    def client(self, *endpoints: ScriptedEndpoint | BrokerEndpoint, **settings: object) -> Client:
        """A client of these brokers, whose back-off takes as long as it may."""
        options = {"random": lambda: 1.0, "reactor": self.clock} | settings
        return Client(list(endpoints), **options)  # type: ignore[arg-type]  # any setting

    def connected(
        self, *endpoints: ScriptedEndpoint | BrokerEndpoint, **settings: object
    ) -> Client:
        """A client that has connected."""
        client = self.client(*endpoints, **settings)
        self.wait(client.connect())
        return client

    def run(self) -> None:
        """Carry octets until there are none, and let happen what was to happen now."""
        moved = True
        while moved:
            for clock in self.clocks:
                clock.advance(0)
            moved = any([carry() for carry in self.carriers])

    def advance(self, seconds: float, step_s: float = 1 / 16) -> None:
        """Let so much time pass at least, in small steps, which a float counts exactly."""
        self.run()
        for _ in range(math.ceil(seconds / step_s)):
            for clock in self.clocks:
                clock.advance(step_s)
            self.run()

    def wait(self, deferred: Deferred[_T]) -> _T:
        """Carry octets, and give what the Deferred fires with then."""
        self.run()
        return result(deferred)
