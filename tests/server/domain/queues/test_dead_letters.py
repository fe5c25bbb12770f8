"""Dead-letter queues: messages that no consumer could process, and the reasons."""

from __future__ import annotations

import pytest

from stompkit.frames import Frame
from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.domain.deliveries import MessageReference
from stompkit.server.domain.names import dead_letters_of
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.queues.upkeep import Outcome, Selection, Sweep, put_back
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import MakeBroker, publish_all, refusal, stored, take_one
from tests.server.many_queues import numbered

QUEUE = "/queue/a"
DEAD = "/dlq/a"


def holder(broker: MemoryBroker, queue: str = QUEUE, **headers: str) -> MemoryClient:
    """Return a client that gets messages one by one."""
    client = broker.client()
    client.subscribe(queue, ack="client-individual", **{"prefetch_count": "1"} | headers)
    return client


def letters(broker: MemoryBroker, queue: str = DEAD) -> list[Frame]:
    """Return the dead letters without removing them."""
    client = broker.client()
    client.subscribe(queue, browser="true")
    *messages, _ = client.take("MESSAGE")
    client.close()
    return messages


def reasons(broker: MemoryBroker) -> list[tuple[str, str]]:
    """Return the reasons of the dead letters, and their numbers of deliveries."""
    return [
        (each.headers["dead-letter-reason"], each.headers["dead-letter-deliveries"])
        for each in letters(broker)
    ]


def refuse(client: MemoryClient, **headers: str) -> None:
    """Refuse the only new message."""
    client.nack(take_one(client), **headers)


# Reasons and origins.


def test_rejected(broker_with: MakeBroker) -> None:
    broker = broker_with()
    broker.client().publish(QUEUE, b"x")
    refuse(holder(broker), requeue="false")
    assert reasons(broker) == [("rejected", "1")]


def test_rejected_by_the_setting(broker_with: MakeBroker) -> None:
    broker = broker_with(nack="dead-letter")
    broker.client().publish(QUEUE, b"x")
    refuse(holder(broker))
    assert reasons(broker) == [("rejected", "1")]


def test_delivered_too_often(broker_with: MakeBroker) -> None:
    broker = broker_with(max_deliveries=2)
    broker.client().publish(QUEUE, b"x")
    client = holder(broker)
    refuse(client)
    refuse(client)
    assert reasons(broker) == [("max-deliveries", "2")]


def test_not_acknowledged_in_time(broker_with: MakeBroker) -> None:
    broker = broker_with(ack_timeout_s=5.0, max_deliveries=2)
    broker.client().publish(QUEUE, b"x")
    holder(broker)
    broker.clock.advance(5.0)
    assert reasons(broker) == []
    broker.clock.advance(5.0)
    assert reasons(broker) == [("max-deliveries", "2")]


def test_not_acknowledged_in_time_where_nothing_is_tried_again(broker_with: MakeBroker) -> None:
    broker = broker_with(ack_timeout_s=5.0, nack="dead-letter")
    broker.client().publish(QUEUE, b"x")
    holder(broker)
    broker.clock.advance(5.0)
    assert reasons(broker) == [("ack-timeout", "1")]


@pytest.mark.parametrize("delivered", [False, True])
def test_expired(broker_with: MakeBroker, *, delivered: bool) -> None:
    broker = broker_with(expired="dead-letter")
    broker.client().publish(QUEUE, b"x", expiration="1000")
    if delivered:
        client = holder(broker)
        broker.clock.advance(1.0)
        refuse(client)
    else:
        broker.clock.advance(1.0)
        assert holder(broker).bodies() == []
    assert reasons(broker) == [("expired", "1" if delivered else "0")]


def test_a_dead_letter_is_the_message_as_it_was(broker_with: MakeBroker) -> None:
    broker = broker_with()
    broker.client().publish(
        QUEUE, b"a\0b", content_type="x/y", colour="a:b\nc", original_destination="forged"
    )
    client = holder(broker)
    message = take_one(client)
    client.nack(message)
    client.nack(take_one(client), requeue="false")
    [letter] = letters(broker)
    assert letter.body == b"a\0b"
    assert {k: v for k, v in letter.headers.items() if k not in ("subscription", "message-id")} == {
        "destination": DEAD,
        "original-destination": QUEUE,
        "dead-letter-reason": "rejected",
        "dead-letter-deliveries": "2",
        "content-type": "x/y",
        "content-length": "3",
        "colour": "a:b\nc",
        "stompkit-dead-letter-source": QUEUE,
        "stompkit-dead-letter-destination": QUEUE,
        "stompkit-dead-letter-reason": "rejected",
        "stompkit-dead-letter-deliveries": "2",
        "stompkit-dead-letter-time": str(round(broker.clock.seconds() * 1000)),
        "stompkit-dead-letter-headers": '{"original-destination": "forged"}',
    }
    assert letter.headers["message-id"] == message.headers["message-id"]


def test_dead_letters_are_in_order_and_each_queues_are_its_own(broker_with: MakeBroker) -> None:
    broker = broker_with()
    producer, client = broker.client(), broker.client()
    client.subscribe("/queue/a", id="a", ack="client-individual")
    client.subscribe("/queue/a.b", id="b", ack="client-individual")
    for body in numbered(1, 4):
        producer.publish("/queue/a" if body in (b"1", b"2") else "/queue/a.b", body)
    for message in reversed(client.take("MESSAGE")):
        client.nack(message, requeue="false")
    assert stored(broker, "/dlq/a") == [b"2", b"1"]
    assert stored(broker, "/dlq/a.b") == [b"4", b"3"]


def test_those_of_all_queues_can_be_read_by_a_pattern(broker_with: MakeBroker) -> None:
    broker = broker_with()
    watcher, client, producer = broker.client(), broker.client(), broker.client()
    watcher.subscribe("/dlq/>")
    client.subscribe("/queue/>", ack="client-individual")
    for name in ("a", "b.c"):
        producer.publish(f"/queue/{name}", name.encode())
    for message in client.take("MESSAGE"):
        client.nack(message, requeue="false")
    whence = [each.headers["original-destination"] for each in watcher.take("MESSAGE")]
    assert whence == ["/queue/a", "/queue/b.c"]


def test_a_group_and_a_priority_go_along(broker_with: MakeBroker) -> None:
    table = DestinationConfig(name=DEAD, priority=True)
    broker = broker_with(destinations=(table,))
    producer, client = broker.client(), broker.client()
    client.subscribe(QUEUE, ack="client-individual")
    for priority in "192":
        producer.publish(QUEUE, priority.encode(), priority=priority)
    for message in client.take("MESSAGE"):
        client.nack(message, requeue="false")
    assert stored(broker, DEAD) == [b"9", b"2", b"1"]


# Queues without dead letters.


def test_none_are_kept_where_they_are_not_wanted(broker_with: MakeBroker) -> None:
    table = DestinationConfig(name=QUEUE, dead_letters=False, expired="dead-letter")
    broker = broker_with(destinations=(table,))
    producer = broker.client()
    producer.publish(QUEUE, b"1")
    producer.publish(QUEUE, b"2", expiration="1000")
    producer.publish("/queue/b", b"3")
    client = broker.client()
    client.subscribe(QUEUE, id="1", ack="client-individual", prefetch_count="1")
    client.subscribe("/queue/b", id="2", ack="client-individual")
    broker.clock.advance(1.0)
    for message in client.take("MESSAGE"):
        client.nack(message, requeue="false")
    assert client.take() == []
    client.close()
    assert list(broker.destinations) == ["/dlq/b"]


@pytest.mark.parametrize("way", ["rejected", "max-deliveries", "expired"])
def test_dead_letters_of_dead_letters_are_dropped(broker_with: MakeBroker, way: str) -> None:
    broker = broker_with(max_deliveries=1, expired="dead-letter")
    expiration = {"expiration": "1000"} if way == "expired" else {}
    broker.client().publish(DEAD, b"x", **expiration)
    client = holder(broker, DEAD)
    if way == "rejected":
        refuse(client, requeue="false")
    elif way == "max-deliveries":
        refuse(client)
    else:
        broker.clock.advance(5.0)
        client.drop()
    broker.clock.advance(60.0)
    client.close()
    assert broker.destinations == {}


@pytest.mark.parametrize("table", [None, DestinationConfig(name="/dlq/>", message_ttl_s=30.0)])
def test_they_have_no_end_unless_that_is_set_for_them(
    broker_with: MakeBroker, table: DestinationConfig | None
) -> None:
    tables = () if table is None else (table,)
    broker = broker_with(message_ttl_s=10.0, expired="dead-letter", destinations=tables)
    producer = broker.client()
    producer.publish(QUEUE, b"1")
    producer.publish(QUEUE, b"2", expiration="5000")
    broker.clock.advance(10.0)
    assert holder(broker).bodies() == []
    assert stored(broker, DEAD) == numbered(1, 2)
    broker.clock.advance(1_000_000.0)
    assert stored(broker, DEAD) == (numbered(1, 2) if table is None else [])


def test_a_delay_is_not_waited_for_again(broker_with: MakeBroker) -> None:
    broker = broker_with()
    broker.client().publish(QUEUE, b"x", delay="1000")
    broker.clock.advance(1.0)
    refuse(holder(broker), requeue="false")
    assert stored(broker, DEAD) == [b"x"]


# Full dead-letter queues.

FULL = DestinationConfig(name=DEAD, max_queue_messages=1)


@pytest.mark.parametrize("when_full", ["reject", "block"])
def test_what_they_have_no_room_for_goes_back_to_its_place(
    broker_with: MakeBroker, when_full: str
) -> None:
    broker = broker_with(when_full=when_full, destinations=(FULL,))
    publish_all(broker.client(), QUEUE, numbered(1, 3))
    client = holder(broker)
    refuse(client, requeue="false")
    refuse(client, requeue="false")
    again = take_one(client)
    assert (again.body, again.headers["delivery-count"]) == (b"2", "2")
    assert client.error is None
    assert stored(broker, DEAD) == [b"1"]
    client.ack(again)
    assert take_one(client).body == b"3"


def test_a_refused_transaction_does_not_fail_for_them(broker_with: MakeBroker) -> None:
    broker = broker_with(destinations=(FULL,))
    publish_all(broker.client(), QUEUE, numbered(1, 3))
    client = broker.client()
    client.subscribe(QUEUE, ack="client-individual")
    messages = client.take("MESSAGE")
    client.send("BEGIN", transaction="t")
    for message in messages:
        client.nack(message, transaction="t", requeue="false")
    client.publish("/queue/b", b"x", transaction="t")
    client.send("COMMIT", transaction="t", receipt="r")
    assert client.take("RECEIPT")
    assert stored(broker, "/queue/b") == [b"x"]
    assert stored(broker, DEAD) == [b"1"]
    client.close()
    assert stored(broker, QUEUE) == numbered(2, 3)


@pytest.mark.parametrize("way", ["waiting", "given back"])
def test_expired_messages_wait_for_room_and_are_not_delivered(
    broker_with: MakeBroker, way: str
) -> None:
    broker = broker_with(expired="dead-letter", destinations=(FULL,))
    producer = broker.client()
    publish_all(producer, QUEUE, numbered(1, 3), expiration="1000")
    if way == "given back":
        keeper = broker.client()
        keeper.subscribe(QUEUE, ack="client")
        broker.clock.advance(1.0)
        keeper.drop()
    broker.clock.advance(1.0)
    client = broker.client()
    client.subscribe(QUEUE, id="1")
    producer.publish(QUEUE, b"4")
    assert client.bodies() == [b"4"]
    assert stored(broker, DEAD) == [b"1"]
    client.subscribe(DEAD, id="2")
    bodies = []
    for _ in range(10):
        bodies += client.bodies()
        broker.clock.advance(30.0)
    assert bodies == numbered(1, 3)
    client.close()
    assert broker.destinations == {}


def test_expired_messages_that_wait_for_room_have_not_left_their_queue(
    broker_with: MakeBroker,
) -> None:
    table = DestinationConfig(name=QUEUE, max_queue_messages=3)
    broker = broker_with(expired="dead-letter", destinations=(FULL, table))
    producer = broker.client()
    publish_all(producer, QUEUE, numbered(1, 3), expiration="1000")
    broker.clock.advance(60.0)
    publish_all(producer, QUEUE, [b"4"])
    assert refusal(producer) is None
    broker.client().publish(QUEUE, b"5")
    last = broker.client()
    last.publish(QUEUE, b"6")
    assert [refusal(producer), refusal(last)] == [None, "queue-full"]


@pytest.mark.pure
def test_full_dead_letters_cost_no_more_than_a_look_now_and_then(
    broker_with: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = broker_with(expired="dead-letter", destinations=(FULL,))
    producer, consumer = broker.client(), broker.client()
    publish_all(producer, QUEUE, numbered(1, 50), expiration="1000")
    broker.clock.advance(1.0)
    consumer.subscribe(QUEUE)
    tried = 0
    host = next(iter(broker.broker.hosts.values()))
    move = host.move_to_dead_letters

    def count(entry: MessageReference, reason: str) -> bool:
        nonlocal tried
        tried += 1
        return move(entry, reason)

    monkeypatch.setattr(host, "move_to_dead_letters", count)
    publish_all(producer, QUEUE, numbered(51, 100))
    assert consumer.bodies() == numbered(51, 100)
    assert tried == 0
    broker.clock.advance(60.0)
    assert tried <= 2 * 49


def test_many_expired_messages_that_get_room_take_more_than_one_cycle(
    broker_with: MakeBroker,
) -> None:
    room = DestinationConfig(name=DEAD, max_queue_messages=300)
    broker = broker_with(expired="dead-letter", destinations=(room,))
    producer = broker.client()
    publish_all(producer, DEAD, [b"x"] * 300)
    publish_all(producer, QUEUE, numbered(1, 300), expiration="1000")
    for _ in range(10):
        broker.clock.advance(1.0)
    queue = broker.destinations[QUEUE]
    assert isinstance(queue, Queue)
    assert len(queue.overdue) == 300
    more = DestinationConfig(name=DEAD, max_queue_messages=600)
    broker.broker.reload(broker.broker.config.changed(destinations=(more,)))
    broker.broker.flush()
    # The others follow in timers, between which clients are served.
    assert queue.messages >= 100
    broker.clock.advance(0.0)
    assert stored(broker, DEAD) == [b"x"] * 300 + numbered(1, 300)


@pytest.mark.parametrize("limit", ["fan-out", "topic", "removed"])
def test_what_expired_by_the_settings_of_others_can_be_put_back(limit: str) -> None:
    """Only an expiry that its sender has set keeps a message from being put back."""
    lived = DestinationConfig(name="/queue/a", message_ttl_s=1.0)
    if limit == "fan-out":
        lived = DestinationConfig(name="/fanout/a", children=("/queue/a",), message_ttl_s=1.0)
    elif limit == "topic":
        lived = DestinationConfig(name="/topic/a", message_ttl_s=1.0)
    broker = MemoryBroker(BrokerConfig(expired="dead-letter", destinations=(lived,)))
    source = "/queue/a"
    if limit == "topic":
        client = broker.client(**{"client-id": "c"})
        client.subscribe("/topic/a", id="s", **{"activemq.subscriptionName": "s"})
        client.close()
        source = "/durable/c/s"
    broker.client().publish(lived.name, b"x")
    broker.clock.advance(1.0)
    broker.clock.advance(0.0)
    host = broker.broker.hosts[""]
    letters = host.destinations[dead_letters_of(source)]
    assert isinstance(letters, Queue)
    if limit == "removed":
        broker.broker.reload(broker.broker.config.changed(destinations=()))
    outcomes: list[Outcome] = []
    Sweep(letters, Selection(), put_back(host), outcomes.append).start()
    while not outcomes:
        broker.clock.advance(0.01)
    assert outcomes == [Outcome(done=1)]
