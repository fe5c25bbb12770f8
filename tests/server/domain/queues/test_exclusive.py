"""Exclusive consumers: one gets all messages, the others stand by."""

from __future__ import annotations

import pytest

from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.testing.memory import MemoryBroker
from tests.server.brokers import MakeBroker, publish_all, take_one
from tests.server.many_queues import numbered

QUEUE = "/queue/a"
asked = pytest.mark.parametrize("header", ["exclusive", "activemq.exclusive"])


def test_only_the_oldest_consumer_gets_messages(broker_with: MakeBroker) -> None:
    broker = broker_with(exclusive=True)
    clients = [broker.client() for _ in range(3)]
    for client in clients:
        client.subscribe(QUEUE)
    publish_all(broker.client(), QUEUE, numbered(1, 4))
    assert [client.bodies() for client in clients] == [numbered(1, 4), [], []]


@pytest.mark.parametrize("way", ["unsubscribe", "disconnect", "drop"])
def test_the_next_oldest_takes_over_and_gets_what_was_not_acknowledged(
    broker_with: MakeBroker, way: str
) -> None:
    broker = broker_with(exclusive=True)
    clients = [broker.client() for _ in range(3)]
    for client in clients:
        client.subscribe(QUEUE, id="s", ack="client-individual", prefetch_count="3")
    publish_all(broker.client(), QUEUE, numbered(1, 5))
    first, second, third = clients[0].take("MESSAGE")
    clients[0].ack(second)
    assert take_one(clients[0]).body == b"4"
    if way == "unsubscribe":
        clients[0].send("UNSUBSCRIBE", id="s")
        assert clients[1].bodies() == [b"5"]
        clients[0].ack(first)
        clients[0].nack(third)
        assert clients[1].bodies() == [b"3"]
    else:
        if way == "drop":
            clients[0].drop()
        else:
            clients[0].send("DISCONNECT")
        messages = clients[1].take("MESSAGE")
        assert [each.body for each in messages] == [b"1", b"3", b"4"]
        clients[1].ack(messages[0])
        assert clients[1].bodies() == [b"5"]
    assert clients[2].bodies() == []


def test_the_others_stand_by_though_the_first_can_take_no_more(broker_with: MakeBroker) -> None:
    broker = broker_with(exclusive=True)
    first, second = broker.client(), broker.client()
    first.subscribe(QUEUE, ack="client", prefetch_count="1")
    second.subscribe(QUEUE)
    publish_all(broker.client(), QUEUE, numbered(1, 2))
    message = take_one(first)
    assert second.bodies() == []
    first.ack(message)
    assert first.bodies() == [b"2"]


def test_turns_within_a_chunk_do_not_change_who_is_the_oldest(broker_with: MakeBroker) -> None:
    broker = broker_with()
    clients = [broker.client() for _ in range(2)]
    for client in clients:
        client.subscribe(QUEUE)
    publish_all(broker.client(), QUEUE, numbered(1, 1))  # otherwise the second would be next
    assert clients[0].bodies() == [b"1"]
    table = DestinationConfig(name=QUEUE, exclusive=True)
    broker.broker.reload(broker.broker.config.changed(destinations=(table,)))
    publish_all(broker.client(), QUEUE, numbered(2, 4))
    assert [client.bodies() for client in clients] == [numbered(2, 4), []]


@asked
def test_a_consumer_can_ask_to_be_alone(broker_with: MakeBroker, header: str) -> None:
    broker = broker_with()
    ordinary, alone, standby = (broker.client() for _ in range(3))
    ordinary.subscribe(QUEUE)
    publish_all(broker.client(), QUEUE, [b"before"])
    for client in (alone, standby):
        client.send("SUBSCRIBE", {"id": "0", "destination": QUEUE, header: "true"})
    publish_all(broker.client(), QUEUE, numbered(1, 3))
    assert ordinary.bodies() == [b"before"]
    assert alone.bodies() == numbered(1, 3)
    alone.close()
    publish_all(broker.client(), QUEUE, numbered(4, 5))
    assert standby.bodies() == numbered(4, 5)
    standby.close()
    publish_all(broker.client(), QUEUE, numbered(6, 7))
    assert ordinary.bodies() == numbered(6, 7)


def test_who_had_messages_before_keeps_them(broker_with: MakeBroker) -> None:
    broker = broker_with()
    ordinary, alone = broker.client(), broker.client()
    ordinary.subscribe(QUEUE, ack="client")
    publish_all(broker.client(), QUEUE, numbered(1, 2))
    held = ordinary.take("MESSAGE")
    alone.subscribe(QUEUE, exclusive="true", ack="client")
    assert alone.bodies() == []
    ordinary.nack(held[1])
    assert alone.bodies() == numbered(1, 2)


@pytest.mark.parametrize(
    ("value", "bodies"),
    [
        ("false", [[b"1"], [b"2"]]),
        ("False", [[b"1"], [b"2"]]),
        ("TRUE", [[b"1", b"2"], []]),
    ],
)
def test_case_does_not_matter(value: str, bodies: list[list[bytes]]) -> None:
    broker = MemoryBroker()
    clients = [broker.client() for _ in range(2)]
    for client in clients:
        client.subscribe(QUEUE, exclusive=value)
    publish_all(broker.client(), QUEUE, numbered(1, 2))
    assert [client.bodies() for client in clients] == bodies


@pytest.mark.parametrize("value", ["", "1", "yes"])
def test_a_value_that_is_no_boolean_is_refused(value: str) -> None:
    client = MemoryBroker().client()
    client.subscribe(QUEUE, exclusive=value)
    assert client.error is not None
    assert client.error.headers["stompkit-code"] == "bad-header"


def test_it_goes_for_patterns_in_each_queue(broker_with: MakeBroker) -> None:
    broker = broker_with(exclusive=True)
    named, wild = broker.client(), broker.client()
    named.subscribe("/queue/a")
    wild.subscribe("/queue/*")
    for name in ("/queue/a", "/queue/b"):
        broker.client().publish(name, name.encode())
    assert named.bodies() == [b"/queue/a"]
    assert wild.bodies() == [b"/queue/b"]
    named.close()
    broker.client().publish("/queue/a", b"a")
    assert wild.bodies() == [b"a"]


def test_it_goes_together_with_one_in_flight(broker_with: MakeBroker) -> None:
    broker = broker_with(exclusive=True, flow="one-in-flight")
    clients = [broker.client() for _ in range(2)]
    for client in clients:
        client.subscribe(QUEUE, ack="client")
        client.subscribe("/queue/b", id="b", ack="client")
    publish_all(broker.client(), QUEUE, numbered(1, 2))
    broker.client().publish("/queue/b", b"b")
    assert clients[1].bodies() == []
    bodies = []
    while messages := clients[0].take("MESSAGE"):
        [message] = messages
        bodies.append(message.body)
        clients[0].ack(message)
    assert bodies == [b"1", b"b", b"2"]
    assert clients[1].bodies() == []


def test_topics_know_nothing_of_it() -> None:
    broker = MemoryBroker(BrokerConfig(exclusive=True))
    clients = [broker.client() for _ in range(2)]
    for client in clients:
        client.subscribe("/topic/a", exclusive="true")
    broker.client().publish("/topic/a", b"x")
    assert [client.bodies() for client in clients] == [[b"x"], [b"x"]]
