"""Durable subscriptions that change their topic or selector, and the store meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from stompkit.frames import Frame
from stompkit.server import BrokerConfig
from stompkit.server.inspection import destinations
from stompkit.server.interfaces import Operation, SetRecord
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.failing import KINDS, FailingStore, HeldRunner, everything, failing_store

A, B, C = "/topic/a", "/topic/b", "/topic/c"
PATTERN = "/topic/*"
#: Longer than the pause after which a failed store is tried again.
LONG_S = 2.0


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FailingStore]:
    """A store of each kind."""
    store = failing_store(request.param, tmp_path)
    yield store
    store.close()


def subscribe(broker: MemoryBroker, topic: str, **more: str) -> MemoryClient:
    """Return a new client that subscribes durably, always by the same name."""
    client = broker.client()
    client.subscribe(topic, id="s", durable="true", auto_delete="false", receipt="s", **more)
    return client


def publish(broker: MemoryBroker, topic: str, body: bytes, **more: str) -> None:
    """Send a message, and check that the broker has stored it."""
    producer = broker.client()
    producer.publish(topic, body, receipt="r", **more)
    assert "ERROR" not in [frame.command for frame in producer.frames]
    producer.close()


def code(client: MemoryClient) -> str:
    """Return the code of the error that a client received."""
    assert client.error is not None
    return client.error.headers["stompkit-code"]


def again(broker: MemoryBroker, store: FailingStore) -> MemoryBroker:
    """Close the broker; return a new one with the same store."""
    broker.broker.close()
    return MemoryBroker(store=store, clock=broker.clock)


def bodies(messages: Sequence[Frame]) -> list[bytes]:
    return [message.body for message in messages]


def names(operations: Sequence[Operation], topic: str) -> bool:
    """Return True if the operations store a durable subscription to a topic."""
    return any(
        isinstance(each, SetRecord) and each.value is not None and topic.encode() in each.value
        for each in operations
    )


def lanes(store: FailingStore) -> set[str]:
    """Return the queues with messages in the store."""
    return {lane.queue for lane in store.lanes() if lane.messages}


@pytest.mark.parametrize(
    ("before", "change"),
    [
        (A, {"topic": B}),
        (A, {"topic": A, "selector": "colour = 'red'"}),
        (A, {"topic": PATTERN}),
        (PATTERN, {"topic": A}),
    ],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_one_whose_change_is_refused_is_as_it_was(
    store: FailingStore, before: str, change: dict[str, str], *, restarts: bool
) -> None:
    broker = MemoryBroker(store=store)
    subscribe(broker, before).close()
    publish(broker, A, b"1")
    store.fails = everything
    assert code(subscribe(broker, **change)) == "store-full"
    store.fails = lambda _: False
    broker.clock.advance(LONG_S)
    publish(broker, A, b"2")
    publish(broker, B, b"elsewhere")
    if restarts:
        broker = again(broker, store)
    client = subscribe(broker, before)
    wanted = [b"1", b"2"] if before == A else [b"1", b"2", b"elsewhere"]
    assert bodies(client.take("MESSAGE")) == wanted
    publish(broker, A, b"3")
    assert bodies(client.take("MESSAGE")) == [b"3"]
    assert client.error is None
    client.close()
    assert lanes(store) == set()


def test_until_the_store_has_the_change_both_collect(store: FailingStore) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(store=store, runner=runner)
    subscribe(broker, A).close()
    publish(broker, A, b"1")
    runner.is_held = True
    refused = subscribe(broker, B)
    publish(broker, A, b"2")
    publish(broker, B, b"lost with the refusal")
    failing = iter((True,))
    store.fails = lambda _: next(failing, False)
    runner.go_on()
    assert code(refused) == "store-full"
    client = subscribe(broker, A)
    assert bodies(client.take("MESSAGE")) == [b"1", b"2"]
    client.close()
    assert lanes(store) == set()


def test_of_what_is_changed_nothing_is_left(store: FailingStore) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(store=store, runner=runner)
    subscribe(broker, A).close()
    publish(broker, A, b"old")
    runner.is_held = True
    client = subscribe(broker, B)
    publish(broker, A, b"old, too")
    publish(broker, B, b"new")
    runner.go_on()
    assert bodies(client.take("MESSAGE")) == [b"new"]
    client.close()
    assert lanes(store) == set()
    publish(broker, A, b"for nobody")
    publish(broker, B, b"1")
    assert [row.name for row in destinations(broker.broker)] == [B, "/durable//s"]
    client = subscribe(again(broker, store), B)
    assert bodies(client.take("MESSAGE")) == [b"1"]


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_broker_that_dies_has_one_or_the_other(steps: int) -> None:
    """The broker dies before the change, after it, or after the old subscription is removed."""
    store, runner = MemoryStore(), HeldRunner()
    broker = MemoryBroker(store=store, runner=runner)
    subscribe(broker, A).close()
    publish(broker, A, b"old")
    runner.is_held = True
    client = subscribe(broker, B)
    for _ in range(steps):
        runner.step()
    assert bool(client.take("RECEIPT")) == (steps > 0)
    # This is like a kill: the store gets no further calls.
    store.close()
    later = MemoryBroker(store=store)
    client = subscribe(later, B if steps else A)
    publish(later, B, b"new")
    assert bodies(client.take("MESSAGE")) == [b"new" if steps else b"old"]
    client.close()
    assert {lane.queue for lane in store.lanes() if lane.messages} == set()


@pytest.mark.parametrize("failing", [(), (B,), (C,), (B, C)])
def test_of_several_changes_the_last_that_the_store_takes_holds(
    store: FailingStore, failing: tuple[str, ...]
) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(store=store, runner=runner)
    subscribe(broker, A).close()
    publish(broker, A, b"a")
    runner.is_held = True
    first = subscribe(broker, B)
    first.close()
    second = subscribe(broker, C, ack="client")
    for topic in (A, B, C):
        publish(broker, topic, b"meanwhile " + topic[-1:].encode())
    store.fails = lambda operations: any(names(operations, topic) for topic in failing)
    runner.go_on()
    store.fails = lambda _: False
    broker.clock.advance(LONG_S)
    assert bool(second.take("RECEIPT")) == (C not in failing)
    second.drop()
    topic = next(each for each in (C, B, A) if each not in failing)
    client = subscribe(again(broker, store), topic)
    wanted = [b"a"] * (topic == A) + [b"meanwhile " + topic[-1:].encode()]
    assert bodies(client.take("MESSAGE")) == wanted


def test_who_shares_the_changed_one_keeps_it_though_the_first_was_refused(
    store: FailingStore,
) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(store=store, runner=runner)
    subscribe(broker, A).close()
    publish(broker, A, b"old")
    runner.is_held = True
    first, second = subscribe(broker, B), subscribe(broker, B)
    failing = iter((True,))
    store.fails = lambda _: next(failing, False)
    runner.go_on()
    assert code(first) == "store-full"
    assert second.take("RECEIPT")
    second.close()
    publish(broker, B, b"new")
    assert bodies(subscribe(again(broker, store), B).take("MESSAGE")) == [b"new"]


def test_who_is_refused_to_share_the_changed_one_does_not_undo_it(store: FailingStore) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(store=store, runner=runner)
    subscribe(broker, A).close()
    runner.is_held = True
    first, second = subscribe(broker, B), subscribe(broker, B)
    runner.step()
    store.fails = lambda operations: names(operations, B)
    runner.go_on()
    store.fails = lambda _: False
    assert code(second) == "store-full"
    assert first.take("RECEIPT")
    first.close()
    publish(broker, B, b"new")
    assert bodies(subscribe(again(broker, store), B).take("MESSAGE")) == [b"new"]


@pytest.mark.parametrize("fails", [False, True])
def test_one_that_is_removed_while_it_is_changed_is_gone(
    store: FailingStore, *, fails: bool
) -> None:
    runner = HeldRunner()
    broker = MemoryBroker(store=store, runner=runner)
    subscribe(broker, A).close()
    publish(broker, A, b"old")
    runner.is_held = True
    client = subscribe(broker, B)
    client.send("UNSUBSCRIBE", id="s", durable="true", auto_delete="false")
    failing = iter((fails,))
    store.fails = lambda _: next(failing, False)
    runner.go_on()
    broker.clock.advance(LONG_S)
    later = again(broker, store)
    assert [row.name for row in destinations(later.broker)] == []
    assert lanes(store) == set()


def test_a_change_needs_no_room_for_another() -> None:
    """The broker also accepts a change if a lower limit is exceeded meanwhile."""
    broker = MemoryBroker(BrokerConfig(max_durable_subscriptions=2))
    subscribe(broker, A).close()
    other = broker.client()
    other.subscribe(A, id="other", durable="true", auto_delete="false")
    broker.broker.reload(broker.broker.config.changed(max_durable_subscriptions=1))
    client = subscribe(broker, B)
    assert client.take("RECEIPT")
    publish(broker, B, b"1")
    assert bodies(client.take("MESSAGE")) == [b"1"]


def test_changes_that_the_store_has_not_taken_are_counted() -> None:
    runner = HeldRunner()
    config = BrokerConfig(max_durable_subscriptions=2)
    broker = MemoryBroker(config, store=MemoryStore(), runner=runner)
    subscribe(broker, A).close()
    runner.is_held = True
    for topic in (B, C):
        client = subscribe(broker, topic)
        assert client.error is None
        client.drop()
    client = subscribe(broker, A)
    assert code(client) == "too-many-subscriptions"
    runner.go_on()
    client = subscribe(broker, A)
    assert client.take("RECEIPT")
