"""Selectors on queues and topics: consumers get matching messages, the others wait."""

from __future__ import annotations

import pytest

from stompkit.frames import VERSIONS
from stompkit.server import BrokerConfig
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import MakeBroker, refusal, stored, take_one

QUEUE = "/queue/a"
TOPIC = "/topic/a"
BLUE, RED = "colour = 'blue'", "colour = 'red'"


def send(client: MemoryClient, *bodies: str, destination: str = QUEUE) -> None:
    """Send messages whose colour is the beginning of the body."""
    for body in bodies:
        colour = {"b": "blue", "r": "red", "g": "green"}[body[0]]
        client.publish(destination, body.encode(), colour=colour)


def consume(client: MemoryClient) -> list[bytes]:
    """Acknowledge one message after the other; return the bodies in order."""
    bodies = []
    while messages := client.take("MESSAGE"):
        for message in messages:
            bodies.append(message.body)
            client.ack(message)
    return bodies


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("destination", [QUEUE, TOPIC])
def test_a_subscriber_gets_what_its_selector_takes(
    broker_with: MakeBroker, version: str, destination: str
) -> None:
    broker = broker_with()
    client = broker.client(version)
    client.subscribe(destination, selector=BLUE)
    send(broker.client(), "b1", "r1", "b2", "g1", "b3", destination=destination)
    assert client.bodies() == [b"b1", b"b2", b"b3"]


def test_what_a_selector_does_not_take_stays_in_its_order(broker_with: MakeBroker) -> None:
    broker = broker_with()
    send(broker.client(), "r1", "b1", "g1", "r2", "b2", "g2")
    client = broker.client()
    client.subscribe(QUEUE, selector=BLUE)
    assert client.bodies() == [b"b1", b"b2"]
    assert stored(broker, QUEUE) == [b"r1", b"g1", b"r2", b"g2"]
    send(broker.client(), "b3", "r3")
    assert client.bodies() == [b"b3"]
    client.close()
    assert stored(broker, QUEUE) == [b"r1", b"g1", b"r2", b"g2", b"r3"]


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_two_consumers_with_complementary_selectors_share_a_queue(
    broker_with: MakeBroker, ack: str
) -> None:
    broker = broker_with()
    blue, rest = broker.client(), broker.client()
    blue.subscribe(QUEUE, ack=ack, selector=BLUE)
    rest.subscribe(QUEUE, ack=ack, selector="colour <> 'blue'")
    send(broker.client(), "b1", "r1", "r2", "g1", "b2", "b3", "g2")
    assert blue.bodies() == [b"b1", b"b2", b"b3"]
    assert rest.bodies() == [b"r1", b"r2", b"g1", b"g2"]
    blue.drop()
    assert stored(broker, QUEUE) == ([] if ack == "auto" else [b"b1", b"b2", b"b3"])


def test_a_consumer_without_a_selector_takes_the_rest_in_turn(broker_with: MakeBroker) -> None:
    broker = broker_with()
    blue, anything = broker.client(), broker.client()
    blue.subscribe(QUEUE, selector=BLUE)
    anything.subscribe(QUEUE)
    send(broker.client(), "b1", "b2", "r1", "b3", "b4")
    ours, theirs = blue.bodies(), anything.bodies()
    assert sorted([*ours, *theirs]) == [b"b1", b"b2", b"b3", b"b4", b"r1"]
    assert b"r1" in theirs
    assert ours
    assert set(ours) <= {b"b1", b"b2", b"b3", b"b4"}


def test_a_busy_consumer_keeps_nothing_from_the_others(broker_with: MakeBroker) -> None:
    broker = broker_with()
    blue, red = broker.client(), broker.client()
    blue.subscribe(QUEUE, ack="client", prefetch_count="1", selector=BLUE)
    red.subscribe(QUEUE, ack="client", prefetch_count="1", selector=RED)
    send(broker.client(), "b1", "b2", "b3", "r1", "r2", "b4")
    assert consume(red) == [b"r1", b"r2"]
    assert consume(blue) == [b"b1", b"b2", b"b3", b"b4"]


def test_what_comes_back_gets_its_place_among_what_stayed(broker_with: MakeBroker) -> None:
    broker = broker_with()
    send(broker.client(), "r1", "b1", "r2", "b2", "r3")
    client = broker.client()
    client.subscribe(QUEUE, id="1", ack="client-individual", selector=BLUE)
    messages = client.take("MESSAGE")
    client.send("UNSUBSCRIBE", id="1")
    for message in reversed(messages):
        client.nack(message)
    assert stored(broker, QUEUE) == [b"r1", b"b1", b"r2", b"b2", b"r3"]


def test_a_selector_may_look_at_what_the_broker_has_made_of_a_message(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with()
    consumer, watcher = broker.client(), broker.client()
    consumer.subscribe(QUEUE, ack="client")
    watcher.subscribe("/dlq/a", selector="\"dead-letter-reason\" = 'rejected'")
    send(broker.client(), "b1")
    consumer.nack(take_one(consumer), requeue="false")
    assert watcher.bodies() == [b"b1"]


def test_it_goes_for_each_queue_of_a_pattern(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = broker.client()
    client.subscribe("/queue/*", selector=BLUE)
    for name in ("/queue/a", "/queue/b"):
        send(broker.client(), "b1", "r1", destination=name)
    assert client.bodies() == [b"b1", b"b1"]
    assert stored(broker, "/queue/a") == stored(broker, "/queue/b") == [b"r1"]


def test_it_goes_together_with_one_in_flight(broker_with: MakeBroker) -> None:
    broker = broker_with(flow="one-in-flight")
    client = broker.client()
    client.subscribe(QUEUE, id="1", ack="client", selector=BLUE)
    client.subscribe(QUEUE, id="2", ack="client", selector=RED)
    send(broker.client(), "b1", "g1", "b2", "r1", "b3")
    assert consume(client) == [b"b1", b"r1", b"b2", b"b3"]
    client.close()
    assert stored(broker, QUEUE) == [b"g1"]


def test_it_goes_together_with_priorities(broker_with: MakeBroker) -> None:
    broker = broker_with(priority=True)
    producer, client = broker.client(), broker.client()
    for priority in "1234":
        colour = "blue" if priority in "13" else "red"
        producer.publish(QUEUE, priority.encode(), colour=colour, priority=priority)
    client.subscribe(QUEUE, selector="colour = 'blue' AND priority < 9")
    assert client.bodies() == [b"3", b"1"]
    assert stored(broker, QUEUE) == [b"4", b"2"]


@pytest.mark.parametrize("count", [999, 1_000, 2_500])
def test_many_messages_at_once_are_all_looked_at(broker_with: MakeBroker, count: int) -> None:
    broker = broker_with()
    client, producer = broker.client(), broker.client()
    client.subscribe(QUEUE, selector=BLUE)
    producer.write(b"SEND\ndestination:/queue/a\ncolour:blue\n\n\0" * count)
    assert len(client.take("MESSAGE")) == count


def test_what_is_behind_the_window_waits_until_the_front_is_taken(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(window_messages=3)
    blue, anything = broker.client(), broker.client()
    blue.subscribe(QUEUE, selector=BLUE)
    send(broker.client(), "r1", "r2", "r3", "b1")
    assert blue.bodies() == []
    anything.subscribe(QUEUE)
    assert anything.bodies()[:3] == [b"r1", b"r2", b"r3"]
    blue.close()
    anything.close()
    assert broker.destinations == {}


def test_what_one_takes_in_its_turn_lets_others_see_further(broker_with: MakeBroker) -> None:
    broker = broker_with(flow="one-in-flight", window_messages=1)
    busy, blue, producer = (broker.client() for _ in range(3))
    busy.subscribe("/queue/other", id="1", ack="client")
    busy.subscribe(QUEUE, id="2", ack="client", selector=RED)
    blue.subscribe(QUEUE, selector=BLUE)
    producer.publish("/queue/other", b"first")
    send(producer, "r1", "b1")
    assert blue.bodies() == []
    busy.ack(take_one(busy))
    assert take_one(busy).body == b"r1"
    assert blue.bodies() == [b"b1"]


def test_a_narrow_window_moves_on_past_what_is_taken(broker_with: MakeBroker) -> None:
    broker = broker_with(window_messages=4)
    send(broker.client(), *(["b1", "b2", "b3"] * 10), "r1")
    client = broker.client()
    client.subscribe(QUEUE, selector=BLUE)
    assert len(client.bodies()) == 30
    client.subscribe(QUEUE, id="red", selector=RED)
    assert client.bodies() == [b"r1"]


def test_without_the_selector_the_queue_is_one_like_others_again(broker_with: MakeBroker) -> None:
    broker = broker_with()
    picky, other = broker.client(), broker.client()
    picky.subscribe(QUEUE, id="1", selector=BLUE)
    send(broker.client(), "r1", "b1")
    assert picky.bodies() == [b"b1"]
    picky.send("UNSUBSCRIBE", id="1")
    other.subscribe(QUEUE)
    send(broker.client(), "b2")
    assert other.bodies() == [b"r1", b"b2"]


@pytest.mark.parametrize("destination", [QUEUE, TOPIC])
@pytest.mark.parametrize("selector", ["colour =", "colour = 'blue", "1"])
def test_a_selector_that_can_not_be_read_is_refused(destination: str, selector: str) -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe(destination, selector=selector, receipt="r")
    assert refusal(client) == "bad-selector"
    assert client.error is not None
    assert client.error.headers["receipt-id"] == "r"
    assert broker.destinations == {}


@pytest.mark.parametrize("destination", [QUEUE, TOPIC])
@pytest.mark.parametrize("selector", ["", " ", " \t"])
def test_a_blank_selector_is_no_selector(destination: str, selector: str) -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe(destination, selector=selector)
    send(broker.client(), "b1", "r1", destination=destination)
    assert client.bodies() == [b"b1", b"r1"]


def test_what_stayed_survives_the_broker() -> None:
    store = MemoryStore()
    broker = MemoryBroker(BrokerConfig(), store=store)
    client = broker.client()
    client.subscribe(QUEUE, ack="client-individual", selector=BLUE)
    send(broker.client(), "r1", "b1", "r2", "b2")
    first, _ = client.take("MESSAGE")
    client.ack(first)
    broker.broker.close()
    broker = MemoryBroker(store=store, clock=broker.clock)
    client = broker.client()
    client.subscribe(QUEUE, selector=BLUE)
    again = take_one(client)
    assert (again.body, again.headers["delivery-count"]) == (b"b2", "2")
    client.close()
    assert stored(broker, QUEUE) == [b"r1", b"r2"]
