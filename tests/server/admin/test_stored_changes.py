"""An operation that has succeeded is stored: its effect survives a crash of the broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stompkit.server import BrokerConfig
from stompkit.server.admin.routes import ROUTES
from stompkit.server.domain.errors import RefusedError
from stompkit.testing.memory import MemoryBroker, MemoryTransport
from tests.server.admin.in_memory import admin_connection
from tests.server.brokers import publish_all
from tests.server.busy import LONG, BusyClock, iterations
from tests.server.failing import KINDS, FailingStore, HeldRunner, everything, failing_store

QUEUE, TOPIC, DURABLE = "/queue/a", "/topic/news", "/durable/office/news"
DEAD_LETTERS = "/dlq/b"
#: More messages than one step of a sweep takes.
MANY = 300
#: An operation for each path, on the content of :func:`filled`.
OPERATIONS: dict[str, dict[str, object]] = {
    "purge": {"name": QUEUE},
    "move": {"from": QUEUE, "to": "/queue/c"},
    "retry": {"name": DEAD_LETTERS},
    "delete-messages": {"name": QUEUE, "ids": ["none"]},
    "delete": {"name": QUEUE},
    "publish": {"destination": "/queue/d", "body": "m"},
    "durables/hand-over": {"name": DURABLE, "user": "ann"},
    "durables/delete": {"name": DURABLE},
}
#: Operations that change nothing that is stored.
OTHERS = {"pause", "resume", "close", "failover"}


def filled(broker: MemoryBroker) -> None:
    """Create stored messages in a queue, in a durable subscription and in dead letters."""
    client = broker.client("1.2", client_id="office")
    client.subscribe(TOPIC, id="news", **{"activemq.subscriptionName": "news"})
    publish_all(client, TOPIC, [b"n"])
    publish_all(client, QUEUE, [b"m"] * MANY)
    publish_all(client, "/queue/b", [b"m"])
    client.subscribe("/queue/b", ack="client-individual", id="b")
    for message in client.take("MESSAGE"):
        if message.headers["subscription"] == "b":
            client.nack(message)
    client.close()
    assert DEAD_LETTERS in broker.destinations


def content(store: FailingStore) -> object:
    """Return what a broker would find that opens the store now."""
    lanes = {
        (each.queue, each.part): [found.body for found in store.read(each.lane, 0, 1_000, 1 << 30)]
        for each in store.lanes()
        if each.messages
    }
    return lanes, dict(store.records())


def begun(broker: MemoryBroker, path: str, **more: object) -> MemoryTransport:
    """Send the request of an operation."""
    fields = OPERATIONS[path] | more
    if "ids" in fields:
        found = broker.destinations[QUEUE].sub_queues[0].ready  # type: ignore[attr-defined]
        fields["ids"] = [each.message.id for each in found]
    body = json.dumps(fields).encode()
    transport = admin_connection(broker)
    head = f"POST /api/v1/{path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json"
    transport.deliver(f"{head}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    return transport


def test_all_operations_are_covered() -> None:
    paths = {path.removeprefix("/api/v1/") for path, found in ROUTES.items() if "POST" in found}
    assert paths == OPERATIONS.keys() | OTHERS


def test_durable_subscriptions_have_what_is_published_before_the_answer() -> None:
    """The selectors of many need more than one turn of the reactor."""
    store, clock, many = FailingStore(), BusyClock(), 30
    broker = MemoryBroker(clock=clock, store=store)
    for number in range(many):
        client = broker.client()
        client.subscribe(TOPIC, id=f"d{number}", durable="true", selector=LONG)
        client.close()
    clock.is_busy = True
    transport = begun(broker, "publish", destination=TOPIC, headers=[["n", "1050"]])
    answers: list[bytes] = []

    def is_answered() -> bool:
        answers.append(transport.take())
        return bool(answers[-1])

    assert iterations(clock, is_answered) > 1
    assert b" 200 " in answers[-1]
    assert sum(lane.messages for lane in store.lanes()) == many


@pytest.mark.parametrize("fails_after", [None, 0, 1, 2])
@pytest.mark.parametrize(
    "kind", ["memory", *(pytest.param(each, marks=pytest.mark.matrix) for each in KINDS[1:])]
)
@pytest.mark.parametrize("path", sorted(OPERATIONS))
def test_an_operation_that_succeeds_is_stored(
    path: str, kind: str, fails_after: int | None, tmp_path: Path
) -> None:
    """At the moment of the answer, the store has what it has once everything is written."""
    store, runner = failing_store(kind, tmp_path), HeldRunner()
    broker = MemoryBroker(BrokerConfig(nack="dead-letter"), store=store, runner=runner)
    filled(broker)
    broker.clock.advance(1)
    before = content(store)
    runner.is_held = True
    transport = begun(broker, path)
    answer, steps = transport.take(), 0
    while not answer:
        if steps == fails_after:
            store.fails = everything
        steps += runner.is_waiting
        if runner.is_waiting:
            runner.step()
        else:
            broker.clock.advance(0.01)
        answer = transport.take()
    at_answer = content(store)
    assert answer.startswith(b"HTTP/1.1 200 ") or (
        fails_after is not None and b'"store-failed"' in answer
    ), answer
    # Even if the store fails at first, the broker does what it has said in the end.
    store.fails = lambda _: False
    runner.go_on()
    broker.clock.advance(5)
    runner.go_on()
    if answer.startswith(b"HTTP/1.1 200 "):
        assert at_answer == content(store)
        assert at_answer != before
    broker.broker.close()
    store.close()


@pytest.mark.parametrize("path", ["delete", "durables/delete"])
def test_a_repeated_deletion_is_not_confirmed_before_it_is_stored(
    path: str, tmp_path: Path
) -> None:
    """The broker has forgotten what the store still has: that it is unknown proves nothing."""
    store = failing_store("memory", tmp_path)
    broker = MemoryBroker(BrokerConfig(nack="dead-letter"), store=store, runner=HeldRunner())
    filled(broker)
    before = content(store)
    store.fails = everything
    for _ in range(2):
        assert b'"store-failed"' in begun(broker, path).take()
        assert content(store) == before
    store.fails = lambda _: False
    broker.clock.advance(5)
    assert content(store) != before
    assert begun(broker, path).take().startswith(b"HTTP/1.1 404 ")
    broker.broker.close()
    store.close()


@pytest.mark.parametrize("steps", range(4))
def test_a_handover_ends_an_operation_between_two_steps(steps: int, tmp_path: Path) -> None:
    """Each message is in one of the two queues, once."""
    store = failing_store("lmdb", tmp_path)
    broker = MemoryBroker(BrokerConfig(nack="dead-letter"), store=store, runner=HeldRunner())
    filled(broker)
    transport = begun(broker, "move")
    for _ in range(steps):
        broker.clock.advance(0)
    answer = transport.take()
    # As for a planned failover.
    broker.broker.close()
    broker.broker.stand_by(RefusedError("it has handed over", "not-active"))
    answer += transport.take()
    broker.clock.advance(5)
    store.open()
    counts = {each.queue.partition("\n")[2]: each.messages for each in store.lanes()}
    assert counts.get(QUEUE, 0) + counts.get("/queue/c", 0) == MANY
    if answer.startswith(b"HTTP/1.1 200 "):
        assert counts["/queue/c"] == MANY
    else:
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"can have taken effect in part" in answer
    assert transport.take() == b""
    store.close()
