"""Limits on the memory that one client, or one address, can occupy."""

from __future__ import annotations

import tracemalloc

import pytest

from stompkit.server import BrokerConfig
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import MakeBroker, end, publish_all, refusal, stored, take_one
from tests.server.many_queues import numbered

QUEUE = "/queue/a"
CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"


# Connections of one address.


def from_address(broker: MemoryBroker, address: str) -> MemoryClient:
    """Connect a client from this address."""
    client = broker.connect(address)
    client.write(CONNECT)
    return client


def test_connections_of_one_address_are_counted() -> None:
    broker = MemoryBroker(BrokerConfig(max_connections_per_address=2))
    first, second = (from_address(broker, "192.0.2.1") for _ in range(2))
    third, other = from_address(broker, "192.0.2.1"), from_address(broker, "192.0.2.2")
    assert [refusal(each) for each in (first, second, third, other)] == [
        None,
        None,
        "too-many-connections",
        None,
    ]
    assert third.eof


@pytest.mark.parametrize("way", ["disconnect", "close", "drop", "error"])
def test_a_connection_that_ends_makes_room_for_another_of_its_address(way: str) -> None:
    broker = MemoryBroker(BrokerConfig(max_connections_per_address=1))
    first = from_address(broker, "192.0.2.1")
    refused = from_address(broker, "192.0.2.1")
    assert refusal(refused) == "too-many-connections"
    refused.close()
    end(first, way)
    assert refusal(from_address(broker, "192.0.2.1")) is None
    assert refusal(from_address(broker, "192.0.2.1")) == "too-many-connections"


def test_who_is_refused_takes_nobodys_room() -> None:
    broker = MemoryBroker(BrokerConfig(max_connections_per_address=1, max_connections=2))
    from_address(broker, "192.0.2.1")
    for _ in range(5):
        assert refusal(from_address(broker, "192.0.2.1")) == "too-many-connections"
    assert refusal(from_address(broker, "192.0.2.2")) is None
    assert refusal(from_address(broker, "192.0.2.3")) == "too-many-connections"


# Transactions.


@pytest.mark.parametrize(("wait_s", "code"), [(9.9, None), (10.0, "transaction-timeout")])
def test_a_transaction_that_is_open_for_too_long_is_aborted(
    broker_with: MakeBroker, wait_s: float, code: str | None
) -> None:
    broker = broker_with(transaction_timeout_s=10.0)
    publish_all(broker.client(), QUEUE, [b"1"])
    client = broker.client()
    client.subscribe(QUEUE, ack="client")
    client.send("BEGIN", transaction="t")
    client.ack(take_one(client), transaction="t")
    client.publish(QUEUE, b"2", transaction="t")
    broker.clock.advance(wait_s)
    assert refusal(client) == code
    if code is None:
        client.send("COMMIT", transaction="t", receipt="r")
        assert client.take("RECEIPT")
    client.close()
    assert stored(broker, QUEUE) == ([b"1"] if code else [b"2"])


@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_the_time_of_a_transaction_ends_with_it(broker_with: MakeBroker, end: str) -> None:
    broker = broker_with(transaction_timeout_s=10.0)
    client = broker.client()
    for _ in range(5):
        client.send("BEGIN", transaction="t")
        broker.clock.advance(6.0)
        client.send(end, transaction="t")
    broker.clock.advance(100.0)
    assert refusal(client) is None


def test_the_oldest_transaction_counts(broker_with: MakeBroker) -> None:
    broker = broker_with(transaction_timeout_s=10.0)
    client = broker.client()
    client.send("BEGIN", transaction="1")
    broker.clock.advance(6.0)
    client.send("BEGIN", transaction="2")
    broker.clock.advance(4.0)
    assert refusal(client) == "transaction-timeout"
    assert client.error is not None
    assert "'1'" in client.error.headers["message"]


def test_transactions_may_have_no_end(broker_with: MakeBroker) -> None:
    broker = broker_with(transaction_timeout_s=0.0)
    client = broker.client()
    client.send("BEGIN", transaction="t")
    broker.clock.advance(1_000_000.0)
    client.publish(QUEUE, b"x", transaction="t")
    client.send("COMMIT", transaction="t")
    assert stored(broker, QUEUE) == [b"x"]


@pytest.mark.parametrize(("past", "code"), [(0, None), (1, "transaction-too-large")])
def test_octets_are_counted_over_all_open_transactions(
    broker_with: MakeBroker, past: int, code: str | None
) -> None:
    each = len("destination" + QUEUE + "content-length" + "10") + 10
    broker = broker_with(max_transaction_bytes=3 * each)
    client = broker.client()
    for name in "ab":
        client.send("BEGIN", transaction=name)
        client.publish(QUEUE, b"x" * 10, transaction=name)
    client.publish(QUEUE, b"x" * (10 + past), transaction="a")
    assert refusal(client) == code


@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_what_has_ended_counts_no_more(broker_with: MakeBroker, end: str) -> None:
    broker = broker_with(max_transaction_bytes=1_500)
    client = broker.client()
    for _ in range(5):
        client.send("BEGIN", transaction="t")
        client.publish(QUEUE, b"x" * 1_000, transaction="t")
        client.send(end, transaction="t")
    assert refusal(client) is None


def test_each_connection_is_counted_for_itself(broker_with: MakeBroker) -> None:
    broker = broker_with(max_transaction_bytes=1_500)
    clients = [broker.client() for _ in range(3)]
    for client in clients:
        client.send("BEGIN", transaction="t")
        client.publish(QUEUE, b"x" * 1_000, transaction="t")
    assert [refusal(client) for client in clients] == [None] * 3


# Unacknowledged messages.


@pytest.mark.parametrize("version", [b"1.0", b"1.1", b"1.2"])
def test_topics_subscribed_to_again_and_again_leave_nothing_behind(version: bytes) -> None:
    broker = MemoryBroker()
    client = broker.connect()
    client.write(b"CONNECT\naccept-version:%b\nhost:x\n\n\0" % version)
    tracemalloc.start()
    try:
        for _ in range(2_000):
            client.write(
                b"SUBSCRIBE\nid:1\ndestination:/topic/t\nack:client\n\n\0"
                b"SEND\ndestination:/topic/t\n\n%b\0"
                b"UNSUBSCRIBE\nid:1\n\n\0" % bytes(10_000).replace(b"\0", b"x")
            )
            client.transport.take()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 4_000_000  # of 20,000,000 sent
    [connection] = broker.broker.connections
    assert len(connection.ledger) == 0


def test_late_answers_that_are_expected_are_bounded() -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe("/topic/t", id="1", ack="client-individual", prefetch_count="10000")
    for _ in range(2):
        client.write(b"SEND\ndestination:/topic/t\n\n\0" * 6_000)
        client.send("UNSUBSCRIBE", id="1")
        client.subscribe("/topic/t", id="1", ack="client-individual", prefetch_count="10000")
    messages = client.take("MESSAGE")
    assert len(messages) == 12_000
    client.ack(messages[-1])
    client.ack(messages[2_000])
    assert refusal(client) is None
    client.ack(messages[1_999])
    assert refusal(client) == "unknown-acknowledgement"


def test_queues_subscribed_to_again_and_again_are_refused_at_some_time(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(max_unacknowledged=30)
    publish_all(broker.client(), QUEUE, numbered(1, 60))
    client = broker.client()
    for _ in range(10):
        client.subscribe(QUEUE, id="1", ack="client", prefetch_count="10")
        if client.error is not None:
            break
        client.send("UNSUBSCRIBE", id="1")
    assert refusal(client) == "too-many-unacknowledged"
    assert stored(broker, QUEUE) == numbered(1, 60)


def test_subscriptions_in_one_write_get_no_more_than_may_be_unacknowledged(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(max_unacknowledged=30)
    publish_all(broker.client(), QUEUE, numbered(1, 60))
    client = broker.client()
    client.write(
        b"".join(
            b"SUBSCRIBE\nid:%d\ndestination:%s\nack:client-individual\nprefetch-count:20\n\n\0"
            % (number, QUEUE.encode())
            for number in range(4)
        )
    )
    messages = client.take("MESSAGE")
    assert len(messages) == 30
    assert client.error is None
    for message in messages[:5]:
        client.ack(message)
    assert len(client.take("MESSAGE")) == 5


def test_what_one_subscription_acknowledges_is_room_for_the_others(broker_with: MakeBroker) -> None:
    broker = broker_with(max_unacknowledged=2)
    client = broker.client()
    for number in range(2):
        client.subscribe(f"/queue/{number}", id=str(number), ack="client")
    client.subscribe("/topic/t", id="t", ack="client")
    publish_all(broker.client(), "/queue/0", numbered(1, 2))
    publish_all(broker.client(), "/queue/1", [b"3"])
    publish_all(broker.client(), "/topic/t", [b"4"])
    messages = client.take("MESSAGE")
    assert [each.body for each in messages] == numbered(1, 2)
    client.ack(messages[1])
    assert sorted(client.bodies()) == numbered(3, 4)


@pytest.mark.parametrize("way", ["ACK", "NACK", "UNSUBSCRIBE"])
def test_octets_that_are_not_acknowledged_are_bounded(broker_with: MakeBroker, way: str) -> None:
    broker = broker_with(max_unacknowledged_bytes=300)
    kind = "topic" if way == "UNSUBSCRIBE" else "queue"
    client, producer = broker.client(), broker.client()
    client.subscribe(f"/{kind}/first", id="1", ack="client")
    client.subscribe("/queue/second", id="2", ack="client")
    # The message that exceeds the limit is still delivered, whatever its size.
    publish_all(producer, f"/{kind}/first", [b"x" * 200, b"y" * 1_000])
    publish_all(producer, "/queue/second", [b"z"])
    messages = client.take("MESSAGE")
    assert [each.body[:1] for each in messages] == [b"x", b"y"]
    if way == "UNSUBSCRIBE":
        client.send("UNSUBSCRIBE", id="1")
    else:
        client.send(way, {"id": messages[1].headers["ack"], "requeue": "false"})
    assert client.bodies() == [b"z"]
    assert client.error is None


def test_a_message_that_is_taken_away_makes_room_for_others(broker_with: MakeBroker) -> None:
    broker = broker_with(max_unacknowledged=1, ack_timeout_s=5.0)
    client, other = broker.client(), broker.client()
    client.subscribe(QUEUE, id="1", ack="client")
    client.subscribe("/queue/b", id="2", ack="client")
    publish_all(broker.client(), QUEUE, [b"1"])
    publish_all(broker.client(), "/queue/b", [b"2"])
    assert client.bodies() == [b"1"]
    other.subscribe(QUEUE)
    broker.clock.advance(5.0)
    assert client.bodies() == [b"2"]
    assert other.bodies() == [b"1"]


def test_large_messages_are_delivered_again_as_they_were(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = broker.client("1.1")
    body = bytes(range(256)) * 200
    broker.client().publish(QUEUE, body, colour="a:b")
    for _ in range(2):
        client = broker.client("1.1")
        client.subscribe(QUEUE, ack="client")
        message = take_one(client)
        assert (message.body, message.headers["colour"]) == (body, "a:b")
        client.drop()


def test_subscriptions_take_turns_where_all_have_what_may_be_unacknowledged(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(max_unacknowledged=2)
    client = broker.client()
    names = ("/queue/a", "/queue/b", "/topic/c")
    for name in names:
        client.subscribe(name, id=name, ack="client-individual")
    for name in names:
        publish_all(broker.client(), name, numbered(1, 20))
    seen = []
    waiting = client.take("MESSAGE")
    for _ in range(30):
        message = waiting.pop(0)
        seen.append(message.headers["subscription"])
        client.ack(message)
        waiting += client.take("MESSAGE")
        assert len(waiting) <= 2
    assert all(seen.count(name) >= 5 for name in names)
