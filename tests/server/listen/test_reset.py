"""Resetting a broker: earlier state is removed, and later state is not affected."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import pytest

from stompkit.server import (
    BrokerConfig,
    Connection,
    Credentials,
    Decision,
    DestinationConfig,
    Request,
    User,
)
from stompkit.server.domain.destinations import Destination
from stompkit.server.inspection import connections, destinations
from stompkit.server.interfaces import (
    CreateLane,
    MessageStore,
    Operation,
    Put,
    SetRecord,
    StoreError,
)
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import MakeBroker, publish_all, refusal, stored, take_one
from tests.server.busy import LONG, BusyClock
from tests.server.failing import FailingStore, HeldRunner, everything
from tests.server.many_queues import QUEUE, fill, numbered

TOPIC = "/topic/a"
#: Longer than all timeouts of the settings in these tests.
LONG_S = 1_000.0


def reader(broker: MemoryBroker) -> MemoryClient:
    """Return a client that can have durable subscriptions."""
    return broker.client(client_id="reader")


def subscribe_durably(client: MemoryClient) -> None:
    client.send("SUBSCRIBE", {"destination": TOPIC, "id": "d", "activemq.subscriptionName": "mine"})


def wait_long(broker: MemoryBroker) -> None:
    """Wait until all timeouts are over."""
    for _ in range(10):
        broker.clock.advance(LONG_S / 10)


# Clients.


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_clients_are_told_and_closed(broker_with: MakeBroker, version: str) -> None:
    broker = broker_with()
    clients = [broker.client(version), broker.connect()]
    broker.broker.reset()
    for client in clients:
        assert refusal(client) == "reset"
        assert client.eof
    assert connections(broker.broker) == []
    wait_long(broker)
    assert all(client.lost for client in clients)


def test_a_client_that_reads_nothing_is_forgotten_all_the_same(broker_with: MakeBroker) -> None:
    broker = broker_with(max_connections=1, max_connections_per_address=1)
    client = broker.client()
    client.stop_reading()
    broker.broker.reset()
    assert connections(broker.broker) == []
    again = broker.client()
    again.subscribe(QUEUE)
    again.publish(QUEUE, b"x")
    assert again.bodies() == [b"x"]
    wait_long(broker)
    assert client.lost
    assert not again.lost


def test_what_a_client_sends_afterwards_is_not_looked_at(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = broker.client()
    broker.broker.reset()
    client.publish(QUEUE, b"late")
    assert stored(broker, QUEUE) == []


def test_a_client_that_ends_afterwards_changes_nothing(broker_with: MakeBroker) -> None:
    broker = broker_with()
    old = broker.client()
    old.subscribe(QUEUE, ack="client")
    old.publish(QUEUE, b"old")
    broker.broker.reset()
    new = broker.client()
    new.subscribe(QUEUE, ack="client")
    new.publish(QUEUE, b"new")
    old.close()
    assert new.bodies() == [b"new"]
    assert len(connections(broker.broker)) == 1


def test_no_identifier_comes_again(broker_with: MakeBroker) -> None:
    broker = broker_with()
    sessions, messages = set(), set()
    for _ in range(3):
        client = broker.client()
        client.subscribe(QUEUE)
        client.publish(QUEUE, b"x")
        sessions.add(client.connected["session"])
        messages.add(take_one(client).headers["message-id"])
        broker.broker.reset()
    assert len(sessions) == len(messages) == 3


# Messages.


def test_messages_and_destinations_are_gone(broker_with: MakeBroker) -> None:
    broker = broker_with(window_messages=3)
    fill(broker, 10)
    broker.client().subscribe(TOPIC)
    broker.client().subscribe("/topic/*.b")
    broker.broker.reset()
    assert broker.destinations == {}
    client = broker.client()
    client.publish("/topic/a.b", b"x")
    assert stored(broker, QUEUE) == []
    fill(broker, 2)
    assert stored(broker, QUEUE) == numbered(1, 2)


@pytest.mark.parametrize("flow", ["prefetch", "one-in-flight"])
def test_what_was_delivered_does_not_come_back(broker_with: MakeBroker, flow: str) -> None:
    broker = broker_with(flow=flow, ack_timeout_s=10.0)
    client = broker.client()
    client.subscribe(QUEUE, ack="client-individual")
    publish_all(client, QUEUE, numbered(1, 3))
    assert client.bodies()
    broker.broker.reset()
    again = broker.client()
    again.subscribe(QUEUE, ack="client-individual")
    wait_long(broker)
    assert again.bodies() == []
    again.publish(QUEUE, b"new")
    assert "redelivered" not in take_one(again).headers


def test_delayed_messages_do_not_come(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = broker.client()
    client.publish(QUEUE, b"later", delay="5000")
    client.publish(TOPIC, b"later", delay="5000")
    broker.broker.reset()
    client = broker.client()
    client.subscribe(QUEUE, id="q")
    client.subscribe(TOPIC, id="t")
    wait_long(broker)
    assert client.bodies() == []


def test_messages_that_expire_are_gone_before(broker_with: MakeBroker) -> None:
    broker = broker_with(expired="dead-letter")
    client = broker.client()
    client.publish(QUEUE, b"x", expires="5000")
    broker.broker.reset()
    wait_long(broker)
    assert stored(broker, "/dlq/a") == []


def test_dead_letters_are_gone(broker_with: MakeBroker) -> None:
    broker = broker_with(nack="dead-letter")
    client = broker.client()
    client.subscribe(QUEUE, ack="client")
    client.publish(QUEUE, b"x")
    client.nack(take_one(client))
    assert stored(broker, "/dlq/a") == [b"x"]
    broker.broker.reset()
    assert stored(broker, "/dlq/a") == []


def test_open_transactions_come_to_nothing(broker_with: MakeBroker) -> None:
    broker = broker_with(transaction_timeout_s=10.0)
    fill(broker, 1)
    client = broker.client()
    client.subscribe(QUEUE, ack="client")
    message = take_one(client)
    client.send("BEGIN", transaction="t")
    client.ack(message, transaction="t")
    client.publish("/queue/b", b"x", transaction="t")
    broker.broker.reset()
    client.send("COMMIT", transaction="t")
    wait_long(broker)
    assert stored(broker, QUEUE) == stored(broker, "/queue/b") == []
    assert refusal(client) == "reset"


def test_who_waits_for_room_is_closed_and_its_message_lost(broker_with: MakeBroker) -> None:
    broker = broker_with(when_full="block", max_queue_messages=1)
    waiting = [broker.client(), broker.client()]
    for client in waiting:
        publish_all(client, QUEUE, numbered(1, 3))
    broker.broker.reset()
    assert [refusal(client) for client in waiting] == ["reset", "reset"]
    assert stored(broker, QUEUE) == []
    fill(broker, 1)
    assert stored(broker, QUEUE) == numbered(1, 1)


# Subscriptions and temporary destinations.


def test_durable_subscriptions_are_gone(broker_with: MakeBroker) -> None:
    broker = broker_with(durable_expiry_s=5.0)
    away, there = reader(broker), broker.client(client_id="other")
    subscribe_durably(away)
    away.close()
    subscribe_durably(there)
    broker.client().publish(TOPIC, b"old")
    broker.broker.reset()
    assert destinations(broker.broker) == []
    broker.client().publish(TOPIC, b"missed")
    again = reader(broker)
    subscribe_durably(again)
    assert again.bodies() == []
    broker.client().publish(TOPIC, b"new")
    assert again.bodies() == [b"new"]


def test_durable_subscriptions_that_come_after_expire_as_ever(broker_with: MakeBroker) -> None:
    broker = broker_with(durable_expiry_s=100.0)
    subscribe_durably(reader(broker))
    broker.broker.reset()
    client = reader(broker)
    subscribe_durably(client)
    client.close()
    wait_long(broker)
    assert destinations(broker.broker) == []


def test_temporary_destinations_are_gone(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client, other = broker.client(), broker.client()
    client.subscribe("/temp-queue/answers")
    other.subscribe(QUEUE)
    client.publish(QUEUE, b"?", reply_to="/temp-queue/answers")
    address = take_one(other).headers["reply-to"]
    broker.broker.reset()
    asked = broker.client()
    asked.publish(address, b"!", receipt="r")
    assert asked.take("RECEIPT")
    assert broker.destinations == {}


# Settings.


def test_what_the_configuration_makes_is_there_again(broker_with: MakeBroker) -> None:
    fanout = DestinationConfig(name="/fanout/f", children=("/queue/b", "/queue/c"))
    broker = broker_with(destinations=(fanout,))
    for _ in range(2):
        broker.client().publish("/fanout/f", b"x")
        assert stored(broker, "/queue/b") == stored(broker, "/queue/c") == [b"x"]
        broker.broker.reset()


def test_settings_are_those_of_now_on_every_host(broker_with: MakeBroker) -> None:
    broker = broker_with(hosts=("one", "two"))
    broker.broker.reload(broker.broker.config.changed(max_queue_messages=1))
    for host in ("one", "two"):
        broker.client(host=host).publish(QUEUE, b"old")
    broker.broker.reset()
    for host in ("one", "two"):
        client = broker.client(host=host)
        client.subscribe(QUEUE)
        assert client.bodies() == []
        client.send("UNSUBSCRIBE", id="0")
        publish_all(client, QUEUE, numbered(1, 2))
        assert refusal(client) == "queue-full"


def test_frames_are_logged_as_before(broker_with: MakeBroker) -> None:
    broker = broker_with()
    logged: list[str] = []
    broker.broker.frame_log = lambda direction, peer, frame: logged.append(frame.command)
    broker.broker.reset()
    broker.client()
    assert logged == ["CONNECT", "CONNECTED"]


# Time.


def test_nothing_is_left_that_waits_for_its_time(broker_with: MakeBroker) -> None:
    broker = broker_with(ack_timeout_s=10.0, transaction_timeout_s=20.0, message_ttl_s=30.0)
    client = broker.client(client_id="reader", heart_beat="1000,1000")
    subscribe_durably(client)
    client.subscribe(QUEUE, ack="client")
    publish_all(client, QUEUE, numbered(1, 3))
    client.publish("/queue/b", b"x", delay="50000")
    client.send("BEGIN", transaction="t")
    broker.connect()
    broker.broker.reset()
    client.close()
    broker.clock.advance(broker.broker.config.linger_s)
    assert broker.clock.getDelayedCalls() == []


def test_an_answer_of_before_lets_nobody_in() -> None:
    answers: list[Callable[[User | None], None]] = []

    class Slow:
        """An authenticator that answers when the test does."""

        def authenticate(
            self, credentials: Credentials, answer: Callable[[User | None], None]
        ) -> None:
            """Keep the request."""
            answers.append(answer)

    broker = MemoryBroker(authenticator=Slow())
    client = broker.connect()
    client.send("CONNECT", {"accept-version": "1.2", "host": "x"})
    broker.broker.reset()
    answers.pop()(User("a"))
    assert client.version is None
    assert connections(broker.broker) == []


def test_a_right_that_is_given_too_late_sends_nothing() -> None:
    answers: list[Callable[[Decision], None]] = []

    class Slow:
        """An authoriser that answers when the test does."""

        def authorise(self, request: Request, answer: Callable[[Decision], None]) -> None:
            """Keep the request."""
            answers.append(answer)

    broker = MemoryBroker(authoriser=Slow())
    client = broker.client()
    client.publish(QUEUE, b"x")
    broker.broker.reset()
    answers.pop()(Decision(allowed=True))
    assert broker.destinations == {}


def test_destinations_make_room_for_others_though_the_clock_was_put_back(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(max_destinations=3)
    for hour in (1.0, 0.0):
        broker.clock.rightNow = hour * 3_600.0
        client = broker.client()
        client.subscribe("/topic/>")
        publish_all(client, "/queue/a", [b"x"])
        publish_all(client, "/queue/b", [b"x"])
        client.publish("/topic/a", b"x")
        # The limit is three: the topic without other subscribers must make room.
        client.publish("/topic/b", b"x", receipt="r")
        assert client.take("RECEIPT")
        broker.broker.reset()


def test_nothing_keeps_what_was(broker_with: MakeBroker) -> None:
    broker = broker_with(ack_timeout_s=10.0)
    for number in range(3):
        client = broker.client()
        client.subscribe(QUEUE, ack="client")
        client.publish(QUEUE, b"%d" % number)
        client.publish("/queue/b", b"x", delay="5000")
    subscribe_durably(reader(broker))
    kept = [id(each) for each in (*broker.broker.connections, *broker.destinations.values())]
    assert len(kept) > 4
    del client
    broker.broker.reset()
    broker.clock.advance(broker.broker.config.linger_s)
    broker.clock.advance(0.0)
    gc.collect()
    # No new object is created meanwhile that could have the same id.
    left = [each for each in gc.get_objects() if isinstance(each, Connection | Destination)]
    assert [each for each in left if id(each) in kept] == []


# The store.


def contents(store: MessageStore) -> tuple[object, object]:
    """Return the contents of a store after it is opened again."""
    store.close()
    store.open()
    return store.lanes(), store.records()


def test_the_store_is_empty_and_can_be_used() -> None:
    store = MemoryStore()
    broker = MemoryBroker(store=store)
    fill(broker, 10)
    subscribe_durably(reader(broker))
    told: list[StoreError | None] = []
    broker.broker.reset(told.append)
    assert told == [None]
    assert (store.lanes(), store.records()) == ([], {})
    fill(broker, 3)
    broker.broker.close()
    assert stored(MemoryBroker(store=store, clock=broker.clock), QUEUE) == numbered(1, 3)


def test_what_the_store_has_of_hosts_that_nobody_knows_is_gone_too() -> None:
    store = MemoryStore()
    store.open()
    store.apply([CreateLane(5, "gone\n/queue/a", 5), Put(5, 1, 1, 0, 0, "i", b"", b"x")])
    store.apply([SetRecord("other", b"x")])
    store.close()
    broker = MemoryBroker(BrokerConfig(hosts=("one",)), store=store)
    broker.broker.reset()
    assert (store.lanes(), store.records()) == ([], {})


def test_a_broker_without_a_store_says_at_once_that_it_is_done() -> None:
    told: list[StoreError | None] = []
    MemoryBroker().broker.reset(told.append)
    assert told == [None]


def test_what_the_store_is_busy_with_is_gone_and_what_comes_after_is_not() -> None:
    store, runner = FailingStore(), HeldRunner()
    broker = MemoryBroker(store=store, runner=runner)
    client = broker.client()
    runner.is_held = True
    publish_all(client, QUEUE, numbered(1, 3))
    told: list[StoreError | None] = []
    broker.broker.reset(told.append)
    assert told == []
    again = broker.client()
    again.publish(QUEUE, b"new", receipt="r")
    assert not again.take("RECEIPT")
    runner.go_on()
    assert told == [None]
    assert again.take("RECEIPT")
    assert stored(broker, QUEUE) == [b"new"]
    broker.broker.close()
    assert stored(MemoryBroker(store=store, clock=broker.clock), QUEUE) == [b"new"]


def test_what_the_store_was_busy_with_waits_for_no_time() -> None:
    runner = HeldRunner()
    broker = MemoryBroker(store=MemoryStore(), runner=runner)
    client = broker.client()
    runner.is_held = True
    client.publish(QUEUE, b"later", delay="5000")
    broker.broker.reset()
    client.close()
    runner.go_on()
    broker.clock.advance(broker.broker.config.linger_s)
    assert broker.clock.getDelayedCalls() == []


def test_what_the_store_fails_at_is_not_tried_again() -> None:
    store, runner = FailingStore(), HeldRunner()
    broker = MemoryBroker(store=store, runner=runner)
    client = broker.client()
    runner.is_held = True
    publish_all(client, QUEUE, numbered(1, 3))
    runner.step()
    tried: list[int] = []

    def fails(operations: Sequence[Operation]) -> bool:
        tried.append(sum(isinstance(each, Put) for each in operations))
        return tried[-1] > 0

    store.fails = fails
    told: list[StoreError | None] = []
    broker.broker.reset(told.append)
    runner.step()
    assert tried == [2]
    runner.go_on()
    wait_long(broker)
    assert tried == [2, 0]
    assert told == [None]
    assert contents(store) == ([], {})


def test_messages_that_were_being_read_do_not_come() -> None:
    store, runner = MemoryStore(), HeldRunner()
    broker = MemoryBroker(BrokerConfig(window_messages=2), store=store, runner=runner)
    fill(broker, 10)
    client = broker.client()
    runner.is_held = True
    client.subscribe(QUEUE, ack="client")
    broker.broker.reset()
    again = broker.client()
    again.subscribe(QUEUE)
    runner.go_on()
    assert again.bodies() == []
    again.publish(QUEUE, b"new")
    assert again.bodies() == [b"new"]


def test_a_store_that_can_not_be_emptied_is_told_and_the_broker_goes_on() -> None:
    store = FailingStore()
    broker = MemoryBroker(store=store)
    fill(broker, 3)
    store.fails = everything
    told: list[StoreError | None] = []
    broker.broker.reset(told.append)
    [error] = told
    assert "no space left" in str(error)
    assert stored(broker, QUEUE) == []
    store.fails = lambda _: False
    broker.client().publish(QUEUE, b"new")
    assert stored(broker, QUEUE) == [b"new"]
    broker.broker.reset(told.append)
    assert told[1:] == [None]
    assert contents(store) == ([], {})


def test_one_reset_may_follow_another_before_it_is_done() -> None:
    store, runner = MemoryStore(), HeldRunner()
    broker = MemoryBroker(store=store, runner=runner)
    fill(broker, 3)
    runner.is_held = True
    told: list[StoreError | None] = []
    broker.broker.reset(told.append)
    broker.client().publish(QUEUE, b"between")
    broker.broker.reset(told.append)
    runner.go_on()
    assert told == [None, None]
    assert stored(broker, QUEUE) == []
    assert contents(store) == ([], {})


def test_a_broker_that_was_reset_can_be_closed() -> None:
    store = MemoryStore()
    broker = MemoryBroker(store=store)
    broker.broker.reset()
    fill(broker, 2)
    broker.broker.close()
    assert broker.clock.getDelayedCalls() == []
    assert stored(MemoryBroker(store=store, clock=broker.clock), QUEUE) == numbered(1, 2)


def test_selectors_have_time_again_after_a_reset() -> None:
    clock = BusyClock()
    broker = MemoryBroker(clock=clock)
    publish_all(broker.client(), QUEUE, [b"x"] * 200, n="1")
    picky_ones = [broker.client() for _ in range(3)]
    clock.is_busy = True
    for each in picky_ones:
        # Together they use the time of this iteration, and wait for the next one.
        each.subscribe(QUEUE, selector=LONG)
    broker.broker.reset()
    clock.is_busy = False
    producer, picky = broker.client(), broker.client()
    picky.subscribe(QUEUE, selector="n = 1")
    producer.publish(QUEUE, b"found", n="1")
    clock.advance(1.0)
    assert picky.bodies() == [b"found"]
