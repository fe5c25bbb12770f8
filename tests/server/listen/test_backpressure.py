"""Back-pressure: messages wait in their queues, not in buffers, while a client does not read."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from stompkit.frames import Frame, FrameDecoder
from stompkit.server import Broker, BrokerConfig, Connection
from stompkit.testing.memory import MemoryBroker, MemoryClient

QUEUE = "/queue/a"
TOPIC = "/topic/t"


def numbered(first: int, last: int) -> list[bytes]:
    """Return numbered bodies."""
    return [b"%d" % number for number in range(first, last + 1)]


def publish_all(client: MemoryClient, bodies: list[bytes], destination: str = QUEUE) -> None:
    for body in bodies:
        client.publish(destination, body)


def test_messages_stay_in_the_queue_while_the_transport_is_full() -> None:
    broker = MemoryBroker()
    slow = broker.client()
    slow.subscribe(QUEUE)
    slow.stop_reading()
    publish_all(broker.client(), numbered(1, 10))
    assert slow.transport.unread_bytes == 0
    other = broker.client()
    other.subscribe(QUEUE)
    assert other.bodies() == numbered(1, 10)


def test_a_transport_that_fills_up_in_the_middle_of_a_turn_gets_no_more() -> None:
    broker = MemoryBroker(BrokerConfig(write_batch_bytes=1_000))
    slow, producer = broker.client(), broker.client()
    publish_all(producer, [b"x" * 400] * 100)
    slow.stop_reading(room_bytes=5_000)
    slow.subscribe(QUEUE)
    # The part that fits, and at most one more batch with its last message.
    assert 5_000 <= slow.transport.unread_bytes < 5_000 + 1_000 + 500
    in_flight = slow.transport.unread_bytes // 400
    slow.close()
    other = broker.client()
    other.subscribe(QUEUE)
    assert 100 - in_flight <= len(other.bodies()) < 100 - in_flight + 5


@pytest.mark.parametrize("end", ["UNSUBSCRIBE", "DISCONNECT"])
@pytest.mark.parametrize("batch", [1, 100, 1_000_000])
@pytest.mark.parametrize("room", [0, 1, 500, 2_000, 1_000_000])
def test_what_auto_has_not_written_at_the_end_of_a_subscription_stays_in_the_queue(
    room: int, batch: int, end: str
) -> None:
    """A client that keeps reading gets all written messages, in order."""
    broker = MemoryBroker(BrokerConfig(write_batch_bytes=batch))
    slow, producer = broker.client(), broker.client()
    slow.subscribe(QUEUE, id="s")
    slow.stop_reading(room_bytes=room)
    publish_all(producer, numbered(1, 20))
    # Messages and the end of the subscription arrive in one iteration.
    slow.write(
        b"".join(b"SEND\ndestination:%b\n\n%b\0" % (QUEUE.encode(), n) for n in numbered(21, 40))
        + b"%b\nid:s\nreceipt:r\n\n\0" % end.encode()
    )
    for _ in range(100):
        slow.read_waiting()
    got = slow.bodies()
    other = broker.client()
    other.subscribe(QUEUE)
    assert got + other.bodies() == numbered(1, 40)


@pytest.mark.parametrize("batch", [1, 100, 1_000_000])
@pytest.mark.parametrize("room", [1, 50, 1_000])
@pytest.mark.parametrize("destination", [QUEUE, TOPIC])
@pytest.mark.parametrize("ack", ["auto", "client"])
def test_everything_arrives_once_and_in_order_however_the_client_reads(
    ack: str, destination: str, room: int, batch: int
) -> None:
    broker = MemoryBroker(BrokerConfig(write_batch_bytes=batch))
    slow, producer = broker.client(), broker.client()
    slow.subscribe(destination, ack=ack, prefetch_count="1000")
    slow.stop_reading(room_bytes=room)
    publish_all(producer, numbered(1, 50), destination)
    producer.write(
        b"".join(
            b"SEND\ndestination:%b\n\n%b\0" % (destination.encode(), body)
            for body in numbered(51, 100)
        )
    )
    got: list[bytes] = []
    for _ in range(100):
        slow.read_waiting()
        got += slow.bodies()
    assert got == numbered(1, 100)


def test_two_slow_clients_share_a_queue_without_loss() -> None:
    broker = MemoryBroker(BrokerConfig(write_batch_bytes=64))
    clients = [broker.client() for _ in range(2)]
    for client in clients:
        client.subscribe(QUEUE)
        client.stop_reading(room_bytes=200)
    publish_all(broker.client(), numbered(1, 60))
    got: list[bytes] = []
    for _ in range(100):
        for client in clients:
            client.read_waiting()
            bodies = client.bodies()
            assert bodies == sorted(bodies, key=int)
            got += bodies
    assert sorted(got, key=int) == numbered(1, 60)


def test_one_write_holds_all_that_a_chunk_brought() -> None:
    broker = MemoryBroker()
    consumer, producer = broker.client(), broker.client()
    consumer.subscribe(QUEUE)
    consumer.subscribe(TOPIC, id="t")
    before = consumer.transport.writes
    producer.write(b"SEND\ndestination:/queue/a\n\n\0SEND\ndestination:/topic/t\n\n\0" * 50)
    assert len(consumer.take("MESSAGE")) == 100
    assert consumer.transport.writes == before + 1


def test_receipts_of_a_chunk_are_one_write_too() -> None:
    client = MemoryBroker().client()
    before = client.transport.writes
    client.write(b"SEND\ndestination:/topic/t\nreceipt:r\n\n\0" * 50)
    assert len(client.take("RECEIPT")) == 50
    assert client.transport.writes == before + 1


@pytest.mark.parametrize(
    ("receipts", "writes"), [(0, 5), (1, 5), (1.1, 3), (2, 3), (2.1, 2), (4, 2), (5, 1), (6, 1)]
)
def test_writes_are_cut_where_the_batch_is_full(receipts: float, writes: int) -> None:
    batch = round(receipts * len(b"RECEIPT\nreceipt-id:r\n\n\0\n"))
    client = MemoryBroker(BrokerConfig(write_batch_bytes=batch)).client()
    before = client.transport.writes
    client.write(b"SEND\ndestination:/topic/t\nreceipt:r\n\n\0" * 5)
    assert client.transport.writes == before + writes


def test_a_client_that_does_not_read_can_still_send() -> None:
    broker = MemoryBroker()
    mute, consumer = broker.client(), broker.client()
    consumer.subscribe(QUEUE)
    mute.stop_reading()
    publish_all(mute, numbered(1, 100))
    assert consumer.bodies() == numbered(1, 100)


def test_what_a_full_client_had_goes_to_others_when_it_is_lost() -> None:
    broker = MemoryBroker()
    slow, producer, other = broker.client(), broker.client(), broker.client()
    slow.subscribe(QUEUE, ack="client")
    slow.stop_reading(room_bytes=1)
    publish_all(producer, numbered(1, 5))
    slow.drop()
    other.subscribe(QUEUE)
    assert other.bodies() == numbered(1, 5)


def test_unsubscribe_while_the_transport_is_full() -> None:
    broker = MemoryBroker()
    slow = broker.client()
    slow.subscribe(QUEUE, id="1")
    slow.subscribe(TOPIC, id="2")
    slow.stop_reading()
    publish_all(slow, numbered(1, 3))
    publish_all(slow, numbered(1, 3), TOPIC)
    slow.send("UNSUBSCRIBE", id="1")
    slow.send("UNSUBSCRIBE", id="2")
    slow.start_reading()
    assert slow.bodies() == []
    assert list(broker.destinations) == [QUEUE]


# A transport that calls back before write() returns. Connection and its outlet are public, so a
# program may embed the broker over any transport.


class Eager:
    """An outlet that becomes full and empty again within each write, and reports both."""

    def __init__(self, broker: Broker) -> None:
        """Connect and log in."""
        self.octets = b""
        self.closed = False
        self.depth = self.deepest = 0
        self.peer = "192.0.2.1"
        self.is_reading = True
        self._broker = broker
        self.connection = Connection(broker, self, 0.0)
        self.connection.opened()
        self.receive(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")

    def receive(self, data: bytes) -> None:
        """Pass bytes to the broker, and end its iteration."""
        self.connection.receive(data, 0.0)
        self._broker.flush()

    def write(self, data: bytes) -> None:
        """Store bytes; the next iteration of the broker begins within this call."""
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)
        self.octets += data
        self.connection.set_writable(False, 0.0)
        if self.depth < 5:
            self.connection.set_writable(True, 0.0)
            self._broker.flush()
        self.depth -= 1

    def certificate(self) -> bytes | None:
        """Return None: this is not TLS."""
        return None

    def logged_in(self) -> None:
        """Start no heart-beats: the clock of this stream does not advance."""

    def pause(self) -> None:
        """Pause reading."""
        self.is_reading = False

    def resume(self) -> None:
        """Resume reading."""
        self.is_reading = True

    def close(self) -> None:
        """Record the end."""
        self.closed = True

    def drained(self) -> None:
        """Report again that there is room."""
        self.connection.set_writable(True, 0.0)
        self._broker.flush()

    def frames(self) -> list[Frame]:
        """Return all frames so far."""
        decoder = FrameDecoder()
        [connected] = decoder.feed(self.octets)
        assert connected.command == "CONNECTED"
        decoder.negotiated("1.2")
        return decoder.feed(b"")


@pytest.mark.parametrize("ack", ["auto", "client-individual"])
@pytest.mark.parametrize("destination", [QUEUE, TOPIC])
def test_a_turn_within_a_turn_neither_loses_nor_doubles_a_message(
    destination: str, ack: str
) -> None:
    broker = Broker(BrokerConfig(write_batch_bytes=1, prefetch=1_000), Clock())
    outlets = [Eager(broker) for _ in range(2)]
    name = destination.encode()
    for outlet in outlets:
        outlet.receive(b"SUBSCRIBE\nid:1\ndestination:%b\nack:%b\n\n\0" % (name, ack.encode()))
        outlet.connection.set_writable(False, 0.0)
    sender = Eager(broker)
    sender.receive(b"".join(b"SEND\ndestination:%b\n\n%d\0" % (name, n) for n in range(100)))
    for _ in range(100):
        for outlet in outlets:
            outlet.drained()
    assert max(outlet.deepest for outlet in outlets) == 1, "a turn has begun within another"
    bodies = [[int(frame.body) for frame in outlet.frames()] for outlet in outlets]
    if destination == TOPIC:
        assert bodies == [list(range(100))] * 2
    else:
        assert [sorted(got) for got in bodies] == bodies
        assert sorted(bodies[0] + bodies[1]) == list(range(100))
    for outlet in outlets:
        for frame in outlet.frames():
            if ack != "auto":
                outlet.receive(b"ACK\nid:%b\n\n\0" % frame.headers["ack"].encode())
        outlet.receive(b"DISCONNECT\n\n\0")
        assert outlet.closed
        assert outlet.connection.failure is None
    assert next(iter(broker.hosts.values())).destinations == {}
