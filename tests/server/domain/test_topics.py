"""Topics: a copy for each subscriber, without waiting for the slowest."""

from __future__ import annotations

import tracemalloc

import pytest

from stompkit.frames import VERSIONS
from stompkit.server import BrokerConfig
from stompkit.testing.memory import MemoryBroker, MemoryClient

TOPIC = "/topic/t"


def numbered(first: int, last: int) -> list[bytes]:
    """Return numbered bodies."""
    return [b"%d" % number for number in range(first, last + 1)]


def publish_all(client: MemoryClient, bodies: list[bytes]) -> None:
    for body in bodies:
        client.publish(TOPIC, body)


def lost_messages(broker: MemoryBroker) -> list[int]:
    """Return the number of messages lost by each subscription."""
    return [
        subscription.dropped
        for connection in broker.broker.connections
        for subscription in connection.subscriptions.values()
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_subscriber_gets_every_message_in_order(version: str) -> None:
    broker = MemoryBroker()
    consumers = [broker.client(version) for _ in range(3)]
    for consumer in consumers:
        consumer.subscribe(TOPIC)
    publish_all(broker.client(), numbered(1, 20))
    assert [consumer.bodies() for consumer in consumers] == [numbered(1, 20)] * 3


def test_a_client_gets_what_it_sent_itself() -> None:
    client = MemoryBroker().client()
    client.subscribe(TOPIC)
    client.publish(TOPIC, b"x")
    assert client.bodies() == [b"x"]


def test_each_subscription_of_a_connection_gets_its_copy() -> None:
    client = MemoryBroker().client()
    client.subscribe(TOPIC, id="1")
    client.subscribe(TOPIC, id="2")
    client.publish(TOPIC, b"x")
    got = [(m.headers["subscription"], m.body) for m in client.take("MESSAGE")]
    assert got == [("1", b"x"), ("2", b"x")]


def test_what_was_sent_before_subscribe_is_not_delivered() -> None:
    client = MemoryBroker().client()
    client.publish(TOPIC, b"early")
    client.subscribe(TOPIC)
    client.publish(TOPIC, b"late")
    assert client.bodies() == [b"late"]


def test_what_was_sent_before_subscribe_in_the_same_chunk_is_not_delivered_either() -> None:
    client = MemoryBroker().client()
    client.write(
        b"SEND\ndestination:/topic/t\n\nearly\0"
        b"SUBSCRIBE\nid:1\ndestination:/topic/t\n\n\0"
        b"SEND\ndestination:/topic/t\n\nlate\0"
    )
    assert client.bodies() == [b"late"]


def test_after_unsubscribe_nothing_more_is_delivered() -> None:
    client = MemoryBroker().client()
    client.subscribe(TOPIC, id="1")
    client.subscribe(TOPIC, id="2")
    client.send("UNSUBSCRIBE", id="1")
    client.publish(TOPIC, b"x")
    assert [m.headers["subscription"] for m in client.take("MESSAGE")] == ["2"]


def test_nothing_is_kept_for_nobody() -> None:
    broker = MemoryBroker()
    client = broker.client()
    for _ in range(100):
        client.publish(TOPIC, b"x")
    assert broker.destinations == {}


# Slow readers.


def test_a_slow_reader_delays_nobody() -> None:
    broker = MemoryBroker()
    slow, fast = broker.client(), broker.client()
    slow.subscribe(TOPIC)
    fast.subscribe(TOPIC)
    slow.stop_reading()
    publish_all(broker.client(), numbered(1, 50))
    assert fast.bodies() == numbered(1, 50)
    assert slow.bodies() == []
    slow.start_reading()
    assert slow.bodies() == numbered(1, 50)


def test_a_reader_that_catches_up_gets_old_messages_before_new_ones() -> None:
    broker = MemoryBroker()
    producer, slow = broker.client(), broker.client()
    slow.subscribe(TOPIC)
    slow.stop_reading(room_bytes=1)
    publish_all(producer, numbered(1, 3))  # the first message fills the transport
    slow.read_waiting()  # the second message fills it again
    publish_all(producer, numbered(4, 5))
    slow.start_reading()
    publish_all(producer, numbered(6, 6))
    assert slow.bodies() == numbered(1, 6)


@pytest.mark.parametrize(("sent", "lost"), [(4, 0), (5, 1), (9, 5)])
def test_the_oldest_messages_are_lost_past_the_limit_of_messages(sent: int, lost: int) -> None:
    broker = MemoryBroker(BrokerConfig(max_topic_backlog=4))
    slow, producer = broker.client(), broker.client()
    slow.subscribe(TOPIC)
    slow.stop_reading()
    publish_all(producer, numbered(1, sent))
    assert lost_messages(broker) == [lost]
    slow.start_reading()
    assert slow.bodies() == numbered(1 + lost, sent)


@pytest.mark.parametrize(("sent", "lost"), [(4, 0), (5, 1), (9, 5)])
def test_the_oldest_messages_are_lost_past_the_limit_of_octets(sent: int, lost: int) -> None:
    each = len(b"1" + b"destination" + b"/topic/t" + b"content-length" + b"1")
    broker = MemoryBroker(BrokerConfig(max_topic_backlog_bytes=4 * each))
    slow, producer = broker.client(), broker.client()
    slow.subscribe(TOPIC)
    slow.stop_reading()
    publish_all(producer, numbered(1, sent))
    assert lost_messages(broker) == [lost]
    slow.start_reading()
    assert slow.bodies() == numbered(1 + lost, sent)


def test_a_message_larger_than_the_limit_is_lost_itself() -> None:
    broker = MemoryBroker(BrokerConfig(max_topic_backlog_bytes=100))
    slow, producer = broker.client(), broker.client()
    slow.subscribe(TOPIC)
    slow.stop_reading()
    publish_all(producer, [b"small", b"x" * 200])
    assert lost_messages(broker) == [1]
    slow.start_reading()
    publish_all(producer, [b"x" * 200])
    assert slow.bodies() == [b"small", b"x" * 200]


def test_the_limit_counts_for_each_subscriber_for_itself() -> None:
    broker = MemoryBroker(BrokerConfig(max_topic_backlog=2))
    slow, slower = broker.client(), broker.client()
    slow.subscribe(TOPIC)
    slower.subscribe(TOPIC)
    producer = broker.client()
    slower.stop_reading()
    publish_all(producer, numbered(1, 2))
    slow.stop_reading()
    publish_all(producer, numbered(3, 4))
    slow.start_reading()
    slower.start_reading()
    assert slow.bodies() == numbered(1, 4)
    assert slower.bodies() == numbered(3, 4)


def test_the_room_is_free_again_once_the_backlog_has_been_read() -> None:
    broker = MemoryBroker(BrokerConfig(max_topic_backlog=3, max_topic_backlog_bytes=3 * 35))
    producer, slow = broker.client(), broker.client()
    slow.subscribe(TOPIC)
    for _ in range(5):
        slow.stop_reading()
        publish_all(producer, numbered(1, 3))
        slow.start_reading()
        assert slow.bodies() == numbered(1, 3)
    assert sum(lost_messages(broker)) == 0


def test_what_an_ended_subscription_had_not_delivered_is_freed() -> None:
    broker = MemoryBroker()
    producer, client = broker.client(), broker.client()
    tracemalloc.start()
    try:
        for number in range(10):
            client.subscribe(TOPIC, id="1", ack="client", prefetch_count="1")
            for _ in range(100):
                producer.publish(TOPIC, bytes(10_000))
            client.send("UNSUBSCRIBE", id="1")
            assert len(client.take("MESSAGE")) == 1, number  # never acknowledged
            client.transport.take()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3_000_000  # of 10,000,000 sent


# Acknowledgements.


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_prefetch_bounds_a_topic_too(ack: str) -> None:
    broker = MemoryBroker()
    producer, client, other = broker.client(), broker.client(), broker.client()
    client.subscribe(TOPIC, ack=ack, prefetch_count="2")
    other.subscribe(TOPIC)
    publish_all(producer, numbered(1, 4))
    assert other.bodies() == numbered(1, 4)
    [first, second] = client.take("MESSAGE")
    assert [first.body, second.body] == numbered(1, 2)
    client.ack(first)
    [third] = client.take("MESSAGE")
    assert third.body == b"3"
    client.ack(second)
    client.ack(third)
    assert client.bodies() == [b"4"]
    assert client.error is None


def test_a_subscriber_that_does_not_acknowledge_loses_the_oldest() -> None:
    broker = MemoryBroker(BrokerConfig(max_topic_backlog=2))
    producer, client = broker.client(), broker.client()
    client.subscribe(TOPIC, ack="client", prefetch_count="1")
    publish_all(producer, numbered(1, 5))
    [first] = client.take("MESSAGE")
    client.ack(first)
    [fourth] = client.take("MESSAGE")
    assert fourth.body == b"4"


def test_what_was_kept_back_goes_before_what_comes_in_the_same_chunk() -> None:
    client = MemoryBroker().client()
    client.subscribe(TOPIC, ack="client", prefetch_count="1")
    publish_all(client, numbered(1, 2))
    [first] = client.take("MESSAGE")
    ack = b"ACK\nid:%b\n\n\0" % first.headers["ack"].encode()
    client.write(ack + b"SEND\ndestination:/topic/t\n\n3\0")
    [second] = client.take("MESSAGE")
    client.ack(second)
    assert [second.body, *client.bodies()] == numbered(2, 3)


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_nack_drops_a_topics_message(ack: str) -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe(TOPIC, ack=ack)
    client.publish(TOPIC, b"x")
    [message] = client.take("MESSAGE")
    client.nack(message)
    assert client.take() == []
    assert list(broker.destinations) == [TOPIC]


def test_unacknowledged_messages_of_a_topic_are_not_redelivered() -> None:
    broker = MemoryBroker()
    client, other = broker.client(), broker.client()
    client.subscribe(TOPIC, ack="client")
    client.publish(TOPIC, b"x")
    client.drop()
    other.subscribe(TOPIC)
    assert other.bodies() == []


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_an_acknowledgement_may_come_after_the_topic_was_forgotten(
    version: str, command: str
) -> None:
    broker = MemoryBroker()
    client, other = broker.client(version), broker.client()
    client.subscribe(TOPIC, id="1", ack="client")
    client.publish(TOPIC, b"x")
    [message] = client.take("MESSAGE")
    client.send("UNSUBSCRIBE", id="1")
    other.subscribe(TOPIC)  # a new topic of the same name
    (client.ack if command == "ACK" else client.nack)(message, receipt="r")
    assert [frame.command for frame in client.take()] == ["RECEIPT"]
    client.publish(TOPIC, b"y")
    assert other.bodies() == [b"y"]


def test_a_lost_connection_does_not_take_the_topic_from_others() -> None:
    broker = MemoryBroker()
    client, other = broker.client(), broker.client()
    client.subscribe(TOPIC, id="1", ack="client")
    client.publish(TOPIC, b"x")
    client.send("UNSUBSCRIBE", id="1")
    other.subscribe(TOPIC)
    client.drop()
    broker.client().publish(TOPIC, b"y")
    assert other.bodies() == [b"y"]


@pytest.mark.parametrize("ack", ["client", "client-individual"])
@pytest.mark.parametrize("version", VERSIONS)
def test_copies_of_a_message_on_one_connection_are_acknowledged_one_by_one(
    version: str, ack: str
) -> None:
    client = MemoryBroker().client(version)
    for number in range(3):
        client.subscribe(TOPIC, id=str(number), ack=ack, prefetch_count="2")
    publish_all(client, numbered(1, 4))
    seen: dict[str, list[bytes]] = {"0": [], "1": [], "2": []}
    while messages := client.take("MESSAGE"):
        for message in messages:
            seen[message.headers["subscription"]].append(message.body)
            if ack == "client-individual" or message.body in (b"2", b"4"):
                client.ack(message)
    assert client.error is None
    assert seen == {"0": numbered(1, 4), "1": numbered(1, 4), "2": numbered(1, 4)}


def test_1_0_message_ids_tell_the_copies_of_a_connection_apart() -> None:
    client = MemoryBroker().client("1.0")
    client.subscribe(TOPIC, id="1", ack="client")
    client.subscribe(TOPIC, id="2", ack="client")
    client.publish(TOPIC, b"x")
    first, second = client.take("MESSAGE")
    assert first.headers["message-id"] != second.headers["message-id"]


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_an_aborted_acknowledgement_of_an_ended_subscription_holds_nothing(ack: str) -> None:
    broker = MemoryBroker(BrokerConfig(max_unacknowledged=1))
    client, producer = broker.client(), broker.client()
    client.subscribe(TOPIC, id="s", ack=ack)
    producer.publish(TOPIC, b"1")
    [message] = client.take("MESSAGE")
    client.send("BEGIN", transaction="t")
    client.send("ACK", id=message.headers["ack"], transaction="t")
    client.send("UNSUBSCRIBE", id="s")
    client.send("ABORT", transaction="t")
    client.subscribe(TOPIC, id="again", ack=ack)
    producer.publish(TOPIC, b"2")
    assert client.bodies() == [b"2"]
    # An acknowledgement that was on its way is ignored.
    client.send("ACK", id=message.headers["ack"])
    assert client.error is None
