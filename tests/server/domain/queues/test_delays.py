"""Delayed messages."""

from __future__ import annotations

import pytest

from stompkit.frames import Frame, encode
from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker
from tests.server.brokers import MakeBroker, refusal, stored, take_one
from tests.server.many_queues import numbered

QUEUE = "/queue/a"
TOPIC = "/topic/a"
both_kinds = pytest.mark.parametrize("destination", [QUEUE, TOPIC])

#: Headers of a message that is sent at 100.0 s and due at 105.0 s.
IN_FIVE_SECONDS = (
    {"delay": "5000"},
    {"AMQ_SCHEDULED_DELAY": "5000"},
    {"AMQ_SCHEDULED_TIME": "105000"},
    {"AMQ_SCHEDULED_DELAY": "5000", "delay": "1", "AMQ_SCHEDULED_TIME": "1"},
    {"delay": "5000", "AMQ_SCHEDULED_TIME": "1"},
)


@both_kinds
@pytest.mark.parametrize("headers", IN_FIVE_SECONDS)
def test_a_message_is_kept_back_until_its_time(
    broker_with: MakeBroker, destination: str, headers: dict[str, str]
) -> None:
    broker = broker_with()
    broker.clock.advance(100.0)
    client, producer = broker.client(), broker.client()
    client.subscribe(destination)
    producer.send("SEND", {"destination": destination, "receipt": "r"} | headers, b"later")
    producer.publish(destination, b"now")
    assert producer.take("RECEIPT")
    assert client.bodies() == [b"now"]
    broker.clock.advance(4.999)
    assert client.bodies() == []
    broker.clock.advance(0.001)
    message = take_one(client)
    assert message.body == b"later"
    assert {name: message.headers[name] for name in headers} == headers


@both_kinds
@pytest.mark.parametrize(
    "headers", [{"delay": "0"}, {"AMQ_SCHEDULED_DELAY": "0"}, {"AMQ_SCHEDULED_TIME": "100000"}]
)
def test_a_time_that_is_past_delays_nothing(
    broker_with: MakeBroker, destination: str, headers: dict[str, str]
) -> None:
    broker = broker_with()
    broker.clock.advance(100.0)
    client = broker.client()
    client.subscribe(destination)
    client.send("SEND", {"destination": destination} | headers, b"x")
    assert client.bodies() == [b"x"]


@both_kinds
def test_they_come_in_the_order_of_their_times(broker_with: MakeBroker, destination: str) -> None:
    broker = broker_with()
    client, producer = broker.client(), broker.client()
    client.subscribe(destination)
    for body, delay in ((b"5", "5000"), (b"2", "2000"), (b"7", "7000"), (b"3", "3000")):
        producer.publish(destination, body, delay=delay)
    came = []
    for _ in range(8):
        came.append(client.bodies())
        broker.clock.advance(1.0)
    assert came == [[], [], [b"2"], [b"3"], [], [b"5"], [], [b"7"]]


@both_kinds
def test_those_of_one_time_come_as_they_were_sent(
    broker_with: MakeBroker, destination: str
) -> None:
    broker = broker_with()
    client, producer = broker.client(), broker.client()
    client.subscribe(destination)
    for body in numbered(1, 5):
        producer.publish(destination, body, delay="1000")
    broker.clock.advance(1.0)
    assert client.bodies() == numbered(1, 5)


@both_kinds
def test_all_that_are_due_come_after_a_long_pause(
    broker_with: MakeBroker, destination: str
) -> None:
    broker = broker_with()
    client, producer = broker.client(), broker.client()
    client.subscribe(destination)
    for number in range(9, 0, -1):
        producer.publish(destination, b"%d" % number, delay=f"{number}000")
    broker.clock.advance(60.0)
    assert client.bodies() == numbered(1, 9)


@both_kinds
def test_one_timer_is_enough_whatever_waits(broker_with: MakeBroker, destination: str) -> None:
    broker = broker_with()
    client = broker.client()
    client.subscribe(destination)
    for number in range(50, 0, -1):
        client.publish(destination, b"x", delay=f"{number}000")
    assert len(broker.clock.getDelayedCalls()) <= 2  # including the heart-beats of the store
    for number in range(1, 51):
        broker.clock.advance(1.0)
        assert client.bodies() == [b"x"], number
        assert len(broker.clock.getDelayedCalls()) <= 2


def test_its_place_in_the_queue_is_that_of_its_time(broker_with: MakeBroker) -> None:
    broker = broker_with()
    producer = broker.client()
    producer.publish(QUEUE, b"1", delay="1000")
    producer.publish(QUEUE, b"2")
    broker.clock.advance(1.0)
    producer.publish(QUEUE, b"3")
    assert stored(broker, QUEUE) == [b"2", b"1", b"3"]


def test_a_queue_with_one_is_not_forgotten_and_a_browser_does_not_see_it(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with()
    broker.client().publish(QUEUE, b"x", delay="1000")
    assert stored(broker, QUEUE) == []
    assert list(broker.destinations) == [QUEUE]
    broker.clock.advance(1.0)
    assert stored(broker, QUEUE) == [b"x"]


def test_a_topic_with_one_is_not_forgotten_and_goes_by_who_is_there_then() -> None:
    broker = MemoryBroker()
    early, late, producer = broker.client(), broker.client(), broker.client()
    early.subscribe(TOPIC)
    producer.publish(TOPIC, b"x", delay="1000")
    early.close()
    assert list(broker.destinations) == [TOPIC]
    late.subscribe("/topic/*")
    broker.clock.advance(1.0)
    assert late.bodies() == [b"x"]
    late.close()
    assert broker.destinations == {}


@pytest.mark.parametrize("ack", ["auto", "client"])
def test_it_is_delivered_once(broker_with: MakeBroker, ack: str) -> None:
    broker = broker_with()
    client = broker.client()
    client.subscribe(QUEUE, ack=ack)
    client.publish(QUEUE, b"x", delay="1000")
    broker.clock.advance(1.0)
    message = take_one(client)
    if ack == "client":
        client.ack(message)
    broker.clock.advance(1_000.0)
    client.close()
    assert broker.destinations == {}
    store = broker.broker.store
    assert store is None or store.lanes() == []


def test_it_is_not_delayed_again_when_it_comes_back(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = broker.client()
    client.subscribe(QUEUE, ack="client")
    client.publish(QUEUE, b"x", delay="1000")
    broker.clock.advance(1.0)
    client.nack(take_one(client))
    assert take_one(client).headers["delivery-count"] == "2"


def test_in_a_transaction_its_time_counts_from_send(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = broker.client()
    client.subscribe(QUEUE)
    client.send("BEGIN", transaction="t")
    client.publish(QUEUE, b"x", delay="3000", transaction="t")
    client.publish(QUEUE, b"y", delay="1000", transaction="t")
    broker.clock.advance(2.0)
    client.send("COMMIT", transaction="t")
    assert client.bodies() == [b"y"]
    broker.clock.advance(1.0)
    assert client.bodies() == [b"x"]


# Limits.


@both_kinds
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"delay": "10000"}, None),
        ({"delay": "10001"}, "bad-header"),
        ({"AMQ_SCHEDULED_DELAY": "10001"}, "bad-header"),
        ({"AMQ_SCHEDULED_TIME": "10001"}, "bad-header"),
    ],
)
def test_the_longest_delay_is_bounded(
    broker_with: MakeBroker, destination: str, headers: dict[str, str], code: str | None
) -> None:
    broker = broker_with(max_delay_s=10.0)
    client = broker.client()
    client.send("SEND", {"destination": destination} | headers, b"x")
    assert refusal(client) == code
    assert list(broker.destinations) == ([] if code else [destination])


@both_kinds
@pytest.mark.parametrize(
    "header", ["delay", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME", "expires", "expiration"]
)
@pytest.mark.parametrize("value", ["", "-1", "1.5", "soon", " 1", "1e3", "٣", "9" * 16])
def test_a_time_that_is_no_number_is_refused(
    broker_with: MakeBroker, destination: str, header: str, value: str
) -> None:
    client = broker_with().client()
    client.send("SEND", {"destination": destination, header: value, "receipt": "r"})
    assert refusal(client) == "bad-header"
    assert client.error is not None
    assert client.error.headers["receipt-id"] == "r"


@both_kinds
def test_those_that_wait_are_counted(broker_with: MakeBroker, destination: str) -> None:
    broker = broker_with(max_delayed=2)
    producer = broker.client()
    for delay in ("1000", "2000", "0"):
        producer.publish(destination, b"x", delay=delay)
    assert refusal(producer) is None
    producer.publish(destination, b"x", delay="1")
    assert refusal(producer) == "queue-full"
    broker.clock.advance(1.0)
    producer = broker.client()
    producer.publish(destination, b"x", delay="1")
    assert refusal(producer) is None


def test_they_count_as_messages_of_the_queue(broker_with: MakeBroker) -> None:
    broker = broker_with(max_queue_messages=2)
    producer = broker.client()
    producer.publish(QUEUE, b"1", delay="1000")
    producer.publish(QUEUE, b"2")
    assert refusal(producer) is None
    producer.publish(QUEUE, b"3")
    assert refusal(producer) == "queue-full"


def test_they_are_not_dropped_for_others(broker_with: MakeBroker) -> None:
    broker = broker_with(max_queue_messages=2, when_full="drop-oldest")
    producer = broker.client()
    producer.publish(QUEUE, b"1", delay="1000")
    producer.publish(QUEUE, b"2")
    producer.publish(QUEUE, b"3")
    assert refusal(producer) is None
    broker.clock.advance(1.0)
    assert stored(broker, QUEUE) == [b"3", b"1"]


@both_kinds
def test_those_of_a_transaction_are_counted_together(
    broker_with: MakeBroker, destination: str
) -> None:
    broker = broker_with(max_delayed=3)
    for messages, code, waiting in ((2, None, 2), (2, "queue-full", 2), (1, None, 3)):
        sender = broker.client()
        sender.send("BEGIN", transaction="t")
        for _ in range(messages):
            sender.publish(destination, b"x", delay="1000", transaction="t")
        sender.publish(destination, b"not delayed", transaction="t")
        sender.send("COMMIT", transaction="t")
        assert refusal(sender) == code
        assert broker.destinations[destination].delayed == waiting


@both_kinds
def test_those_of_one_write_are_counted(broker_with: MakeBroker, destination: str) -> None:
    broker = broker_with(max_delayed=3)
    sender = broker.client()
    headers = {"destination": destination, "delay": "1000", "receipt": "r"}
    sender.write(encode(Frame("SEND", headers, b"x"), "1.2") * 9)
    assert refusal(sender) == "queue-full"
    assert broker.destinations[destination].delayed == 3


def test_those_of_the_children_of_a_fanout_are_counted(broker_with: MakeBroker) -> None:
    table = DestinationConfig(name="/fanout/f", children=("/queue/a", "/queue/b"))
    broker = broker_with(max_delayed=2, destinations=(table,))
    broker.client().publish("/queue/b", b"x", delay="1000")
    sender = broker.client()
    sender.send("BEGIN", transaction="t")
    for _ in range(2):
        sender.publish("/fanout/f", b"x", delay="1000", transaction="t")
    sender.send("COMMIT", transaction="t")
    assert refusal(sender) == "queue-full"
    assert "/queue/a" not in broker.destinations
    broker.client().publish("/fanout/f", b"x", delay="1000")
    assert [broker.destinations[name].delayed for name in ("/queue/a", "/queue/b")] == [1, 2]


def test_octets_that_wait_in_a_topic_have_the_limit_of_memory() -> None:
    broker = MemoryBroker(BrokerConfig(max_memory_queue_bytes=1_000))
    sender = broker.client()
    sender.publish("/topic/t", b"x" * 600, delay="1000")
    assert refusal(sender) is None
    sender.publish("/topic/t", b"x" * 600, delay="1000")
    assert refusal(sender) == "queue-full"
    broker.clock.advance(1.0)
    sender = broker.client()
    sender.publish("/topic/t", b"x" * 600, delay="1000")
    assert refusal(sender) is None


# In the store.


def test_they_survive_the_broker() -> None:
    store = MemoryStore()
    broker = MemoryBroker(store=store)
    producer = broker.client()
    for body, delay in ((b"3", "3000"), (b"1", "1000"), (b"9", "9000")):
        producer.publish(QUEUE, body, delay=delay, priority="7", colour="blue")
    broker.broker.close()
    broker.clock.advance(2.0)
    broker = MemoryBroker(store=store, clock=broker.clock)
    client = broker.client()
    client.subscribe(QUEUE)
    broker.clock.advance(0.0)
    assert client.bodies() == [b"1"]
    broker.clock.advance(1.0)
    message = take_one(client)
    assert message.body == b"3"
    assert message.headers["colour"] == "blue"
    client.publish(QUEUE, b"5", delay="2000")
    broker.clock.advance(2.0)
    assert client.bodies() == [b"5"]
    broker.clock.advance(4.0)
    assert client.bodies() == [b"9"]
