"""Consumers that do not acknowledge a message in time lose it to another."""

from __future__ import annotations

import tracemalloc

import pytest

from stompkit.frames import VERSIONS
from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.testing.memory import MemoryBroker
from tests.server.brokers import MakeBroker, publish_all, refusal, stored, take_one
from tests.server.many_queues import numbered

QUEUE = "/queue/a"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_a_message_that_is_not_acknowledged_in_time_goes_to_another(
    broker_with: MakeBroker, version: str, mode: str
) -> None:
    broker = broker_with(ack_timeout_s=10.0)
    slow, other = broker.client(version), broker.client(version)
    slow.subscribe(QUEUE, ack=mode, prefetch_count="1")
    slow.publish(QUEUE, b"x")
    late = take_one(slow)
    other.subscribe(QUEUE, ack=mode)
    broker.clock.advance(9.9)
    assert other.bodies() == []
    broker.clock.advance(0.1)
    again = take_one(other)
    assert (again.body, again.headers["redelivered"], again.headers["delivery-count"]) == (
        b"x",
        "true",
        "2",
    )
    assert again.headers["message-id"] == late.headers["message-id"]


@pytest.mark.parametrize(
    ("version", "command"),
    [("1.0", "ACK"), ("1.1", "ACK"), ("1.2", "ACK"), ("1.1", "NACK"), ("1.2", "NACK")],
)
def test_a_late_answer_changes_nothing(broker_with: MakeBroker, version: str, command: str) -> None:
    broker = broker_with(ack_timeout_s=10.0)
    slow, other = broker.client(version), broker.client()
    slow.subscribe(QUEUE, ack="client", prefetch_count="1")
    slow.publish(QUEUE, b"x")
    late = take_one(slow)
    other.subscribe(QUEUE, ack="client")
    broker.clock.advance(10.0)
    again = take_one(other)
    if command == "ACK":
        slow.ack(late, receipt="r")
    else:
        slow.nack(late, requeue="false", receipt="r")
    assert [each.command for each in slow.take()] == ["RECEIPT"]
    other.ack(again, receipt="r")
    assert other.take("RECEIPT")
    assert stored(broker, "/dlq/a") == []
    other.close()
    slow.close()
    assert broker.destinations == {}


def test_a_late_answer_in_a_transaction_changes_nothing_either(broker_with: MakeBroker) -> None:
    broker = broker_with(ack_timeout_s=10.0)
    slow = broker.client()
    slow.subscribe(QUEUE, id="1", ack="client")
    slow.publish(QUEUE, b"x")
    late = take_one(slow)
    slow.send("UNSUBSCRIBE", id="1")
    broker.clock.advance(10.0)
    slow.send("BEGIN", transaction="t")
    slow.ack(late, transaction="t")
    slow.publish("/queue/b", b"y", transaction="t")
    slow.send("COMMIT", transaction="t", receipt="r")
    assert slow.take("RECEIPT")
    assert stored(broker, QUEUE) == [b"x"]
    assert stored(broker, "/queue/b") == [b"y"]


def test_a_second_late_answer_is_an_unknown_one(broker_with: MakeBroker) -> None:
    broker = broker_with(ack_timeout_s=10.0)
    slow = broker.client()
    slow.subscribe(QUEUE, id="1", ack="client")
    slow.publish(QUEUE, b"x")
    late = take_one(slow)
    slow.send("UNSUBSCRIBE", id="1")
    broker.clock.advance(10.0)
    slow.ack(late)
    assert refusal(slow) is None
    slow.ack(late)
    assert refusal(slow) == "unknown-acknowledgement"


def test_who_acknowledges_in_time_keeps_nothing_waiting(broker_with: MakeBroker) -> None:
    broker = broker_with(ack_timeout_s=10.0)
    client = broker.client()
    client.subscribe(QUEUE, ack="client-individual", prefetch_count="1")
    publish_all(client, QUEUE, numbered(1, 10))
    for body in numbered(1, 10):
        broker.clock.advance(9.0)
        message = take_one(client)
        assert (message.body, message.headers.get("redelivered")) == (body, None)
        client.ack(message)
    broker.clock.advance(100.0)
    assert client.take() == []


def test_the_time_begins_anew_with_each_delivery(broker_with: MakeBroker) -> None:
    broker = broker_with(ack_timeout_s=10.0)
    client = broker.client()
    client.subscribe(QUEUE, ack="client")
    client.publish(QUEUE, b"x")
    broker.clock.advance(9.0)
    client.nack(take_one(client))
    broker.clock.advance(9.0)
    again = take_one(client)
    client.ack(again, receipt="r")
    assert client.take("RECEIPT")


def test_each_message_has_its_own_time(broker_with: MakeBroker) -> None:
    broker = broker_with(ack_timeout_s=10.0)
    slow = broker.client()
    slow.subscribe(QUEUE, id="1", ack="client-individual")
    for body in numbered(1, 3):
        slow.publish(QUEUE, body)
        broker.clock.advance(3.0)
    _, second, _ = slow.take("MESSAGE")
    slow.send("UNSUBSCRIBE", id="1")
    slow.ack(second)
    back = []
    for _ in range(8):
        back.append(stored(broker, QUEUE))
        broker.clock.advance(1.0)
    # The timeouts of 1 and 3 are at 10 and 16 seconds; it is 9 now.
    assert back == [[], *[[b"1"]] * 6, [b"1", b"3"]]


def test_who_has_let_it_lie_is_the_last_to_get_it_again(broker_with: MakeBroker) -> None:
    broker = broker_with(ack_timeout_s=10.0)
    slow, *others = [broker.client() for _ in range(3)]
    slow.subscribe(QUEUE, ack="client", prefetch_count="2")
    publish_all(slow, QUEUE, numbered(1, 2))
    assert slow.bodies() == numbered(1, 2)
    for other in others:
        other.subscribe(QUEUE, ack="client", prefetch_count="1")
    broker.clock.advance(10.0)
    assert [other.bodies() for other in others] == [[b"1"], [b"2"]]
    assert slow.bodies() == []


def test_what_is_taken_back_gets_its_old_place(broker_with: MakeBroker) -> None:
    broker = broker_with(ack_timeout_s=10.0)
    slow = broker.client()
    slow.subscribe(QUEUE, id="1", ack="client", prefetch_count="2")
    publish_all(slow, QUEUE, numbered(1, 4))
    slow.send("UNSUBSCRIBE", id="1")
    assert stored(broker, QUEUE) == numbered(3, 4)
    broker.clock.advance(10.0)
    assert stored(broker, QUEUE) == numbered(1, 4)


def test_it_frees_the_prefetch_of_who_has_lost_it(broker_with: MakeBroker) -> None:
    broker = broker_with(ack_timeout_s=10.0)
    slow, other = broker.client(), broker.client()
    slow.subscribe(QUEUE, ack="client", prefetch_count="1")
    publish_all(slow, QUEUE, numbered(1, 1))
    assert slow.bodies() == [b"1"]
    other.subscribe(QUEUE)
    broker.clock.advance(10.0)
    assert slow.bodies() + other.bodies() == [b"1"]
    publish_all(other, QUEUE, numbered(2, 3))
    assert sorted(slow.bodies() + other.bodies()) == numbered(2, 3)


def test_what_a_transaction_has_acknowledged_is_not_taken_back(broker_with: MakeBroker) -> None:
    broker = broker_with(ack_timeout_s=10.0)
    client, other = broker.client(), broker.client()
    client.subscribe(QUEUE, ack="client", prefetch_count="1")
    client.publish(QUEUE, b"x")
    message = take_one(client)
    client.send("BEGIN", transaction="t")
    client.ack(message, transaction="t")
    other.subscribe(QUEUE)
    broker.clock.advance(100.0)
    assert other.bodies() == []
    client.send("COMMIT", transaction="t", receipt="r")
    assert client.take("RECEIPT")
    client.close()
    assert other.bodies() == []


def test_after_abort_there_is_as_much_time_again(broker_with: MakeBroker) -> None:
    broker = broker_with(ack_timeout_s=10.0)
    client, other = broker.client(), broker.client()
    client.subscribe(QUEUE, ack="client", prefetch_count="1")
    client.publish(QUEUE, b"x")
    message = take_one(client)
    client.send("BEGIN", transaction="t")
    client.ack(message, transaction="t")
    broker.clock.advance(12.0)
    client.send("ABORT", transaction="t")
    other.subscribe(QUEUE)
    assert other.bodies() == []
    broker.clock.advance(20.0)
    assert other.bodies() + client.bodies() == [b"x"]


def test_it_is_never_a_reason_to_drop_a_message(broker_with: MakeBroker) -> None:
    broker = broker_with(ack_timeout_s=10.0, nack="discard")
    client = broker.client()
    client.subscribe(QUEUE, id="1", ack="client")
    client.publish(QUEUE, b"x")
    client.send("UNSUBSCRIBE", id="1")
    broker.clock.advance(10.0)
    assert stored(broker, QUEUE) == [b"x"]


@pytest.mark.parametrize("name", ["/dlq/a", "/temp-queue/a", "/queue/a"])
@pytest.mark.parametrize("nack", ["requeue-then-dead-letter", "dead-letter"])
def test_a_message_without_dead_letters_is_delivered_again_and_again(
    broker_with: MakeBroker, name: str, nack: str
) -> None:
    dead_letters = not name.startswith("/queue/")
    broker = broker_with(ack_timeout_s=10.0, nack=nack, dead_letters=dead_letters)
    client = broker.client()
    client.subscribe(name, ack="client")
    client.publish(name, b"x")
    for _ in range(20):
        assert client.bodies() == [b"x"]
        broker.clock.advance(10.0)
    # A client that refuses it decides.
    client.send("NACK", id=take_one(client).headers["ack"], requeue="false")
    broker.clock.advance(10.0)
    assert client.bodies() == []


def test_each_queue_has_its_own_time(broker_with: MakeBroker) -> None:
    tables = (
        DestinationConfig(name="/queue/short", ack_timeout_s=1.0),
        DestinationConfig(name="/queue/long", ack_timeout_s=5.0),
    )
    broker = broker_with(destinations=tables)
    client = broker.client()
    for name in ("short", "long", "none"):
        client.subscribe(f"/queue/{name}", id=name, ack="client")
        client.publish(f"/queue/{name}", name.encode())
        client.send("UNSUBSCRIBE", id=name)
    left = []
    for seconds in (0.0, 1.0, 4.0, 1_000.0):
        broker.clock.advance(seconds)
        left.append(
            [name for name in ("short", "long", "none") if stored(broker, f"/queue/{name}")]
        )
    assert left == [[], ["short"], ["short", "long"], ["short", "long"]]


def test_what_was_acknowledged_in_time_is_not_held_until_its_time() -> None:
    broker = MemoryBroker(BrokerConfig(ack_timeout_s=3_600.0))
    producer, client, stuck = (broker.client() for _ in range(3))
    stuck.subscribe(QUEUE, ack="client", prefetch_count="1")
    producer.publish(QUEUE, b"stuck")
    client.subscribe(QUEUE, ack="client", prefetch_count="1")
    tracemalloc.start()
    try:
        for number in range(1, 1_001):
            producer.publish(QUEUE, bytes(10_000))
            client.write(b"ACK\nid:%d\n\n\0" % number)
            assert len(client.transport.take()) > 10_000
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2_000_000  # of 10,000,000 sent


@pytest.mark.parametrize("version", VERSIONS)
def test_as_many_late_answers_are_ignored_as_are_late(
    broker_with: MakeBroker, version: str
) -> None:
    broker = broker_with(ack_timeout_s=10.0)
    client = broker.client(version)
    client.subscribe(QUEUE, ack="client-individual")
    client.publish(QUEUE, b"x")
    deliveries = []
    for _ in range(4):
        deliveries += client.take("MESSAGE")
        broker.clock.advance(10.0)
    deliveries += client.take("MESSAGE")
    assert len(deliveries) == 5
    for message in deliveries:
        client.ack(message)
    assert refusal(client) is None
    client.ack(deliveries[0])
    assert refusal(client) == "unknown-acknowledgement"
    assert stored(broker, QUEUE) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_late_answer_settles_nothing_that_was_delivered_since(
    broker_with: MakeBroker, version: str
) -> None:
    broker = broker_with(ack_timeout_s=10.0)
    client = broker.client(version)
    client.subscribe(QUEUE, ack="client", prefetch_count="1")
    client.publish(QUEUE, b"1")
    late = take_one(client)
    client.send("UNSUBSCRIBE", id="0")
    client.subscribe(QUEUE, id="0", ack="client")
    broker.clock.advance(5.0)
    client.publish(QUEUE, b"2")
    assert client.bodies() == [b"2"]
    broker.clock.advance(5.0)
    again = take_one(client)
    assert again.body == b"1"
    client.ack(late)  # before 1.2 this names the second delivery, too
    client.drop()
    assert b"2" in stored(broker, QUEUE)
