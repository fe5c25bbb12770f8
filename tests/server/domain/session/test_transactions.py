"""Transactions: SEND, ACK and NACK that take effect together, or not at all."""

from __future__ import annotations

import pytest

from stompkit.frames import VERSIONS
from stompkit.server import BrokerConfig
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.many_queues import fill, left, numbered, received

QUEUE = "/queue/a"
OTHER = "/queue/b"
MODES = ("client", "client-individual")


def refusal(client: MemoryClient) -> str | None:
    return None if client.error is None else client.error.headers["stompkit-code"]


# SEND.


@pytest.mark.parametrize("destination", [QUEUE, "/topic/t"])
@pytest.mark.parametrize("version", VERSIONS)
def test_messages_appear_with_commit_in_their_order(version: str, destination: str) -> None:
    broker = MemoryBroker()
    producer, consumer = broker.client(version), broker.client()
    consumer.subscribe(destination)
    producer.send("BEGIN", transaction="t")
    for body in numbered(1, 5):
        producer.publish(destination, body, transaction="t")
    producer.publish(destination, b"outside")
    assert consumer.bodies() == [b"outside"]
    producer.send("COMMIT", transaction="t", receipt="r")
    assert consumer.bodies() == numbered(1, 5)
    assert refusal(producer) is None


def test_receipts_of_frames_in_a_transaction_come_at_once() -> None:
    client = MemoryBroker().client()
    client.take()
    client.send("BEGIN", transaction="t", receipt="1")
    client.publish(QUEUE, transaction="t", receipt="2")
    client.send("COMMIT", transaction="t", receipt="3")
    assert [frame.headers["receipt-id"] for frame in client.take()] == ["1", "2", "3"]


@pytest.mark.parametrize("version", VERSIONS)
def test_abort_drops_what_was_sent(version: str) -> None:
    broker = MemoryBroker()
    client = broker.client(version)
    client.send("BEGIN", transaction="t")
    client.publish(QUEUE, transaction="t")
    client.send("ABORT", transaction="t", receipt="r")
    assert refusal(client) is None
    assert broker.destinations == {}


def test_an_empty_transaction_can_be_committed() -> None:
    client = MemoryBroker().client()
    client.send("BEGIN", transaction="")
    client.send("COMMIT", transaction="", receipt="r")
    assert len(client.take("RECEIPT")) == 1


# ACK and NACK.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", VERSIONS)
def test_committed_acknowledgements_settle(version: str, mode: str) -> None:
    broker = MemoryBroker()
    fill(broker, 3)
    client = broker.client(version)
    client.subscribe(QUEUE, id="s", ack=mode)
    messages = received(client)
    client.send("BEGIN", transaction="t")
    client.ack(messages[b"2"], transaction="t")
    client.send("COMMIT", transaction="t")
    client.drop()
    assert left(broker) == ([b"3"] if mode == "client" else [b"1", b"3"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", VERSIONS)
def test_aborted_acknowledgements_leave_the_messages_to_be_acknowledged_again(
    version: str, mode: str
) -> None:
    broker = MemoryBroker()
    fill(broker, 3)
    client = broker.client(version)
    client.subscribe(QUEUE, id="s", ack=mode)
    messages = received(client)
    client.send("BEGIN", transaction="t")
    client.ack(messages[b"2"], transaction="t")
    client.send("ABORT", transaction="t")
    assert client.take("MESSAGE") == []
    client.ack(messages[b"1"])
    client.ack(messages[b"3"])
    assert refusal(client) is None
    client.drop()
    assert left(broker) == ([] if mode == "client" else [b"2"])


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("other", [{}, {"transaction": "u"}, {"transaction": "t"}], ids=str)
def test_what_a_transaction_has_acknowledged_is_refused_to_others(
    other: dict[str, str], command: str
) -> None:
    broker = MemoryBroker()
    fill(broker, 1)
    client = broker.client()
    client.subscribe(QUEUE, ack="client")
    message = received(client)[b"1"]
    client.send("BEGIN", transaction="t")
    client.send("BEGIN", transaction="u")
    client.ack(message, transaction="t")
    (client.ack if command == "ACK" else client.nack)(message, **other)
    assert refusal(client) == "unknown-acknowledgement"


def test_a_cumulative_ack_passes_over_what_a_transaction_holds() -> None:
    broker = MemoryBroker()
    fill(broker, 5)
    client = broker.client()
    client.subscribe(QUEUE, ack="client")
    messages = received(client)
    client.send("BEGIN", transaction="t")
    client.ack(messages[b"2"], transaction="t")  # holds 1 and 2
    client.ack(messages[b"4"])  # settles 3 and 4
    client.send("ABORT", transaction="t")
    client.drop()
    assert left(broker) == [b"1", b"2", b"5"]


@pytest.mark.parametrize("mode", MODES)
def test_what_a_transaction_has_acknowledged_makes_room_for_more(mode: str) -> None:
    """Otherwise, a transaction with more messages than the prefetch would never end."""
    broker = MemoryBroker()
    fill(broker, 5)
    client = broker.client()
    client.subscribe(QUEUE, ack=mode, prefetch_count="2")
    client.send("BEGIN", transaction="t")
    bodies = []
    for _ in range(5):
        for body, message in received(client).items():
            bodies.append(body)
            client.ack(message, transaction="t")
    assert bodies == numbered(1, 5)
    client.send("COMMIT", transaction="t")
    client.close()
    assert broker.destinations == {}


def test_messages_of_a_topic_come_in_the_place_of_acknowledged_ones_too() -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe("/topic/t", ack="client-individual", prefetch_count="1")
    for body in numbered(1, 3):
        broker.client().publish("/topic/t", body)
    client.send("BEGIN", transaction="t")
    bodies = []
    for _ in range(3):
        [(body, message)] = received(client).items()
        bodies.append(body)
        client.ack(message, transaction="t")
    assert bodies == numbered(1, 3)


@pytest.mark.parametrize("end", ["ABORT", "COMMIT"])
def test_the_prefetch_holds_again_after_a_transaction(end: str) -> None:
    broker = MemoryBroker()
    fill(broker, 9)
    client = broker.client()
    client.subscribe(QUEUE, ack="client-individual", prefetch_count="2")
    messages = received(client)
    client.send("BEGIN", transaction="t")
    for message in messages.values():
        client.ack(message, transaction="t")
    messages |= received(client)
    assert list(messages) == numbered(1, 4)
    client.send(end, transaction="t")
    # After ABORT four messages are unacknowledged; the prefetch is two.
    assert received(client) == {}
    left = numbered(1, 4) if end == "ABORT" else numbered(3, 4)
    for count, body in enumerate(left, 1):
        client.ack(messages[body])
        after = numbered(5, 5) if len(left) - count == 1 else []
        after = numbered(6, 6) if len(left) == count else after
        assert list(received(client)) == after


def test_room_made_by_transactions_is_bounded() -> None:
    broker = MemoryBroker(BrokerConfig(max_unacknowledged=3))
    fill(broker, 9)
    client = broker.client()
    client.subscribe(QUEUE, ack="client-individual", prefetch_count="1")
    client.send("BEGIN", transaction="t")
    bodies = []
    while messages := received(client):
        for body, message in messages.items():
            bodies.append(body)
            client.ack(message, transaction="t")
    assert bodies == numbered(1, 3)
    client.send("COMMIT", transaction="t")
    assert list(received(client)) == numbered(4, 4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_committed_refusals_bring_the_messages_back(version: str, mode: str) -> None:
    broker = MemoryBroker()
    fill(broker, 3)
    client = broker.client(version)
    client.subscribe(QUEUE, id="s", ack=mode)
    messages = received(client)
    client.send("BEGIN", transaction="t")
    client.nack(messages[b"2"], transaction="t")
    assert received(client) == {}
    client.send("COMMIT", transaction="t")
    assert list(received(client)) == (numbered(1, 2) if mode == "client" else [b"2"])


def test_requeue_false_waits_for_commit_too() -> None:
    broker = MemoryBroker()
    fill(broker, 1)
    client = broker.client()
    client.subscribe(QUEUE, id="1", ack="client")
    client.subscribe("/dlq/a", id="2")
    message = received(client)[b"1"]
    client.send("BEGIN", transaction="t")
    client.nack(message, transaction="t", requeue="false")
    assert received(client) == {}
    client.send("COMMIT", transaction="t")
    assert received(client)[b"1"].headers["dead-letter-reason"] == "rejected"


def test_one_transaction_may_settle_several_subscriptions_and_send() -> None:
    broker = MemoryBroker()
    fill(broker, 2, QUEUE)
    fill(broker, 2, OTHER)
    client = broker.client()
    client.subscribe(QUEUE, id="1", ack="client")
    first = received(client)
    client.subscribe(OTHER, id="2", ack="client-individual")
    second = received(client)
    client.send("BEGIN", transaction="t")
    client.ack(first[b"2"], transaction="t")
    client.publish("/queue/c", b"moved", transaction="t")
    client.nack(second[b"1"], transaction="t", requeue="false")
    client.ack(second[b"2"], transaction="t")
    client.send("COMMIT", transaction="t")
    client.close()
    assert left(broker, QUEUE) == left(broker, OTHER) == []
    assert left(broker, "/queue/c") == [b"moved"]
    assert left(broker, "/dlq/b") == [b"1"]


@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_a_transaction_may_end_after_unsubscribe(end: str) -> None:
    broker = MemoryBroker()
    fill(broker, 1)
    client = broker.client()
    client.subscribe(QUEUE, id="s", ack="client")
    message = received(client)[b"1"]
    client.send("BEGIN", transaction="t")
    client.ack(message, transaction="t")
    client.send("UNSUBSCRIBE", id="s")
    client.send(end, transaction="t", receipt="r")
    assert refusal(client) is None
    client.close()
    assert left(broker) == ([] if end == "COMMIT" else [b"1"])


# Implicit ABORT.


@pytest.mark.parametrize("way", ["DISCONNECT", "close", "drop", "error", "heart-beat"])
def test_the_end_of_the_connection_aborts(way: str) -> None:
    broker = MemoryBroker()
    fill(broker, 2)
    client = broker.client(heart_beat="1000,0")
    client.subscribe(QUEUE, ack="client", prefetch_count="1")
    message = received(client)[b"1"]
    client.send("BEGIN", transaction="t")
    client.publish(OTHER, b"x", transaction="t")
    client.ack(message, transaction="t")
    if way == "DISCONNECT":
        client.send("DISCONNECT", receipt="r")
        assert [frame.command for frame in client.take()] == ["MESSAGE", "RECEIPT"]
    elif way == "close":
        client.close()
    elif way == "drop":
        client.drop()
    elif way == "error":
        client.send("COMMIT", transaction="nonsense")
    else:
        broker.clock.advance(10.0)
    assert left(broker, OTHER) == []
    consumer = broker.client()
    consumer.subscribe(QUEUE, ack="client")
    again = received(consumer)
    assert list(again) == numbered(1, 2)
    consumer.ack(again[b"2"], receipt="r")
    assert refusal(consumer) is None
    consumer.close()
    assert broker.destinations == {}


# Atomicity.


def test_nothing_is_applied_where_one_queue_is_full() -> None:
    broker = MemoryBroker(BrokerConfig(max_queue_messages=2))
    fill(broker, 1, QUEUE)
    fill(broker, 1, "/queue/in")
    client, topic_reader = broker.client(), broker.client()
    topic_reader.subscribe("/topic/t")
    client.subscribe("/queue/in", ack="client")
    message = received(client)[b"1"]
    client.send("BEGIN", transaction="t")
    client.publish(OTHER, b"x", transaction="t")
    client.publish("/topic/t", b"x", transaction="t")
    client.publish(QUEUE, b"x", transaction="t")
    client.publish(QUEUE, b"one too many", transaction="t")
    client.ack(message, transaction="t")
    client.send("COMMIT", transaction="t", receipt="r")
    assert client.error is not None
    assert refusal(client) == "queue-full"
    assert client.error.headers["receipt-id"] == "r"
    assert client.take("RECEIPT") == []
    assert topic_reader.bodies() == []
    assert left(broker, OTHER) == []
    assert left(broker, QUEUE) == [b"1"]
    consumer = broker.client()
    consumer.subscribe("/queue/in", ack="client")
    consumer.ack(received(consumer)[b"1"], receipt="r")
    assert refusal(consumer) is None


def test_nothing_is_applied_where_one_queue_has_too_many_octets() -> None:
    each = len(b"x" * 10 + b"destination" + b"/queue/a" + b"content-length" + b"10")
    broker = MemoryBroker(BrokerConfig(max_queue_bytes=2 * each))
    client = broker.client()
    client.send("BEGIN", transaction="t")
    for destination in (OTHER, QUEUE, QUEUE):
        client.publish(destination, b"x" * 10, transaction="t")
    client.send("COMMIT", transaction="t", receipt="r")
    assert len(client.take("RECEIPT")) == 1
    client.send("BEGIN", transaction="t")
    for destination in (OTHER, QUEUE):
        client.publish(destination, b"x" * 10, transaction="t")
    client.send("COMMIT", transaction="t")
    assert refusal(client) == "queue-full"
    assert len(left(broker, OTHER)) == 1
    assert len(left(broker, QUEUE)) == 2


def test_nothing_is_applied_where_there_are_too_many_destinations() -> None:
    broker = MemoryBroker(BrokerConfig(max_destinations=2))
    client = broker.client()
    client.send("BEGIN", transaction="t")
    for number in range(3):
        client.publish(f"/queue/{number}", transaction="t")
    client.send("COMMIT", transaction="t")
    assert refusal(client) == "too-many-destinations"
    assert broker.destinations == {}


def test_a_transaction_that_just_fits_is_applied() -> None:
    broker = MemoryBroker(BrokerConfig(max_queue_messages=2, max_destinations=2))
    client = broker.client()
    client.send("BEGIN", transaction="t")
    for destination in (QUEUE, OTHER, OTHER, QUEUE):
        client.publish(destination, b"x", transaction="t")
    client.send("COMMIT", transaction="t")
    assert refusal(client) is None
    assert left(broker, QUEUE) == left(broker, OTHER) == [b"x", b"x"]


def test_what_is_in_open_transactions_takes_no_room_in_queues() -> None:
    broker = MemoryBroker(BrokerConfig(max_queue_messages=1))
    client = broker.client()
    client.send("BEGIN", transaction="t")
    client.publish(QUEUE, b"later", transaction="t")
    client.publish(QUEUE, b"now")
    assert left(broker) == [b"now"]
    client.send("COMMIT", transaction="t")
    assert left(broker) == [b"later"]


# Names.


def test_several_transactions_are_open_side_by_side() -> None:
    broker = MemoryBroker()
    client = broker.client()
    for name in "abc":
        client.send("BEGIN", transaction=name)
    for number, name in enumerate("abcabc"):
        client.publish(QUEUE, b"%s%d" % (name.encode(), number), transaction=name)
    client.send("COMMIT", transaction="c")
    client.send("ABORT", transaction="b")
    client.send("COMMIT", transaction="a")
    assert left(broker) == [b"c2", b"c5", b"a0", b"a3"]


def test_two_connections_may_use_the_same_name() -> None:
    broker = MemoryBroker()
    first, second = broker.client(), broker.client()
    for client, body in ((first, b"1"), (second, b"2")):
        client.send("BEGIN", transaction="t")
        client.publish(QUEUE, body, transaction="t")
    second.send("COMMIT", transaction="t")
    first.send("ABORT", transaction="t")
    assert left(broker) == [b"2"]


@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_a_name_is_free_again_after_the_end(end: str) -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.send("BEGIN", transaction="t")
    client.publish(QUEUE, b"1", transaction="t")
    client.send(end, transaction="t")
    client.send("BEGIN", transaction="t")
    client.publish(QUEUE, b"2", transaction="t")
    client.send("COMMIT", transaction="t")
    assert refusal(client) is None
    assert left(broker) == ([b"1", b"2"] if end == "COMMIT" else [b"2"])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_name_in_use_is_refused_and_the_transaction_aborted(version: str) -> None:
    broker = MemoryBroker()
    client = broker.client(version)
    client.send("BEGIN", transaction="t")
    client.publish(QUEUE, transaction="t")
    client.send("BEGIN", transaction="t", receipt="r")
    assert refusal(client) == "duplicate-id"
    assert broker.destinations == {}


@pytest.mark.parametrize("command", ["SEND", "ACK", "NACK", "COMMIT", "ABORT"])
def test_an_unknown_name_is_refused(command: str) -> None:
    broker = MemoryBroker()
    fill(broker, 1)
    client = broker.client()
    client.subscribe(QUEUE, ack="client")
    headers = {
        "destination": OTHER,
        "id": received(client)[b"1"].headers["ack"],
        "transaction": "unknown",
        "receipt": "r",
    }
    client.send(command, headers)
    assert client.error is not None
    assert refusal(client) == "unknown-transaction"
    assert client.error.headers["receipt-id"] == "r"
    assert list(broker.destinations) == [QUEUE]


@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_an_ended_transaction_is_unknown(end: str) -> None:
    client = MemoryBroker().client()
    client.send("BEGIN", transaction="t")
    client.send(end, transaction="t")
    client.publish(QUEUE, transaction="t")
    assert refusal(client) == "unknown-transaction"


def test_a_bad_destination_is_refused_before_commit() -> None:
    client = MemoryBroker().client()
    client.send("BEGIN", transaction="t")
    client.publish("nowhere", transaction="t", receipt="r")
    assert refusal(client) == "unknown-destination"


# Limits.


@pytest.mark.parametrize(("count", "code"), [(3, None), (4, "too-many-transactions")])
def test_open_transactions_are_bounded(count: int, code: str | None) -> None:
    client = MemoryBroker(BrokerConfig(max_transactions=3)).client()
    for round_number in range(2):  # ended transactions do not count
        client.send("BEGIN", transaction=f"before{round_number}")
        client.send("ABORT", transaction=f"before{round_number}")
    for number in range(count):
        client.send("BEGIN", transaction=str(number))
    assert refusal(client) == code


@pytest.mark.parametrize(("sends", "code"), [(2, None), (3, "transaction-too-large")])
def test_frames_of_a_transaction_are_bounded(sends: int, code: str | None) -> None:
    broker = MemoryBroker(BrokerConfig(max_transaction_frames=4))
    fill(broker, 4)
    client = broker.client()
    client.subscribe(QUEUE, ack="client")
    messages = received(client)
    client.send("BEGIN", transaction="t")
    client.ack(messages[b"2"], transaction="t")  # two messages, but one frame
    client.nack(messages[b"3"], transaction="t", requeue="false")
    for _ in range(sends):
        client.publish(OTHER, transaction="t")
    assert refusal(client) == code


@pytest.mark.parametrize(("size", "code"), [(10, None), (11, "transaction-too-large")])
def test_octets_of_a_transaction_are_bounded(size: int, code: str | None) -> None:
    headers = len(b"destination" + b"/queue/a" + b"content-length" + b"10")
    config = BrokerConfig(max_transaction_bytes=20 + 2 * headers)
    client = MemoryBroker(config).client()
    client.send("BEGIN", transaction="t")
    client.publish(QUEUE, b"x" * 10, transaction="t")
    client.publish(QUEUE, b"x" * size, transaction="t")
    assert refusal(client) == code


def test_a_delay_that_passes_before_commit_is_none_any_more() -> None:
    """The limit of delayed messages does not concern it."""
    broker = MemoryBroker(BrokerConfig(max_delayed=0))
    reader, client = broker.client(), broker.client()
    reader.subscribe("/queue/a")
    client.send("BEGIN", transaction="t")
    client.publish("/queue/a", b"x", transaction="t", delay="1000")
    broker.clock.advance(1.0)
    client.send("COMMIT", transaction="t", receipt="r")
    assert client.take("RECEIPT")
    assert reader.bodies() == [b"x"]
