"""Slow subscribers of a topic: the effect of each policy."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stompkit.frames import Frame, encode
from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import publish_all, refusal
from tests.server.many_queues import numbered

TOPIC = "/topic/t"
#: Size of one message with a one-digit body, as the broker counts it.
SIZE = len("destination" + TOPIC + "content-length" + "1" + "1")
POLICIES = ("drop-oldest", "drop-newest", "disconnect")
policies = pytest.mark.parametrize("policy", POLICIES)
limits = pytest.mark.parametrize(
    "limit", [{"max_topic_backlog": 4}, {"max_topic_backlog_bytes": 4 * SIZE}]
)


def broker_of(policy: str, **settings: object) -> MemoryBroker:
    """Return a broker that keeps few messages for slow subscribers."""
    wanted: dict[str, object] = {"slow_reader": policy, "max_topic_backlog": 4} | settings
    return MemoryBroker(BrokerConfig().changed(**wanted))


def full(client: MemoryClient, destination: str = TOPIC) -> None:
    """Subscribe and read nothing."""
    client.subscribe(destination)
    client.stop_reading()


def unacknowledged(client: MemoryClient, destination: str = TOPIC) -> None:
    """Subscribe and acknowledge nothing."""
    client.subscribe(destination, ack="client", prefetch_count="1")


@limits
@pytest.mark.parametrize(
    ("policy", "kept"), [("drop-oldest", numbered(4, 7)), ("drop-newest", numbered(1, 4))]
)
def test_past_the_limit_the_oldest_or_the_newest_are_lost(
    policy: str, limit: dict[str, int], kept: list[bytes]
) -> None:
    broker = MemoryBroker(BrokerConfig().changed(slow_reader=policy, **limit))
    slow, producer = broker.client(), broker.client()
    full(slow)
    publish_all(producer, TOPIC, numbered(1, 7))
    slow.start_reading()
    publish_all(producer, TOPIC, [b"8"])
    assert slow.bodies() == [*kept, b"8"]
    assert slow.error is None


@limits
def test_past_the_limit_who_is_to_be_disconnected_is(limit: dict[str, int]) -> None:
    broker = MemoryBroker(BrokerConfig().changed(slow_reader="disconnect", **limit))
    slow, producer = broker.client(), broker.client()
    full(slow)
    publish_all(producer, TOPIC, numbered(1, 4))
    assert len(broker.broker.connections) == 2
    publish_all(producer, TOPIC, [b"5"])
    slow.start_reading()
    assert refusal(slow) == "slow-reader"
    assert slow.eof
    slow.close()
    assert len(broker.broker.connections) == 1
    assert broker.destinations == {}


def test_who_is_disconnected_and_reads_nothing_is_cut() -> None:
    broker = broker_of("disconnect", drain_timeout_s=5.0)
    slow, producer = broker.client(), broker.client()
    full(slow)
    publish_all(producer, TOPIC, numbered(1, 5))
    before = slow.lost
    broker.clock.advance(5.0)
    broker.clock.advance(0.0)
    assert (before, slow.lost, slow.aborted) == (False, True, True)


def test_several_messages_of_one_chunk_disconnect_once() -> None:
    broker = broker_of("disconnect")
    slow, producer = broker.client(), broker.client()
    full(slow)
    producer.write(b"SEND\ndestination:/topic/t\nreceipt:r\n\n\0" * 20)
    slow.start_reading()
    assert [each.command for each in slow.take() if each.command == "ERROR"] == ["ERROR"]
    assert len(producer.take("RECEIPT")) == 20


@policies
@pytest.mark.parametrize("slowness", [full, unacknowledged])
def test_nobody_else_is_affected(policy: str, slowness: Callable[[MemoryClient], None]) -> None:
    broker = broker_of(policy)
    slow, fast, other = (broker.client() for _ in range(3))
    slowness(slow)
    fast.subscribe(TOPIC)
    other.subscribe("/topic/other")
    producer = broker.client()
    publish_all(producer, TOPIC, numbered(1, 50), receipt="r")
    publish_all(producer, "/topic/other", numbered(1, 50))
    assert fast.bodies() == numbered(1, 50)
    assert other.bodies() == numbered(1, 50)
    assert len(producer.take("RECEIPT")) == 50


@pytest.mark.parametrize(
    ("policy", "kept"), [("drop-oldest", numbered(4, 7)), ("drop-newest", numbered(2, 5))]
)
def test_who_does_not_acknowledge_is_slow_too(policy: str, kept: list[bytes]) -> None:
    broker = broker_of(policy)
    slow = broker.client()
    unacknowledged(slow)
    publish_all(broker.client(), TOPIC, numbered(1, 7))
    bodies = []
    while messages := slow.take("MESSAGE"):
        [message] = messages
        bodies.append(message.body)
        slow.ack(message)
    assert bodies == [b"1", *kept]


def test_who_does_not_acknowledge_is_disconnected() -> None:
    broker = broker_of("disconnect")
    slow = broker.client()
    unacknowledged(slow)
    publish_all(broker.client(), TOPIC, numbered(1, 6))
    assert refusal(slow) == "slow-reader"


@policies
def test_who_keeps_up_loses_nothing(policy: str) -> None:
    broker = broker_of(policy)
    client, producer = broker.client(), broker.client()
    client.subscribe(TOPIC)
    for _ in range(20):
        client.stop_reading()
        publish_all(producer, TOPIC, numbered(1, 4))
        client.start_reading()
        assert client.bodies() == numbered(1, 4)
    assert client.error is None


@policies
def test_subscriptions_of_one_connection_have_their_own_limits(policy: str) -> None:
    broker = broker_of(policy)
    client, producer = broker.client(), broker.client()
    client.subscribe(TOPIC, id="1")
    client.subscribe("/topic/u", id="2")
    client.stop_reading()
    publish_all(producer, TOPIC, numbered(1, 4))
    publish_all(producer, "/topic/u", numbered(5, 8))
    client.start_reading()
    assert sorted(client.bodies()) == numbered(1, 8)


def test_each_topic_has_its_own_policy() -> None:
    tables = (
        DestinationConfig(name="/topic/quotes.>", slow_reader="drop-oldest", max_topic_backlog=1),
        DestinationConfig(name="/topic/orders", slow_reader="disconnect", max_topic_backlog=2),
    )
    broker = MemoryBroker(BrokerConfig(slow_reader="drop-newest", destinations=tables))
    client, producer = broker.client(), broker.client()
    for name in ("quotes.a", "orders", "other"):
        client.subscribe(f"/topic/{name}", id=name)
    client.stop_reading()
    for name in ("quotes.a", "orders", "other"):
        publish_all(producer, f"/topic/{name}", [b"%d" % n for n in range(2)])
    client.start_reading()
    got = [(each.headers["subscription"], each.body) for each in client.take("MESSAGE")]
    assert sorted(got) == [
        ("orders", b"0"),
        ("orders", b"1"),
        ("other", b"0"),
        ("other", b"1"),
        ("quotes.a", b"1"),
    ]
    client.stop_reading()
    publish_all(producer, "/topic/orders", numbered(1, 3))
    client.start_reading()
    assert refusal(client) == "slow-reader"


def test_what_a_disconnected_reader_had_of_queues_goes_to_others() -> None:
    broker = broker_of("disconnect")
    slow, other, producer = (broker.client() for _ in range(3))
    slow.subscribe("/queue/a", id="q", ack="client")
    publish_all(producer, "/queue/a", numbered(1, 3))
    full(slow)
    publish_all(producer, TOPIC, numbered(1, 5))
    other.subscribe("/queue/a")
    assert other.bodies() == numbered(1, 3)


@policies
def test_durable_subscriptions_have_their_own_limits(policy: str) -> None:
    broker = broker_of(policy)
    client = broker.client(client_id="c")
    client.send(
        "SUBSCRIBE", {"id": "1", "destination": TOPIC, "activemq.subscriptionName": "durable"}
    )
    client.stop_reading()
    publish_all(broker.client(), TOPIC, numbered(1, 20))
    client.start_reading()
    assert client.bodies() == numbered(1, 20)
    assert client.error is None


# Messages lost in favour of other subscribers.


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
def test_a_message_too_large_to_be_held_is_lost_alone(policy: str) -> None:
    broker = broker_of(policy, max_topic_backlog_bytes=4 * SIZE)
    slow, producer = broker.client(), broker.client()
    full(slow)
    publish_all(producer, TOPIC, [*numbered(1, 3), b"x" * 4 * SIZE, b"4"])
    slow.start_reading()
    assert slow.bodies() == numbered(1, 4)


def test_who_can_take_a_message_gets_it_however_large_it_is() -> None:
    broker = broker_of("drop-oldest", max_topic_backlog_bytes=4 * SIZE)
    fast = broker.client()
    fast.subscribe(TOPIC)
    publish_all(broker.client(), TOPIC, [b"x" * 40 * SIZE])
    assert fast.bodies() == [b"x" * 40 * SIZE]


@policies
def test_what_the_same_write_acknowledges_makes_room(policy: str) -> None:
    broker = broker_of(policy, max_topic_backlog=2)
    client = broker.client()
    unacknowledged(client)
    publish_all(client, TOPIC, numbered(1, 3))
    [first] = client.take("MESSAGE")
    ack = encode(Frame("ACK", {"id": first.headers["ack"]}), "1.2")
    client.write(ack + encode(Frame("SEND", {"destination": TOPIC}, b"4"), "1.2"))
    bodies = []
    while messages := client.take("MESSAGE"):
        bodies += [each.body for each in messages]
        client.ack(messages[-1])
    assert bodies == numbered(2, 4)


@policies
def test_what_has_expired_takes_no_room(policy: str) -> None:
    broker = broker_of(policy, max_topic_backlog=2)
    client, producer = broker.client(), broker.client()
    full(client)
    publish_all(producer, TOPIC, numbered(1, 2), expiration="1000")
    broker.clock.advance(2.0)
    publish_all(producer, TOPIC, numbered(3, 4))
    client.start_reading()
    assert client.bodies() == numbered(3, 4)
    assert broker.destinations[TOPIC].dropped == 0


def test_what_is_lost_is_counted_where_it_was_sent() -> None:
    broker = broker_of("drop-oldest", max_topic_backlog=2)
    client, producer = broker.client(), broker.client()
    full(client, "/topic/>")
    publish_all(producer, "/topic/a", numbered(1, 2))
    publish_all(producer, "/topic/b", numbered(3, 4))
    counts = [broker.destinations[name].dropped for name in ("/topic/a", "/topic/b")]
    assert counts == [2, 0]


def test_subscriptions_of_one_connection_share_a_limit() -> None:
    broker = broker_of("drop-oldest", max_topic_backlog=9, max_connection_backlog=10)
    client, other, producer = (broker.client() for _ in range(3))
    for number in range(5):
        client.subscribe(f"/topic/{number % 2}", id=str(number))
    client.stop_reading()
    full(other, "/topic/0")
    for body in numbered(1, 9):
        for number in range(2):
            producer.publish(f"/topic/{number}", body)
    [connection] = [each for each in broker.broker.connections if len(each.subscriptions) == 5]
    assert connection.backlog == 10
    # Each slow subscriber has its newest messages, and the others have lost none.
    assert {each.backlog[-1].message.body for each in connection.subscriptions.values()} == {b"9"}
    other.start_reading()
    assert other.bodies() == numbered(1, 9)
    client.send("UNSUBSCRIBE", id="0")
    client.start_reading()
    assert connection.backlog == 0


def test_who_is_over_the_limit_of_its_connection_is_disconnected() -> None:
    broker = broker_of("disconnect", max_connection_backlog=4)
    client, producer = broker.client(), broker.client()
    for number in range(2):
        client.subscribe(f"/topic/{number}", id=str(number))
    client.stop_reading()
    publish_all(producer, "/topic/0", numbered(1, 3))
    publish_all(producer, "/topic/1", numbered(1, 2))
    client.start_reading()
    assert refusal(client) == "slow-reader"
