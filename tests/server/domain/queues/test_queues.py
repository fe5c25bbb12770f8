"""Queues: one of several subscribers gets each message, in order, and none is left over."""

from __future__ import annotations

import gc
import time

import pytest

from stompkit.frames import VERSIONS, Frame
from stompkit.server import BrokerConfig, Connection
from stompkit.testing.memory import MemoryBroker, MemoryClient

QUEUE = "/queue/a"


def numbered(first: int, last: int) -> list[bytes]:
    """Return numbered bodies."""
    return [b"%d" % number for number in range(first, last + 1)]


def publish_all(client: MemoryClient, bodies: list[bytes], destination: str = QUEUE) -> None:
    for body in bodies:
        client.publish(destination, body)


def test_a_message_goes_to_one_of_several_subscribers() -> None:
    broker = MemoryBroker()
    consumers = [broker.client() for _ in range(3)]
    for consumer in consumers:
        consumer.subscribe(QUEUE)
    broker.client().publish(QUEUE, b"one")
    assert sorted(consumer.bodies() for consumer in consumers) == [[], [], [b"one"]]


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_subscribers_take_turns(ack: str) -> None:
    broker = MemoryBroker()
    consumers = [broker.client() for _ in range(3)]
    for consumer in consumers:
        consumer.subscribe(QUEUE, ack=ack)
    publish_all(broker.client(), numbered(1, 9))
    assert [consumer.bodies() for consumer in consumers] == [
        [b"1", b"4", b"7"],
        [b"2", b"5", b"8"],
        [b"3", b"6", b"9"],
    ]


@pytest.mark.parametrize("ack", ["auto", "client-individual"])
def test_subscribers_take_turns_within_one_chunk_too(ack: str) -> None:
    broker = MemoryBroker()
    consumers = [broker.client() for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe(QUEUE, ack=ack)
    broker.client().write(b"".join(b"SEND\ndestination:/queue/a\n\n%d\0" % n for n in range(4)))
    assert [consumer.bodies() for consumer in consumers] == [[b"0", b"2"], [b"1", b"3"]]


def test_subscriptions_of_one_connection_take_turns() -> None:
    client = MemoryBroker().client()
    client.subscribe(QUEUE, id="1")
    client.subscribe(QUEUE, id="2")
    publish_all(client, numbered(1, 4))
    got = [(m.headers["subscription"], m.body) for m in client.take("MESSAGE")]
    assert got == [("1", b"1"), ("2", b"2"), ("1", b"3"), ("2", b"4")]


def test_a_subscriber_that_can_take_no_more_is_passed_over() -> None:
    broker = MemoryBroker()
    busy, stuck, free = broker.client(), broker.client(), broker.client()
    busy.subscribe(QUEUE, ack="client", prefetch_count="1")
    stuck.subscribe(QUEUE)
    free.subscribe(QUEUE)
    stuck.stop_reading()
    publish_all(broker.client(), numbered(1, 5))
    assert busy.bodies() == [b"1"]
    assert free.bodies() == numbered(2, 5)
    assert stuck.bodies() == []


def test_turns_go_on_where_they_stopped_after_a_pause() -> None:
    broker = MemoryBroker()
    consumers = [broker.client() for _ in range(3)]
    for consumer in consumers:
        consumer.subscribe(QUEUE)
    producer = broker.client()
    publish_all(producer, numbered(1, 4))
    for consumer in consumers:
        consumer.take()
        consumer.stop_reading()
    publish_all(producer, numbered(5, 7))
    for consumer in consumers:
        consumer.start_reading()
    assert sorted(body for consumer in consumers for body in consumer.bodies()) == numbered(5, 7)


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_wait_for_a_subscriber_in_order(version: str) -> None:
    broker = MemoryBroker()
    producer = broker.client()
    publish_all(producer, numbered(1, 250))
    consumer = broker.client(version)
    consumer.subscribe(QUEUE)
    publish_all(producer, numbered(251, 300))
    assert consumer.bodies() == numbered(1, 300)


def test_messages_outlive_their_sender() -> None:
    broker = MemoryBroker()
    producer = broker.client()
    producer.publish(QUEUE, b"x")
    producer.drop()
    consumer = broker.client()
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == [b"x"]


def test_a_client_gets_what_it_sent_itself() -> None:
    client = MemoryBroker().client()
    client.subscribe(QUEUE)
    client.publish(QUEUE, b"x")
    assert client.bodies() == [b"x"]


def test_queues_do_not_mix() -> None:
    client = MemoryBroker().client()
    for name in ("a", "a.b", "a/b", "A", "a "):
        client.subscribe(f"/queue/{name}", id=name)
    client.subscribe("/topic/a", id="topic")
    client.subscribe("/dlq/a", id="dead letters")
    client.publish("/queue/a.b", b"x")
    [message] = client.take("MESSAGE")
    assert message.headers["subscription"] == "a.b"


def test_after_unsubscribe_nothing_more_is_delivered() -> None:
    broker = MemoryBroker()
    client, other = broker.client(), broker.client()
    client.subscribe(QUEUE, id="1")
    client.publish(QUEUE, b"1")
    client.send("UNSUBSCRIBE", id="1")
    client.publish(QUEUE, b"2")
    assert client.bodies() == [b"1"]
    other.subscribe(QUEUE)
    assert other.bodies() == [b"2"]


def test_a_subscription_can_come_back_under_the_same_id() -> None:
    client = MemoryBroker().client()
    for round_number in range(3):
        client.subscribe(QUEUE, id="1")
        client.publish(QUEUE, b"%d" % round_number)
        client.send("UNSUBSCRIBE", id="1")
    assert client.bodies() == [b"0", b"1", b"2"]


def test_1_0_subscriptions_need_no_id() -> None:
    client = MemoryBroker().client("1.0")
    client.subscribe(QUEUE, id=None)
    client.publish(QUEUE, b"1")
    [message] = client.take("MESSAGE")
    assert "subscription" not in message.headers
    client.send("UNSUBSCRIBE", destination=QUEUE)
    client.publish(QUEUE, b"2")
    assert client.bodies() == []
    assert client.error is None


def test_1_0_subscriptions_with_an_id_are_named_by_it() -> None:
    client = MemoryBroker().client("1.0")
    client.subscribe(QUEUE, id=QUEUE)
    client.subscribe(QUEUE, id=None)
    client.send("UNSUBSCRIBE", id=QUEUE)
    client.publish(QUEUE, b"1")
    [message] = client.take("MESSAGE")
    assert "subscription" not in message.headers


def test_a_receipt_of_subscribe_comes_before_the_first_message() -> None:
    broker = MemoryBroker()
    broker.client().publish(QUEUE)
    client = broker.client()
    client.subscribe(QUEUE, receipt="r")
    assert [frame.command for frame in client.take()] == ["CONNECTED", "RECEIPT", "MESSAGE"]


# Messages of a lost connection.


def settle(client: MemoryClient, messages: list[Frame]) -> None:
    for message in messages:
        client.ack(message)


@pytest.mark.parametrize("version", VERSIONS)
def test_unacknowledged_messages_of_a_lost_connection_come_back_in_order(version: str) -> None:
    broker = MemoryBroker()
    producer, first = broker.client(), broker.client(version)
    first.subscribe(QUEUE, ack="client-individual", prefetch_count="4")
    publish_all(producer, numbered(1, 6))
    messages = first.take("MESSAGE")
    assert [message.body for message in messages] == numbered(1, 4)
    settle(first, [messages[1]])
    first.drop()
    second = broker.client(version)
    second.subscribe(QUEUE)
    again = second.take("MESSAGE")
    assert [message.body for message in again] == [b"1", b"3", b"4", b"5", b"6"]
    assert [message.headers.get("redelivered") for message in again] == [
        "true",
        "true",
        "true",
        "true",  # 5 used the prefetch that the ACK of 2 had freed
        None,
    ]


def test_messages_of_two_lost_connections_come_back_in_order() -> None:
    broker = MemoryBroker()
    producer, consumers = broker.client(), [broker.client() for _ in range(3)]
    for consumer in consumers:
        consumer.subscribe(QUEUE, ack="client", prefetch_count="3")
    publish_all(producer, numbered(1, 12))
    consumers[1].drop()
    consumers[0].drop()
    consumers[2].drop()
    last = broker.client()
    last.subscribe(QUEUE)
    assert last.bodies() == numbered(1, 12)


def test_a_lost_connections_messages_go_to_waiting_subscribers_at_once() -> None:
    broker = MemoryBroker()
    first, second = broker.client(), broker.client()
    first.subscribe(QUEUE, ack="client")
    publish_all(broker.client(), numbered(1, 3))
    second.subscribe(QUEUE)
    assert second.bodies() == []
    first.close()
    assert second.bodies() == numbered(1, 3)


def test_each_redelivery_is_counted() -> None:
    broker = MemoryBroker()
    broker.client().publish(QUEUE, b"x")
    counts = []
    ids: set[str] = set()
    for _ in range(4):
        consumer = broker.client()
        consumer.subscribe(QUEUE, ack="client")
        [message] = consumer.take("MESSAGE")
        counts.append((message.headers.get("redelivered"), message.headers.get("delivery-count")))
        ids.add(message.headers["message-id"])
        consumer.drop()
    assert counts == [(None, None), ("true", "2"), ("true", "3"), ("true", "4")]
    assert len(ids) == 1


def test_a_lost_connection_ends_all_its_subscriptions() -> None:
    broker = MemoryBroker()
    client = broker.client()
    for number in range(5):
        client.subscribe(f"/queue/{number % 2}", id=str(number))
        client.subscribe(f"/topic/{number % 2}", id=f"t{number}")
    client.drop()
    assert broker.destinations == {}
    assert broker.broker.connections == set()


@pytest.mark.parametrize("way", ["disconnect", "close", "drop", "error"])
def test_nothing_of_a_gone_connection_remains(way: str) -> None:
    broker = MemoryBroker()
    producer, client = broker.client(), broker.client(heart_beat="1000,1000")
    known = set(broker.broker.connections)
    publish_all(producer, numbered(1, 10))
    client.subscribe(QUEUE, id="1", ack="client", prefetch_count="5")
    client.subscribe("/topic/t", id="2", ack="client")
    client.subscribe("/topic/t", id="3")
    producer.publish("/topic/t", b"x")
    client.send("BEGIN", transaction="t")
    messages = client.take("MESSAGE")
    client.ack(messages[0], transaction="t")
    client.publish(QUEUE, b"y", transaction="t")
    client.nack(messages[4])
    client.send("UNSUBSCRIBE", id="2")
    producer.close()
    assert len(known) == 2
    [connection] = broker.broker.connections
    del known
    gone = id(connection)
    if way == "disconnect":
        client.send("DISCONNECT")
        client.close()
    elif way == "close":
        client.close()
    elif way == "drop":
        client.stop_reading()
        client.drop()
    else:
        client.write(b"nonsense\n\n\0")
        broker.clock.advance(10.0)
    del connection, client, producer
    gc.collect()
    left = [each for each in gc.get_objects() if isinstance(each, Connection)]
    assert gone not in map(id, left)
    del left
    assert broker.clock.getDelayedCalls() == []
    successor = broker.client()
    successor.subscribe(QUEUE)
    assert successor.bodies() == numbered(1, 10)


# Memory use and cost.


def test_destinations_that_are_idle_are_forgotten() -> None:
    broker = MemoryBroker(BrokerConfig(max_destinations=50))
    client = broker.client()
    for number in range(10_000):
        client.subscribe(f"/queue/{number}", id="q")
        client.publish(f"/queue/{number}", b"x")
        client.send("UNSUBSCRIBE", id="q")
        client.publish(f"/topic/{number}", b"x")
    assert len(client.bodies()) == 10_000
    assert broker.destinations == {}


def test_a_queue_with_messages_is_not_forgotten() -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.publish(QUEUE, b"x")
    client.subscribe(QUEUE, id="1", ack="client")
    client.send("UNSUBSCRIBE", id="1")
    assert list(broker.destinations) == [QUEUE]
    [message] = client.take("MESSAGE")
    client.ack(message)
    assert broker.destinations == {}


def test_a_queue_has_its_whole_room_again_after_every_way_out_of_it() -> None:
    # The body, 37 bytes of headers, and 243 more for dead letters.
    room = BrokerConfig(max_queue_messages=4, max_queue_bytes=4 * (1_000 + 37 + 243))
    broker = MemoryBroker(room)
    producer, keeper = broker.client(), broker.client()
    keeper.stop_reading()
    keeper.subscribe(QUEUE, id="1")  # keeps the queues in existence
    keeper.subscribe("/dlq/a", id="2")

    def fill() -> None:
        for _ in range(4):
            producer.publish(QUEUE, b"x" * 1_000)

    for _ in range(3):
        fill()  # automatic acknowledgement
        consumer = broker.client()
        consumer.subscribe(QUEUE)
        consumer.close()
        fill()  # acknowledgement, cumulative and individual, after a loss and a refusal
        lost = broker.client()
        lost.subscribe(QUEUE, ack="client")
        lost.drop()
        consumer = broker.client()
        consumer.subscribe(QUEUE, id="1", ack="client", prefetch_count="2")
        [_, second] = consumer.take("MESSAGE")
        consumer.nack(second)
        [_, second] = consumer.take("MESSAGE")
        consumer.ack(second)
        [third, fourth] = consumer.take("MESSAGE")
        consumer.ack(third)
        consumer.send("UNSUBSCRIBE", id="1")
        consumer.ack(fourth)
        assert consumer.error is None
        consumer.close()
        fill()  # dead letters, which are then dropped
        consumer = broker.client()
        consumer.subscribe(QUEUE, id="1", ack="client-individual")
        consumer.subscribe("/dlq/a", id="2", ack="client-individual")
        for message in consumer.take("MESSAGE"):
            consumer.nack(message, requeue="false")
        letters = consumer.take("MESSAGE")
        assert len(letters) == 4
        for message in letters:
            consumer.nack(message, requeue="false")
        assert consumer.error is None
        consumer.close()
    assert producer.error is None
    keeper.close()
    assert broker.destinations == {}


def test_refusals_do_not_move_the_whole_queue_about() -> None:
    def seconds(verb: bytes) -> float:
        """Return the time in seconds for 1,000 replies in one chunk, while 50,000 messages wait."""
        client = MemoryBroker().client()
        client.write(b"SEND\ndestination:/queue/a\n\n\0" * 51_000)
        client.subscribe(QUEUE, ack="client-individual", prefetch_count="1000")
        keys = [message.headers["ack"].encode() for message in client.take("MESSAGE")]
        begun = time.perf_counter()
        client.write(b"".join(b"%b\nid:%b\n\n\0" % (verb, key) for key in keys))
        taken = time.perf_counter() - begun
        assert len(client.take("MESSAGE")) == len(keys) == 1_000
        return taken

    # Moving the rest for each reply would take several hundred times as long.
    assert seconds(b"NACK") < 20 * seconds(b"ACK")
