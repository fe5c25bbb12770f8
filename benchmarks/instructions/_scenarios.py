"""The counted scenarios: ways of messages through the broker or a part of it, without sockets.

The preparation of a scenario includes a warm-up, until each message costs as much as the one
before, and everything that its client sends later. Only :meth:`run` is counted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, cast

from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IAddress, IReactorTime, ITransport
from twisted.internet.task import Clock
from zope.interface import implementer

from stompkit.frames import Frame, FrameDecoder, encode
from stompkit.server import BrokerFactory, InlineRunner
from stompkit.server.stores import LmdbStore

__all__ = ["SCENARIOS", "Counted", "Scenario"]

#: Bytes that Twisted reads at once, if available.
_CHUNK_BYTES: Final = 65_536
_BODY_BYTES: Final = 100
#: Messages of the warm-up: several chunks, and more than any window holds.
_WARM_UP: Final = 1_500
_SINGLE: Final = 500
_SUBSCRIBERS: Final = 10
_STORE_BYTES: Final = 256 << 20
#: For trace ids that differ in all digits: a number is multiplied, and cut to 64 bits.
_ODD: Final = 0x9E3779B97F4A7C15
_BITS: Final = 1 << 64
_PEER: Final = IPv4Address("TCP", "127.0.0.1", 50_000)


class Scenario(Protocol):
    """A way of messages; created with the number of messages that :meth:`run` sends."""

    def run(self) -> None:
        """Send the messages, and run the actions of their receivers."""

    def check(self) -> None:
        """Raise AssertionError unless all messages, with the warm-up, have arrived in order."""


class Counted(NamedTuple):
    """The factory of a scenario, and the divisor of its figure."""

    make: Callable[..., Scenario]
    """Takes the number of messages that are to be counted."""
    deliveries: int = 1
    """Deliveries of each message."""


def _chunks(frames: list[bytes]) -> list[bytes]:
    """Return the bytes of ``frames`` as a busy connection delivers them: cut at full chunks."""
    octets = b"".join(frames)
    return [octets[at : at + _CHUNK_BYTES] for at in range(0, len(octets), _CHUNK_BYTES)]


def _warm_up(frames: list[bytes]) -> list[bytes]:
    """Return the chunks of the warm-up: the first frames in a chunk each.

    The interpreter specialises a function for its arguments after some calls.
    """
    return [*frames[:_SINGLE], *_chunks(frames[_SINGLE:])]


def _varied(number: int) -> bytes:
    """Return the header lines of a usual application, as the load generator sends them."""
    # The clock of the scenarios starts at 0.
    return (
        b"correlation-id:order-%010d\nsent-at:%019d\ncontent-type:application/json\npriority:4\n"
        b"expires:%013d\nreply-to:/queue/replies\ntype:order-created\n"
        b"traceparent:00-0af7651916cd43dd8448eb211c80319c-%016x-01\n"
    ) % (number, number * 1_000, 3_600_000 + number, number * _ODD % _BITS)


def _sends(
    destination: bytes, first: int, count: int, *, receipts: bool, varied: bool = False
) -> list[bytes]:
    """Return SEND frames whose bodies contain their numbers; ``varied`` heads differ."""
    frames = []
    for number in range(first, first + count):
        head = b"SEND\ndestination:%b\n%b%bcontent-length:%d\n\n" % (
            destination,
            b"receipt:%d\n" % number if receipts else b"",
            _varied(number) if varied else b"",
            _BODY_BYTES,
        )
        frames.append(b"%b%0*d\0" % (head, _BODY_BYTES, number))
    return frames


@implementer(ITransport)
class _Transport:
    """A stream whose client reads everything immediately."""

    def __init__(self) -> None:
        """Start empty."""
        #: The output of the broker, one item for each write.
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def writeSequence(self, data: Iterable[bytes]) -> None:
        self.written.extend(data)

    def registerProducer(self, producer: object, streaming: bool) -> None:  # noqa: FBT001 (Twisted's)
        """Ignore the producer, as there is always room."""

    def unregisterProducer(self) -> None:
        """Do nothing."""

    def pauseProducing(self) -> None:
        raise AssertionError("the broker reads no more, which no scenario is about")

    def resumeProducing(self) -> None:
        """Do nothing."""

    def loseConnection(self) -> None:
        raise AssertionError("the broker has closed a connection")

    def loseWriteConnection(self) -> None:
        self.loseConnection()

    def abortConnection(self) -> None:
        """Do nothing, as there is no connection to abort."""

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
        """Return the bytes that have arrived since the last call."""
        octets = b"".join(self._transport.written)
        self._transport.written.clear()
        return octets


class _Delivery:
    """Messages from one producer to consumers, which acknowledge if configured."""

    def __init__(
        self,
        count: int,
        *,
        destination: bytes = b"/queue/a",
        ack: bytes = b"auto",
        consumers: int = 1,
        receipts: bool = False,
        varied: bool = False,
        store: LmdbStore | None = None,
    ) -> None:
        """Create a broker and its clients, and send the first messages."""
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
        #: Output for each client: the consumers, and the producer as the last.
        self._got: list[list[bytes]] = [[] for _ in range(consumers + 1)]
        sends = partial(_sends, destination, receipts=receipts, varied=varied)
        self._chunks = _warm_up(sends(0, _WARM_UP))
        self.run()
        self._chunks = _chunks(sends(_WARM_UP, count))

    def run(self) -> None:
        """Send chunk by chunk; before each, all clients read their input."""
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
        """Verify every body, and every receipt."""
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
    """Return ACK frames for all MESSAGE frames in ``octets``."""
    found = octets.split(b"\nack:")[1:]
    return b"".join([b"ACK\nid:%b\n\n\0" % after[: after.index(b"\n")] for after in found])


def _queue(count: int, *, varied: bool = False) -> Scenario:
    return _Delivery(count, varied=varied)


def _acknowledged(count: int, *, varied: bool = False) -> Scenario:
    return _Delivery(count, ack=b"client-individual", varied=varied)


def _topic(count: int, *, varied: bool = False) -> Scenario:
    return _Delivery(count, destination=b"/topic/a", consumers=_SUBSCRIBERS, varied=varied)


def _persistent(count: int, *, varied: bool = False) -> Scenario:
    # The directory is unlinked at once, so that no process has to clean up; LMDB keeps the files
    # open.
    with tempfile.TemporaryDirectory() as directory:
        store = LmdbStore(Path(directory), synchronous=False, max_octets=_STORE_BYTES)
        return _Delivery(count, ack=b"client-individual", receipts=True, varied=varied, store=store)


class _Decoding:
    """Decoding of SEND frames only."""

    def __init__(self, count: int, *, varied: bool = False) -> None:
        """Decode the first frames."""
        self._decoder = FrameDecoder("1.2")
        self._bodies: list[bytes] = []
        self._count = count
        sends = partial(_sends, b"/queue/a", receipts=False, varied=varied)
        self._chunks = _warm_up(sends(0, _WARM_UP))
        self.run()
        self._chunks = _chunks(sends(_WARM_UP, count))

    def run(self) -> None:
        """Feed chunk by chunk."""
        for chunk in self._chunks:
            for frame in self._decoder.feed(chunk):
                self._bodies.append(frame.body)

    def check(self) -> None:
        """Verify every body."""
        assert [int(body) for body in self._bodies] == list(range(_WARM_UP + self._count))


def _decoded(octets: bytes) -> list[Frame]:
    return FrameDecoder("1.2").feed(octets)


class _Encoding:
    """Encoding of frames with the headers of a usual application."""

    def __init__(self, count: int) -> None:
        """Encode the first frames."""
        frames = _sends(b"/queue/a", 0, _WARM_UP + count, receipts=False, varied=True)
        self._sent = b"".join(frames)
        # Frames as an application makes them.
        made = [Frame(each.command, each.headers, each.body) for each in _decoded(self._sent)]
        self._rest = made[_WARM_UP:]
        self._encoded = [encode(frame, "1.2") for frame in made[:_WARM_UP]]

    def run(self) -> None:
        """Encode the others."""
        for frame in self._rest:
            self._encoded.append(encode(frame, "1.2"))

    def check(self) -> None:
        """Verify that the frames are those that were decoded."""
        assert b"".join(self._encoded) == self._sent


def _both(name: str, counted: Counted) -> Iterator[tuple[str, Counted]]:
    """Yield a scenario with equal heads, and one in which heads differ as in applications."""
    yield name, counted
    yield f"{name}-varied", counted._replace(make=partial(counted.make, varied=True))


#: The scenarios, by their names in the baseline.
SCENARIOS: Final[Mapping[str, Counted]] = MappingProxyType(
    {
        **dict(_both("decode", Counted(_Decoding))),
        **dict(_both("queue-auto", Counted(_queue))),
        **dict(_both("queue-client-individual", Counted(_acknowledged))),
        **dict(_both("topic-1-to-10", Counted(_topic, deliveries=_SUBSCRIBERS))),
        **dict(_both("persistent-receipts-acks", Counted(_persistent))),
        "encode-varied": Counted(_Encoding),
    }
)
