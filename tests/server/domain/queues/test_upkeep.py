"""Operations on the messages of a queue, in memory and in a store."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.domain.queues.peeking import Page, Seen, peek
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.queues.upkeep import (
    Act,
    Outcome,
    Selection,
    Sweep,
    drop,
    move_to,
    put_back,
)
from stompkit.server.interfaces import Operation, Put, Remove, StoreError
from stompkit.server.selectors import Selector
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker
from tests.server.brokers import MakeBroker, publish_all, stored, take_one
from tests.server.failing import FailingStore

QUEUE = "/queue/a"
OTHER = "/queue/b"
#: More than one step, and more than the window of a queue in a store.
MANY = 1_100
SMALL_WINDOW = {"window_messages": 100}


def numbered(count: int) -> list[bytes]:
    """Return bodies that show their order."""
    return [b"%d" % number for number in range(count)]


def queue_of(broker: MemoryBroker, name: str = QUEUE) -> Queue:
    """Return a queue, created if necessary."""
    queue = broker.broker.hosts[""].destination(name)
    assert isinstance(queue, Queue)
    return queue


def sweep(
    broker: MemoryBroker, act: Act, selection: Selection | None = None, name: str = QUEUE
) -> Outcome:
    """Apply an action to the messages of a queue."""
    outcomes: list[Outcome] = []
    Sweep(queue_of(broker, name), selection or Selection(), act, outcomes.append).start()
    for _ in range(10_000):
        if outcomes:
            break
        broker.clock.advance(0.01)
    [outcome] = outcomes
    return outcome


def peeked(broker: MemoryBroker, limit: int = 100, name: str = QUEUE) -> list[Seen]:
    """Return all messages of a queue, page by page."""
    seen: list[Seen] = []
    after = (-1, 0)
    while True:
        pages: list[Page] = []
        failed: list[StoreError] = []
        peek(queue_of(broker, name), after, limit, pages.append, failed.append)
        assert failed == []
        [page] = pages
        seen += page
        assert len(page) <= limit
        if page.is_last:
            return seen
        after = page[-1].sub_queue, page[-1].place


def drained(broker: MemoryBroker, name: str) -> list[bytes]:
    """Remove and return all messages of a queue, as a consumer gets them."""
    client = broker.client()
    client.subscribe(name)
    bodies = client.bodies()
    client.close()
    return bodies


def test_all_messages_are_dropped(broker_with: MakeBroker) -> None:
    broker = broker_with(**SMALL_WINDOW)
    publish_all(broker.client(), QUEUE, numbered(MANY))
    assert sweep(broker, drop) == Outcome(done=MANY)
    assert QUEUE not in broker.destinations
    assert drained(broker, QUEUE) == []


def test_what_comes_meanwhile_stays(broker_with: MakeBroker) -> None:
    broker = broker_with(**SMALL_WINDOW)
    client = broker.client()
    publish_all(client, QUEUE, numbered(MANY))
    outcomes: list[Outcome] = []
    Sweep(queue_of(broker), Selection(), drop, outcomes.append).start()
    client.publish(QUEUE, b"late")
    while not outcomes:
        broker.clock.advance(0.01)
        client.publish(QUEUE, b"later")
    left = drained(broker, QUEUE)
    assert outcomes == [Outcome(done=MANY)]
    assert left[0] == b"late" and set(left[1:]) == {b"later"}


def test_delivered_messages_stay_with_their_consumer(broker_with: MakeBroker) -> None:
    broker = broker_with()
    publish_all(broker.client(), QUEUE, numbered(10))
    consumer = broker.client()
    consumer.subscribe(QUEUE, ack="client-individual", prefetch_count="3")
    assert sweep(broker, drop).done == 7
    for message in consumer.take("MESSAGE"):
        consumer.ack(message)
    assert consumer.take("MESSAGE") == []
    assert queue_of(broker).messages == 0


def test_moved_in_order_behind_what_is_there(broker_with: MakeBroker) -> None:
    broker = broker_with(**SMALL_WINDOW)
    client = broker.client()
    client.publish(OTHER, b"first")
    publish_all(client, QUEUE, numbered(MANY))
    assert sweep(broker, move_to(queue_of(broker, OTHER))) == Outcome(done=MANY)
    assert drained(broker, OTHER) == [b"first", *numbered(MANY)]


def test_moved_to_a_consumer_that_waits(broker_with: MakeBroker) -> None:
    broker = broker_with()
    consumer = broker.client()
    consumer.subscribe(OTHER)
    broker.client().publish(QUEUE, b"x", colour="red")
    sweep(broker, move_to(queue_of(broker, OTHER)))
    message = take_one(consumer)
    assert (message.headers["destination"], message.headers["colour"]) == (OTHER, "red")


@pytest.mark.parametrize("limit", [1, 30, 150, 700, MANY, MANY + 1])
def test_so_many_and_no_more(broker_with: MakeBroker, limit: int) -> None:
    broker = broker_with(**SMALL_WINDOW)
    publish_all(broker.client(), QUEUE, numbered(MANY))
    outcome = sweep(broker, move_to(queue_of(broker, OTHER)), Selection(limit=limit))
    assert outcome.done == min(limit, MANY)
    assert drained(broker, OTHER) == numbered(MANY)[:limit]
    assert drained(broker, QUEUE) == numbered(MANY)[limit:]


def test_by_selector(broker_with: MakeBroker) -> None:
    broker = broker_with(**SMALL_WINDOW)
    client = broker.client()
    for number in range(MANY):
        client.publish(QUEUE, b"%d" % number, third=str(number % 3 == 0).lower())
    selection = Selection(selector=Selector("third = 'true'"))
    outcome = sweep(broker, move_to(queue_of(broker, OTHER)), selection)
    every = list(range(MANY))
    assert outcome.done == len(every[::3])
    assert drained(broker, OTHER) == [b"%d" % number for number in every[::3]]
    assert drained(broker, QUEUE) == [b"%d" % number for number in every if number % 3]


def test_by_id(broker_with: MakeBroker) -> None:
    broker = broker_with(**SMALL_WINDOW)
    publish_all(broker.client(), QUEUE, numbered(MANY))
    ids = frozenset(peeked(broker)[number].message.id for number in (0, 99, 100, 101, MANY - 1))
    assert sweep(broker, drop, Selection(ids=ids)).done == 5
    left = numbered(MANY)
    for number in (MANY - 1, 101, 100, 99, 0):
        del left[number]
    assert drained(broker, QUEUE) == left


def test_no_more_than_there_is_room_for(broker_with: MakeBroker) -> None:
    broker = broker_with(max_queue_messages=20)
    publish_all(broker.client(), QUEUE, numbered(20))
    publish_all(broker.client(), OTHER, numbered(15))
    outcome = sweep(broker, move_to(queue_of(broker, OTHER)))
    assert (outcome.done, outcome.left) == (5, 1)
    assert outcome.refused is not None and outcome.refused.code == "queue-full"
    assert drained(broker, QUEUE) == numbered(20)[5:]


def dead_letter(broker: MemoryBroker, queue: str = QUEUE, body: bytes = b"x") -> None:
    """Create a dead letter: a consumer refuses a message."""
    broker.client().publish(queue, body, colour="red")
    client = broker.client()
    client.subscribe(queue, ack="client-individual")
    client.nack(take_one(client), requeue="false")
    client.close()


def test_dead_letters_go_back_as_they_were(broker_with: MakeBroker) -> None:
    broker = broker_with()
    dead_letter(broker)
    dead_letter(broker, "/queue/b.c", b"y")
    sweep(broker, move_to(queue_of(broker, "/dlq/b.c")), name="/dlq/a")
    host = broker.broker.hosts[""]
    assert sweep(broker, put_back(host), name="/dlq/b.c") == Outcome(done=2)
    consumer = broker.client()
    consumer.subscribe(QUEUE)
    message = take_one(consumer)
    assert message.headers["destination"] == QUEUE
    assert message.headers["colour"] == "red"
    assert "dead-letter-reason" not in message.headers
    assert "original-destination" not in message.headers
    assert "redelivered" not in message.headers
    assert drained(broker, "/queue/b.c") == [b"y"]


def test_what_is_no_dead_letter_stays(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = broker.client()
    client.publish("/dlq/a", b"sent there")
    client.publish("/dlq/a", b"to a topic", original_destination="/topic/a", dead_letter_reason="x")
    host = broker.broker.hosts[""]
    assert sweep(broker, put_back(host), name="/dlq/a") == Outcome(left=2)
    assert stored(broker, "/dlq/a") == [b"sent there", b"to a topic"]
    assert "/topic/a" not in broker.destinations


def test_dead_letters_of_a_durable_subscription(broker_with: MakeBroker) -> None:
    broker = broker_with()

    client = broker.client(client_id="c")
    client.subscribe("/topic/t", ack="client-individual", **{"activemq.subscriptionName": "n"})
    broker.client().publish("/topic/t", b"x")
    client.nack(take_one(client), requeue="false")
    [name] = [each for each in broker.destinations if each.startswith("/dlq/")]
    host = broker.broker.hosts[""]
    assert sweep(broker, put_back(host), name=name) == Outcome(done=1)
    message = take_one(client)
    assert (message.body, message.headers["destination"]) == (b"x", "/topic/t")


# Inspection.


@pytest.mark.parametrize("delay", ["0", "3600000"])
@pytest.mark.parametrize("limit", [1, 3, 100])
def test_pages_of_large_messages_end_with_the_last_message(delay: str, limit: int) -> None:
    broker = MemoryBroker(BrokerConfig(window_messages=2), store=MemoryStore())
    producer = broker.client()
    for number in range(9):
        producer.publish(QUEUE, b"%d" % number + bytes(5 * 1024 * 1024), delay=delay)
    seen = peeked(broker, limit)
    assert [each.message.body[:1] for each in seen] == [b"%d" % number for number in range(9)]


@pytest.mark.parametrize("limit", [2, 3, 4])
def test_the_last_page_says_so_and_no_other_does(broker_with: MakeBroker, limit: int) -> None:
    broker = broker_with()
    publish_all(broker.client(), QUEUE, [b"x"] * 3, delay="1000")
    pages: list[Page] = []
    peek(queue_of(broker, QUEUE), (-1, 0), limit, pages.append, lambda _: None)
    [page] = pages
    assert (len(page), page.is_last) == (min(3, limit), limit > 3)


def test_pages_have_every_message_once_in_order(broker_with: MakeBroker) -> None:
    broker = broker_with(priority=True, **SMALL_WINDOW)
    client = broker.client()
    for number in range(300):
        client.publish(QUEUE, b"%d" % number, priority=str(number % 10))
    consumer = broker.client()
    consumer.subscribe(QUEUE, ack="client-individual", prefetch_count="40")
    expected = sorted(range(300), key=lambda number: (-(number % 10), number))
    seen = peeked(broker, limit=7)
    assert [int(each.message.body) for each in seen] == expected
    states = [each.state for each in seen]
    assert states == ["in-flight"] * 40 + ["ready"] * 260


def test_delayed_messages_are_seen_last(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = broker.client()
    client.publish(QUEUE, b"late", delay="1000")
    client.publish(QUEUE, b"now")
    assert [(each.message.body, each.state) for each in peeked(broker)] == [
        (b"now", "ready"),
        (b"late", "delayed"),
    ]
    assert [each.message.body for each in peeked(broker, limit=1)] == [b"now", b"late"]


# Failures of the store or the process.


@pytest.mark.parametrize("backlog", [50, MANY])
def test_nothing_is_lost_where_the_store_fails(backlog: int) -> None:
    store = FailingStore()
    config = BrokerConfig().changed(**SMALL_WINDOW)
    broker = MemoryBroker(config, store=store)
    publish_all(broker.client(), QUEUE, numbered(backlog))
    target = queue_of(broker, OTHER)
    target.holds += 1
    moved = 0

    def fails(operations: Sequence[Operation]) -> bool:
        nonlocal moved
        moved += sum(isinstance(each, Put) for each in operations)
        return moved > 400 or backlog < 400

    store.fails = fails
    outcome = sweep(broker, move_to(target))
    assert outcome.failure is not None
    store.fails = lambda _: False
    broker.clock.pump([1.0] * 5)
    assert drained(broker, OTHER) == numbered(backlog)[: outcome.done]
    assert drained(broker, QUEUE) == numbered(backlog)[outcome.done :]


def test_a_message_is_in_one_queue_whenever_the_broker_dies() -> None:
    """After each commit, the store has every message exactly once."""
    counts: list[int] = []

    class Watched(MemoryStore):
        def apply(self, operations: Sequence[Operation]) -> None:
            super().apply(operations)
            if any(isinstance(each, (Put, Remove)) for each in operations):
                counts.append(sum(state.messages for state in self.lanes()))

    broker = MemoryBroker(BrokerConfig().changed(**SMALL_WINDOW), store=Watched())
    publish_all(broker.client(), QUEUE, numbered(MANY))
    counts.clear()
    assert sweep(broker, move_to(queue_of(broker, OTHER))).done == MANY
    assert len(counts) > 3 and set(counts) == {MANY}


# Pauses.


def test_a_paused_queue_takes_messages_and_delivers_none(broker_with: MakeBroker) -> None:
    broker = broker_with()
    queue = queue_of(broker)
    queue.is_paused = True
    consumer = broker.client()
    consumer.subscribe(QUEUE)
    broker.client().publish(QUEUE, b"x")
    assert consumer.bodies() == []
    queue.resume()
    broker.broker.flush()
    assert consumer.bodies() == [b"x"]


@pytest.mark.parametrize("settings", [{"flow": "one-in-flight"}, {"exclusive": True}])
def test_pauses_of_other_kinds_of_delivery(
    broker_with: MakeBroker, settings: dict[str, object]
) -> None:
    broker = broker_with(**settings)
    queue = queue_of(broker)
    consumer = broker.client()
    consumer.subscribe(QUEUE, ack="client-individual")
    queue.is_paused = True
    publish_all(broker.client(), QUEUE, [b"1", b"2"])
    assert consumer.bodies() == []
    queue.resume()
    broker.broker.flush()
    assert consumer.bodies()[0] == b"1"


def test_a_paused_queue_is_not_forgotten(broker_with: MakeBroker) -> None:
    broker = broker_with()
    queue_of(broker).is_paused = True
    client = broker.client()
    client.subscribe(QUEUE)
    client.close()
    assert queue_of(broker).is_paused


# Totals.


def test_totals(broker_with: MakeBroker) -> None:
    broker = broker_with(expired="discard")
    client = broker.client()
    publish_all(client, QUEUE, numbered(5))
    client.publish(QUEUE, b"brief", expiration="1")
    broker.clock.advance(1.0)
    consumer = broker.client()
    consumer.subscribe(QUEUE, ack="client-individual")
    first, second, *_ = consumer.take("MESSAGE")
    consumer.ack(first)
    consumer.nack(second, requeue="false")
    totals = queue_of(broker).totals
    assert totals._asdict() == {
        "received": 6,
        "delivered": 5,
        "settled": 1,
        "dropped": 0,
        "dead_lettered": 1,
        "expired": 1,
    }


def test_totals_of_what_is_gone_are_the_hosts(broker_with: MakeBroker) -> None:
    broker = broker_with()
    publish_all(broker.client(), QUEUE, numbered(3))
    assert drained(broker, QUEUE) == numbered(3)
    past = broker.broker.hosts[""].past
    assert (past.received, past.delivered, past.settled) == (3, 3, 3)


def test_dropped_messages_are_not_settled(broker_with: MakeBroker) -> None:
    broker = broker_with()
    publish_all(broker.client(), QUEUE, numbered(3))
    sweep(broker, drop)
    assert broker.broker.hosts[""].past.settled == 0


# Expired messages that wait for room among the dead letters.


def overdue(*, is_stored: bool) -> MemoryBroker:
    """Return a broker with three such messages, and a ready one."""
    letters = DestinationConfig(name="/dlq/a", max_queue_messages=1)
    config = BrokerConfig(expired="dead-letter", destinations=(letters,))
    broker = MemoryBroker(config, store=MemoryStore() if is_stored else None)
    producer = broker.client()
    producer.publish("/dlq/a", b"full")
    publish_all(producer, QUEUE, numbered(3), expiration="1000")
    producer.publish(QUEUE, b"ready")
    broker.clock.advance(1.0)
    broker.clock.advance(0.0)
    return broker


@pytest.mark.parametrize("is_stored", [False, True])
def test_expired_messages_without_room_are_seen(*, is_stored: bool) -> None:
    broker = overdue(is_stored=is_stored)
    queue = queue_of(broker)
    assert (queue.messages, queue.ready, queue.unsettled) == (4, 1, 0)
    pages: list[Page] = []
    peek(queue, (-1, 0), 100, pages.append, lambda _: None)
    [page] = pages
    seen = [(each.message.body, each.state) for each in page]
    assert seen == [*((body, "expired") for body in numbered(3)), (b"ready", "ready")]


@pytest.mark.parametrize("is_stored", [False, True])
def test_expired_messages_without_room_can_be_moved(*, is_stored: bool) -> None:
    broker = overdue(is_stored=is_stored)
    queue, target = queue_of(broker), queue_of(broker, OTHER)
    assert sweep(broker, move_to(target), Selection(limit=2)) == Outcome(done=2)
    assert sweep(broker, move_to(target)) == Outcome(done=2)
    assert queue.messages == 0
    # They keep their expiry, and become dead letters of their new queue.
    assert target.messages == 1
    assert len(stored(broker, "/dlq/b")) == 3


@pytest.mark.parametrize("is_stored", [False, True])
def test_expired_messages_without_room_can_be_dropped_by_id(*, is_stored: bool) -> None:
    broker = overdue(is_stored=is_stored)
    queue = queue_of(broker)
    ids = frozenset(each.message.id for each in list(queue.overdue)[1:])
    assert sweep(broker, drop, Selection(ids)) == Outcome(done=2)
    assert [each.message.body for each in queue.overdue] == [b"0"]
    assert queue.messages == 2
    assert sweep(broker, drop) == Outcome(done=2)
    assert queue.messages == 0


def test_expired_messages_return_if_their_move_fails() -> None:
    letters = DestinationConfig(name="/dlq/a", max_queue_messages=1)
    config = BrokerConfig(expired="dead-letter", destinations=(letters,))
    store = FailingStore()
    broker = MemoryBroker(config, store=store)
    producer = broker.client()
    producer.publish("/dlq/a", b"full")
    publish_all(producer, QUEUE, numbered(3), expiration="1000")
    broker.clock.advance(1.0)
    store.fails = lambda operations: any(isinstance(each, Put) for each in operations)
    outcome = sweep(broker, move_to(queue_of(broker, OTHER)))
    assert outcome.done == 0
    assert outcome.failure is not None
    queue = queue_of(broker)
    assert sorted(each.message.body for each in queue.overdue) == numbered(3)
    store.fails = lambda _: False
    assert sweep(broker, drop) == Outcome(done=3)
