"""Full queues: a further message is refused, or replaces others, or its sender waits."""

from __future__ import annotations

import pytest

from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import MakeBroker, publish_all, purged, refusal, stored, take_one
from tests.server.many_queues import numbered

QUEUE = "/queue/a"
#: Size of one message with a one-digit body, as the broker counts it.
SIZE = len("destination" + QUEUE + "content-length" + "1" + "1")
limits = pytest.mark.parametrize(
    "limit", [{"max_queue_messages": 3}, {"max_queue_bytes": 3 * SIZE}]
)


def receipts(client: MemoryClient) -> list[str]:
    """Return the receipts received."""
    return [each.headers["receipt-id"] for each in client.take("RECEIPT")]


def send(client: MemoryClient, first: int, last: int) -> None:
    """Send numbered messages, each with its number as the receipt."""
    for body in numbered(first, last):
        client.publish(QUEUE, body, receipt=body.decode())


# Reject.


@limits
def test_reject_refuses_what_does_not_fit(broker_with: MakeBroker, limit: dict[str, int]) -> None:
    broker = broker_with(when_full="reject", **limit)
    sender = broker.client()
    send(sender, 1, 4)
    assert receipts(sender) == ["1", "2", "3"]
    assert refusal(sender) == "queue-full"
    assert sender.error is not None
    assert sender.error.headers["receipt-id"] == "4"
    assert stored(broker, QUEUE) == numbered(1, 3)


@pytest.mark.parametrize("when_full", ["reject", "drop-oldest", "block"])
def test_a_message_larger_than_the_queue_is_refused_always(
    broker_with: MakeBroker, when_full: str
) -> None:
    broker = broker_with(when_full=when_full, max_queue_bytes=3 * SIZE)
    sender = broker.client()
    send(sender, 1, 2)
    sender.publish(QUEUE, b"x" * 3 * SIZE, receipt="large")
    assert refusal(sender) == "queue-too-small"
    assert stored(broker, QUEUE) == numbered(1, 2)


def test_a_queue_in_memory_has_the_smaller_of_two_limits() -> None:
    table = DestinationConfig(name=QUEUE, storage="memory")
    config = BrokerConfig(max_memory_queue_bytes=2 * SIZE, destinations=(table,))
    broker = MemoryBroker(config, store=MemoryStore())
    sender = broker.client()
    send(sender, 1, 3)
    assert receipts(sender) == ["1", "2"]
    assert refusal(sender) == "queue-full"
    other = broker.client()
    publish_all(other, "/queue/b", numbered(1, 5))
    assert refusal(other) is None


# Drop the oldest.


@limits
def test_drop_oldest_drops_from_the_front(broker_with: MakeBroker, limit: dict[str, int]) -> None:
    broker = broker_with(when_full="drop-oldest", **limit)
    sender = broker.client()
    send(sender, 1, 5)
    assert receipts(sender) == ["1", "2", "3", "4", "5"]
    assert stored(broker, QUEUE) == numbered(3, 5)
    assert broker.destinations[QUEUE].dropped == 2


def test_a_large_message_pushes_out_as_many_as_it_needs(broker_with: MakeBroker) -> None:
    broker = broker_with(when_full="drop-oldest", max_queue_bytes=4 * SIZE)
    sender = broker.client()
    send(sender, 1, 4)
    large = b"x" * (SIZE + 1)
    sender.publish(QUEUE, large)
    assert stored(broker, QUEUE) == [b"4", large]


def test_what_a_consumer_has_is_not_dropped(broker_with: MakeBroker) -> None:
    broker = broker_with(when_full="drop-oldest", max_queue_messages=3)
    consumer, sender = broker.client(), broker.client()
    consumer.subscribe(QUEUE, ack="client", prefetch_count="2")
    send(sender, 1, 5)
    messages = consumer.take("MESSAGE")
    assert [each.body for each in messages] == numbered(1, 2)
    consumer.ack(messages[-1], receipt="r")
    assert [each.body for each in consumer.take("MESSAGE")] == [b"5"]
    assert consumer.error is None


def test_where_consumers_have_it_all_the_sender_is_refused(broker_with: MakeBroker) -> None:
    broker = broker_with(when_full="drop-oldest", max_queue_messages=2)
    consumer, sender = broker.client(), broker.client()
    consumer.subscribe(QUEUE, ack="client")
    send(sender, 1, 3)
    assert refusal(sender) == "queue-full"
    consumer.drop()
    assert stored(broker, QUEUE) == numbered(1, 2)


def test_what_came_back_is_the_oldest_again(broker_with: MakeBroker) -> None:
    broker = broker_with(when_full="drop-oldest", max_queue_messages=3)
    consumer, sender = broker.client(), broker.client()
    consumer.subscribe(QUEUE, ack="client", prefetch_count="2")
    send(sender, 1, 3)
    consumer.drop()
    send(sender, 4, 4)
    assert stored(broker, QUEUE) == numbered(2, 4)


def test_a_transaction_pushes_out_what_it_needs_or_nothing(broker_with: MakeBroker) -> None:
    full = DestinationConfig(name="/queue/full", max_queue_messages=1, when_full="reject")
    broker = broker_with(when_full="drop-oldest", max_queue_messages=3, destinations=(full,))
    broker.client().publish("/queue/full", b"x")
    for also_full in (True, False):
        sender = broker.client()
        send(sender, 1, 3)
        sender.send("BEGIN", transaction="t")
        for body in numbered(4, 5):
            sender.publish(QUEUE, body, transaction="t")
        if also_full:
            sender.publish("/queue/full", b"y", transaction="t")
        sender.send("COMMIT", transaction="t")
        if also_full:
            assert refusal(sender) == "queue-full"
            assert stored(broker, QUEUE) == numbered(1, 3)
        else:
            assert refusal(sender) is None
            assert stored(broker, QUEUE) == numbered(3, 5)


def test_the_oldest_are_dropped_though_they_are_in_the_store_only() -> None:
    store = MemoryStore()
    config = BrokerConfig(when_full="drop-oldest", max_queue_messages=10, window_messages=2)
    broker = MemoryBroker(config, store=store)
    send(broker.client(), 1, 9)
    publish_all(broker.client(), QUEUE, [b"10"])
    broker.broker.close()
    broker = MemoryBroker(config, store=store, clock=broker.clock)
    sender = broker.client()
    publish_all(sender, QUEUE, numbered(11, 17), receipt="r")
    assert len(receipts(sender)) == 7
    client = broker.client()
    client.subscribe(QUEUE)
    assert client.bodies() == numbered(8, 17)


# Block.


@limits
def test_block_lets_the_sender_wait_and_go_on(
    broker_with: MakeBroker, limit: dict[str, int]
) -> None:
    broker = broker_with(when_full="block", **limit)
    sender, consumer = broker.client(), broker.client()
    send(sender, 1, 8)
    assert receipts(sender) == ["1", "2", "3"]
    assert not sender.transport.is_read
    assert stored(broker, QUEUE) == numbered(1, 3)
    consumer.subscribe(QUEUE, ack="client-individual", prefetch_count="1")
    seen = []
    for _ in range(8):
        message = take_one(consumer)
        seen.append(message.body)
        consumer.ack(message)
        sender.write(b"\n")  # lets the broker read pending bytes, too
    assert seen == numbered(1, 8)
    assert receipts(sender) == ["4", "5", "6", "7", "8"]
    assert sender.transport.is_read


def test_what_was_sent_in_one_chunk_waits_in_order(broker_with: MakeBroker) -> None:
    broker = broker_with(when_full="block", max_queue_messages=2)
    sender, consumer = broker.client(), broker.client()
    sender.write(
        b"".join(b"SEND\ndestination:/queue/a\nreceipt:%d\n\n%d\0" % (n, n) for n in range(1, 9))
        + b"SEND\ndestination:/topic/after\nreceipt:topic\n\n\0"
        + b"DISCONNECT\nreceipt:bye\n\n\0"
    )
    assert receipts(sender) == ["1", "2"]
    assert not sender.eof
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == numbered(1, 8)
    *others, last = receipts(sender)
    # The receipt of the topic's message does not wait for the store.
    assert [each for each in others if each != "topic"] == ["3", "4", "5", "6", "7", "8"]
    assert "topic" in others
    assert last == "bye"
    assert sender.eof


@pytest.mark.parametrize("body", [b"x", b""])
def test_what_has_waited_is_delivered_as_what_has_not(broker_with: MakeBroker, body: bytes) -> None:
    broker = broker_with(when_full="block", max_queue_messages=1)
    sender, consumer = broker.client(), broker.client()
    # The decoder accepts an unescaped colon; the encoder must accept it, too.
    sender.write(b"SEND\ndestination:/queue/a\nx:a:b\n\n%s\0" % body * 2)
    assert not sender.transport.is_read
    consumer.subscribe(QUEUE)
    first, second = (frame.split(b"\n") for frame in consumer.octets.split(b"MESSAGE\n")[1:])
    assert rb"x:a\cb" in first
    number = next(line for line in first if line.startswith(b"message-id:"))
    other = next(line for line in second if line.startswith(b"message-id:"))
    assert [number if line == other else line for line in second] == first


def test_half_a_frame_may_wait_behind_what_is_blocked(broker_with: MakeBroker) -> None:
    broker = broker_with(when_full="block", max_queue_messages=1)
    sender, consumer = broker.client(), broker.client()
    frame = b"SEND\ndestination:/queue/a\n\n%d\0"
    sender.write(frame % 1 + frame % 2 + (frame % 3)[:10])
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == numbered(1, 2)
    sender.write((frame % 3)[10:])
    assert consumer.bodies() == [b"3"]


def test_senders_are_let_in_in_the_order_in_which_they_came(broker_with: MakeBroker) -> None:
    broker = broker_with(when_full="block", max_queue_messages=1)
    broker.client().publish(QUEUE, b"first")
    senders = [broker.client() for _ in range(3)]
    for number, sender in enumerate(senders):
        sender.write(
            b"".join(b"SEND\ndestination:/queue/a\n\n%d.%d\0" % (number, n) for n in range(3))
        )
    consumer = broker.client()
    consumer.subscribe(QUEUE, ack="client", prefetch_count="1")
    seen = []
    while messages := consumer.take("MESSAGE"):
        [message] = messages
        seen.append(message.body)
        consumer.ack(message)
    # Each client in turn, however much it sends.
    assert seen[1:] == [b"%d.%d" % (number, n) for n in range(3) for number in range(3)]


def test_a_large_message_is_not_overtaken_by_small_ones_for_ever(broker_with: MakeBroker) -> None:
    broker = broker_with(when_full="block", max_queue_bytes=3 * SIZE)
    large, small, consumer = (broker.client() for _ in range(3))
    send(small, 1, 3)
    large.publish(QUEUE, b"x" * SIZE, receipt="large")
    small.write(b"".join(b"SEND\ndestination:/queue/a\n\n%d\0" % n for n in range(4, 10)))
    consumer.subscribe(QUEUE, ack="client", prefetch_count="1")
    for number in range(1, 4):
        message = take_one(consumer)
        assert message.body == b"%d" % number
        consumer.ack(message)
    assert receipts(large) == ["large"]
    seen = []
    while messages := consumer.take("MESSAGE"):
        seen += [each.body for each in messages]
        consumer.ack(messages[-1])
    assert seen == [b"x" * SIZE, *numbered(4, 9)]


def test_the_next_one_is_let_in_where_the_first_gives_up(broker_with: MakeBroker) -> None:
    broker = broker_with(when_full="block", max_queue_bytes=3 * SIZE)
    large, small = broker.client(), broker.client()
    send(small, 1, 2)
    large.publish(QUEUE, b"x" * SIZE)
    small.publish(QUEUE, b"3", receipt="3")
    # Room for the small message, which need not wait for the large one.
    assert "3" in receipts(small)
    small.publish(QUEUE, b"4", receipt="4")
    consumer = broker.client()
    consumer.subscribe(QUEUE, id="c", ack="client", prefetch_count="1")
    consumer.ack(take_one(consumer))
    assert receipts(small) == []
    large.drop()
    assert receipts(small) == ["4"]


@pytest.mark.parametrize("way", ["close", "drop"])
def test_a_sender_that_waits_may_leave(broker_with: MakeBroker, way: str) -> None:
    broker = broker_with(when_full="block", max_queue_messages=1)
    sender, other, consumer = (broker.client() for _ in range(3))
    send(sender, 1, 3)
    send(other, 4, 4)
    getattr(sender, way)()
    assert len(broker.broker.connections) == 2
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == [b"1", b"4"]
    assert receipts(other) == ["4"]


def test_a_queue_that_nobody_waits_for_any_more_is_forgotten(broker_with: MakeBroker) -> None:
    broker = broker_with(when_full="block", max_queue_messages=1)
    sender, consumer = broker.client(), broker.client()
    send(sender, 1, 2)
    consumer.subscribe(QUEUE)
    sender.close()
    consumer.close()
    assert broker.destinations == {}


@pytest.mark.parametrize("beats", ["1000,1000", "1000,0", "0,1000"])
def test_heart_beats_go_on_while_a_sender_waits(broker_with: MakeBroker, beats: str) -> None:
    broker = broker_with(when_full="block", max_queue_messages=1)
    sender, consumer = broker.client(heart_beat=beats), broker.client()
    send(sender, 1, 2)
    before = sender.beats
    for _ in range(100):
        sender.write(b"\n")
        broker.clock.advance(1.0)
    assert not sender.lost
    assert refusal(sender) is None
    assert (sender.beats > before + 50) is beats.endswith(",1000")
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == numbered(1, 2)
    sender.write(b"\n")
    broker.clock.advance(1.0)
    send(sender, 3, 3)
    assert receipts(sender) == ["1", "2", "3"]


def test_a_sender_that_went_silent_while_it_waited_is_noticed_afterwards(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(when_full="block", max_queue_messages=1)
    sender, consumer = broker.client(heart_beat="1000,0"), broker.client()
    send(sender, 1, 2)
    broker.clock.pump([1.0] * 60)
    consumer.subscribe(QUEUE)
    assert receipts(sender) == ["1", "2"]
    broker.clock.pump([1.0] * 5)
    assert refusal(sender) == "heart-beat-timeout"


def test_a_transaction_is_refused_where_its_sender_would_have_to_wait(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(when_full="block", max_queue_messages=1)
    sender = broker.client()
    send(sender, 1, 1)
    sender.send("BEGIN", transaction="t")
    sender.publish("/queue/b", b"x", transaction="t")
    sender.publish(QUEUE, b"2", transaction="t")
    sender.send("COMMIT", transaction="t", receipt="r")
    assert refusal(sender) == "queue-full"
    assert stored(broker, QUEUE) == [b"1"]
    assert stored(broker, "/queue/b") == []


def test_a_sender_with_a_transaction_open_may_wait_outside_of_it(broker_with: MakeBroker) -> None:
    broker = broker_with(when_full="block", max_queue_messages=1)
    sender, consumer = broker.client(), broker.client()
    sender.send("BEGIN", transaction="t")
    sender.publish("/queue/b", b"x", transaction="t")
    send(sender, 1, 2)
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == numbered(1, 2)
    sender.send("COMMIT", transaction="t")
    assert stored(broker, "/queue/b") == [b"x"]


def test_a_consumer_is_not_kept_from_its_messages_while_it_waits_as_a_sender(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(when_full="block", max_queue_messages=1)
    both, other = broker.client(), broker.client()
    both.subscribe("/topic/t")
    send(both, 1, 2)
    other.publish("/topic/t", b"x")
    assert both.bodies() == [b"x"]


def test_other_senders_and_queues_do_not_wait(broker_with: MakeBroker) -> None:
    broker = broker_with(when_full="block", max_queue_messages=1)
    waiting, other = broker.client(), broker.client()
    send(waiting, 1, 2)
    other.publish("/queue/b", b"x", receipt="b")
    assert receipts(other) == ["b"]


@pytest.mark.parametrize(
    "change", [{"max_queue_messages": 10}, {"when_full": "drop-oldest"}, {"when_full": "reject"}]
)
def test_another_setting_ends_the_waiting(
    broker_with: MakeBroker, change: dict[str, object]
) -> None:
    broker = broker_with(when_full="block", max_queue_messages=1)
    sender = broker.client()
    send(sender, 1, 2)
    broker.broker.reload(broker.broker.config.changed(**change))
    if change == {"when_full": "reject"}:
        assert refusal(sender) == "queue-full"
    else:
        assert receipts(sender) == ["1", "2"]


def test_messages_that_expire_or_are_taken_from_the_queue_let_senders_in(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(when_full="block", max_queue_messages=1)
    sender = broker.client()
    send(sender, 1, 2)
    assert purged(broker, QUEUE) == 1
    assert receipts(sender) == ["1", "2"]
    assert stored(broker, QUEUE) == [b"2"]
