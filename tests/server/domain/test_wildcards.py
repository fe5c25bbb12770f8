"""Subscriptions to patterns: every destination that matches, now and later."""

from __future__ import annotations

import pytest

from stompkit.frames import VERSIONS
from stompkit.server import BrokerConfig
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import MakeBroker, publish_all, refusal, take_one
from tests.server.many_queues import numbered


def seen(client: MemoryClient) -> list[tuple[str, bytes]]:
    """Return destinations and bodies of the new messages."""
    return [(each.headers["destination"], each.body) for each in client.take("MESSAGE")]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["queue", "topic", "dlq"])
@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a.*", ["a.b", "a.c"], ["a", "a.b.c", "b.b"]),
        ("a.>", ["a.b", "a.b.c"], ["a", "b"]),
        ("a.#", ["a", "a.b", "a.b.c"], ["b", "ab"]),
        ("*.x", ["a.x", "b.x"], ["x", "a.y"]),
    ],
)
def test_a_pattern_takes_what_matches_and_nothing_else(
    broker_with: MakeBroker,
    version: str,
    kind: str,
    pattern: str,
    matching: list[str],
    others: list[str],
) -> None:
    broker = broker_with()
    consumer, producer = broker.client(version), broker.client()
    consumer.subscribe(f"/{kind}/{pattern}")
    for level in [*others, *matching]:
        producer.publish(f"/{kind}/{level}", level.encode())
    wanted = [(f"/{kind}/{level}", level.encode()) for level in matching]
    assert seen(consumer) == wanted
    assert producer.error is None


def test_a_pattern_takes_what_waits_already(broker_with: MakeBroker) -> None:
    broker = broker_with()
    producer = broker.client()
    for name in ("/queue/a.1", "/queue/a.2", "/queue/b.1"):
        publish_all(producer, name, numbered(1, 2))
    consumer = broker.client()
    consumer.subscribe("/queue/a.*")
    assert sorted(seen(consumer)) == [
        ("/queue/a.1", b"1"),
        ("/queue/a.1", b"2"),
        ("/queue/a.2", b"1"),
        ("/queue/a.2", b"2"),
    ]


def test_a_pattern_is_of_one_kind() -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe("/topic/>")
    client.publish("/queue/a", b"queue")
    client.publish("/temp-topic/a", b"temporary")
    client.publish("/topic/a", b"topic")
    assert client.bodies() == [b"topic"]


def test_nobody_elses_temporary_destination_matches() -> None:
    broker = MemoryBroker()
    spy, owner = broker.client(), broker.client()
    spy.subscribe("/queue/>", id="1")
    spy.subscribe("/topic/>", id="2")
    owner.subscribe("/temp-queue/a", id="1")
    owner.publish("/temp-queue/a", b"mine")
    assert owner.bodies() == [b"mine"]
    assert spy.bodies() == []


def test_acknowledgements_settle_each_message_in_its_queue(broker_with: MakeBroker) -> None:
    broker = broker_with()
    consumer, producer = broker.client(), broker.client()
    consumer.subscribe("/queue/*", ack="client")
    for name in ("/queue/a", "/queue/b", "/queue/c"):
        producer.publish(name, name.encode())
    first, second, _ = consumer.take("MESSAGE")
    consumer.ack(second)  # cumulative over the queues of the subscription
    assert first.headers["destination"] == "/queue/a"
    consumer.drop()
    other = broker.client()
    other.subscribe("/queue/>")
    assert seen(other) == [("/queue/c", b"/queue/c")]


def test_unsubscribe_ends_all_of_it_and_what_comes_later_too(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = broker.client()
    for kind in ("queue", "topic"):
        client.subscribe(f"/{kind}/*", id=kind)
        client.publish(f"/{kind}/old", b"before")
        client.send("UNSUBSCRIBE", id=kind)
        client.publish(f"/{kind}/old", b"after")
        client.publish(f"/{kind}/new", b"after")
    assert client.bodies() == [b"before"] * 2
    assert sorted(broker.destinations) == ["/queue/new", "/queue/old"]


@pytest.mark.parametrize("end", ["close", "disconnect"])
def test_a_pattern_ends_with_its_connection(broker_with: MakeBroker, end: str) -> None:
    broker = broker_with()
    client, producer = broker.client(), broker.client()
    client.subscribe("/queue/*", id="1", ack="client")
    client.subscribe("/topic/*", id="2", ack="client")
    for name in ("/queue/a", "/queue/b", "/topic/a"):
        producer.publish(name, b"x")
    if end == "close":
        client.close()
    else:
        client.send("DISCONNECT")
    assert sorted(broker.destinations) == ["/queue/a", "/queue/b"]
    producer.publish("/queue/c", b"x")
    other = broker.client()
    other.subscribe("/queue/>")
    assert [each.headers.get("redelivered") for each in other.take("MESSAGE")] == [
        "true",
        "true",
        None,
    ]


def test_a_pattern_and_a_name_are_two_subscriptions() -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe("/topic/a.b", id="name")
    client.subscribe("/topic/a.*", id="pattern")
    client.subscribe("/topic/a.>", id="wider")
    client.publish("/topic/a.b", b"x")
    subscriptions = [each.headers["subscription"] for each in client.take("MESSAGE")]
    assert sorted(subscriptions) == ["name", "pattern", "wider"]


def test_a_queue_is_shared_by_those_who_name_it_and_those_with_a_pattern(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with()
    named, wild = broker.client(), broker.client()
    named.subscribe("/queue/a")
    wild.subscribe("/queue/>")
    publish_all(broker.client(), "/queue/a", numbered(1, 6))
    assert [named.bodies(), wild.bodies()] == [[b"1", b"3", b"5"], [b"2", b"4", b"6"]]


def test_the_prefetch_of_a_pattern_is_for_all_its_queues_which_take_turns(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with()
    producer = broker.client()
    for name in "abc":
        publish_all(producer, f"/queue/{name}", [name.encode()] * 3)
    consumer = broker.client()
    consumer.subscribe("/queue/*", ack="client-individual", prefetch_count="1")
    order = []
    while messages := consumer.take("MESSAGE"):
        [message] = messages
        order.append(message.body)
        consumer.ack(message)
    # The first round begins before the other queues are known to wait.
    assert b"".join(order) == b"a" + b"abc" + b"abc" + b"bc"
    assert consumer.error is None


def test_queues_of_a_pattern_take_turns_though_one_is_sent_to_all_the_time(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with()
    producer = broker.client()
    publish_all(producer, "/queue/busy", [b"busy"] * 5)
    publish_all(producer, "/queue/quiet", [b"quiet"] * 5)
    consumer = broker.client()
    consumer.subscribe("/queue/*", ack="client", prefetch_count="1")
    order = []
    for _ in range(10):
        message = take_one(consumer)
        order.append(message.body)
        producer.publish("/queue/busy", b"busy")
        consumer.ack(message)
    assert order[:9] == [b"busy"] + [b"busy", b"quiet"] * 4


def test_what_one_topic_of_a_pattern_kept_back_does_not_wait_for_that_topic() -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe("/topic/*", ack="client", prefetch_count="1")
    for name in "abcd":
        client.publish(f"/topic/{name}", name.encode())
    bodies = []
    while messages := client.take("MESSAGE"):
        bodies += [each.body for each in messages]
        client.ack(messages[-1])
    assert bodies == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("command", ["SEND", "browse"])
def test_a_pattern_is_no_destination_to_send_to_or_browse(command: str) -> None:
    broker = MemoryBroker()
    client = broker.client()
    if command == "SEND":
        client.publish("/queue/a.*", b"x")
    else:
        client.subscribe("/queue/a.*", browser="true")
    assert refusal(client) == "bad-destination"
    assert broker.destinations == {}


def test_a_transaction_can_not_send_to_a_pattern() -> None:
    client = MemoryBroker().client()
    client.send("BEGIN", transaction="t")
    client.publish("/topic/>", b"x", transaction="t")
    client.send("COMMIT", transaction="t")
    assert refusal(client) == "bad-destination"


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("/queue/>.a", "bad-destination"),
        ("/topic/#.a", "bad-destination"),
        ("/fanout/*", "bad-destination"),
        ("*", "unknown-destination"),
        ("/>", "unknown-destination"),
    ],
)
def test_patterns_that_make_no_sense_are_refused(pattern: str, code: str) -> None:
    client = MemoryBroker().client()
    client.subscribe(pattern)
    assert refusal(client) == code


# Many names.


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_pattern_may_meet_more_names_than_there_can_be_destinations(
    broker_with: MakeBroker, kind: str
) -> None:
    broker = broker_with(max_destinations=50)
    consumer, producer = broker.client(), broker.client()
    consumer.subscribe(f"/{kind}/>")
    for number in range(1_000):
        producer.publish(f"/{kind}/{number}", b"%d" % number)
    assert consumer.bodies() == numbered(0, 999)
    assert producer.error is None
    assert len(broker.destinations) <= 50


def test_what_is_kept_of_a_topic_outlives_the_topic() -> None:
    broker = MemoryBroker(BrokerConfig(max_destinations=10))
    slow, careful, producer = broker.client(), broker.client(), broker.client()
    slow.subscribe("/topic/>")
    careful.subscribe("/topic/>", ack="client", prefetch_count="1")
    slow.stop_reading()
    for number in range(100):
        producer.publish(f"/topic/{number}", b"%d" % number)
    assert producer.error is None
    slow.start_reading()
    assert slow.bodies() == numbered(0, 99)
    bodies = []
    while messages := careful.take("MESSAGE"):
        [message] = messages
        bodies.append(message.body)
        careful.ack(message)
    assert bodies == numbered(0, 99)


def test_names_with_messages_do_count(broker_with: MakeBroker) -> None:
    broker = broker_with(max_destinations=3)
    consumer, producer = broker.client(), broker.client()
    consumer.subscribe("/queue/>", ack="client", prefetch_count="10")
    for number in range(4):
        producer.publish(f"/queue/{number}", b"%d" % number)
    assert refusal(producer) == "too-many-destinations"
    messages = consumer.take("MESSAGE")
    assert [each.body for each in messages] == numbered(0, 2)
    consumer.ack(messages[0])
    broker.clock.advance(1.0)
    broker.client().publish("/queue/new", b"new")
    assert consumer.bodies() == [b"new"]


def test_a_name_that_nobody_reads_any_more_makes_room_for_another() -> None:
    broker = MemoryBroker(BrokerConfig(max_destinations=100))
    keeper, client = broker.client(), broker.client()
    for number in range(100):
        keeper.subscribe(f"/queue/{number}", id=str(number))
    client.subscribe("/queue/new")
    assert refusal(client) == "too-many-destinations"
    keeper.send("UNSUBSCRIBE", id="0")
    again = broker.client()
    again.subscribe("/queue/new")
    assert refusal(again) is None
