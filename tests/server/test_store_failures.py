"""A store that fails refuses what it can't keep, loses nothing that was confirmed, and recovers."""

from __future__ import annotations

from pathlib import Path

import pytest

from stompkit.frames import Frame
from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server._stores.lmdb import LmdbStore
from stompkit.server.interfaces import Put
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.failing import FailingStore, HeldRunner, everything
from tests.server.queues import QUEUE, left, numbered

MEMORY = "/queue/memory"
CONFIG = BrokerConfig(destinations=(DestinationConfig(name=MEMORY, storage="memory"),))
#: Longer than the pause after which a store that failed is tried again.
LONG_S = 2.0


@pytest.fixture
def store() -> FailingStore:
    return FailingStore()


@pytest.fixture
def broker(store: FailingStore) -> MemoryBroker:
    return MemoryBroker(CONFIG, store=store)


def again(broker: MemoryBroker, store: FailingStore) -> MemoryBroker:
    """Have another broker go on with the store."""
    broker.broker.close()
    return MemoryBroker(CONFIG, store=store, clock=broker.clock)


def refusal(client: MemoryClient) -> Frame:
    """The ERROR frame that a client got."""
    assert client.error is not None
    assert client.eof
    return client.error


def test_a_message_that_cannot_be_kept_is_refused_and_not_delivered(
    broker: MemoryBroker, store: FailingStore
) -> None:
    consumer, producer = broker.client(), broker.client()
    consumer.subscribe(QUEUE)
    store.fails = everything
    producer.publish(QUEUE, b"lost", receipt="r")
    error = refusal(producer)
    assert error.headers["stompkit-code"] == "store-full"
    assert error.headers["receipt-id"] == "r"
    assert "no space left on device" in error.headers["message"]
    assert "RECEIPT" not in [frame.command for frame in producer.frames]
    assert consumer.bodies() == []
    assert consumer.error is None


def test_what_needs_no_store_goes_on_while_it_fails(
    broker: MemoryBroker, store: FailingStore
) -> None:
    client = broker.client()
    client.subscribe(MEMORY, id="m")
    client.subscribe("/topic/a", id="t")
    store.fails = everything
    client.publish(MEMORY, b"1", receipt="r1")
    client.publish("/topic/a", b"2", receipt="r2")
    assert client.bodies() == [b"1", b"2"]
    assert [f.headers["receipt-id"] for f in client.frames if f.command == "RECEIPT"] == [
        "r1",
        "r2",
    ]


def test_a_store_that_works_again_is_used_again(broker: MemoryBroker, store: FailingStore) -> None:
    store.fails = everything
    refused = broker.client()
    refused.publish(QUEUE, b"lost")
    refusal(refused)
    store.fails = lambda _: False
    producer = broker.client()
    producer.publish(QUEUE, b"kept", receipt="r")
    assert [frame.headers["receipt-id"] for frame in producer.take("RECEIPT")] == ["r"]
    assert left(again(broker, store)) == [b"kept"]


def test_a_full_queue_has_room_again_for_what_could_not_be_kept(store: FailingStore) -> None:
    broker = MemoryBroker(BrokerConfig(max_queue_messages=1), store=store)
    store.fails = everything
    broker.client().publish(QUEUE, b"lost")
    store.fails = lambda _: False
    producer = broker.client()
    producer.publish(QUEUE, b"kept", receipt="r")
    assert producer.take("RECEIPT")


def test_only_the_message_that_fails_is_refused_of_those_that_share_a_commit(
    store: FailingStore,
) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    producers = [broker.client() for _ in range(4)]
    runner.is_held = True
    for number, producer in enumerate(producers):
        producer.publish(QUEUE, b"%d" % number, receipt="r")
    store.fails = lambda operations: any(isinstance(o, Put) and o.body == b"2" for o in operations)
    runner.go_on()
    answers = [producer.frames[-1].command for producer in producers]
    assert answers == ["RECEIPT", "RECEIPT", "ERROR", "RECEIPT"]
    assert left(broker) == [b"0", b"1", b"3"]


def test_many_frames_share_a_commit_while_the_store_is_busy(store: FailingStore) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    producer = broker.client()
    runner.is_held = True
    for body in numbered(1, 100):
        producer.publish(QUEUE, body, receipt="r")
    assert producer.take("RECEIPT") == []
    runner.go_on()
    assert len(producer.take("RECEIPT")) == 100
    assert store.applied == 2


def test_a_disconnect_is_answered_last(store: FailingStore) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    producer = broker.client()
    runner.is_held = True
    producer.publish(QUEUE, b"1", receipt="send")
    producer.send("DISCONNECT", receipt="bye")
    assert not producer.eof
    runner.go_on()
    assert [frame.headers["receipt-id"] for frame in producer.take("RECEIPT")] == ["send", "bye"]
    assert producer.eof


def test_an_acknowledgement_that_cannot_be_kept_is_not_confirmed_and_made_up_for(
    broker: MemoryBroker, store: FailingStore
) -> None:
    broker.client().publish(QUEUE, b"1")
    consumer = broker.client()
    consumer.subscribe(QUEUE, ack="client")
    [message] = consumer.take("MESSAGE")
    store.fails = everything
    consumer.ack(message, receipt="r")
    assert refusal(consumer).headers["receipt-id"] == "r"
    store.fails = lambda _: False
    broker.clock.advance(LONG_S)
    assert left(again(broker, store)) == []


def test_an_acknowledgement_that_was_never_kept_is_forgotten_with_the_broker(
    broker: MemoryBroker, store: FailingStore
) -> None:
    broker.client().publish(QUEUE, b"1")
    consumer = broker.client()
    consumer.subscribe(QUEUE, ack="client")
    [message] = consumer.take("MESSAGE")
    store.fails = everything
    consumer.ack(message, receipt="r")
    store.fails = lambda _: False
    store.close()
    broker = MemoryBroker(CONFIG, store=store, clock=broker.clock)
    assert left(broker) == [b"1"]


def test_a_transaction_that_cannot_be_kept_leaves_everything_as_it_was(
    broker: MemoryBroker, store: FailingStore
) -> None:
    broker.client().publish(QUEUE, b"1")
    client = broker.client()
    client.subscribe(QUEUE, ack="client")
    [message] = client.take("MESSAGE")
    client.send("BEGIN", transaction="t")
    client.publish("/queue/other", b"2", transaction="t")
    client.publish(MEMORY, b"3", transaction="t")
    client.ack(message, transaction="t")
    store.fails = everything
    client.send("COMMIT", transaction="t", receipt="r")
    assert refusal(client).headers["receipt-id"] == "r"
    store.fails = lambda _: False
    assert left(broker, "/queue/other") == []
    other = broker.client()
    other.subscribe(QUEUE)
    [back] = other.take("MESSAGE")
    assert back.body == b"1"
    assert back.headers["redelivered"] == "true"
    assert left(again(broker, store)) == []


def test_a_dead_letter_that_cannot_be_kept_stays_a_message_of_its_queue(
    broker: MemoryBroker, store: FailingStore
) -> None:
    broker.client().publish(QUEUE, b"1")
    consumer = broker.client()
    consumer.subscribe(QUEUE, ack="client")
    [message] = consumer.take("MESSAGE")
    store.fails = everything
    consumer.nack(message, requeue="false", receipt="r")
    assert refusal(consumer).headers["receipt-id"] == "r"
    store.fails = lambda _: False
    broker.clock.advance(LONG_S)
    assert left(broker, "/dlq/a") == []
    assert left(broker) == [b"1"]


def test_a_backlog_that_cannot_be_read_for_a_while_is_delivered_later(
    store: FailingStore,
) -> None:
    broker = MemoryBroker(BrokerConfig(window_messages=2), store=store)
    producer = broker.client()
    for body in numbered(1, 10):
        producer.publish(QUEUE, body)
    store.reads_fail = True
    consumer = broker.client()
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == numbered(1, 2)
    store.reads_fail = False
    broker.clock.advance(LONG_S)
    assert consumer.bodies() == numbered(3, 10)


def test_senders_wait_for_a_store_that_is_behind(store: FailingStore) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(BrokerConfig(max_uncommitted_bytes=1_000), store=store, runner=runner)
    producer, other = broker.client(), broker.client()
    runner.is_held = True
    for number in range(20):
        producer.publish(QUEUE, b"x" * 200, receipt=str(number))
    assert not producer.transport.is_read
    assert other.transport.is_read
    runner.go_on()
    for _ in range(20):
        # What has waited in the transport is read with whatever comes next.
        producer.write(b"\n")
    receipts = [frame.headers["receipt-id"] for frame in producer.take("RECEIPT")]
    assert receipts == [str(number) for number in range(20)]
    assert len(left(broker)) == 20


def test_a_store_without_room_takes_messages_again_after_some_were_consumed(
    tmp_path: Path,
) -> None:
    store = LmdbStore(tmp_path, synchronous=False, max_octets=1 << 20)
    broker = MemoryBroker(store=store)
    sent = 0
    error = None
    while error is None:
        producer = broker.client()
        producer.publish(QUEUE, b"%06d" % sent + b"x" * 10_000, receipt="r")
        error = producer.error
        sent += error is None
    assert error.headers["stompkit-code"] == "store-full"
    assert sent > 10
    consumer = broker.client()
    consumer.subscribe(QUEUE, ack="client", prefetch_count=str(sent))
    messages = consumer.take("MESSAGE")
    assert [message.body[:6] for message in messages] == [b"%06d" % n for n in range(sent)]
    consumer.ack(messages[-1], receipt="r")
    assert consumer.take("RECEIPT")
    producer = broker.client()
    producer.publish(QUEUE, b"x" * 10_000, receipt="r")
    assert producer.take("RECEIPT")
    broker.broker.close()
