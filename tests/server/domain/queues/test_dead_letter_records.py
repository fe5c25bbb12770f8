"""The record of a dead letter: clients cannot forge it, and the message stays complete.

A retried message has all headers of the original, whatever their names are.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.frames import Frame
from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.domain.names import Kind, dead_letter_source, dead_letters_of
from stompkit.server.domain.queues.durables import durable_name
from stompkit.server.domain.queues.upkeep import move_to, put_back
from stompkit.server.interfaces import CreateLane, Put
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import MakeBroker, stored, take_one
from tests.server.domain.queues.test_upkeep import queue_of, sweep

#: Headers that the broker adds to each delivery.
OF_THE_DELIVERY = ("subscription", "message-id", "ack", "redelivered", "delivery-count")
NAMES = ("original-destination", "dead-letter-reason", "dead-letter-deliveries")


def headers_of(message: Frame) -> list[tuple[str, str]]:
    """Return names and values in order, without those of the delivery."""
    return [each for each in message.headers.items() if each[0] not in OF_THE_DELIVERY]


def bury(client: MemoryClient) -> Frame:
    """Refuse the only new message; return it."""
    message = take_one(client)
    client.nack(message, requeue="false")
    return message


def reader(broker: MemoryBroker, destination: str, /, **more: str) -> MemoryClient:
    """Return a client that gets messages one by one; *more* may make it a durable subscriber."""
    connect = {"client_id": "c"} if more else {}
    client = broker.client(**connect)
    client.subscribe(destination, ack="client-individual", prefetch_count="1", **more)
    return client


def retry(broker: MemoryBroker, name: str) -> tuple[int, int]:
    """Retry dead letters; return the number of messages done, and of those left."""
    outcome = sweep(broker, put_back(broker.broker.hosts[""]), name=name)
    return outcome.done, outcome.left


def letter(broker: MemoryBroker, name: str) -> dict[str, str]:
    """Return the headers of the only dead letter in a queue."""
    client = broker.client()
    client.subscribe(name, browser="true")
    [message, _] = client.take("MESSAGE")
    client.close()
    return dict(message.headers)


# Retried messages.


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_headers_of_the_senders_own_come_back_in_their_order(
    broker_with: MakeBroker, version: str
) -> None:
    broker = broker_with()
    own = {
        "colour": "red",
        "dead-letter-deliveries": "many",
        "destination": "/queue/a",
        "original-destination": "/queue/z",
        "priority": "high",
        "dead-letter-reason": "a: b" if version == "1.0" else "a:\\ b\nc",
    }
    broker.client(version).send("SEND", own, b"x")
    client = reader(broker, "/queue/a")
    before = bury(client)
    shown = letter(broker, "/dlq/a")
    assert [shown[name] for name in NAMES] == ["/queue/a", "rejected", "1"]
    assert retry(broker, "/dlq/a") == (1, 0)
    after = take_one(client)
    assert headers_of(after) == headers_of(before)
    assert after.body == before.body


@pytest.mark.parametrize("topic", ["/topic/t.eu", "/topic/t.>"])
def test_a_durable_subscription_gets_what_was_sent_to_its_topic(
    broker_with: MakeBroker, topic: str
) -> None:
    broker = broker_with()
    client = reader(broker, topic, **{"activemq.subscriptionName": "n"})
    broker.client().publish("/topic/t.eu", b"x", original_destination="mine")
    before = bury(client)
    shown = letter(broker, "/dlq/durable/c/n")
    assert shown["original-destination"] == shown["stompkit-dead-letter-source"] == "/durable/c/n"
    assert shown["stompkit-dead-letter-destination"] == "/topic/t.eu"
    assert retry(broker, "/dlq/durable/c/n") == (1, 0)
    assert headers_of(take_one(client)) == headers_of(before)


def test_a_durable_subscription_that_has_another_topic_gets_nothing_of_the_one_before(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with()
    client = reader(broker, "/topic/t", **{"activemq.subscriptionName": "n"})
    broker.client().publish("/topic/t", b"x")
    bury(client)
    client.close()
    other = reader(broker, "/topic/u", **{"activemq.subscriptionName": "n"})
    assert retry(broker, "/dlq/durable/c/n") == (0, 1)
    assert other.bodies() == []
    other.close()
    picky = broker.client(client_id="c")
    picky.subscribe("/topic/t", selector="a = 1", **{"activemq.subscriptionName": "n"})
    assert retry(broker, "/dlq/durable/c/n") == (0, 1)
    assert stored(broker, "/dlq/durable/c/n") == [b"x"]


def test_the_copy_of_a_fan_out_says_again_whence_it_comes(broker_with: MakeBroker) -> None:
    table = DestinationConfig(name="/fanout/f", children=("/queue/a", "/queue/b"))
    broker = broker_with(destinations=(table,))
    broker.client().publish("/fanout/f", b"x", colour="red")
    client = reader(broker, "/queue/a")
    before = bury(client)
    assert retry(broker, "/dlq/a") == (1, 0)
    after = take_one(client)
    assert after.headers["original-destination"] == "/fanout/f"
    assert headers_of(after) == headers_of(before)


@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        ("activemq", "queue://a"),
        ("plain", "a"),
        ("artemis", "jms.queue.a"),
        ("rabbitmq", "/amq/queue/a"),
    ],
)
def test_the_senders_spelling_comes_back(broker_with: MakeBroker, dialect: str, name: str) -> None:
    broker = broker_with(dialect=dialect)
    broker.client().publish(name, b"x")
    client = reader(broker, name)
    assert bury(client).headers["destination"] == name
    assert retry(broker, "/dlq/a") == (1, 0)
    assert take_one(client).headers["destination"] == name


def test_the_senders_time_goes_on_and_nothing_is_delivered_past_it(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with()
    client = reader(broker, "/queue/a")
    producer = broker.client()
    for body in (b"1", b"2", b"3"):
        producer.publish("/queue/a", body, expiration="5000")
        bury(client)
    client.close()
    broker.clock.advance(3.0)
    outcome = sweep(broker, put_back(broker.broker.hosts[""]), name="/dlq/a")
    assert outcome.done == 3
    first = reader(broker, "/queue/a")
    take_one(first)
    broker.clock.advance(3.0)
    first.close()
    assert reader(broker, "/queue/a").bodies() == []


def test_what_is_past_its_time_stays_among_the_dead_letters(broker_with: MakeBroker) -> None:
    broker = broker_with(expired="dead-letter")
    producer = broker.client()
    producer.publish("/queue/a", b"x", expiration="1000")
    broker.clock.advance(60.0)
    client = reader(broker, "/queue/a")
    assert retry(broker, "/dlq/a") == (0, 1)
    assert client.bodies() == []
    assert stored(broker, "/dlq/a") == [b"x"]


def test_the_queues_own_time_begins_anew(broker_with: MakeBroker) -> None:
    broker = broker_with(message_ttl_s=10.0)
    client = reader(broker, "/queue/a")
    broker.client().publish("/queue/a", b"x")
    bury(client)
    client.close()
    broker.clock.advance(60.0)
    assert retry(broker, "/dlq/a") == (1, 0)
    broker.clock.advance(9.0)
    client = reader(broker, "/queue/a")
    assert client.bodies() == [b"x"]


def test_who_dies_again_elsewhere_is_still_what_was_sent_first(broker_with: MakeBroker) -> None:
    broker = broker_with()
    broker.client().publish("/queue/a", b"x", original_destination="mine")
    before = bury(reader(broker, "/queue/a"))
    sweep(broker, move_to(queue_of(broker, "/queue/b")), name="/dlq/a")
    client = reader(broker, "/queue/b")
    moved = bury(client)
    assert moved.headers["dead-letter-reason"] == "rejected"
    assert letter(broker, "/dlq/b")["stompkit-dead-letter-source"] == "/queue/b"
    assert retry(broker, "/dlq/b") == (1, 0)
    assert headers_of(take_one(client)) == headers_of(before)


def test_a_durable_subscription_whose_name_has_a_wildcard_has_dead_letters(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with()
    client = reader(broker, "/topic/t", **{"activemq.subscriptionName": "prices.>"})
    broker.client().publish("/topic/t", b"x")
    bury(client)
    assert stored(broker, "/dlq/durable/:c/prices.%3E") == [b"x"]
    assert retry(broker, "/dlq/durable/:c/prices.%3E") == (1, 0)
    assert client.bodies() == [b"x"]


# Forged records.


def forged(target: str) -> dict[str, str]:
    """Return the headers of a dead letter of another queue."""
    return {
        "original-destination": target,
        "dead-letter-reason": "rejected",
        "dead-letter-deliveries": "1",
        "stompkit-dead-letter-source": target,
        "stompkit-dead-letter-destination": target,
        "stompkit-dead-letter-reason": "rejected",
        "stompkit-dead-letter-deliveries": "1",
        "stompkit-dead-letter-time": "1",
        "stompkit-dead-letter-headers": "{}",
    }


@pytest.mark.parametrize("way", ["SEND", "transaction", "repeated", "moved"])
@pytest.mark.parametrize("target", ["/queue/secret", "/queue/a", "/durable/c/n"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_client_makes_no_dead_letters(
    broker_with: MakeBroker, version: str, target: str, way: str
) -> None:
    broker = broker_with()
    watch = reader(broker, "/topic/t", **{"activemq.subscriptionName": "n"})
    client = broker.client(version)
    headers = forged(target)
    place = "/queue/other" if way == "moved" else "/dlq/a"
    if way == "transaction":
        client.send("BEGIN", transaction="t")
        client.send("SEND", {"destination": place, "transaction": "t", **headers}, b"x")
        client.send("COMMIT", transaction="t")
    elif way == "repeated":
        lines = "".join(f"{k}:{v}\n{k}:{v}\n" for k, v in headers.items())
        client.write(f"SEND\ndestination:{place}\n{lines}\nx\0".encode())
    else:
        client.send("SEND", {"destination": place, **headers}, b"x")
    if way == "moved":
        sweep(broker, move_to(queue_of(broker, "/dlq/a")), name=place)
    assert client.error is None
    assert retry(broker, "/dlq/a") == (0, 1)
    shown = letter(broker, "/dlq/a")
    assert "stompkit-dead-letter-source" not in shown
    assert shown["original-destination"] == target
    assert watch.bodies() == []
    assert not {"/queue/secret", "/queue/a"} & set(broker.destinations)


def test_names_of_the_record_are_not_passed_on(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = broker.client()
    client.send("SEND", {"destination": "/queue/a", "colour": "red", **forged("/queue/b")}, b"x")
    received = take_one(reader(broker, "/queue/a"))
    assert [name for name in received.headers if name.startswith("stompkit-")] == []
    assert [received.headers[name] for name in ("colour", *NAMES)] == [
        "red",
        "/queue/b",
        "rejected",
        "1",
    ]


# Stores of older versions.


def older_store(name: str, destination: str, whence: str) -> MemoryStore:
    """Return a store with one dead letter as older versions wrote them."""
    store = MemoryStore()
    store.open()
    lines = (
        f"destination:{destination}\noriginal-destination:{whence}\ndead-letter-reason:rejected\n"
        "dead-letter-deliveries:3\ncolour:red\ncontent-length:1\n"
    ).encode()
    store.apply([CreateLane(1, f"\n{name}", 5), Put(1, 1, len(lines) + 1, 0, 0, "i", lines, b"x")])
    store.close()
    return store


@pytest.mark.parametrize("moved", [False, True])
def test_letters_of_an_older_version_go_back(*, moved: bool) -> None:
    broker = MemoryBroker(store=older_store("/dlq/a", "/dlq/a", "/queue/a"))
    name = "/dlq/b" if moved else "/dlq/a"
    if moved:
        sweep(broker, move_to(queue_of(broker, name)), name="/dlq/a")
    assert retry(broker, name) == (1, 0)
    message = take_one(reader(broker, "/queue/a"))
    assert headers_of(message) == [
        ("destination", "/queue/a"),
        ("colour", "red"),
        ("content-length", "1"),
    ]


def test_letters_of_an_older_version_go_back_to_a_durable_subscription() -> None:
    broker = MemoryBroker(store=older_store("/dlq/durable/c/n", "/dlq/durable/c/n", "/durable/c/n"))
    client = reader(broker, "/topic/t", **{"activemq.subscriptionName": "n"})
    assert retry(broker, "/dlq/durable/c/n") == (1, 0)
    assert take_one(client).headers["destination"] == "/topic/t"


def test_a_letter_that_an_older_version_let_a_client_forge_goes_nowhere_else() -> None:
    broker = MemoryBroker(store=older_store("/dlq/a", "/dlq/a", "/queue/secret"))
    assert retry(broker, "/dlq/a") == (0, 1)
    assert "/queue/secret" not in broker.destinations


@pytest.mark.parametrize("value", ["{", "[]", '{"colour": 5}', "null"])
def test_a_record_that_an_older_version_let_a_client_forge_breaks_nothing(value: str) -> None:
    store = MemoryStore()
    store.open()
    lines = (
        "destination:/dlq/a\nstompkit-dead-letter-source:/queue/a\n"
        f"stompkit-dead-letter-destination:/queue/a\nstompkit-dead-letter-headers:{value}\n"
    ).replace('"colour": ', '"colour"\\c ')
    put = Put(1, 1, len(lines) + 1, 0, 0, "i", lines.encode(), b"x")
    store.apply([CreateLane(1, "\n/dlq/a", 5), put])
    store.close()
    broker = MemoryBroker(store=store)
    assert retry(broker, "/dlq/a") == (0, 1)


@pytest.mark.parametrize("is_letter", [True, False])
def test_it_is_the_same_when_the_broker_was_started_again(*, is_letter: bool) -> None:
    store = MemoryStore()
    broker = MemoryBroker(store=store)
    if is_letter:
        broker.client().publish("/queue/a", b"x", dead_letter_reason="mine")
        bury(reader(broker, "/queue/a"))
    else:
        broker.client().send("SEND", {"destination": "/dlq/a", **forged("/queue/a")}, b"x")
    broker.broker.close()
    broker = MemoryBroker(BrokerConfig(), store=store, clock=broker.clock)
    assert retry(broker, "/dlq/a") == ((1, 0) if is_letter else (0, 1))


# Names.

levels = st.text(st.sampled_from("ab.~/%:*>#é\udc80"), max_size=6)
queues = st.builds(
    lambda begin, rest: f"{Kind.QUEUE.value}{begin}{rest}",
    st.sampled_from(["", "durable/", "~durable/", "~~durable/", "queue/", "durable/c/"]),
    levels,
)
durables = st.builds(
    lambda client, name: durable_name(f"{client}\n{name}"),
    st.one_of(levels, st.just("c")),
    levels,
)


@given(st.one_of(queues, durables), st.one_of(queues, durables))
def test_no_two_have_the_same_dead_letters(one: str, other: str) -> None:
    assert dead_letter_source(dead_letters_of(one)) == one
    assert (dead_letters_of(one) == dead_letters_of(other)) is (one == other)


def test_a_queue_that_is_called_like_a_durable_subscription_has_letters_of_its_own(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with()
    durable = reader(broker, "/topic/t", **{"activemq.subscriptionName": "n"})
    queue = reader(broker, "/queue/durable/c/n")
    producer = broker.client()
    for destination in ("/topic/t", "/queue/durable/c/n"):
        producer.publish(destination, destination.encode())
    bury(durable)
    bury(queue)
    assert stored(broker, "/dlq/durable/c/n") == [b"/topic/t"]
    assert stored(broker, "/dlq/~durable/c/n") == [b"/queue/durable/c/n"]
    assert retry(broker, "/dlq/durable/c/n") == retry(broker, "/dlq/~durable/c/n") == (1, 0)
    assert durable.bodies() == [b"/topic/t"]
    assert queue.bodies() == [b"/queue/durable/c/n"]
