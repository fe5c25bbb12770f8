"""Message groups: messages with the same JMSXGroupID go to one consumer."""

from __future__ import annotations

import pytest

from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import MakeBroker, take_one

QUEUE = "/queue/a"


def send(client: MemoryClient, *bodies: str) -> None:
    """Send messages whose group is the first letter of the body; a digit means no group."""
    for body in bodies:
        group = {} if body[0].isdigit() else {"JMSXGroupID": body[0]}
        client.publish(QUEUE, body.encode(), **group)


def consumers(broker: MemoryBroker, count: int, **headers: str) -> list[MemoryClient]:
    """Return clients that have subscribed, in order."""
    clients = [broker.client() for _ in range(count)]
    for client in clients:
        client.subscribe(QUEUE, id="s", **{"ack": "client-individual"} | headers)
    return clients


def got(clients: list[MemoryClient]) -> list[str]:
    """Return the new messages of each client."""
    return [" ".join(body.decode() for body in client.bodies()) for client in clients]


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_a_group_stays_with_the_consumer_that_got_its_first_message(
    broker_with: MakeBroker, ack: str
) -> None:
    broker = broker_with()
    clients = consumers(broker, 3, ack=ack)
    send(broker.client(), "a1", "b1", "c1", "c2", "a2", "b2", "a3", "a4", "d1", "b3")
    assert got(clients) == ["a1 a2 a3 a4 d1", "b1 b2 b3", "c1 c2"]


def test_messages_without_a_group_go_to_anybody(broker_with: MakeBroker) -> None:
    broker = broker_with()
    clients = consumers(broker, 2, prefetch_count="10")
    send(broker.client(), "a1", "1", "a2", "2", "a3", "3", "4")
    first, second = got(clients)
    assert {"a1", "a2", "a3"} <= set(first.split())
    assert sorted((first + " " + second).split()) == ["1", "2", "3", "4", "a1", "a2", "a3"]
    assert set(second.split()) & {"1", "2", "3", "4"}


def test_a_group_waits_for_its_consumer_while_others_go_on(broker_with: MakeBroker) -> None:
    broker = broker_with()
    busy, free = clients = consumers(broker, 2, prefetch_count="2")
    send(broker.client(), "a1", "b1", "a2", "a3", "a4", "b2", "c1")
    first = busy.take("MESSAGE")
    assert [each.body for each in first] == [b"a1", b"a2"]
    assert got(clients) == ["", "b1 b2"]
    busy.ack(first[0])
    assert got(clients) == ["a3", ""]
    busy.ack(first[1])
    assert got(clients) == ["a4", ""]
    assert free.error is None


def test_a_group_moves_when_its_consumer_unsubscribes(broker_with: MakeBroker) -> None:
    broker = broker_with()
    clients = consumers(broker, 2)
    first, producer = clients[0], broker.client()
    send(producer, "a1", "b1", "a2")
    assert got(clients) == ["a1 a2", "b1"]
    first.send("UNSUBSCRIBE", id="s")
    send(producer, "a3", "b2")
    assert got(clients) == ["", "a3 b2"]
    first.subscribe(QUEUE, id="again", ack="client")
    send(producer, "a4", "c1", "d1")
    assert "a4" in got(clients)[1]


@pytest.mark.parametrize("way", ["drop", "disconnect"])
def test_what_a_lost_consumer_had_of_a_group_comes_first_for_the_next_one(
    broker_with: MakeBroker, way: str
) -> None:
    broker = broker_with()
    first, second = clients = consumers(broker, 2, prefetch_count="2")
    send(broker.client(), "a1", "b1", "a2", "a3", "a4")
    assert got(clients) == ["a1 a2", "b1"]
    held = second.frames[-1]
    if way == "drop":
        first.drop()
    else:
        first.send("DISCONNECT")
    second.ack(held)
    order = []
    message = second.take("MESSAGE")
    while message:
        order += [each.body.decode() for each in message]
        for each in message:
            second.ack(each)
        message = second.take("MESSAGE")
    assert order == ["a1", "a2", "a3", "a4"]


def test_a_group_that_comes_back_by_nack_stays(broker_with: MakeBroker) -> None:
    broker = broker_with()
    clients = consumers(broker, 3)
    send(broker.client(), "a1", "b1", "c1")
    message = take_one(clients[1])
    clients[1].nack(message)
    assert take_one(clients[1]).headers["delivery-count"] == "2"


def test_a_group_stays_where_a_connection_has_one_message_at_a_time(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(flow="one-in-flight")
    clients = consumers(broker, 2)
    send(broker.client(), "a1", "b1", "a2", "a3", "b2", "a4")
    seen: list[list[bytes]] = [[], []]
    for _ in range(6):
        for client, bodies in zip(reversed(clients), reversed(seen), strict=True):
            for message in client.take("MESSAGE"):
                bodies.append(message.body)
                client.ack(message)
    assert seen == [[b"a1", b"a2", b"a3", b"a4"], [b"b1", b"b2"]]


def test_groups_of_two_queues_have_nothing_to_do_with_each_other(broker_with: MakeBroker) -> None:
    broker = broker_with()
    one, other, producer = (broker.client() for _ in range(3))
    one.subscribe("/queue/a", id="a")
    other.subscribe("/queue/a", id="a")
    other.subscribe("/queue/b", id="b")
    for queue in ("/queue/a", "/queue/b", "/queue/a"):
        producer.publish(queue, queue.encode(), JMSXGroupID="g")
    assert one.bodies() == [b"/queue/a"] * 2
    assert other.bodies() == [b"/queue/b"]


def test_two_subscriptions_of_one_connection_are_two_consumers(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = broker.client()
    client.subscribe(QUEUE, id="1")
    client.subscribe(QUEUE, id="2")
    send(client, "a1", "b1", "a2", "b2")
    seen = [(each.headers["subscription"], each.body) for each in client.take("MESSAGE")]
    assert seen == [("1", b"a1"), ("2", b"b1"), ("1", b"a2"), ("2", b"b2")]


def test_a_group_goes_to_who_takes_it_by_its_selector(broker_with: MakeBroker) -> None:
    broker = broker_with()
    blue, any_colour, producer = (broker.client() for _ in range(3))
    blue.subscribe(QUEUE, selector="colour = 'blue'")
    producer.publish(QUEUE, b"1", JMSXGroupID="g", colour="blue")
    any_colour.subscribe(QUEUE)
    producer.publish(QUEUE, b"2", JMSXGroupID="g", colour="red")
    producer.publish(QUEUE, b"3", JMSXGroupID="g", colour="blue")
    assert blue.bodies() == [b"1", b"3"]
    assert any_colour.bodies() == [b"2"]


def test_groups_are_told_apart_behind_the_window(broker_with: MakeBroker) -> None:
    broker = broker_with(window_messages=3)
    send(broker.client(), *(f"{'ab'[n % 2]}{n}" for n in range(20)))
    clients = consumers(broker, 2, ack="auto")
    bodies = [client.bodies() for client in clients]
    assert sum(map(len, bodies)) == 20
    assert not {body[:1] for body in bodies[0]} & {body[:1] for body in bodies[1]}


def test_the_groups_that_are_remembered_are_bounded() -> None:
    broker = MemoryBroker()
    clients = consumers(broker, 2, ack="auto")
    producer = broker.client()
    producer.write(
        b"".join(b"SEND\ndestination:/queue/a\nJMSXGroupID:%d\n\n\0" % n for n in range(10_002))
    )
    counts = [len(client.take("MESSAGE")) for client in clients]
    assert counts == [5_001, 5_001]
    # The broker has dropped the first group, but not the last one.
    for group in ("10001", "10001"):
        producer.publish(QUEUE, group.encode(), JMSXGroupID=group)
    assert got(clients) == ["", "10001 10001"]
    producer.publish(QUEUE, b"0", JMSXGroupID="0")
    producer.publish(QUEUE, b"new", JMSXGroupID="new")
    assert sorted(got(clients)) == ["0", "new"]


def test_groups_survive_the_broker_as_their_messages_do() -> None:
    store = MemoryStore()
    broker = MemoryBroker(store=store)
    send(broker.client(), "a1", "b1", "a2", "b2", "a3")
    broker.broker.close()
    broker = MemoryBroker(store=store, clock=broker.clock)
    clients = [broker.client() for _ in range(2)]
    for client in clients:
        client.stop_reading()
        client.subscribe(QUEUE, ack="client", prefetch_count="10")
    for client in clients:
        client.start_reading()
    first, second = got(clients)
    assert {first, second} in ({"a1 a2 a3", "b1 b2"}, {"a1 b1 a2 b2 a3", ""})
