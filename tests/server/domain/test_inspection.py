"""Queries for destinations and clients of a broker."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from stompkit.server import DestinationConfig
from stompkit.server.inspection import ConnectionState, DestinationState, connections, destinations
from stompkit.testing.memory import MemoryBroker
from tests.server.brokers import MakeBroker, publish_all
from tests.server.many_queues import QUEUE, fill, numbered

TOPIC = "/topic/a"


def found(broker: MemoryBroker) -> dict[str, DestinationState]:
    """Return the destinations by their names."""
    return {each.name: each for each in destinations(broker.broker)}


def test_a_queue_tells_where_its_messages_are(broker_with: MakeBroker) -> None:
    broker = broker_with(window_messages=4)
    fill(broker, 20)
    client = broker.client()
    client.publish(QUEUE, b"later", delay="5000")
    assert found(broker)[QUEUE] == DestinationState(QUEUE, "queue", "", 20, 0, 1, 0)
    client.subscribe(QUEUE, ack="client-individual", prefetch_count="3")
    assert found(broker)[QUEUE] == DestinationState(QUEUE, "queue", "", 17, 3, 1, 1)
    first, second, _ = client.take("MESSAGE")
    client.ack(first)
    assert found(broker)[QUEUE] == DestinationState(QUEUE, "queue", "", 16, 3, 1, 1)
    client.send("UNSUBSCRIBE", id="0")
    client.ack(second)
    assert found(broker)[QUEUE] == DestinationState(QUEUE, "queue", "", 16, 2, 1, 0)
    client.close()
    assert found(broker)[QUEUE] == DestinationState(QUEUE, "queue", "", 18, 0, 1, 0)
    broker.clock.advance(5.0)
    assert found(broker)[QUEUE] == DestinationState(QUEUE, "queue", "", 19, 0, 0, 0)


def test_who_only_looks_is_no_consumer(broker_with: MakeBroker) -> None:
    broker = broker_with()
    fill(broker, 2)
    browser = broker.client()
    browser.stop_reading()
    browser.subscribe(QUEUE, browser="true")
    assert found(broker)[QUEUE] == DestinationState(QUEUE, "queue", "", 2, 0, 0, 0)


def test_a_topic_tells_what_its_subscribers_have_not_taken(broker_with: MakeBroker) -> None:
    broker = broker_with()
    slow, other, all_topics = broker.client(), broker.client(), broker.client()
    slow.subscribe(TOPIC, ack="client-individual", prefetch_count="2")
    other.subscribe(TOPIC)
    all_topics.subscribe("/topic/*", ack="client-individual", prefetch_count="1")
    producer = broker.client()
    publish_all(producer, TOPIC, numbered(1, 5))
    producer.publish(TOPIC, b"later", delay="5000")
    producer.publish("/topic/b", b"x")
    states = found(broker)
    # Of five messages, 3 wait for "slow" and 4 for "all_topics", which gets one of /topic/b next.
    assert states[TOPIC] == DestinationState(TOPIC, "topic", "", 7, 3, 1, 3)
    assert states["/topic/b"] == DestinationState("/topic/b", "topic", "", 1, 0, 0, 1)


def calls(function: Callable[[], object]) -> int:
    """Return the number of calls of Python code that a call makes."""
    count = 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("end", ["unsubscribe", "drop", "read"])
def test_messages_that_slow_subscribers_of_patterns_have_not_taken_are_counted_at_once(
    broker_with: MakeBroker, end: str
) -> None:
    broker = broker_with()
    slow, other, producer = (broker.client() for _ in range(3))
    slow.subscribe("/topic/>", id="p")
    other.subscribe("/topic/>")
    slow.stop_reading()
    topics = [f"/topic/{number}" for number in range(10)]
    efforts: list[int] = []
    for count in (1, 20):
        for topic in topics:
            publish_all(producer, topic, [b"x"] * count)
        efforts.append(calls(lambda: destinations(broker.broker)))
    assert efforts[0] == efforts[1]
    assert [found(broker)[topic].ready for topic in topics] == [21] * 10
    if end == "unsubscribe":
        slow.send("UNSUBSCRIBE", id="p")
    elif end == "drop":
        slow.drop()
    else:
        slow.start_reading()
    broker.clock.advance(0.0)
    assert [found(broker)[topic].ready for topic in topics] == [0] * 10


def test_all_kinds_are_told_of_on_all_hosts(broker_with: MakeBroker) -> None:
    fanout = DestinationConfig(name="/fanout/f", children=(QUEUE,))
    broker = broker_with(hosts=("one", "two"), destinations=(fanout,), nack="dead-letter")
    client = broker.client(host="two", client_id="me")
    client.subscribe("/temp-queue/q", id="tq")
    client.subscribe("/temp-topic/t", id="tt")
    client.send("SUBSCRIBE", {"destination": TOPIC, "id": "d", "activemq.subscriptionName": "mine"})
    client.send("UNSUBSCRIBE", id="d")
    client.publish(TOPIC, b"1")
    client.publish(QUEUE, b"x")
    client.subscribe(QUEUE, ack="client")
    [message] = client.take("MESSAGE")
    client.nack(message)
    states = destinations(broker.broker)
    assert [(each.host, each.name) for each in states[:2]] == [
        ("one", "/fanout/f"),
        ("two", "/fanout/f"),
    ]
    kinds = {each.kind: each for each in states if each.host == "two"}
    assert set(kinds) == {
        "fanout",
        "queue",
        "topic",
        "temp-queue",
        "temp-topic",
        "dlq",
        "durable",
    }
    assert (kinds["dlq"].name, kinds["dlq"].ready) == ("/dlq/a", 1)
    assert (kinds["durable"].name, kinds["durable"].ready) == ("/durable/me/mine", 1)
    assert (kinds["temp-queue"].consumers, kinds["queue"].consumers) == (1, 1)


def test_a_client_tells_who_it_is_and_what_it_has(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = broker.client("1.1")
    fill(broker, 5)
    client.subscribe(QUEUE, id="q", ack="client", prefetch_count="3")
    client.subscribe(TOPIC, id="t")
    assert connections(broker.broker) == [ConnectionState("127.0.0.1", "1.1", "", "", 2, 3)]
    client.close()
    broker.connect("127.0.0.9")
    assert connections(broker.broker) == [ConnectionState("127.0.0.9", None, "", "", 0, 0)]
    assert found(broker)[QUEUE].ready == 5
