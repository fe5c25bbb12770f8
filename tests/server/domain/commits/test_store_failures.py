"""A failing store: the broker refuses new messages, loses no confirmed ones, and recovers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import pytest

from stompkit.frames import Frame
from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.inspection import destinations
from stompkit.server.interfaces import Operation, Put, SetRecord
from stompkit.server.stores.lmdb import LmdbStore
from stompkit.server.stores.runner import ThreadRunner
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.failing import KINDS, FailingStore, HeldRunner, everything, failing_store
from tests.server.many_queues import QUEUE, left, numbered

MEMORY = "/queue/memory"
TOPIC = "/topic/news"
FANOUT = "/fanout/orders"
CHILDREN = ("/queue/b", "/queue/c")
CONFIG = BrokerConfig(
    destinations=(
        DestinationConfig(name=MEMORY, storage="memory"),
        DestinationConfig(name=FANOUT, children=CHILDREN),
    )
)
#: Headers of SUBSCRIBE for a durable subscription.
DURABLY = {"id": "s", "durable": "true", "auto_delete": "false"}
#: Longer than the pause after which a failed store is tried again.
LONG_S = 2.0


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FailingStore]:
    """A store of each kind."""
    store = failing_store(request.param, tmp_path)
    yield store
    store.close()


@pytest.fixture
def broker(store: FailingStore) -> MemoryBroker:
    return MemoryBroker(CONFIG, store=store)


def again(broker: MemoryBroker, store: FailingStore) -> MemoryBroker:
    """Close the broker; return a new one with the same store."""
    broker.broker.close()
    return MemoryBroker(CONFIG, store=store, clock=broker.clock)


def refusal(client: MemoryClient) -> Frame:
    """Return the ERROR frame that a client received."""
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


@pytest.mark.parametrize("failing", [{0}, {1}, {2}, {3}, {0, 1}, {0, 2}, {1, 2}, {0, 3}])
def test_only_the_messages_that_fail_are_refused_of_those_that_share_a_commit(
    store: FailingStore, failing: set[int]
) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    producers = [broker.client() for _ in range(4)]
    runner.is_held = True
    for number, producer in enumerate(producers):
        producer.publish(QUEUE, b"%d" % number, receipt="r")
    store.fails = lambda operations: any(
        isinstance(each, Put) and int(each.body) in failing for each in operations
    )
    runner.go_on()
    answers = [producer.frames[-1].command for producer in producers]
    assert answers == ["ERROR" if number in failing else "RECEIPT" for number in range(4)]
    assert left(again(broker, store)) == [b"%d" % each for each in range(4) if each not in failing]


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


@pytest.mark.parametrize("heard", [0, 1, 2])
def test_a_broker_that_stops_while_the_store_fails_leaves_nothing_undone(
    store: FailingStore, heard: int
) -> None:
    """The broker stops while it retries the frames of a failed batch one by one."""
    told: SimpleQueue[Callable[[], None]] = SimpleQueue()
    broker = MemoryBroker(CONFIG, store=store, runner=ThreadRunner(told.put))

    producer, consumer = broker.client(), broker.client()
    for body in numbered(1, 7):
        producer.publish(QUEUE, body, receipt="r")
        while not producer.take("RECEIPT"):
            told.get(timeout=LONG_S)()
    consumer.subscribe(QUEUE, ack="client-individual")
    messages = consumer.take("MESSAGE")
    assert len(messages) == 7
    has_failed = Event()

    def is_together(operations: Sequence[Operation]) -> bool:
        if len(operations) > 1:
            has_failed.set()
        return len(operations) > 1

    store.fails = is_together
    consumer.write(
        b"".join(b"ACK\nid:%s\n\n\0" % each.headers["ack"].encode() for each in messages[:5])
    )
    assert has_failed.wait(LONG_S)
    for _ in range(heard):
        told.get(timeout=LONG_S)()
    store.fails = lambda _: False
    broker.broker.close()
    assert left(MemoryBroker(CONFIG, store=store, clock=broker.clock)) == numbered(6, 7)


def test_deliveries_are_counted_though_the_store_fails_as_the_broker_stops(
    store: FailingStore,
) -> None:
    """Delivery counts that were sent together with another failed operation are kept, too."""
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    producer = broker.client()
    producer.publish(QUEUE, b"1", receipt="r")
    runner.is_held = True
    for _ in range(3):
        consumer = broker.client()
        consumer.subscribe(QUEUE, ack="client")
        assert consumer.take("MESSAGE")
        consumer.close()
    producer.publish(QUEUE, b"2", receipt="r")
    failing = iter((True,))
    store.fails = lambda _: next(failing, False)
    broker.broker.close()
    consumer = MemoryBroker(CONFIG, store=store, clock=broker.clock).client()
    consumer.subscribe(QUEUE, ack="client")
    counts = [each.headers.get("delivery-count") for each in consumer.take("MESSAGE")]
    assert counts == ["4", None]


def test_deliveries_that_a_failing_store_was_told_of_late_are_counted_in_order(
    broker: MemoryBroker, store: FailingStore
) -> None:
    broker.client().publish(QUEUE, b"1", receipt="r")

    def deliver() -> None:
        consumer = broker.client()
        consumer.subscribe(QUEUE, ack="client")
        assert consumer.take("MESSAGE")
        consumer.close()

    deliver()
    store.fails = everything
    # Long enough for the update of the count to fail, but too short for a retry.
    broker.clock.advance(0.5)
    deliver()
    deliver()
    store.fails = lambda _: False
    consumer = again(broker, store).client()
    consumer.subscribe(QUEUE, ack="client")
    assert [each.headers["delivery-count"] for each in consumer.take("MESSAGE")] == ["4"]


def test_an_older_count_of_deliveries_is_not_noted_after_a_younger_one(
    broker: MemoryBroker, store: FailingStore
) -> None:
    broker.client().publish(QUEUE, b"1", receipt="r")
    for _ in range(3):
        consumer = broker.client()
        consumer.subscribe(QUEUE, ack="client")
        assert consumer.take("MESSAGE")
        consumer.close()
        # The first update fails, then again together with the second, and alone.
        failing = iter((True, True))
        store.fails = lambda _, failing=failing: next(failing, False)  # type: ignore[misc]
        broker.clock.advance(0.5)
    store.fails = lambda _: False
    broker.clock.advance(LONG_S)
    consumer = again(broker, store).client()
    consumer.subscribe(QUEUE, ack="client")
    assert [each.headers["delivery-count"] for each in consumer.take("MESSAGE")] == ["4"]


@pytest.mark.parametrize("fails_again", [False, True])
def test_an_older_count_of_deliveries_is_not_noted_last_by_a_broker_that_stops(
    store: FailingStore, *, fails_again: bool
) -> None:
    """The broker stops before it learns that the store has got the newer count."""
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    broker.client().publish(QUEUE, b"1", receipt="r")
    for is_held in (False, False, True):
        consumer = broker.client()
        consumer.subscribe(QUEUE, ack="client")
        assert consumer.take("MESSAGE")
        consumer.close()
        store.fails = everything
        runner.is_held = is_held
        broker.clock.advance(LONG_S)
    # The update for the first two deliveries fails with the third, and alone.
    for _ in range(3):
        runner.step()
    failing = iter((fails_again,))
    store.fails = lambda _: next(failing, False)
    broker.broker.close()
    consumer = MemoryBroker(CONFIG, store=store, clock=broker.clock).client()
    consumer.subscribe(QUEUE, ack="client")
    assert [each.headers["delivery-count"] for each in consumer.take("MESSAGE")] == ["4"]


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


@pytest.mark.parametrize("fails", [False, True])
def test_a_disconnect_waits_for_all_that_came_before_it(
    store: FailingStore, *, fails: bool
) -> None:
    """Acknowledged and committed messages are settled; all others are requeued or rolled back."""
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    for body in numbered(1, 3):
        broker.client().publish(QUEUE, body, receipt="r")
    client = broker.client()
    client.subscribe(QUEUE, ack="client-individual")
    first, second, _ = client.take("MESSAGE")
    runner.is_held = True
    client.publish("/queue/sent", b"sent")
    client.ack(first)
    client.send("BEGIN", transaction="t")
    client.publish("/queue/sent", b"committed", transaction="t")
    client.send("COMMIT", transaction="t")
    client.send("BEGIN", transaction="open")
    client.publish("/queue/sent", b"never", transaction="open")
    client.ack(second, transaction="open")
    client.send("DISCONNECT", receipt="bye")
    # The store performs the calls in the order of the frames.
    if fails:
        store.fails = lambda operations: any(
            isinstance(each, Put) and each.body == b"committed" for each in operations
        )
    runner.step()
    assert client.take("RECEIPT") == []
    runner.go_on()
    receipts = [frame.headers["receipt-id"] for frame in client.take("RECEIPT")]
    assert receipts == ([] if fails else ["bye"])
    assert client.eof
    store.fails = lambda _: False
    # This is like a kill: no work remains for the disconnected client.
    runner.is_held = True
    later = again(broker, store)
    assert left(later) == numbered(2, 3)
    assert left(later, "/queue/sent") == [b"sent"] + [b"committed"] * (not fails)


def emptied_by_a_transaction(broker: MemoryBroker, runner: HeldRunner) -> MemoryClient:
    """Take the only message of a queue in a transaction whose COMMIT the store has not done yet."""
    broker.client().publish(QUEUE, b"1", receipt="r")
    consumer = broker.client()
    consumer.subscribe(QUEUE, id="s", ack="client-individual")
    [message] = consumer.take("MESSAGE")
    runner.is_held = True
    consumer.send("BEGIN", transaction="t")
    consumer.ack(message, transaction="t")
    consumer.send("COMMIT", transaction="t", receipt="r")
    return consumer


@pytest.mark.parametrize("leave", ["unsubscribe", "close"])
def test_a_queue_outlives_a_transaction_that_took_its_last_message(
    store: FailingStore, leave: str
) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    consumer = emptied_by_a_transaction(broker, runner)
    if leave == "close":
        consumer.close()
    else:
        consumer.send("UNSUBSCRIBE", id="s")
    # The queue has neither messages nor consumers, but the COMMIT that emptied it fails.
    store.fails = everything
    runner.go_on()
    store.fails = lambda _: False
    broker.clock.advance(LONG_S)
    reader = broker.client()
    reader.subscribe(QUEUE, ack="client-individual")
    [again_] = reader.take("MESSAGE")
    assert again_.body == b"1"
    reader.close()
    assert left(again(broker, store)) == [b"1"]


def test_a_queue_that_a_transaction_has_emptied_is_forgotten_once_that_is_kept(
    store: FailingStore,
) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    consumer = emptied_by_a_transaction(broker, runner)
    consumer.send("UNSUBSCRIBE", id="s")
    assert QUEUE in {row.name for row in destinations(broker.broker)}
    runner.go_on()
    assert QUEUE not in {row.name for row in destinations(broker.broker)}


@pytest.mark.parametrize("receipt", [{"receipt": "r"}, {}])
def test_a_durable_subscription_that_was_refused_collects_nothing(
    broker: MemoryBroker, store: FailingStore, receipt: dict[str, str]
) -> None:
    subscriber, producer = broker.client(), broker.client()
    store.fails = everything
    subscriber.subscribe(TOPIC, **DURABLY, **receipt)
    assert refusal(subscriber).headers["stompkit-code"] == "store-full"
    store.fails = lambda _: False
    producer.publish(TOPIC, b"1", receipt="r")
    assert producer.take("RECEIPT")
    broker.clock.advance(LONG_S)
    assert [row for row in destinations(broker.broker) if row.name.startswith("/durable/")] == []
    later = again(broker, store)
    later.broker.flush()
    assert [row for row in destinations(later.broker) if row.name.startswith("/durable/")] == []
    # A new request succeeds, and takes effect from then on.
    client = later.client()
    client.subscribe(TOPIC, **DURABLY, receipt="s")
    assert client.take("RECEIPT")
    later.client().publish(TOPIC, b"2")
    assert [message.body for message in client.take("MESSAGE")] == [b"2"]


def test_a_durable_subscription_that_is_shared_by_now_outlives_the_refusal_of_the_first(
    store: FailingStore,
) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    clients = [broker.client(), broker.client()]
    runner.is_held = True
    failing = iter((True,))
    store.fails = lambda _: next(failing, False)
    for client in clients:
        client.subscribe(TOPIC, **DURABLY, receipt="r")
    runner.go_on()
    first, second = clients
    assert refusal(first)
    assert second.take("RECEIPT")
    second.close()
    broker.client().publish(TOPIC, b"1", receipt="r")
    later = again(broker, store).client()
    later.subscribe(TOPIC, **DURABLY)
    assert [message.body for message in later.take("MESSAGE")] == [b"1"]


def test_a_letter_that_the_store_does_not_take_goes_back_to_a_queue_that_nobody_uses(
    store: FailingStore,
) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    broker.client().publish(QUEUE, b"1", receipt="r")
    consumer = broker.client()
    consumer.subscribe(QUEUE, id="s", ack="client-individual")
    [message] = consumer.take("MESSAGE")
    runner.is_held = True
    consumer.nack(message, requeue="false")
    consumer.send("UNSUBSCRIBE", id="s")
    store.fails = everything
    runner.go_on()
    store.fails = lambda _: False
    broker.clock.advance(LONG_S)
    assert left(again(broker, store)) == [b"1"]


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
    broker.clock.advance(0)
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


# Queues that the store does not have yet.


def refused(broker: MemoryBroker, destination: str, **headers: str) -> None:
    """Check that messages are refused repeatedly because the store is full."""
    for _ in range(3):
        producer = broker.client()
        producer.publish(destination, b"refused", receipt="r", **headers)
        error = refusal(producer)
        assert error.headers["stompkit-code"] == "store-full"
        assert error.headers["receipt-id"] == "r"


def kept(broker: MemoryBroker, destination: str, **headers: str) -> None:
    """Check that a message is confirmed."""
    producer = broker.client()
    producer.publish(destination, b"kept", receipt="r", **headers)
    assert producer.take("RECEIPT")


def stored(broker: MemoryBroker, store: FailingStore) -> list[tuple[str, int]]:
    """Return the queues in the store after a while, with their numbers of messages."""
    broker.clock.advance(LONG_S)
    return sorted((state.queue.partition("\n")[2], state.messages) for state in store.lanes())


@pytest.mark.parametrize("readers", [0, 1])
def test_a_new_queue_takes_messages_once_the_store_has_room(
    broker: MemoryBroker, store: FailingStore, readers: int
) -> None:
    # A queue without readers ends with the refused message.
    for _ in range(readers):
        broker.client().subscribe(QUEUE, ack="client")
    store.fails = everything
    refused(broker, QUEUE)
    store.fails = lambda _: False
    kept(broker, QUEUE)
    kept(broker, QUEUE)
    assert stored(broker, store) == [(QUEUE, 2)]
    assert left(again(broker, store)) == [b"kept", b"kept"]


def test_a_queue_whose_messages_were_all_refused_leaves_nothing_to_be_done(
    broker: MemoryBroker, store: FailingStore
) -> None:
    store.fails = everything
    refused(broker, QUEUE)
    store.fails = lambda _: False
    assert stored(broker, store) == []
    assert store.applied == 0


def test_a_message_that_comes_while_a_new_queue_fails_is_kept(store: FailingStore) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    first, second = broker.client(), broker.client()
    runner.is_held = True
    first.publish(QUEUE, b"refused")
    second.publish(QUEUE, b"kept", receipt="r")
    store.fails = everything
    runner.step()
    assert refusal(first).headers["stompkit-code"] == "store-full"
    store.fails = lambda _: False
    runner.go_on()
    assert second.take("RECEIPT")
    assert left(again(broker, store)) == [b"kept"]


def test_a_broker_that_ends_keeps_what_has_waited_for_a_new_queue(store: FailingStore) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    first, second = broker.client(), broker.client()
    broker.client().subscribe(QUEUE, ack="client")
    store.fails = everything
    first.publish(QUEUE, b"refused")
    store.fails = lambda _: False
    runner.is_held = True
    broker.client().publish("/queue/other", b"busy")
    second.publish(QUEUE, b"kept")
    assert left(again(broker, store)) == [b"kept"]


def test_a_durable_subscription_collects_once_the_store_has_room(
    broker: MemoryBroker, store: FailingStore
) -> None:
    reader = broker.client()
    reader.subscribe(TOPIC, **DURABLY)
    reader.close()
    store.fails = everything
    refused(broker, TOPIC)
    store.fails = lambda _: False
    kept(broker, TOPIC)
    [(name, messages)] = stored(broker, store)
    assert name.startswith("/durable/")
    assert messages == 1
    reader = again(broker, store).client()
    reader.subscribe(TOPIC, **DURABLY)
    assert reader.bodies() == [b"kept"]


def test_the_children_of_a_fanout_take_messages_once_the_store_has_room(
    broker: MemoryBroker, store: FailingStore
) -> None:
    broker.client().subscribe(CHILDREN[0], ack="client")
    store.fails = everything
    refused(broker, FANOUT)
    store.fails = lambda _: False
    kept(broker, FANOUT)
    assert stored(broker, store) == [(child, 1) for child in CHILDREN]
    broker = again(broker, store)
    assert [left(broker, child) for child in CHILDREN] == [[b"kept"], [b"kept"]]


def test_a_queue_takes_delayed_messages_once_the_store_has_room(
    broker: MemoryBroker, store: FailingStore
) -> None:
    broker.client().subscribe(QUEUE, ack="client")
    store.fails = everything
    refused(broker, QUEUE, delay="60000")
    store.fails = lambda _: False
    kept(broker, QUEUE, delay="60000")
    assert stored(broker, store) == [(QUEUE, 1)]
    broker = again(broker, store)
    broker.clock.advance(60.0)
    assert left(broker) == [b"kept"]


def test_dead_letters_are_taken_once_the_store_has_room(
    broker: MemoryBroker, store: FailingStore
) -> None:
    kept(broker, QUEUE)
    watcher = broker.client()
    watcher.subscribe("/dlq/a", ack="client")
    store.fails = everything
    for _ in range(2):
        consumer = broker.client()
        consumer.subscribe(QUEUE, ack="client")
        [message] = consumer.take("MESSAGE")
        consumer.nack(message, requeue="false", receipt="r")
        assert refusal(consumer).headers["stompkit-code"] == "store-full"
    assert watcher.bodies() == []
    store.fails = lambda _: False
    consumer = broker.client()
    consumer.subscribe(QUEUE, ack="client")
    [message] = consumer.take("MESSAGE")
    consumer.nack(message, requeue="false", receipt="r")
    assert consumer.take("RECEIPT")
    assert watcher.bodies() == [b"kept"]
    broker = again(broker, store)
    assert left(broker) == []
    assert left(broker, "/dlq/a") == [b"kept"]


def test_a_new_queue_goes_on_after_the_store_did_what_it_could_not_confirm(
    broker: MemoryBroker, store: FailingStore
) -> None:
    broker.client().subscribe(QUEUE, ack="client")
    store.is_cut_off = True
    producer = broker.client()
    producer.publish(QUEUE, b"refused")
    assert refusal(producer).headers["stompkit-code"] == "store-failed"
    store.is_cut_off = False
    kept(broker, QUEUE)
    assert left(again(broker, store)) == [b"kept"]


def test_a_durable_subscription_that_was_ended_does_not_come_back_when_there_is_room(
    broker: MemoryBroker, store: FailingStore
) -> None:
    def makes_a_record(operations: Sequence[Operation]) -> bool:
        return any(isinstance(o, SetRecord) and o.value is not None for o in operations)

    reader = broker.client()
    reader.subscribe(TOPIC, receipt="r", **DURABLY)
    store.fails = makes_a_record
    # The time of its last use cannot be stored.
    reader.close()
    reader = broker.client()
    reader.send("UNSUBSCRIBE", DURABLY, receipt="r")
    assert reader.take("RECEIPT")
    store.fails = lambda _: False
    broker.clock.advance(LONG_S)
    assert store.records() == {}


def test_only_the_last_of_the_values_of_a_record_that_failed_is_written(
    broker: MemoryBroker, store: FailingStore
) -> None:
    reader = broker.client()
    reader.subscribe(TOPIC, receipt="r", **DURABLY)
    reader.close()
    store.fails = everything
    for _ in range(3):
        reader = broker.client()
        reader.subscribe(TOPIC, receipt="r", **DURABLY)
        assert refusal(reader).headers["stompkit-code"] == "store-full"
        broker.clock.advance(LONG_S)
    done: list[Operation] = []

    def works(operations: Sequence[Operation]) -> bool:
        done.extend(operations)
        return False

    store.fails = works
    broker.clock.advance(LONG_S)
    [record] = done
    assert isinstance(record, SetRecord)
    assert store.records() == {record.key: record.value}


# Delayed messages that are due while the store fails.


def delayed(broker: MemoryBroker, *bodies: bytes) -> None:
    """Send messages that are due after one second, two seconds and so on; check their receipts."""
    producer = broker.client()
    for seconds, body in enumerate(bodies, 1):
        producer.publish(QUEUE, body, delay=f"{seconds}000", receipt="r")
    assert len(producer.take("RECEIPT")) == len(bodies)
    producer.close()


def waiting(broker: MemoryBroker) -> list[tuple[int, int]]:
    """Return the numbers of ready and of delayed messages of the queue."""
    states = destinations(broker.broker)
    return [(each.ready, each.delayed) for each in states if each.name == QUEUE]


def fails_for(*bodies: bytes) -> Callable[[Sequence[Operation]], bool]:
    """Return a function that makes the store fail for messages with these bodies."""
    return lambda operations: any(isinstance(o, Put) and o.body in bodies for o in operations)


def seconds(broker: MemoryBroker, number: int) -> None:
    """Advance the clock by *number* seconds, one after the other."""
    for _ in range(number):
        broker.clock.advance(1.0)


def test_a_message_that_is_due_while_the_store_fails_is_delivered_once_it_works(
    broker: MemoryBroker, store: FailingStore
) -> None:
    reader = broker.client()
    reader.subscribe(QUEUE)
    delayed(broker, b"1", b"2", b"3")
    store.fails = everything
    seconds(broker, 10)
    assert reader.bodies() == []
    assert waiting(broker) == [(0, 3)]
    store.fails = lambda _: False
    broker.clock.advance(LONG_S)
    assert reader.bodies() == [b"1", b"2", b"3"]
    seconds(broker, 10)
    assert reader.bodies() == []
    reader.close()
    assert waiting(broker) == []
    assert stored(broker, store) == []


def test_a_queue_that_nobody_reads_keeps_what_is_due_while_the_store_fails(
    broker: MemoryBroker, store: FailingStore
) -> None:
    delayed(broker, b"1", b"2", b"3")
    store.fails = everything
    seconds(broker, 10)
    assert waiting(broker) == [(0, 3)]
    store.fails = lambda _: False
    broker.clock.advance(LONG_S)
    assert waiting(broker) == [(3, 0)]
    assert left(broker) == [b"1", b"2", b"3"]
    assert waiting(broker) == []
    assert stored(broker, store) == []


@pytest.mark.parametrize("works_before", [False, True])
def test_a_message_that_was_due_while_the_store_failed_survives_the_broker(
    broker: MemoryBroker, store: FailingStore, *, works_before: bool
) -> None:
    delayed(broker, b"1", b"2")
    store.fails = everything
    seconds(broker, 5)
    if works_before:
        store.fails = lambda _: False
        broker.clock.advance(LONG_S)
    broker = again(broker, store)
    store.fails = lambda _: False
    broker.clock.advance(LONG_S)
    assert waiting(broker) == [(2, 0)]
    assert left(broker) == [b"1", b"2"]
    assert stored(broker, store) == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_message_that_is_being_moved_when_the_broker_ends_is_delivered_once(
    store: FailingStore, *, fails: bool
) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    delayed(broker, b"1", b"2")
    broker.client().publish(QUEUE, b"3", delay="60000")
    store.fails = everything
    seconds(broker, 3)
    store.fails = lambda _: fails
    runner.is_held = True
    seconds(broker, 3)
    broker = again(broker, store)
    store.fails = lambda _: False
    broker.clock.advance(LONG_S)
    assert left(broker) == [b"1", b"2"]
    broker.clock.advance(60.0)
    assert left(broker) == [b"3"]
    assert stored(broker, store) == []


def test_messages_that_are_due_while_the_store_fails_count_against_the_limit(
    store: FailingStore,
) -> None:
    broker = MemoryBroker(BrokerConfig(max_queue_messages=2), store=store)
    delayed(broker, b"1", b"2")
    store.fails = everything
    seconds(broker, 5)
    store.fails = lambda _: False
    for _ in range(2):
        producer = broker.client()
        producer.publish(QUEUE, b"3", receipt="r")
        assert refusal(producer).headers["stompkit-code"] == "queue-full"
        broker.clock.advance(LONG_S)
    assert left(broker) == [b"1", b"2"]
    delayed(broker, b"4", b"5")


def test_a_delayed_message_without_room_in_the_store_keeps_no_other_back(
    broker: MemoryBroker, store: FailingStore
) -> None:
    delayed(broker, b"1", b"2", b"3")
    store.fails = everything
    seconds(broker, 5)
    store.fails = fails_for(b"2")
    seconds(broker, 5)
    assert waiting(broker) == [(2, 1)]
    assert left(broker) == [b"1", b"3"]
    assert waiting(broker) == [(0, 1)]
    store.fails = lambda _: False
    broker.clock.advance(LONG_S)
    assert left(broker) == [b"2"]
    assert stored(broker, store) == []


@pytest.mark.parametrize("window_messages", [2, 1_000])
def test_a_delayed_message_that_the_store_takes_late_is_before_what_was_sent_later(
    store: FailingStore, window_messages: int
) -> None:
    config = BrokerConfig(window_messages=window_messages)
    broker = MemoryBroker(config, store=store)
    delayed(broker, b"1")
    store.fails = fails_for(b"1")
    seconds(broker, 2)
    for body in numbered(2, 7):
        broker.client().publish(QUEUE, body)
    store.fails = lambda _: False
    broker.clock.advance(LONG_S)
    assert waiting(broker) == [(7, 0)]
    reader = broker.client()
    reader.subscribe(QUEUE, ack="client", prefetch_count="1")
    for body in numbered(1, 7):
        [message] = reader.take("MESSAGE")
        assert message.body == body
        reader.ack(message)
    reader.close()
    assert stored(broker, store) == []


def test_a_delayed_message_that_the_store_takes_late_still_expires(
    broker: MemoryBroker, store: FailingStore
) -> None:
    producer = broker.client()
    producer.publish(QUEUE, b"x", delay="1000", expires="100000")
    store.fails = everything
    seconds(broker, 90)
    store.fails = lambda _: False
    broker.clock.advance(LONG_S)
    assert waiting(broker) == [(1, 0)]
    seconds(broker, 60)
    assert waiting(broker) == []


@pytest.mark.parametrize("comes_between", [False, True])
def test_a_delayed_message_is_delivered_once_by_a_store_that_moved_it_without_saying_so(
    broker: MemoryBroker, store: FailingStore, *, comes_between: bool
) -> None:
    delayed(broker, b"1")
    store.is_cut_off = True
    broker.clock.advance(1.0)
    assert waiting(broker) == [(0, 1)]
    store.is_cut_off = False
    sent = []
    if comes_between:
        # This creates the lane that the move may have created already.
        kept(broker, QUEUE)
        sent = [b"kept"]
    broker.clock.advance(LONG_S)
    assert stored(broker, store) == [(QUEUE, 0), (QUEUE, 1 + len(sent))]
    broker = again(broker, store)
    assert left(broker) == [b"1", *sent]
    assert stored(broker, store) == []


def test_delayed_messages_that_cannot_be_read_for_a_while_come_in_their_order(
    broker: MemoryBroker, store: FailingStore
) -> None:
    reader = broker.client()
    reader.subscribe(QUEUE)
    producer = broker.client()
    for body, delay in ((b"3", "3000"), (b"1", "1000"), (b"2", "2000")):
        producer.publish(QUEUE, body, delay=delay)
    store.reads_fail = True
    seconds(broker, 5)
    assert waiting(broker) == [(0, 3)]
    store.reads_fail = False
    broker.clock.advance(LONG_S)
    assert reader.bodies() == [b"1", b"2", b"3"]


def test_many_messages_that_are_due_at_once_come_after_a_failure_in_their_order(
    broker: MemoryBroker, store: FailingStore
) -> None:
    # More messages than are moved at a time.
    bodies = numbered(1, 250)
    producer = broker.client()
    for body in bodies:
        producer.publish(QUEUE, body, delay="1000")
    store.fails = everything
    seconds(broker, 3)
    assert waiting(broker) == [(0, len(bodies))]
    store.fails = lambda _: False
    seconds(broker, 3)
    assert waiting(broker) == [(len(bodies), 0)]
    assert left(broker) == bodies


def end(client: MemoryClient) -> None:
    client.end()


def disconnect(client: MemoryClient) -> None:
    client.send("DISCONNECT", receipt="bye")


@pytest.mark.parametrize("leave", [end, disconnect])
def test_who_leaves_ahead_of_an_answer_is_refused_and_keeps_nobody_from_going_on(
    store: FailingStore, leave: Callable[[MemoryClient], None]
) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    leaving, other = broker.client(), broker.client()
    runner.is_held = True
    leaving.publish(QUEUE, b"1")
    leaving.publish(QUEUE, b"2", receipt="2")
    leave(leaving)
    other.publish(QUEUE, b"3", receipt="3")
    store.fails = everything
    runner.go_on()
    assert refusal(leaving).headers["stompkit-code"] == "store-full"
    assert refusal(other).headers["stompkit-code"] == "store-full"
    store.fails = lambda _: False
    later = broker.client()
    later.publish(QUEUE, b"kept", receipt="r")
    assert [frame.headers["receipt-id"] for frame in later.take("RECEIPT")] == ["r"]
    assert left(again(broker, store)) == [b"kept"]


# Messages in memory, together with messages that cannot be stored.

MIXED = "/fanout/mixed"


@pytest.fixture
def mixed(store: FailingStore) -> MemoryBroker:
    """A broker with a fan-out to a stored and an in-memory queue, which are small."""
    return MemoryBroker(
        BrokerConfig(
            when_full="drop-oldest",
            max_queue_messages=2,
            destinations=(
                DestinationConfig(name=MEMORY, storage="memory"),
                DestinationConfig(name="/dlq/memory", storage="memory"),
                DestinationConfig(name=MIXED, children=(MEMORY, QUEUE)),
                DestinationConfig(name="/queue/discarded", nack="discard"),
                DestinationConfig(name="/dlq/a", storage="memory"),
            ),
        ),
        store=store,
    )


def refuse_messages(operations: Sequence[Operation]) -> bool:
    """Return True if operations store a message."""
    return any(isinstance(each, Put) for each in operations)


def commit(client: MemoryClient, *messages: tuple[str, bytes], **headers: str) -> None:
    """Send messages in a transaction that may have begun, and commit it."""
    for destination, body in messages:
        client.publish(destination, body, transaction="t", **headers)
    client.send("COMMIT", transaction="t", receipt="r")


@pytest.mark.parametrize("delay", ["0", "1000"])
def test_a_transaction_that_cannot_be_kept_puts_nothing_into_queues_in_memory(
    mixed: MemoryBroker, store: FailingStore, delay: str
) -> None:
    for body in numbered(1, 2):
        mixed.client().publish(MEMORY, body)
    listener, client = mixed.client(), mixed.client()
    listener.subscribe(TOPIC)
    store.fails = refuse_messages
    client.send("BEGIN", transaction="t")
    commit(client, (MEMORY, b"x"), (TOPIC, b"x"), (QUEUE, b"x"), delay=delay)
    assert refusal(client).headers["stompkit-code"] == "store-full"
    mixed.clock.advance(LONG_S)
    assert listener.bodies() == []
    assert left(mixed, MEMORY) == numbered(1, 2)


def test_a_fanout_whose_copy_cannot_be_kept_puts_none_into_queues_in_memory(
    mixed: MemoryBroker, store: FailingStore
) -> None:
    for body in numbered(1, 2):
        mixed.client().publish(MEMORY, body)
    store.fails = refuse_messages
    client = mixed.client()
    client.publish(MIXED, b"x", receipt="r")
    assert refusal(client).headers["stompkit-code"] == "store-full"
    assert left(mixed, MEMORY) == numbered(1, 2)


@pytest.mark.parametrize("destination", [MEMORY, TOPIC])
@pytest.mark.parametrize("is_kept", [True, False])
def test_what_comes_after_a_transaction_is_delivered_after_it(
    store: FailingStore, destination: str, *, is_kept: bool
) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    consumer, client, other = broker.client(), broker.client(), broker.client()
    consumer.subscribe(destination)
    store.fails = (lambda _: False) if is_kept else refuse_messages
    runner.is_held = True
    client.send("BEGIN", transaction="t")
    commit(client, (destination, b"1"), (QUEUE, b"x"), (destination, b"2"))
    other.publish(destination, b"3")
    other.publish(destination, b"4", receipt="r")
    assert consumer.bodies() == []
    runner.go_on()
    broker.clock.advance(0)
    assert consumer.bodies() == numbered(1 if is_kept else 3, 4)
    assert len(other.take("RECEIPT")) == 1
    assert broker.destinations[destination].ready == 0


def test_a_refusal_in_a_transaction_that_cannot_be_kept_drops_nothing(
    mixed: MemoryBroker, store: FailingStore
) -> None:
    client = mixed.client()
    client.publish("/queue/discarded", b"x")
    client.subscribe("/queue/discarded", ack="client")
    client.send("BEGIN", transaction="t")
    client.nack(client.take("MESSAGE")[0], transaction="t")
    store.fails = refuse_messages
    commit(client, (QUEUE, b"y"))
    assert refusal(client).headers["stompkit-code"] == "store-full"
    store.fails = lambda _: False
    assert left(mixed, "/queue/discarded") == [b"x"]


def test_a_dead_letter_in_memory_waits_until_the_store_has_forgotten_the_message(
    mixed: MemoryBroker, store: FailingStore
) -> None:
    client = mixed.client()
    client.publish(QUEUE, b"x")
    client.subscribe(QUEUE, ack="client")
    store.fails = everything
    client.nack(client.take("MESSAGE")[0], requeue="false")
    assert client.error is not None
    store.fails = lambda _: False
    assert (left(mixed), left(mixed, "/dlq/a")) == ([b"x"], [])


def test_delayed_messages_of_a_transaction_count_before_they_are_kept(store: FailingStore) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG.changed(max_delayed=2), store=store, runner=runner)
    runner.is_held = True
    first = broker.client()
    first.send("BEGIN", transaction="t")
    commit(first, *[(each, b"1") for each in (MEMORY, TOPIC) * 2], (QUEUE, b"x"), delay="1000")
    for destination in (MEMORY, TOPIC):
        client = broker.client()
        client.publish(destination, b"2", delay="1000")
        assert refusal(client).headers["stompkit-code"] == "queue-full"
    runner.go_on()
    assert [broker.destinations[each].delayed for each in (MEMORY, TOPIC)] == [2, 2]


def test_a_message_that_is_refused_for_a_durable_subscription_reaches_nobody(
    broker: MemoryBroker, store: FailingStore
) -> None:
    collector, live, sender, other = (broker.client() for _ in range(4))
    collector.subscribe("/topic/t", ack="client-individual", **DURABLY)
    live.subscribe("/topic/t")
    store.fails = lambda operations: any(isinstance(each, Put) for each in operations)
    sender.publish("/topic/t", b"refused", receipt="r")
    assert refusal(sender).headers["receipt-id"] == "r"
    store.fails = lambda _: False
    other.publish("/topic/t", b"kept", receipt="r")
    assert [each.headers["receipt-id"] for each in other.take("RECEIPT")] == ["r"]
    assert live.bodies() == [b"kept"]
    assert collector.bodies() == [b"kept"]


def test_messages_of_a_topic_come_in_their_order_while_the_store_is_busy() -> None:
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=FailingStore(), runner=runner)
    collector, live, sender = (broker.client() for _ in range(3))
    collector.subscribe("/topic/t", selector="n > 1", **DURABLY)
    live.subscribe("/topic/t")
    runner.is_held = True
    for number in range(5):
        sender.publish("/topic/t", b"%d" % number, n=str(number))
    # Messages that need no storage do not wait for it.
    assert live.bodies() == [b"0", b"1"]
    runner.go_on()
    assert live.bodies() == [b"2", b"3", b"4"]
    assert collector.bodies() == [b"2", b"3", b"4"]
