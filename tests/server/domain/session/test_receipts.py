"""The meaning of a receipt: for each frame with one, what the broker has done by then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stompkit.frames import Frame
from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import refusal
from tests.server.failing import FailingStore, HeldRunner, everything
from tests.server.many_queues import QUEUE, left

MEMORY = "/queue/memory"
FANOUT = "/fanout/orders"
TOPIC = "/topic/news"
#: A topic with a durable subscription.
COLLECTED = "/topic/collected"
CHILDREN = ("/queue/b", "/queue/c")
CONFIG = BrokerConfig(
    destinations=(
        DestinationConfig(name=MEMORY, storage="memory"),
        DestinationConfig(name=FANOUT, children=CHILDREN),
    )
)
DURABLY = {"id": "s", "durable": "true", "auto-delete": "false", "destination": COLLECTED}

#: An action of a client that has a message; it requests the receipt ``r``.
Deed = Callable[[MemoryClient, Frame], None]


def send(destination: str, **more: str) -> Deed:
    return lambda client, _: client.publish(destination, b"x", receipt="r", **more)


def asked(command: str, **headers: str) -> Deed:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda client, _: client.send(command, {**named, "receipt": "r"})


def durable(command: str, **headers: str) -> Deed:
    return lambda client, _: client.send(command, {**DURABLY, **headers, "receipt": "r"})


def ack(client: MemoryClient, message: Frame) -> None:
    client.ack(message, receipt="r")


def nack(client: MemoryClient, message: Frame) -> None:
    client.nack(message, receipt="r", requeue="false")


def commit_send(client: MemoryClient, _: Frame) -> None:
    client.send("BEGIN", {"transaction": "t"})
    client.publish(QUEUE, b"x", transaction="t")
    client.send("COMMIT", {"transaction": "t", "receipt": "r"})


def commit_ack(client: MemoryClient, message: Frame) -> None:
    client.send("BEGIN", {"transaction": "t"})
    client.ack(message, transaction="t")
    client.send("COMMIT", {"transaction": "t", "receipt": "r"})


def begin(client: MemoryClient, _: Frame) -> None:
    client.send("BEGIN", {"transaction": "t", "receipt": "r"})


def abort(client: MemoryClient, message: Frame) -> None:
    client.send("BEGIN", {"transaction": "t"})
    client.publish(QUEUE, b"x", transaction="t")
    client.ack(message, transaction="t")
    client.send("ABORT", {"transaction": "t", "receipt": "r"})


def in_transaction(client: MemoryClient, _: Frame) -> None:
    client.send("BEGIN", {"transaction": "t"})
    client.publish(QUEUE, b"x", transaction="t", receipt="r")


def held() -> tuple[HeldRunner, MemoryBroker, MemoryClient, Frame]:
    """Return a broker whose store is paused, and a client with an unacknowledged message."""
    runner = HeldRunner()
    broker = MemoryBroker(CONFIG, store=MemoryStore(), runner=runner)
    client = broker.client()
    client.subscribe("/queue/held", ack="client-individual")
    client.publish("/queue/held", b"held")
    [message] = client.take("MESSAGE")
    client.send("SUBSCRIBE", DURABLY)
    runner.is_held = True
    return runner, broker, client, message


def receipts(client: MemoryClient) -> list[str]:
    return [frame.headers["receipt-id"] for frame in client.take("RECEIPT")]


@pytest.mark.parametrize(
    "deed",
    [
        pytest.param(send(QUEUE), id="SEND"),
        pytest.param(send(QUEUE, delay="1000"), id="SEND, delayed"),
        pytest.param(send(FANOUT), id="SEND to a fan-out"),
        pytest.param(send(COLLECTED), id="SEND to a topic with a durable subscription"),
        pytest.param(ack, id="ACK"),
        pytest.param(nack, id="NACK"),
        pytest.param(commit_send, id="COMMIT of a SEND"),
        pytest.param(commit_ack, id="COMMIT of an ACK"),
        pytest.param(durable("SUBSCRIBE", id="other"), id="SUBSCRIBE, durable"),
        pytest.param(durable("UNSUBSCRIBE"), id="UNSUBSCRIBE, durable"),
    ],
)
def test_a_receipt_about_what_is_persistent_comes_after_the_commit(deed: Deed) -> None:
    runner, _, client, message = held()
    deed(client, message)
    assert receipts(client) == []
    runner.go_on()
    assert receipts(client) == ["r"]


@pytest.mark.parametrize(
    "deed",
    [
        pytest.param(send(MEMORY), id="SEND to a queue in memory"),
        pytest.param(send(TOPIC), id="SEND to a topic"),
        pytest.param(send("/temp-queue/a"), id="SEND to a temporary queue"),
        pytest.param(in_transaction, id="SEND in a transaction"),
        pytest.param(begin, id="BEGIN"),
        pytest.param(abort, id="ABORT"),
        pytest.param(asked("SUBSCRIBE", id="1", destination=TOPIC), id="SUBSCRIBE to a topic"),
        pytest.param(asked("SUBSCRIBE", id="1", destination=QUEUE), id="SUBSCRIBE to a queue"),
        pytest.param(asked("UNSUBSCRIBE", id="0"), id="UNSUBSCRIBE"),
    ],
)
def test_a_receipt_about_what_is_not_does_not_wait_for_the_store(deed: Deed) -> None:
    _, _, client, message = held()
    deed(client, message)
    assert receipts(client) == ["r"]


def test_receipts_that_wait_for_the_store_come_in_order_and_others_overtake_them() -> None:
    runner, _, client, message = held()
    client.publish(QUEUE, b"1", receipt="stored-1")
    client.publish(TOPIC, b"2", receipt="topic")
    client.ack(message, receipt="stored-2")
    client.publish(FANOUT, b"3", receipt="stored-3")
    client.send("BEGIN", {"transaction": "t", "receipt": "begin"})
    assert receipts(client) == ["topic", "begin"]
    runner.go_on()
    assert receipts(client) == ["stored-1", "stored-2", "stored-3"]


def test_a_persistent_message_is_delivered_after_the_commit() -> None:
    runner, broker, client, _ = held()
    consumer = broker.client()
    consumer.subscribe(QUEUE)
    client.publish(QUEUE, b"x")
    assert consumer.bodies() == []
    runner.go_on()
    assert consumer.bodies() == [b"x"]


def test_a_receipt_that_waits_when_the_connection_is_lost_never_comes() -> None:
    """A missing receipt leaves the outcome open: here the message was stored."""
    runner, broker, client, _ = held()
    client.publish(QUEUE, b"kept", receipt="r")
    client.drop()
    runner.go_on()
    assert receipts(client) == []
    assert left(broker) == [b"kept"]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        pytest.param(b"ACK\nid:nonsense\n\n\0", "unknown-acknowledgement", id="refused"),
        pytest.param(b"NONSENSE\n\n\0", "unknown-command", id="malformed"),
        pytest.param(b"SEND\ndestination:/queue/a\n", "truncated", id="cut off"),
    ],
)
def test_an_error_waits_for_the_receipts_of_earlier_frames(wrong: bytes, code: str) -> None:
    """Without its receipt, a client would send again what the broker has stored."""
    runner, broker, client, _ = held()
    client.publish(QUEUE, b"kept", receipt="r")
    client.write(wrong)
    client.end()
    assert receipts(client) == []
    runner.go_on()
    assert receipts(client) == ["r"]
    assert refusal(client) == code
    assert client.eof
    assert left(broker) == [b"kept"]


def test_nothing_is_done_after_a_refused_frame() -> None:
    runner, broker, client, _ = held()
    client.publish(QUEUE, b"kept")
    client.write(b"ACK\nid:nonsense\n\n\0SEND\ndestination:/queue/b\n\nnext\0")
    client.write(b"SEND\ndestination:/queue/b\n\nlater\0")
    runner.go_on()
    assert refusal(client) == "unknown-acknowledgement"
    assert left(broker, "/queue/b") == []


def test_of_two_errors_that_of_the_earlier_frame_is_told() -> None:
    runner, store = HeldRunner(), FailingStore()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    client = broker.client()
    runner.is_held, store.fails = True, everything
    client.publish(QUEUE, b"x", receipt="r")
    client.send("ACK", {"id": "nonsense"})
    runner.go_on()
    assert refusal(client) == "store-full"


def test_a_transaction_that_the_store_refuses_has_no_receipt_and_no_effect() -> None:
    store = FailingStore()
    broker = MemoryBroker(CONFIG, store=store)
    client = broker.client()
    client.subscribe("/queue/held", ack="client-individual")
    client.publish("/queue/held", b"held")
    [message] = client.take("MESSAGE")
    store.fails = everything
    client.send("BEGIN", {"transaction": "t"})
    client.ack(message, transaction="t")
    client.publish(QUEUE, b"x", transaction="t")
    client.send("COMMIT", {"transaction": "t", "receipt": "r"})
    assert receipts(client) == []
    assert refusal(client) == "store-full"
    store.fails = lambda _: False
    assert left(broker) == []
    assert left(broker, "/queue/held") == [b"held"]


def test_what_was_delivered_in_the_mode_auto_can_come_again_after_a_crash() -> None:
    """The broker acknowledges the message when it is written; the store learns of that later."""
    store, runner = MemoryStore(), HeldRunner()
    broker = MemoryBroker(CONFIG, store=store, runner=runner)
    client = broker.client()
    client.publish(QUEUE, b"x")
    runner.is_held = True
    client.subscribe(QUEUE)
    assert client.bodies() == [b"x"]
    # This is like a kill: the store gets no further calls.
    store.close()
    assert left(MemoryBroker(CONFIG, store=store)) == [b"x"]
