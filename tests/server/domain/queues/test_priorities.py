"""Priorities: messages of a higher priority overtake others, in queues with this setting."""

from __future__ import annotations

import pytest

from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import MakeBroker, refusal, stored, take_one

QUEUE = "/queue/a"


def send(client: MemoryClient, *priorities: str) -> None:
    """Send a message of each priority; the body has the priority and a number within it."""
    counts: dict[str, int] = {}
    for priority in priorities:
        counts[priority] = counts.get(priority, 0) + 1
        headers = {"priority": priority} if priority else {}
        client.publish(QUEUE, b"%b-%d" % (priority.encode(), counts[priority]), **headers)


def consume(client: MemoryClient) -> list[bytes]:
    """Acknowledge one message after the other; return the bodies in order."""
    bodies = []
    while messages := client.take("MESSAGE"):
        [message] = messages
        bodies.append(message.body)
        client.ack(message)
    return bodies


def test_higher_priorities_come_first_and_equal_ones_in_order(broker_with: MakeBroker) -> None:
    broker = broker_with(priority=True)
    send(broker.client(), "1", "9", "", "0", "9", "4", "5", "")
    client = broker.client()
    client.subscribe(QUEUE)
    assert client.bodies() == [
        *(b"9-1", b"9-2", b"5-1"),
        *(b"-1", b"4-1", b"-2"),  # 4 is the default
        *(b"1-1", b"0-1"),
    ]


def test_what_comes_while_others_wait_overtakes_them(broker_with: MakeBroker) -> None:
    broker = broker_with(priority=True)
    client, producer = broker.client(), broker.client()
    client.subscribe(QUEUE, ack="client", prefetch_count="1")
    send(producer, "1", "2", "9")
    first = take_one(client)
    assert first.body == b"1-1"
    client.ack(first)
    assert consume(client) == [b"9-1", b"2-1"]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("way", ["nack", "lost"])
def test_a_message_that_comes_back_gets_its_place_among_its_like(
    broker_with: MakeBroker, version: str, way: str
) -> None:
    broker = broker_with(priority=True)
    send(broker.client(), "5", "5", "5", "7")
    client = broker.client(version)
    client.subscribe(QUEUE, ack="client", prefetch_count="3")
    messages = client.take("MESSAGE")
    assert [each.body for each in messages] == [b"7-1", b"5-1", b"5-2"]
    send(broker.client(), "9", "6", "1")
    if way == "nack":
        client.send("UNSUBSCRIBE", id="0")
        client.nack(messages[-1])
    else:
        client.drop()
    other = broker.client()
    other.subscribe(QUEUE, ack="client", prefetch_count="1")
    assert consume(other) == [b"9-1", b"7-1", b"6-1", b"5-1", b"5-2", b"5-3", b"1-1"]


def test_what_is_given_back_waits_for_what_is_more_urgent(broker_with: MakeBroker) -> None:
    broker = broker_with(priority=True)
    client = broker.client()
    client.subscribe(QUEUE, ack="client", prefetch_count="1")
    send(broker.client(), "3", "8")
    client.nack(take_one(client))
    assert consume(client) == [b"8-1", b"3-1"]


@pytest.mark.parametrize("value", ["12", "9"])
def test_no_priority_is_above_nine(broker_with: MakeBroker, value: str) -> None:
    broker = broker_with(priority=True)
    send(broker.client(), "9", value, "8")
    assert stored(broker, QUEUE)[-1] == b"8-1"
    assert stored(broker, QUEUE)[0] == b"9-1"


@pytest.mark.parametrize("value", ["high", "", "-1", "4.5", "٣", "1" * 100])
def test_what_is_no_number_is_the_usual_priority(broker_with: MakeBroker, value: str) -> None:
    broker = broker_with(priority=True)
    producer = broker.client()
    for body, headers in (
        (b"3", {"priority": "3"}),
        (b"odd", {"priority": value}),
        (b"5", {"priority": "5"}),
    ):
        producer.publish(QUEUE, body, **headers)
    assert refusal(producer) is None
    assert stored(broker, QUEUE) == [b"5", b"odd", b"3"]


def test_without_the_setting_the_header_is_passed_on_and_means_nothing(
    broker_with: MakeBroker,
) -> None:
    table = DestinationConfig(name="/queue/b", priority=True)
    broker = broker_with(destinations=(table,))
    send(broker.client(), "1", "9")
    client = broker.client()
    client.subscribe(QUEUE)
    messages = client.take("MESSAGE")
    assert [each.body for each in messages] == [b"1-1", b"9-1"]
    assert [each.headers["priority"] for each in messages] == ["1", "9"]


def test_what_is_dropped_from_a_full_queue_is_the_oldest_of_the_lowest_priority(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(priority=True, max_queue_messages=4, when_full="drop-oldest")
    send(broker.client(), "9", "1", "1", "5", "7", "7")
    assert stored(broker, QUEUE) == [b"9-1", b"7-1", b"7-2", b"5-1"]


def test_a_long_queue_of_many_priorities_is_delivered_through_a_narrow_window(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(priority=True, window_messages=2)
    producer = broker.client()
    for number in range(60):
        producer.publish(QUEUE, b"%02d" % number, priority=str(number % 3))
    client = broker.client()
    client.subscribe(QUEUE, ack="client", prefetch_count="1")
    expected = [b"%02d" % n for rest in (2, 1, 0) for n in range(60) if n % 3 == rest]
    assert consume(client) == expected


def test_priorities_survive_the_broker() -> None:
    store = MemoryStore()
    config = BrokerConfig(priority=True)
    broker = MemoryBroker(config, store=store)
    send(broker.client(), "1", "9", "5")
    broker.broker.close()
    broker = MemoryBroker(config, store=store, clock=broker.clock)
    send(broker.client(), "7")
    client = broker.client()
    client.subscribe(QUEUE, ack="client", prefetch_count="1")
    assert consume(client) == [b"9-1", b"7-1", b"5-1", b"1-1"]
