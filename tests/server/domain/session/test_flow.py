"""One in flight: the number of messages that a connection has at a time, and their order."""

from __future__ import annotations

from typing import Final

import pytest

from stompkit.frames import VERSIONS, Frame
from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import MakeBroker, publish_all, stored, take_one
from tests.server.many_queues import numbered

Q1, Q2, T1 = "/queue/Q1", "/queue/Q2", "/topic/T1"
FLOW: Final = "one-in-flight"


@pytest.mark.parametrize("mode", ["client", "client-individual"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_worked_example(broker_with: MakeBroker, version: str, mode: str) -> None:
    broker = broker_with(flow=FLOW)
    producer, c1 = broker.client(), broker.client(version)
    c1.subscribe(Q1, id="1", ack=mode)
    c1.subscribe(Q2, id="2", ack=mode)
    c1.subscribe(T1, id="3", ack=mode)

    producer.publish(Q1, b"M1")
    m1 = take_one(c1)
    assert m1.body == b"M1"
    producer.publish(Q1, b"M2")
    assert c1.bodies() == []
    producer.publish(Q2, b"M3")
    assert c1.bodies() == []
    c1.ack(m1)
    m3 = take_one(c1)
    assert m3.body == b"M3"
    producer.publish(T1, b"M4")
    m4 = take_one(c1)
    assert m4.body == b"M4"
    c1.ack(m3)
    m2 = take_one(c1)
    assert m2.body == b"M2"
    c1.ack(m2)
    assert c1.take() == []
    c1.ack(m4)
    assert c1.take() == []
    assert c1.error is None
    assert stored(broker, Q1) == stored(broker, Q2) == []


def consume(client: MemoryClient, most: int = 1_000) -> list[bytes]:
    """Acknowledge the received messages, the oldest first; return the bodies in order."""
    bodies: list[bytes] = []
    held: list[Frame] = []
    while len(bodies) < most:
        held += client.take("MESSAGE")
        if not held:
            break
        message = held.pop(0)
        bodies.append(message.body)
        client.ack(message)
    return bodies


def test_queues_take_turns_however_long_they_are(broker_with: MakeBroker) -> None:
    broker = broker_with(flow=FLOW)
    producer, client = broker.client(), broker.client()
    for name, count in (("a", 6), ("b", 2), ("c", 4)):
        publish_all(producer, f"/queue/{name}", [name.encode()] * count)
    for name in "abc":
        client.subscribe(f"/queue/{name}", id=name, ack="client")
    assert b"".join(consume(client)) == b"abc" + b"abc" + b"ac" + b"ac" + b"a" + b"a"


def test_a_queue_that_is_sent_to_all_the_time_gets_no_more_turns(broker_with: MakeBroker) -> None:
    broker = broker_with(flow=FLOW)
    producer, client = broker.client(), broker.client()
    client.subscribe("/queue/busy", id="1", ack="client")
    client.subscribe("/queue/quiet", id="2", ack="client")
    publish_all(producer, "/queue/busy", [b"busy"] * 3)
    publish_all(producer, "/queue/quiet", [b"quiet"] * 10)
    order = []
    for _ in range(10):
        message = take_one(client)
        order.append(message.body)
        publish_all(producer, "/queue/busy", [b"busy"] * 2)
        client.ack(message)
    assert order == [b"busy", b"quiet"] * 5


def test_queues_of_a_pattern_take_turns_too(broker_with: MakeBroker) -> None:
    broker = broker_with(flow=FLOW)
    producer, client = broker.client(), broker.client()
    client.subscribe("/queue/*", ack="client")
    for name in "abc":
        publish_all(producer, f"/queue/{name}", [name.encode()] * 3)
    order = b"".join(consume(client))
    # The first round begins before the other queues are known to wait.
    assert order == b"a" + b"abc" + b"abc" + b"bc"


def test_messages_that_wait_before_a_subscription_count_as_well(broker_with: MakeBroker) -> None:
    broker = broker_with(flow=FLOW)
    publish_all(broker.client(), Q1, numbered(1, 3))
    client = broker.client()
    client.subscribe(Q1, id="1", ack="client")
    client.subscribe(Q2, id="2", ack="client")
    broker.client().publish(Q2, b"4")
    assert consume(client) == [b"1", b"4", b"2", b"3"]


@pytest.mark.parametrize("most", [2, 3])
def test_more_than_one_can_be_in_flight(broker_with: MakeBroker, most: int) -> None:
    broker = broker_with(flow=FLOW, max_in_flight=most)
    producer, client = broker.client(), broker.client()
    client.subscribe(Q1, id="1", ack="client-individual")
    client.subscribe(Q2, id="2", ack="client-individual")
    publish_all(producer, Q1, numbered(1, 5))
    publish_all(producer, Q2, numbered(6, 9))
    held = client.take("MESSAGE")
    assert [each.body for each in held] == numbered(1, most)
    seen = list(held)
    while held:
        client.ack(held.pop(0))
        new = client.take("MESSAGE")
        assert len(new) <= 1
        held += new
        seen += new
        assert len(held) <= most
    assert sorted(each.body for each in seen) == numbered(1, 9)
    after = [each.headers["subscription"] for each in seen[most:]]
    # The queues alternate while both have messages.
    assert after[:4] == ["2", "1", "2", "1"]


def test_a_cumulative_ack_frees_all_that_it_is_for(broker_with: MakeBroker) -> None:
    broker = broker_with(flow=FLOW, max_in_flight=3)
    client = broker.client()
    client.subscribe(Q1, ack="client")
    publish_all(broker.client(), Q1, numbered(1, 7))
    messages = client.take("MESSAGE")
    assert len(messages) == 3
    client.ack(messages[-1])
    messages = client.take("MESSAGE")
    assert [each.body for each in messages] == numbered(4, 6)
    client.ack(messages[0])
    assert client.bodies() == [b"7"]


def test_prefetch_still_bounds_a_single_subscription(broker_with: MakeBroker) -> None:
    broker = broker_with(flow=FLOW, max_in_flight=3)
    producer, client = broker.client(), broker.client()
    client.subscribe(Q1, id="1", ack="client", prefetch_count="2")
    client.subscribe(Q2, id="2", ack="client")
    publish_all(producer, Q1, [b"1"] * 5)
    publish_all(producer, Q2, [b"2"] * 5)
    assert client.bodies() == [b"1", b"1", b"2"]


@pytest.mark.parametrize("requeue", ["true", "false"])
def test_a_nack_frees_too_and_the_queue_waits_for_its_turn(
    broker_with: MakeBroker, requeue: str
) -> None:
    broker = broker_with(flow=FLOW)
    producer, client = broker.client(), broker.client()
    client.subscribe(Q1, id="1", ack="client")
    client.subscribe(Q2, id="2", ack="client")
    publish_all(producer, Q1, [b"1"])
    publish_all(producer, Q2, [b"2"])
    client.nack(take_one(client), requeue=requeue)
    assert consume(client) == ([b"2", b"1"] if requeue == "true" else [b"2"])


def test_a_message_that_was_taken_back_frees_its_place(broker_with: MakeBroker) -> None:
    table = DestinationConfig(name=Q1, ack_timeout_s=5.0)
    broker = broker_with(flow=FLOW, destinations=(table,))
    producer, client, other = broker.client(), broker.client(), broker.client()
    client.subscribe(Q1, id="1", ack="client")
    client.subscribe(Q2, id="2", ack="client")
    producer.publish(Q1, b"1")
    producer.publish(Q2, b"2")
    late = take_one(client)
    other.subscribe(Q1)
    broker.clock.advance(5.0)
    assert client.bodies() == [b"2"]
    assert other.bodies() == [b"1"]
    producer.publish(Q2, b"3")
    client.ack(late)  # frees no room again
    assert client.bodies() == []


def test_in_a_transaction_it_is_commit_that_frees(broker_with: MakeBroker) -> None:
    broker = broker_with(flow=FLOW)
    client = broker.client()
    client.subscribe(Q1, ack="client")
    publish_all(broker.client(), Q1, numbered(1, 2))
    first = take_one(client)
    client.send("BEGIN", transaction="t")
    client.ack(first, transaction="t")
    assert client.bodies() == []
    client.send("ABORT", transaction="t")
    assert client.bodies() == []
    client.send("BEGIN", transaction="t")
    client.ack(first, transaction="t")
    client.send("COMMIT", transaction="t")
    assert client.bodies() == [b"2"]


def test_auto_subscriptions_get_all_and_take_no_place(broker_with: MakeBroker) -> None:
    broker = broker_with(flow=FLOW)
    producer, client = broker.client(), broker.client()
    publish_all(producer, Q2, [b"auto"] * 3)
    client.subscribe(Q1, id="1", ack="client")
    client.subscribe(Q2, id="2", ack="auto")
    publish_all(producer, Q1, [b"1", b"2"])
    publish_all(producer, Q2, [b"auto"] * 2)
    assert sorted(client.bodies()) == [b"1", *[b"auto"] * 5]


def test_durable_subscriptions_and_temporary_queues_count_as_queues() -> None:
    broker = MemoryBroker(BrokerConfig(flow=FLOW))
    client, producer = broker.client(client_id="c"), broker.client()
    client.send(
        "SUBSCRIBE",
        {"id": "1", "destination": T1, "ack": "client", "activemq.subscriptionName": "d"},
    )
    client.subscribe("/temp-queue/mine", id="2", ack="client")
    producer.publish(T1, b"1")
    client.publish("/temp-queue/mine", b"2")
    client.publish("/temp-queue/mine", b"3")
    producer.publish(T1, b"4")
    assert consume(client) == [b"1", b"2", b"4", b"3"]


def test_each_connection_has_its_own(broker_with: MakeBroker) -> None:
    broker = broker_with(flow=FLOW)
    clients = [broker.client() for _ in range(3)]
    for client in clients:
        client.subscribe(Q1, ack="client")
    publish_all(broker.client(), Q1, numbered(1, 6))
    assert [client.bodies() for client in clients] == [[b"1"], [b"2"], [b"3"]]
    clients[1].drop()
    assert [client.bodies() for client in clients] == [[], [], []]
    assert stored(broker, Q1) == [b"2", b"4", b"5", b"6"]


def test_what_was_delivered_before_unsubscribe_keeps_its_place(broker_with: MakeBroker) -> None:
    broker = broker_with(flow=FLOW)
    producer, client = broker.client(), broker.client()
    client.subscribe(Q1, id="1", ack="client")
    client.subscribe(Q2, id="2", ack="client")
    producer.publish(Q1, b"1")
    producer.publish(Q2, b"2")
    first = take_one(client)
    client.send("UNSUBSCRIBE", id="1")
    assert client.bodies() == []
    client.ack(first)
    assert client.bodies() == [b"2"]


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("window", [1, 2, 5])
def test_a_long_backlog_comes_through_a_narrow_window(
    broker_with: MakeBroker, window: int, most: int
) -> None:
    broker = broker_with(flow=FLOW, max_in_flight=most, window_messages=window)
    publish_all(broker.client(), Q1, numbered(1, 20))
    publish_all(broker.client(), Q2, numbered(21, 40))
    client = broker.client()
    client.stop_reading(room_bytes=1)
    client.subscribe(Q1, id="1", ack="client-individual")
    client.subscribe("/queue/*", id="2", ack="client-individual")
    bodies = []
    for _ in range(60):
        client.read_waiting()
        for message in client.take("MESSAGE"):
            bodies.append(message.body)
            client.ack(message)
    assert sorted(bodies, key=int) == numbered(1, 40)


def test_a_connection_that_does_not_read_gets_nothing_more(broker_with: MakeBroker) -> None:
    broker = broker_with(flow=FLOW, max_in_flight=2)
    client = broker.client()
    client.subscribe(Q1, ack="client")
    client.stop_reading()
    publish_all(broker.client(), Q1, numbered(1, 3))
    assert client.transport.unread_bytes == 0
    client.start_reading()
    assert client.bodies() == numbered(1, 2)


# The same without it: the queues of a connection with a full transport alternate as well.


@pytest.mark.parametrize("flow", ["prefetch", FLOW])
@pytest.mark.parametrize("pattern", [False, True])
def test_queues_of_a_full_transport_take_turns(
    broker_with: MakeBroker, flow: str, *, pattern: bool
) -> None:
    broker = broker_with(flow=flow, write_batch_bytes=1)
    producer, client = broker.client(), broker.client()
    if pattern:
        client.subscribe("/queue/*")
    else:
        for name in "abc":
            client.subscribe(f"/queue/{name}", id=name)
    client.stop_reading(room_bytes=1)
    for name in "abc":
        publish_all(producer, f"/queue/{name}", [name.encode()] * 20)
    counts = {b"a": 0, b"b": 0, b"c": 0}
    for _ in range(30):
        client.read_waiting()
        producer.publish("/queue/a", b"a")
        for body in client.bodies():
            counts[body] += 1
    assert sum(counts.values()) == 30
    assert max(counts.values()) - min(counts.values()) <= 2


def test_topics_and_queues_of_a_full_transport_take_turns(broker_with: MakeBroker) -> None:
    broker = broker_with(write_batch_bytes=1)
    producer, client = broker.client(), broker.client()
    client.subscribe(Q1, id="q")
    client.subscribe(T1, id="t")
    client.stop_reading(room_bytes=1)
    publish_all(producer, T1, [b"t"] * 20)
    publish_all(producer, Q1, [b"q"] * 20)
    bodies = []
    for _ in range(20):
        client.read_waiting()
        bodies += client.bodies()
    assert bodies.count(b"t") >= 9
    assert bodies.count(b"q") >= 9
