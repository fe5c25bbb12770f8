"""Fan-out destinations: a copy in each of several queues, or in none."""

from __future__ import annotations

import pytest

from stompkit.frames import VERSIONS
from stompkit.server import DestinationConfig
from tests.server.brokers import MakeBroker, publish_all, refusal, stored, take_one
from tests.server.many_queues import numbered

FANOUT = "/fanout/orders"
CHILDREN = ("/queue/a", "/queue/b", "/queue/c")
TABLE = DestinationConfig(name=FANOUT, children=CHILDREN)
NARROW = DestinationConfig(name="/queue/b", max_queue_messages=1)


def test_each_child_gets_a_copy_that_says_whence_it_comes(broker_with: MakeBroker) -> None:
    broker = broker_with(destinations=(TABLE,))
    consumer = broker.client()
    for child in CHILDREN:
        consumer.subscribe(child, id=child)
    broker.client().publish(FANOUT, b"x", colour="blue")
    messages = consumer.take("MESSAGE")
    assert [each.headers["subscription"] for each in messages] == list(CHILDREN)
    for message in messages:
        assert message.headers["destination"] == message.headers["subscription"]
        assert message.headers["original-destination"] == FANOUT
        assert message.headers["colour"] == "blue"
        assert message.body == b"x"


def test_the_copies_are_kept_and_settled_each_for_itself(broker_with: MakeBroker) -> None:
    broker = broker_with(destinations=(TABLE,))
    publish_all(broker.client(), FANOUT, numbered(1, 3))
    consumer = broker.client()
    consumer.subscribe("/queue/a", ack="client")
    messages = consumer.take("MESSAGE")
    assert [message.body for message in messages] == numbered(1, 3)
    consumer.ack(messages[-1])
    assert stored(broker, "/queue/a") == []
    assert stored(broker, "/queue/b") == stored(broker, "/queue/c") == numbered(1, 3)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_copies_that_meet_in_one_subscription_are_acknowledged_each_for_itself(
    broker_with: MakeBroker, version: str, mode: str
) -> None:
    broker = broker_with(destinations=(TABLE,))
    consumer = broker.client(version)
    consumer.subscribe("/queue/*", ack=mode)
    publish_all(broker.client(), FANOUT, numbered(1, 2))
    messages = consumer.take("MESSAGE")
    assert len(messages) == 6
    for message in messages[:-1]:
        consumer.ack(message)
    assert consumer.error is None
    consumer.drop()
    left = {child: stored(broker, child) for child in CHILDREN}
    last = messages[-1]
    assert left == {
        child: [last.body] if child == last.headers["destination"] else [] for child in CHILDREN
    }


def test_a_sender_cannot_forge_where_a_copy_comes_from(broker_with: MakeBroker) -> None:
    broker = broker_with(destinations=(TABLE,))
    consumer = broker.client()
    consumer.subscribe("/queue/a")
    broker.client().publish(FANOUT, b"x", original_destination="/queue/other")
    assert take_one(consumer).headers["original-destination"] == FANOUT


@pytest.mark.parametrize("in_transaction", [False, True])
def test_all_children_get_it_or_none(broker_with: MakeBroker, *, in_transaction: bool) -> None:
    broker = broker_with(destinations=(TABLE, NARROW))
    broker.client().publish("/queue/b", b"full")
    sender = broker.client()
    if in_transaction:
        sender.send("BEGIN", transaction="t")
        sender.publish(FANOUT, b"x", transaction="t")
        sender.send("COMMIT", transaction="t", receipt="r")
    else:
        sender.publish(FANOUT, b"x", receipt="r")
    assert refusal(sender) == "queue-full"
    assert sender.error is not None
    assert sender.error.headers["receipt-id"] == "r"
    assert [stored(broker, child) for child in CHILDREN] == [[], [b"full"], []]
    assert sorted(broker.destinations) == [FANOUT, "/queue/b"]


def test_nothing_is_dropped_from_one_child_where_another_is_full(broker_with: MakeBroker) -> None:
    dropping = DestinationConfig(name="/queue/a", max_queue_messages=1, when_full="drop-oldest")
    broker = broker_with(destinations=(TABLE, NARROW, dropping))
    for child in ("/queue/a", "/queue/b"):
        broker.client().publish(child, b"old")
    sender = broker.client()
    sender.publish(FANOUT, b"new")
    assert refusal(sender) == "queue-full"
    assert stored(broker, "/queue/a") == [b"old"]


def test_room_is_reckoned_with_what_a_copy_is_larger(broker_with: MakeBroker) -> None:
    headers = ("destination", "/queue/a", "original-destination", FANOUT, "content-length", "1")
    size = sum(map(len, headers)) + len(b"x")
    # In the copy, the name of the queue replaces the destination that the sender wrote.
    spare = len(FANOUT)

    def answer(limit: int) -> str | None:
        broker = broker_with(max_queue_bytes=limit, destinations=(TABLE,))
        sender = broker.client()
        sender.publish(FANOUT, b"x")
        return refusal(sender)

    assert answer(size + spare) is None
    assert answer(size - 1) == "queue-too-small"


@pytest.mark.parametrize("separately", [False, True])
def test_a_transaction_reckons_with_all_that_it_puts_into_a_child(
    broker_with: MakeBroker, *, separately: bool
) -> None:
    broker = broker_with(destinations=(TABLE, NARROW))
    sender = broker.client()
    sender.send("BEGIN", transaction="t")
    sender.publish(FANOUT, b"1", transaction="t")
    if not separately:
        sender.publish("/queue/b", b"2", transaction="t")
    sender.send("COMMIT", transaction="t")
    if separately:
        assert refusal(sender) is None
        assert stored(broker, "/queue/b") == [b"1"]
    else:
        assert refusal(sender) == "queue-too-small"
        assert stored(broker, "/queue/a") == stored(broker, "/queue/b") == []


def test_a_sender_waits_for_a_child_that_blocks(broker_with: MakeBroker) -> None:
    blocking = DestinationConfig(name="/queue/b", max_queue_messages=1, when_full="block")
    broker = broker_with(destinations=(TABLE, blocking))
    sender, consumer = broker.client(), broker.client()
    sender.publish(FANOUT, b"1", receipt="1")
    sender.publish(FANOUT, b"2", receipt="2")
    assert [each.headers["receipt-id"] for each in sender.take("RECEIPT")] == ["1"]
    assert stored(broker, "/queue/a") == [b"1"]
    consumer.subscribe("/queue/b")
    assert [each.headers["receipt-id"] for each in sender.take("RECEIPT")] == ["2"]
    assert consumer.bodies() == numbered(1, 2)
    assert stored(broker, "/queue/a") == numbered(1, 2)


def test_a_copy_dies_as_one_of_its_queue(broker_with: MakeBroker) -> None:
    broker = broker_with(destinations=(TABLE,))
    consumer = broker.client()
    consumer.subscribe("/queue/a", id="1", ack="client")
    consumer.subscribe("/dlq/a", id="2")
    broker.client().publish(FANOUT, b"x")
    consumer.nack(take_one(consumer), requeue="false")
    assert take_one(consumer).headers["original-destination"] == "/queue/a"
    assert stored(broker, "/queue/b") == [b"x"]


@pytest.mark.parametrize("header", ["expiration", "delay"])
def test_times_go_for_the_copies(broker_with: MakeBroker, header: str) -> None:
    broker = broker_with(destinations=(TABLE,))
    early, late = broker.client(), broker.client()
    early.subscribe("/queue/a")
    sender = broker.client()
    sender.send("SEND", {"destination": FANOUT, header: "10000"}, b"x")
    assert early.bodies() == ([] if header == "delay" else [b"x"])
    broker.clock.advance(10.0)
    assert early.bodies() == ([b"x"] if header == "delay" else [])
    late.subscribe("/queue/b")
    assert late.bodies() == ([b"x"] if header == "delay" else [])


def test_a_delay_that_is_too_long_for_a_child_is_refused(broker_with: MakeBroker) -> None:
    broker = broker_with(max_delay_s=1.0, destinations=(TABLE,))
    sender = broker.client()
    sender.publish(FANOUT, b"x", delay="1001")
    assert refusal(sender) == "bad-header"
    assert list(broker.destinations) == [FANOUT]


def test_it_has_no_subscribers(broker_with: MakeBroker) -> None:
    client = broker_with(destinations=(TABLE,)).client()
    client.subscribe(FANOUT)
    assert refusal(client) == "bad-destination"


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_it_is_made_by_the_configuration_only(broker_with: MakeBroker, command: str) -> None:
    client = broker_with().client()
    client.send(command, {"destination": FANOUT, "id": "0"})
    assert refusal(client) == "unknown-destination"


def test_children_are_made_whoever_may_make_destinations(broker_with: MakeBroker) -> None:
    broker = broker_with(create="config", destinations=(TABLE,))
    sender = broker.client()
    sender.publish(FANOUT, b"x")
    assert refusal(sender) is None
    assert stored(broker, "/queue/a") == [b"x"]


def test_too_many_destinations_for_the_children_refuse_all_of_it(broker_with: MakeBroker) -> None:
    broker = broker_with(max_destinations=3, destinations=(TABLE,))
    sender = broker.client()
    sender.publish(FANOUT, b"x")
    assert refusal(sender) == "too-many-destinations"
    assert list(broker.destinations) == [FANOUT]


def test_it_is_remembered_without_messages(broker_with: MakeBroker) -> None:
    broker = broker_with(destinations=(TABLE,))
    assert list(broker.destinations) == [FANOUT]
    consumer, sender = broker.client(), broker.client()
    for child in CHILDREN:
        consumer.subscribe(child, id=child)
    sender.publish(FANOUT, b"x")
    consumer.close()
    assert list(broker.destinations) == [FANOUT]
    sender.publish(FANOUT, b"x")
    assert refusal(sender) is None


def test_it_has_other_children_after_a_reload(broker_with: MakeBroker) -> None:
    broker = broker_with(destinations=(TABLE,))
    sender = broker.client()
    sender.publish(FANOUT, b"1")
    changed = DestinationConfig(name=FANOUT, children=("/queue/a", "/queue/d"))
    broker.broker.reload(broker.broker.config.changed(destinations=(changed,)))
    sender.publish(FANOUT, b"2")
    contents = {name: stored(broker, name) for name in (*CHILDREN, "/queue/d")}
    assert contents == {
        "/queue/a": [b"1", b"2"],
        "/queue/b": [b"1"],
        "/queue/c": [b"1"],
        "/queue/d": [b"2"],
    }


def test_it_is_gone_when_a_reload_does_not_have_it(broker_with: MakeBroker) -> None:
    broker = broker_with(destinations=(TABLE,))
    broker.client().publish(FANOUT, b"1")
    broker.broker.reload(broker.broker.config.changed(destinations=()))
    sender = broker.client()
    sender.publish(FANOUT, b"2")
    assert refusal(sender) == "unknown-destination"
    assert stored(broker, "/queue/a") == [b"1"]


@pytest.mark.parametrize(
    ("fanout_s", "child_s", "broker_s", "expected_s"),
    [
        (5, None, 0, 5),
        (5, 3, 0, 3),
        (3, 5, 0, 3),
        (None, 5, 3, 5),
        (None, None, 3, 3),
        (5, None, 3, 5),
        (5, 3, 4, 3),
        (5, 0, 3, 5),
        (0, None, 3, 3),
    ],
)
def test_copies_live_for_the_shorter_time_that_is_set(
    broker_with: MakeBroker,
    fanout_s: float | None,
    child_s: float | None,
    broker_s: float,
    expected_s: float,
) -> None:
    tables = (
        DestinationConfig(name=FANOUT, children=("/queue/a",), message_ttl_s=fanout_s),
        DestinationConfig(name="/queue/a", message_ttl_s=child_s),
    )
    broker = broker_with(destinations=tables, message_ttl_s=broker_s)
    broker.client().publish(FANOUT, b"x")
    broker.clock.advance(expected_s - 0.5)
    assert stored(broker, "/queue/a") == [b"x"]
    broker.clock.advance(1.0)
    assert stored(broker, "/queue/a") == []


def test_a_time_of_the_senders_own_is_left_as_it_is(broker_with: MakeBroker) -> None:
    table = DestinationConfig(name=FANOUT, children=("/queue/a",), message_ttl_s=1.0)
    broker = broker_with(destinations=(table,))
    broker.client().publish(FANOUT, b"x", expiration="5000")
    broker.clock.advance(4.0)
    assert stored(broker, "/queue/a") == [b"x"]
