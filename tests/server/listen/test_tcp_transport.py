"""The connections that send large output in pieces, and read large frames in large parts."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.interfaces import IPushProducer
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.tcp import Port
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from zope.interface import implementer

from stompkit.server.listen.tcp_transport import LargeFrameServer, copy_less, read_bytes_of
from stompkit.testing import RunningBroker

MIB = 1 << 20
#: Seconds for a peer to read the output of a connection that ends.
DRAIN_S = 5.0
ENDED = Failure(CONNECTION_DONE)  # type: ignore[no-untyped-call]  # Twisted's


@implementer(IPushProducer)
class Receiver(Protocol):
    """Records what it is told."""

    def __init__(self) -> None:
        """Record nothing yet."""
        self.chunks: list[bytes] = []
        self.is_paused = False

    def dataReceived(self, data: bytes) -> None:
        """Store a chunk."""
        self.chunks.append(data)

    def pauseProducing(self) -> None:
        """Note that the buffer is full."""
        self.is_paused = True

    def resumeProducing(self) -> None:
        """Note that the buffer is empty."""
        self.is_paused = False

    def stopProducing(self) -> None:
        """Do nothing."""


class Connected:
    """A transport and its peer, with small buffers in the kernel."""

    def __init__(self, ours: socket.socket, peer: socket.socket) -> None:
        """Connect them."""
        for each in (ours, peer):
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        self.peer = peer
        self.received = bytearray()
        self.protocol = Receiver()
        self.reactor = MemoryReactorClock()  # type: ignore[no-untyped-call]  # Twisted's
        self._writers = self.reactor.writers
        create: Any = partial(LargeFrameServer, drain_s=lambda: DRAIN_S)
        # Without types: Twisted declares few.
        self.transport: Any = create(ours, self.protocol, ("127.0.0.1", 1), None, 1, self.reactor)
        self.protocol.makeConnection(self.transport)  # type: ignore[no-untyped-call]  # Twisted's
        self.transport.registerProducer(self.protocol, True)

    @property
    def is_writing(self) -> bool:
        """True if the transport waits for room in the kernel."""
        return self.transport in self._writers

    def turn(self) -> None:
        """Send what the kernel takes, as the reactor does."""
        if self.is_writing:
            assert self.transport.doWrite() is None

    def receive(self, size: int) -> None:
        """Receive at most this many bytes."""
        try:
            self.received += self.peer.recv(size)
        except BlockingIOError:
            return

    def receive_all(self) -> None:
        """Send and receive until no output is left."""
        while self.is_writing:
            self.turn()
            self.receive(MIB)
        self.receive(MIB)


@contextmanager
def connected() -> Iterator[Connected]:
    """Yield a transport that is connected to its peer."""
    ours, peer = socket.socketpair()
    with ours, peer:
        yield Connected(ours, peer)


SIZES = st.one_of(
    st.integers(0, 100), st.integers(2_000, 70_000), st.sampled_from([1 << 15, 1 << 16, 1 << 19])
)
STEPS: st.SearchStrategy[tuple[str, list[int]]] = st.one_of(
    st.tuples(st.just("write"), st.lists(SIZES, min_size=1, max_size=1)),
    st.tuples(st.just("sequence"), st.lists(SIZES, max_size=6)),
    st.tuples(st.just("many"), st.lists(st.integers(1_000, 1_100), min_size=1, max_size=1)),
    st.tuples(st.just("turn"), st.just([])),
    st.tuples(st.just("receive"), st.lists(st.integers(1, 200_000), min_size=1, max_size=1)),
)


@given(steps=st.lists(STEPS, max_size=30))
def test_output_arrives_once_and_in_order(steps: list[tuple[str, list[int]]]) -> None:
    written = bytearray()

    def piece(size: int) -> bytes:
        data = bytes([len(written) % 251]) * size
        written.extend(data)
        return data

    with connected() as there:
        for what, sizes in steps:
            if what == "write":
                there.transport.write(piece(*sizes))
            elif what == "sequence":
                there.transport.writeSequence([piece(size) for size in sizes])
            elif what == "many":
                there.transport.writeSequence([piece(30 + n % 7) for n in range(*sizes)])
            elif what == "turn":
                there.turn()
            else:
                there.receive(*sizes)
        there.receive_all()
        assert there.received == written
        assert not there.protocol.is_paused


def test_a_producer_waits_until_all_output_is_sent() -> None:
    with connected() as there:
        there.transport.writeSequence([b"head", b"x" * MIB, b"\0"])
        assert there.protocol.is_paused
        there.turn()
        assert there.is_writing
        assert there.protocol.is_paused
        there.receive_all()
        assert not there.protocol.is_paused


def test_a_connection_ends_when_all_output_is_sent() -> None:
    with connected() as there:
        there.transport.writeSequence([b"x" * MIB, b"\0"])
        there.transport.unregisterProducer()
        there.transport.loseConnection()
        ended: Any = None
        while ended is None:
            ended = there.transport.doWrite()
            there.receive(MIB)
        there.receive(MIB)
        assert len(there.received) == MIB + 1


@pytest.mark.parametrize("reads", [True, False])
def test_a_connection_ends_in_time_whether_its_peer_reads_or_not(*, reads: bool) -> None:
    with connected() as there:
        there.transport.write(b"x" * MIB)
        there.transport.unregisterProducer()
        there.transport.loseConnection()
        there.transport.loseConnection()
        if reads:
            while there.transport.doWrite() is None:
                there.receive(MIB)
            there.transport.connectionLost(ENDED)
            assert there.reactor.getDelayedCalls() == []
            return
        there.turn()
        there.reactor.advance(DRAIN_S - 0.1)
        assert there.transport.connected
        there.reactor.advance(0.1)
        there.reactor.advance(0.0)
        assert there.transport.disconnected


def test_output_to_a_lost_peer_ends_the_connection() -> None:
    with connected() as there:
        there.transport.write(b"x" * MIB)
        there.peer.close()
        assert there.transport.doWrite() is CONNECTION_LOST


def test_a_read_has_the_size_that_the_protocol_chooses() -> None:
    with connected() as there:
        there.peer.send(b"x" * 50_000)
        there.transport.read_bytes = 10_000
        assert there.transport.doRead() is None
        there.transport.read_bytes = MIB
        assert there.transport.doRead() is None
        assert there.transport.doRead() is None
        assert [len(chunk) for chunk in there.protocol.chunks] == [10_000, 40_000]


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        (0, 1 << 16),
        (100, 1 << 16),
        (1 << 16, 1 << 18),
        (1 << 18, 1 << 18),
        (700_000, 700_000),
        (1 << 30, MIB),
    ],
)
def test_only_the_rest_of_a_large_frame_is_read_at_once(missing: int, expected: int) -> None:
    assert read_bytes_of(missing) == expected


def test_a_tcp_port_creates_these_connections() -> None:
    port = Port(0, Factory())
    copy_less(port, lambda: 1.0)
    create: Any = port.transport
    assert create.func is LargeFrameServer


def test_large_and_small_bodies_pass_a_broker_in_order(stomp_broker: RunningBroker) -> None:
    sizes = [0, 1, 65_535, 65_536, 3 * MIB, 10, 300_000, 64, 64, MIB, 131_072, 5_000, 2 * MIB]
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    queue, topic = stomp_broker.queue(), stomp_broker.topic()
    with stomp_broker.client() as sender, stomp_broker.client() as reader:
        reader.subscribe(topic)
        for body in bodies:
            sender.send(queue, body)
        sender.send(topic, bodies[4])
        assert reader.receive().body == bodies[4]
        reader.subscribe(queue)
        assert [reader.receive().body for _ in bodies] == bodies
