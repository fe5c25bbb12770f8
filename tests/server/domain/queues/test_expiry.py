"""Expired messages."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.interfaces import Put
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker
from tests.server.brokers import MakeBroker, publish_all, refusal, stored, take_one
from tests.server.failing import KINDS, failing_store
from tests.server.many_queues import numbered

QUEUE = "/queue/a"
TOPIC = "/topic/a"
both_kinds = pytest.mark.parametrize("destination", [QUEUE, TOPIC])

#: Headers of a message that is sent at 100.0 s and expires at 105.0 s.
FOR_FIVE_SECONDS = (
    {"expires": "105000"},
    {"expiration": "5000"},
    {"expires": "105000", "expiration": "1"},
)


@pytest.mark.parametrize("headers", FOR_FIVE_SECONDS)
@pytest.mark.parametrize(("wait_s", "alive"), [(4.999, True), (5.0, False), (100.0, False)])
def test_a_message_in_a_queue_lives_until_its_time(
    broker_with: MakeBroker, headers: dict[str, str], wait_s: float, *, alive: bool
) -> None:
    broker = broker_with()
    broker.clock.advance(100.0)
    producer = broker.client()
    producer.publish(QUEUE, b"x", **headers)
    producer.publish(QUEUE, b"y")
    broker.clock.advance(wait_s)
    client = broker.client()
    client.subscribe(QUEUE)
    assert client.bodies() == ([b"x", b"y"] if alive else [b"y"])


@pytest.mark.parametrize("headers", FOR_FIVE_SECONDS)
@pytest.mark.parametrize(("wait_s", "alive"), [(4.999, True), (5.0, False)])
def test_a_message_kept_for_a_slow_reader_of_a_topic_lives_until_its_time(
    headers: dict[str, str], wait_s: float, *, alive: bool
) -> None:
    broker = MemoryBroker()
    broker.clock.advance(100.0)
    client, producer = broker.client(), broker.client()
    client.subscribe(TOPIC)
    client.stop_reading()
    producer.publish(TOPIC, b"x", **headers)
    producer.publish(TOPIC, b"y")
    broker.clock.advance(wait_s)
    client.start_reading()
    assert client.bodies() == ([b"x", b"y"] if alive else [b"y"])


@both_kinds
@pytest.mark.parametrize(
    ("headers", "alive"), [({"expires": "99999"}, False), ({"expires": "0"}, True)]
)
def test_a_message_that_has_expired_when_it_is_sent_is_not_delivered(
    broker_with: MakeBroker, destination: str, headers: dict[str, str], *, alive: bool
) -> None:
    broker = broker_with()
    broker.clock.advance(100.0)
    client = broker.client()
    client.subscribe(destination)
    client.publish(destination, b"x", receipt="r", **headers)
    commands = [each.command for each in client.take()]
    assert "RECEIPT" in commands
    assert ("MESSAGE" in commands) is alive


@both_kinds
@pytest.mark.parametrize(
    ("wait_s", "left"),
    [(2.9, [b"5", b"3", b"9"]), (3.0, [b"5", b"9"]), (5.0, [b"9"]), (9.0, [])],
)
def test_a_destination_says_how_long_messages_live_that_do_not_say_it(
    broker_with: MakeBroker, destination: str, wait_s: float, left: list[bytes]
) -> None:
    table = DestinationConfig(name=destination, message_ttl_s=5.0)
    broker = broker_with(destinations=(table,))
    client, producer = broker.client(), broker.client()
    client.subscribe(destination)
    client.stop_reading()
    producer.publish(destination, b"5")
    producer.publish(destination, b"3", expiration="3000")
    producer.publish(destination, b"9", expiration="9000")
    broker.clock.advance(wait_s)
    client.start_reading()
    assert client.bodies() == left


def test_it_begins_when_a_delay_ends(broker_with: MakeBroker) -> None:
    broker = broker_with(message_ttl_s=5.0)
    producer = broker.client()
    producer.publish(QUEUE, b"x", delay="10000")
    broker.clock.advance(14.9)
    assert stored(broker, QUEUE) == [b"x"]
    broker.clock.advance(0.1)
    assert stored(broker, QUEUE) == []


def test_a_message_that_expires_before_its_delay_ends_is_never_delivered(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(expired="dead-letter")
    client = broker.client()
    client.subscribe(QUEUE)
    client.publish(QUEUE, b"x", delay="2000", expiration="1000")
    broker.clock.advance(2.0)
    assert client.bodies() == []
    assert stored(broker, "/dlq/a") == [b"x"]


def test_what_a_client_has_got_is_the_clients(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = broker.client()
    client.subscribe(QUEUE, ack="client")
    client.publish(QUEUE, b"x", expiration="1000")
    message = take_one(client)
    broker.clock.advance(100.0)
    client.ack(message, receipt="r")
    assert client.take("RECEIPT")


@pytest.mark.parametrize("way", ["nack", "lost", "timeout"])
def test_what_comes_back_too_late_is_not_delivered_again(broker_with: MakeBroker, way: str) -> None:
    broker = broker_with(ack_timeout_s=2.0)
    client, other = broker.client(), broker.client()
    client.subscribe(QUEUE, ack="client", prefetch_count="1")
    client.publish(QUEUE, b"x", expiration="1000")
    message = take_one(client)
    other.subscribe(QUEUE)
    broker.clock.advance(1.0)
    if way == "nack":
        client.nack(message)
    elif way == "lost":
        client.drop()
    else:
        broker.clock.advance(1.0)
    assert other.bodies() == client.bodies() == []
    other.close()
    client.close()
    assert broker.destinations == {}


# Queues without consumers.


@pytest.mark.parametrize("expired", ["discard", "dead-letter"])
def test_expired_messages_leave_a_queue_that_nobody_reads(
    broker_with: MakeBroker, expired: str
) -> None:
    broker = broker_with(expired=expired)
    publish_all(broker.client(), QUEUE, numbered(1, 3), expiration="1000")
    broker.client().publish(QUEUE, b"delayed", delay="40000", expiration="50000")
    broker.clock.advance(31.0)
    assert stored(broker, "/dlq/a") == (numbered(1, 3) if expired == "dead-letter" else [])
    broker.clock.pump([1.0] * 50)
    assert QUEUE not in broker.destinations
    dead = [*numbered(1, 3), b"delayed"] if expired == "dead-letter" else []
    assert stored(broker, "/dlq/a") == dead


def test_those_that_were_given_back_leave_it_too(broker_with: MakeBroker) -> None:
    broker = broker_with(expired="dead-letter")
    client = broker.client()
    client.subscribe(QUEUE, ack="client")
    client.publish(QUEUE, b"x", expiration="60000")
    broker.clock.advance(40.0)
    client.drop()
    broker.clock.advance(60.0)
    assert stored(broker, "/dlq/a") == [b"x"]
    assert QUEUE not in broker.destinations


def test_a_full_queue_makes_room_of_what_has_expired(broker_with: MakeBroker) -> None:
    broker = broker_with(max_queue_messages=2)
    producer = broker.client()
    publish_all(producer, QUEUE, numbered(1, 2), expiration="2000")
    broker.clock.advance(2.0)
    publish_all(producer, QUEUE, numbered(3, 4))
    assert refusal(producer) is None
    assert stored(broker, QUEUE) == numbered(3, 4)


def test_a_sender_that_waits_for_room_gets_what_expiry_makes(broker_with: MakeBroker) -> None:
    broker = broker_with(max_queue_messages=1, when_full="block")
    producer = broker.client()
    producer.publish(QUEUE, b"1", expiration="5000", receipt="1")
    producer.publish(QUEUE, b"2", receipt="2")
    assert len(producer.take("RECEIPT")) == 1
    broker.clock.advance(31.0)
    assert len(producer.take("RECEIPT")) == 1
    assert stored(broker, QUEUE) == [b"2"]


def test_a_long_backlog_expires_behind_the_window_too(broker_with: MakeBroker) -> None:
    broker = broker_with(window_messages=5, expired="dead-letter")
    producer = broker.client()
    publish_all(producer, QUEUE, numbered(1, 40), expiration="1000")
    producer.publish(QUEUE, b"last")
    broker.clock.advance(30.0)
    broker.clock.advance(0.0)
    assert stored(broker, QUEUE) == [b"last"]
    client = broker.client()
    client.subscribe("/dlq/a")
    assert client.bodies() == numbered(1, 40)


def test_browsers_see_nothing_that_has_expired(broker_with: MakeBroker) -> None:
    broker = broker_with()
    producer = broker.client()
    producer.publish(QUEUE, b"1", expiration="1000")
    producer.publish(QUEUE, b"2")
    slow = broker.client()
    slow.stop_reading()
    slow.subscribe(QUEUE, browser="true")
    broker.clock.advance(1.0)
    assert stored(broker, QUEUE) == [b"2"]
    slow.start_reading()
    assert slow.bodies() == [b"2", b""]


# In the store.


@pytest.mark.parametrize("expired", ["discard", "dead-letter"])
def test_times_survive_the_broker(expired: str) -> None:
    store = MemoryStore()
    broker = MemoryBroker(store=store)
    config = broker.broker.config.changed(expired=expired)
    producer = broker.client()
    producer.publish(QUEUE, b"1", expiration="5000")
    producer.publish(QUEUE, b"2", expires="20000")
    producer.publish(QUEUE, b"3")
    broker.broker.close()
    broker.clock.advance(5.0)
    broker = MemoryBroker(config, store=store, clock=broker.clock)
    assert stored(broker, QUEUE) == numbered(2, 3)
    broker.clock.advance(15.0)
    client = broker.client()
    client.subscribe(QUEUE)
    assert client.bodies() == [b"3"]
    assert stored(broker, "/dlq/a") == (numbered(1, 2) if expired == "dead-letter" else [])


def test_a_queue_full_of_what_expired_while_the_broker_was_away_has_room() -> None:
    store = MemoryStore()
    broker = MemoryBroker(store=store)
    config = broker.broker.config.changed(max_queue_messages=3, window_messages=1)
    publish_all(broker.client(), QUEUE, numbered(1, 3), expiration="5000")
    broker.broker.close()
    broker.clock.advance(5.0)
    broker = MemoryBroker(config, store=store, clock=broker.clock)
    broker.client().publish(QUEUE, b"refused, perhaps")
    broker.clock.advance(0.0)
    producer = broker.client()
    producer.publish(QUEUE, b"4")
    assert refusal(producer) is None


def test_a_sender_is_woken_by_what_comes_behind_a_bound_that_has_passed() -> None:
    """The earliest expiry time in the store is a bound, perhaps that of a message in memory."""
    broker = MemoryBroker(
        BrokerConfig(max_queue_messages=3, window_messages=2, when_full="block"),
        store=MemoryStore(),
    )
    producer = broker.client()
    producer.publish(QUEUE, b"1")
    publish_all(producer, QUEUE, numbered(2, 3), expiration="500")
    broker.clock.advance(0.5)
    producer.publish(QUEUE, b"4")
    producer.publish(QUEUE, b"5", expiration="500")
    waiting = broker.client()
    waiting.publish(QUEUE, b"6", receipt="6")
    broker.clock.advance(0.5)
    broker.clock.advance(0.0)
    assert len(waiting.take("RECEIPT")) == 1
    assert bodies(broker) == [b"1", b"4", b"6"]


def bodies(broker: MemoryBroker) -> list[bytes]:
    """Return the messages that a new consumer gets."""
    client = broker.client()
    client.subscribe(QUEUE)
    broker.clock.advance(0.0)
    return client.bodies()


# Where the dead letter cannot be kept.

#: Longer than the time after which expired messages are tried again.
AGAIN_S = 31.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("storage", ["persistent", "memory"])
def test_no_message_is_lost_that_expires_while_the_store_fails(
    kind: str, storage: Literal["persistent", "memory"], tmp_path: Path
) -> None:
    """Removing the lanes of an empty queue may succeed where storing a dead letter does not."""
    store = failing_store(kind, tmp_path)
    queue = DestinationConfig(name=QUEUE, storage=storage)
    config = BrokerConfig(expired="dead-letter", destinations=(queue,))
    broker = MemoryBroker(config, store=store)
    broker.client().publish(QUEUE, b"x", expiration="1000")
    store.fails = lambda operations: any(isinstance(each, Put) for each in operations)
    for _ in range(5):
        broker.clock.advance(1.0)
    client = broker.client()
    client.subscribe(QUEUE)
    assert client.bodies() == []
    store.fails = lambda _: False
    broker.clock.advance(AGAIN_S)
    assert stored(broker, "/dlq/a") == [b"x"]
    assert stored(broker, QUEUE) == []
    broker.broker.close()
    broker = MemoryBroker(config, store=store, clock=broker.clock)
    assert stored(broker, "/dlq/a") == [b"x"]
    broker.broker.close()


@pytest.mark.parametrize("when_full", ["block", "drop-oldest", "reject"])
@pytest.mark.parametrize("window", [1, 100])
@pytest.mark.parametrize("letters", [1, 2, 100])
def test_a_store_that_fails_is_not_called_at_once_again_for_expired_messages(
    when_full: Literal["block", "drop-oldest", "reject"], window: int, letters: int
) -> None:
    """The room that a dead letter leaves when it fails is no reason to try the next one."""
    store = failing_store("memory", Path())

    def config(most: int) -> BrokerConfig:
        queue = DestinationConfig(name=QUEUE, max_queue_messages=most, when_full=when_full)
        dead = DestinationConfig(name="/dlq/a", max_queue_messages=letters)
        return BrokerConfig(
            window_messages=window, expired="dead-letter", destinations=(queue, dead)
        )

    broker = MemoryBroker(config(4), store=store)
    publish_all(broker.client(), QUEUE, numbered(1, 4), expiration="1000")
    store.fails = lambda operations: any(isinstance(each, Put) for each in operations)
    waiting = broker.client()
    waiting.publish(QUEUE, b"5", receipt="r")
    broker.clock.advance(2.0)
    broker.broker.reload(config(3))
    for _ in range(20):
        broker.clock.advance(1.0)
    store.fails = lambda _: False
    died = []
    for _ in range(6):
        broker.clock.advance(AGAIN_S)
        client = broker.client()
        client.subscribe("/dlq/a")
        died += client.bodies()
        client.close()
    # A queue that drops the oldest dropped one when its limit was lowered.
    assert set(died) <= set(numbered(1, 4))
    assert len(died) == (3 if when_full == "drop-oldest" else 4)
    assert stored(broker, QUEUE) == ([b"5"] if waiting.take("RECEIPT") else [])


@pytest.mark.parametrize("expired", ["discard", "dead-letter"])
@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_what_expires_behind_the_window_leaves_once(
    expired: Literal["discard", "dead-letter"], most: int
) -> None:
    """Dead letters have room for *most* messages, and get it back afterwards."""
    config = BrokerConfig(
        max_queue_messages=4,
        window_messages=1,
        when_full="block",
        expired=expired,
        destinations=(DestinationConfig(name="/dlq/a", max_queue_messages=most),),
    )
    broker = MemoryBroker(config, store=MemoryStore())
    consumer, producer, waiting = broker.client(), broker.client(), broker.client()
    producer.publish(QUEUE, b"1")
    publish_all(producer, QUEUE, numbered(2, 4), expiration="1000")
    waiting.publish(QUEUE, b"5", receipt="r")
    broker.clock.advance(1.0)
    consumer.subscribe(QUEUE, ack="client-individual")
    letters = broker.client()
    letters.subscribe("/dlq/a", ack="client-individual", prefetch="1")
    died = []
    for _ in range(10):
        for letter in letters.take("MESSAGE"):
            died.append(letter.body)
            letters.send("ACK", id=letter.headers["ack"])
        broker.clock.advance(AGAIN_S)
    assert sorted(died) == (numbered(2, 4) if expired == "dead-letter" else [])
    assert waiting.take("RECEIPT")
    got = consumer.take("MESSAGE")
    assert [each.body for each in got] == [b"1", b"5"]
    for each in got:
        consumer.send("ACK", id=each.headers["ack"])
    found = broker.broker.hosts[""].destinations.values()
    assert all(each.messages == 0 for each in found if isinstance(each, Queue))


@both_kinds
def test_a_message_that_expires_during_its_delay_frees_its_room_at_once(
    broker_with: MakeBroker, destination: str
) -> None:
    broker = broker_with(max_queue_messages=2, max_delayed=2)
    producer, reader = broker.client(), broker.client()
    reader.subscribe(destination)
    publish_all(producer, destination, numbered(1, 2), delay="3600000", expiration="1000")
    broker.clock.advance(1.0)
    broker.clock.advance(0.0)
    publish_all(producer, destination, numbered(3, 4), delay="2000")
    assert refusal(producer) is None
    broker.clock.advance(2.0)
    assert reader.bodies() == numbered(3, 4)


def test_a_message_that_expires_during_its_delay_becomes_a_dead_letter_then() -> None:
    store = MemoryStore()
    broker = MemoryBroker(BrokerConfig(expired="dead-letter"), store=store)
    producer = broker.client()
    producer.publish(QUEUE, b"x", delay="3600000", expiration="1000")
    producer.publish(QUEUE, b"y", delay="3600000", expiration="5000")
    broker.clock.advance(1.0)
    broker.clock.advance(0.0)
    assert stored(broker, "/dlq/a") == [b"x"]
    broker.broker.close()
    broker = MemoryBroker(broker.broker.config, store=store, clock=broker.clock)
    broker.clock.advance(4.0)
    broker.clock.advance(0.0)
    assert stored(broker, "/dlq/a") == [b"x", b"y"]


@pytest.mark.parametrize("when_full", ["block", "drop-oldest"])
def test_a_full_queue_gets_room_when_delayed_messages_expire(
    broker_with: MakeBroker, when_full: str
) -> None:
    broker = broker_with(max_queue_messages=1, when_full=when_full)
    broker.client().publish(QUEUE, b"1", delay="3600000", expiration="1000")
    producer = broker.client()
    if when_full == "block":
        producer.publish(QUEUE, b"2", receipt="r")
        assert not producer.take("RECEIPT")
    broker.clock.advance(1.0)
    broker.clock.advance(0.0)
    if when_full == "drop-oldest":
        producer.publish(QUEUE, b"2", receipt="r")
    assert producer.take("RECEIPT")
