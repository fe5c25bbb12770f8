"""What is counted: ways of messages through the broker, or a part of it, without sockets.

A scenario is made ready first, which includes as many messages as it takes until each costs what
the one before it did, and everything that its client sends later. What counts is :meth:`run`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, cast

from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IAddress, IReactorTime, ITransport
from twisted.internet.task import Clock
from zope.interface import implementer

from stompkit.frames import FrameDecoder
from stompkit.server import BrokerFactory, InlineRunner
from stompkit.server.stores import LmdbStore

__all__ = ["SCENARIOS", "Counted", "Scenario"]

#: Octets that Twisted reads at once, where as many are there.
_CHUNK_BYTES: Final = 65_536
_BODY_BYTES: Final = 100
#: Messages that make a scenario ready: several chunks, and more than any window holds.
_WARM_UP: Final = 1_500
_SINGLE: Final = 500
_SUBSCRIBERS: Final = 10
_STORE_BYTES: Final = 256 << 20
_PEER: Final = IPv4Address("TCP", "127.0.0.1", 50_000)


class Scenario(Protocol):
    """One way that messages go; made with the number that :meth:`run` sends."""

    def run(self) -> None:
        """Send the messages, and do what their receivers do."""

    def check(self) -> None:
        """Raise AssertionError unless all of it has arrived, in order, those of before included."""


class Counted(NamedTuple):
    """How a scenario is made ready, and what its figure is divided by."""

    make: Callable[[int], Scenario]
    """Takes the number of messages that are to be counted."""
    deliveries: int = 1
    """Of each message."""


def _chunks(frames: list[bytes]) -> list[bytes]:
    """The octets of ``frames`` as a busy connection delivers them: cut wherever a chunk is full."""
    octets = b"".join(frames)
    return [octets[at : at + _CHUNK_BYTES] for at in range(0, len(octets), _CHUNK_BYTES)]


def _warm_up(frames: list[bytes]) -> list[bytes]:
    """The same for what comes before: the first each in a chunk of its own.

    The interpreter adapts a function to what it is called with by the number of its calls.
    """
    return [*frames[:_SINGLE], *_chunks(frames[_SINGLE:])]


def _sends(destination: bytes, first: int, count: int, *, receipts: bool) -> list[bytes]:
    """SEND frames whose bodies tell their numbers."""
    frames = []
    for number in range(first, first + count):
        receipt = b"receipt:%d\n" % number if receipts else b""
        head = b"SEND\ndestination:%b\n%bcontent-length:%d\n\n" % (
            destination,
            receipt,
            _BODY_BYTES,
        )
        frames.append(b"%b%0*d\0" % (head, _BODY_BYTES, number))
    return frames


@implementer(ITransport)
class _Transport:
    """A stream whose client takes all that comes at once."""

    def __init__(self) -> None:
        """Begin with nothing written."""
        #: What the broker has written, each call by itself.
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def writeSequence(self, data: Iterable[bytes]) -> None:
        self.written.extend(data)

    def registerProducer(self, producer: object, streaming: bool) -> None:  # noqa: FBT001 (Twisted's)
        """Never pause it: there is always room."""

    def unregisterProducer(self) -> None:
        """Go on."""

    def pauseProducing(self) -> None:
        raise AssertionError("the broker reads no more, which no scenario is about")

    def resumeProducing(self) -> None:
        """Go on."""

    def loseConnection(self) -> None:
        raise AssertionError("the broker has closed a connection")

    def loseWriteConnection(self) -> None:
        self.loseConnection()

    def abortConnection(self) -> None:
        """Nothing is there to be cut."""

    def getPeer(self) -> IAddress:
        return _PEER

    def getHost(self) -> IAddress:
        return _PEER


class _Client:
    """A connection that is logged in, from the client's side."""

    def __init__(self, factory: BrokerFactory) -> None:
        """Log in."""
        self._transport = _Transport()
        protocol = factory.buildProtocol(_PEER)
        assert protocol is not None
        protocol.makeConnection(cast("ITransport", self._transport))  # type: ignore[no-untyped-call]  # Twisted's
        self.send: Callable[[bytes], None] = protocol.dataReceived
        self.send(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0")
        assert self.take().startswith(b"CONNECTED\n")

    def subscribe(self, destination: bytes, ack: bytes) -> None:
        self.send(b"SUBSCRIBE\nid:0\ndestination:%b\nack:%b\n\n\0" % (destination, ack))

    def take(self) -> bytes:
        """What has come since the last call."""
        octets = b"".join(self._transport.written)
        self._transport.written.clear()
        return octets


class _Delivery:
    """From one producer to consumers, who acknowledge if they are to."""

    def __init__(
        self,
        count: int,
        *,
        destination: bytes = b"/queue/a",
        ack: bytes = b"auto",
        consumers: int = 1,
        receipts: bool = False,
        store: LmdbStore | None = None,
    ) -> None:
        """Make a broker and its clients, and send the first messages."""
        self._clock = Clock()
        factory = BrokerFactory(
            None,
            cast("IReactorTime", self._clock),
            store=store,
            runner=None if store is None else InlineRunner(),
        )
        factory.broker.open()
        self._store = store
        self._acknowledges = ack != b"auto"
        self._has_receipts = receipts
        self._count = count
        self._producer = _Client(factory)
        self._consumers = [_Client(factory) for _ in range(consumers)]
        for consumer in self._consumers:
            consumer.subscribe(destination, ack)
        #: What each client has got: the consumers, and the producer as the last.
        self._got: list[list[bytes]] = [[] for _ in range(consumers + 1)]
        self._chunks = _warm_up(_sends(destination, 0, _WARM_UP, receipts=receipts))
        self.run()
        self._chunks = _chunks(_sends(destination, _WARM_UP, count, receipts=receipts))

    def run(self) -> None:
        """Send chunk by chunk; before each, everybody has read all that there was."""
        for chunk in self._chunks:
            self._producer.send(chunk)
            self._got[-1].append(self._producer.take())
            for consumer, got in zip(self._consumers, self._got, strict=False):
                while octets := consumer.take():
                    got.append(octets)
                    if self._acknowledges:
                        consumer.send(_acks(octets))
            self._clock.advance(0.001)

    def check(self) -> None:
        """Look at every body, and at every receipt."""
        total = _WARM_UP + self._count
        *delivered, producer = (b"".join(got) for got in self._got)
        for octets in delivered:
            frames = octets.split(b"\0\n")[:-1]
            assert all(frame.startswith(b"MESSAGE\n") for frame in frames)
            numbers = [int(frame[-_BODY_BYTES:]) for frame in frames]
            assert numbers == list(range(total)), f"{len(numbers)} of {total} messages, or disorder"
        receipts = range(total) if self._has_receipts else ()
        answer = b"".join(b"RECEIPT\nreceipt-id:%d\n\n\0\n" % number for number in receipts)
        assert producer == answer, "the producer's receipts"
        if self._store is not None:
            self._clock.advance(60)
            assert sum(lane.messages for lane in self._store.lanes()) == 0, "messages are left"


def _acks(octets: bytes) -> bytes:
    """ACK frames of all MESSAGE frames in ``octets``."""
    found = octets.split(b"\nack:")[1:]
    return b"".join([b"ACK\nid:%b\n\n\0" % after[: after.index(b"\n")] for after in found])


def _queue(count: int) -> Scenario:
    return _Delivery(count)


def _acknowledged(count: int) -> Scenario:
    return _Delivery(count, ack=b"client-individual")


def _topic(count: int) -> Scenario:
    return _Delivery(count, destination=b"/topic/a", consumers=_SUBSCRIBERS)


def _persistent(count: int) -> Scenario:
    # The name is gone at once, so that no process has to tidy up; LMDB has the files open.
    with tempfile.TemporaryDirectory() as directory:
        store = LmdbStore(Path(directory), synchronous=False, max_octets=_STORE_BYTES)
        return _Delivery(count, ack=b"client-individual", receipts=True, store=store)


class _Decoding:
    """SEND frames out of octets, and nothing else."""

    def __init__(self, count: int) -> None:
        """Read the first frames."""
        self._decoder = FrameDecoder("1.2")
        self._bodies: list[bytes] = []
        self._count = count
        self._chunks = _warm_up(_sends(b"/queue/a", 0, _WARM_UP, receipts=False))
        self.run()
        self._chunks = _chunks(_sends(b"/queue/a", _WARM_UP, count, receipts=False))

    def run(self) -> None:
        """Feed chunk by chunk."""
        for chunk in self._chunks:
            for frame in self._decoder.feed(chunk):
                self._bodies.append(frame.body)

    def check(self) -> None:
        """Look at every body."""
        assert [int(body) for body in self._bodies] == list(range(_WARM_UP + self._count))


#: What is counted, by the names that the baseline has.
SCENARIOS: Final[Mapping[str, Counted]] = MappingProxyType(
    {
        "decode": Counted(_Decoding),
        "queue-auto": Counted(_queue),
        "queue-client-individual": Counted(_acknowledged),
        "topic-1-to-10": Counted(_topic, deliveries=_SUBSCRIBERS),
        "persistent-receipts-acks": Counted(_persistent),
    }
)
