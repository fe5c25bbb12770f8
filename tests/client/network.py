"""An in-memory network between clients and brokers; it carries bytes only on request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IProtocol,
    IProtocolFactory,
    IStreamClientEndpoint,
)
from twisted.python.failure import Failure
from zope.interface import implementer

from stompkit.client import Client
from stompkit.frames import Frame, FrameDecoder, Version, encode
from stompkit.testing.memory import MemoryEndpoint, MemoryNetwork
from stompkit.testing.memory._network import ADDRESS, ClientTransport, outcome_of

__all__ = [
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


def result(deferred: Deferred[_T]) -> _T:
    """Return the result of a Deferred; fails if it has not fired, or has failed."""
    outcome = outcome_of(deferred)
    if isinstance(outcome, Failure):
        outcome.raiseException()
    return outcome


def failed(deferred: Deferred[_T], kind: type[_E]) -> _E:
    """Return the error of this kind that a Deferred has failed with."""
    outcome = outcome_of(deferred)
    assert isinstance(outcome, Failure), f"the Deferred has succeeded with {outcome!r}"
    assert isinstance(outcome.value, kind), f"the error is {outcome.value!r}"
    return outcome.value


def online(client: Client) -> bool:
    """Return True if a client is connected."""
    return client.is_connected


def waits(deferred: Deferred[_T]) -> bool:
    """Return True if a Deferred has not fired yet."""
    return not deferred.called or deferred.paused > 0


class Peer:
    """The broker's end of one connection, controlled by a test.

    ``frames`` has all frames received from the client; :meth:`take` returns the new ones.
    """

    def __init__(self, transport: ClientTransport) -> None:
        """Begin; only :class:`ScriptedEndpoint` answers automatically."""
        self.transport = transport
        self.frames: list[Frame] = []
        self.version: Version | None = None
        self._decoder = FrameDecoder()
        self._given = 0

    @property
    def beats(self) -> int:
        """Number of heart-beats received from the client."""
        return self._decoder.eols

    def is_gone(self) -> bool:
        """True if the connection is lost."""
        return self.transport.lost

    def read(self) -> list[Frame]:
        """Read the bytes that the network has carried; return the new frames."""
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
        """Return the frames since the last call, or only those with this ``command``."""
        new = self.frames[self._given :]
        self._given = len(self.frames)
        return [frame for frame in new if command is None or frame.command == command]

    def send(
        self, command: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        """Send a frame."""
        self.write(encode(Frame(command, headers, body), self.version))

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self.transport.incoming += data

    def accept(self, version: Version = "1.2", **headers: str) -> None:
        """Answer CONNECT with CONNECTED."""
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
        """Send ERROR; for a frame with a receipt if one is given, with a code like our broker's."""
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
        """Simulate a failure of the network."""
        self.transport.lose(ConnectionLost())


@implementer(IStreamClientEndpoint)
class ScriptedEndpoint:
    """A broker that follows the script of a test.

    With ``refuses``, it refuses connections; with ``hangs``, it does not answer attempts to
    connect. With ``version``, it answers CONNECT automatically. With ``obliging``, it confirms all
    requests for a receipt automatically.
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
        """The most recent connection."""
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
        protocol = cast("IProtocol", factory.buildProtocol(ADDRESS))
        self.peers.append(Peer(transport))
        transport.open(protocol)
        return protocol

    def _note_cancelled(self, _: object) -> None:
        self.cancelled += 1

    def carry(self) -> bool:
        """Carry bytes in both directions."""
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


class Network(MemoryNetwork):
    """A network with scripted brokers and with clients of stompkit."""

    def scripted(
        self, version: Version | None = "1.2", *, obliging: bool = False
    ) -> ScriptedEndpoint:
        """Add a broker that follows the script of the test."""
        return ScriptedEndpoint(self, version, obliging=obliging)

    def client(self, *endpoints: ScriptedEndpoint | MemoryEndpoint, **settings: object) -> Client:
        """Return a client of these brokers; its back-off always takes the longest possible time."""
        options = {"random": lambda: 1.0, "reactor": self.clock} | settings
        return Client(list(endpoints), **options)  # type: ignore[arg-type]  # any setting

    def connected(
        self, *endpoints: ScriptedEndpoint | MemoryEndpoint, **settings: object
    ) -> Client:
        """Return a client that has connected."""
        client = self.client(*endpoints, **settings)
        self.wait(client.connect())
        return client
