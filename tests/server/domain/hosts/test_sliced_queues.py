"""Very many messages of a queue that expire, wait, are browsed, moved or retried, in parts."""

from __future__ import annotations

from functools import partial

import pytest

from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.domain.names import dead_letters_of
from stompkit.server.domain.queues.peeking import Page, peek
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.queues.upkeep import (
    Outcome,
    Selection,
    Sweep,
    drop,
    move_to,
    put_back,
)
from stompkit.server.interfaces import StoreError
from stompkit.server.selectors import Selector
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker
from tests.server.brokers import publish_all, refusal
from tests.server.busy import LONG, BusyClock, is_served, iterations
from tests.server.many_queues import numbered

QUEUE = "/queue/a"
MANY = 1_000
#: Number of iterations in which MANY messages could be examined at once.
FEW = 20
#: Time in seconds within which another client is served.
SOON_S = 0.05

either_store = pytest.mark.parametrize("has_store", [False, True])


def made(clock: BusyClock, *, has_store: bool, **settings: object) -> MemoryBroker:
    """Return a broker with this clock."""
    store = MemoryStore() if has_store else None
    return MemoryBroker(BrokerConfig().changed(**settings), clock=clock, store=store)


def queue_of(broker: MemoryBroker) -> Queue:
    """Return the queue."""
    queue = broker.destinations[QUEUE]
    assert isinstance(queue, Queue)
    return queue


@either_store
@pytest.mark.parametrize("expired", ["discard", "dead-letter"])
@pytest.mark.parametrize("headers", [{}, {"selector": "TRUE"}], ids=["plain", "selector"])
def test_a_consumer_that_meets_many_expired_messages_leaves_time_for_others(
    headers: dict[str, str], expired: str, *, has_store: bool
) -> None:
    clock = BusyClock()
    broker = made(clock, has_store=has_store, expired=expired)
    producer, consumer = broker.client(), broker.client()
    publish_all(producer, QUEUE, numbered(1, MANY), expiration="1000")
    producer.publish(QUEUE, b"last")
    # No timer has run yet when the consumer comes.
    clock.rightNow += 1.0
    consumer.subscribe(QUEUE, **headers)
    assert queue_of(broker).messages > MANY / 2
    got: list[bytes] = []

    def is_found() -> bool:
        got.extend(consumer.bodies())
        return bool(got)

    assert iterations(clock, is_found) > 1
    assert got == [b"last"]
    letters = broker.destinations.get("/dlq/a")
    assert isinstance(letters, Queue) is (expired == "dead-letter")
    assert not isinstance(letters, Queue) or letters.messages == MANY


@pytest.mark.parametrize("when_full", ["reject", "block"])
def test_a_sender_tries_no_other_expired_message_where_dead_letters_have_no_room(
    when_full: str,
) -> None:
    clock = BusyClock()
    full = DestinationConfig(name="/dlq/a", max_queue_messages=1)
    broker = made(
        clock,
        has_store=False,
        expired="dead-letter",
        max_queue_messages=MANY,
        when_full=when_full,
        destinations=(full,),
    )
    producer = broker.client()
    publish_all(producer, QUEUE, numbered(1, MANY), expiration="1000")
    clock.rightNow += 1.0
    # The first dead letter makes room for one message.
    producer.publish(QUEUE, b"x")
    producer.publish(QUEUE, b"y")
    assert refusal(producer) == ("queue-full" if when_full == "reject" else None)
    assert len(queue_of(broker).overdue) == 1
    # All wait for room in the end, and are not delivered.
    iterations(clock, lambda: len(queue_of(broker).overdue) == MANY - 1)


@either_store
def test_messages_that_wait_for_the_owner_of_their_group_leave_time_for_others(
    *, has_store: bool
) -> None:
    clock = BusyClock()
    broker = made(clock, has_store=has_store)
    owner, other, producer = (broker.client() for _ in range(3))
    owner.subscribe(QUEUE, ack="client-individual", prefetch_count="1", selector=LONG)
    for number in range(200):
        n = "1" if number % 10 == 5 else "1000"
        producer.publish(QUEUE, b"%d" % number, JMSXGroupID="g", n=n)
    clock.is_busy = True
    before = clock.rightNow
    other.subscribe(QUEUE)
    assert clock.rightNow < before + SOON_S
    rest: list[bytes] = []

    def has_rest() -> bool:
        assert is_served(producer)
        rest.extend(other.bodies())
        return len(rest) == 20

    assert iterations(clock, has_rest) > 1
    assert rest == [b"%d" % number for number in range(5, 200, 10)]
    got: list[bytes] = []

    def has_all() -> bool:
        for message in owner.take("MESSAGE"):
            got.append(message.body)
            owner.ack(message)
        return len(got) == 180

    iterations(clock, has_all)
    assert got == [b"%d" % number for number in range(200) if number % 10 != 5]
    assert other.bodies() == []


@either_store
def test_a_browser_with_a_costly_selector_leaves_time_for_others(*, has_store: bool) -> None:
    clock = BusyClock()
    broker = made(clock, has_store=has_store)
    browser, producer = broker.client(), broker.client()
    for number in range(200):
        producer.publish(QUEUE, b"%d" % number, n=str(1_000 + number % 101))
    clock.is_busy = True
    before = clock.rightNow
    browser.subscribe(QUEUE, browser="true", selector=LONG)
    assert clock.rightNow < before + SOON_S
    seen: list[bytes] = []

    def is_over() -> bool:
        assert is_served(producer)
        messages = browser.take("MESSAGE")
        seen.extend(each.body for each in messages if "browser" not in each.headers)
        return any("browser" in each.headers for each in messages)

    assert iterations(clock, is_over) > 1
    assert seen == [b"%d" % number for number in range(200) if number % 101 != 100]


@either_store
@pytest.mark.parametrize("priority", [False, True])
def test_a_browser_that_does_not_read_keeps_no_message(*, has_store: bool, priority: bool) -> None:
    """It sees those that still wait, once, and none that has arrived since."""
    clock = BusyClock()
    broker = made(clock, has_store=has_store, priority=priority)
    browser, consumer, producer = (broker.client() for _ in range(3))
    for number in range(10):
        producer.publish(QUEUE, b"%d" % number, priority=str(9 - number // 3))
    browser.subscribe(QUEUE, id="1", browser="true")
    assert len(browser.take("MESSAGE")) == 11
    browser.stop_reading()
    browser.subscribe(QUEUE, id="2", browser="true")
    consumer.subscribe(QUEUE, ack="client-individual", prefetch_count="6")
    first, *_, last = consumer.take("MESSAGE")
    consumer.send("UNSUBSCRIBE", id="0")
    consumer.nack(last)
    consumer.ack(first)
    producer.publish(QUEUE, b"new", priority="9")
    browser.start_reading()
    *seen, end = browser.take("MESSAGE")
    assert end.headers["browser"] == "end"
    assert [each.body for each in seen] == numbered(5, 9)


@either_store
@pytest.mark.parametrize("is_moved", [False, True])
@pytest.mark.parametrize("window", [10, 1_000])
def test_an_operator_with_a_costly_selector_leaves_time_for_others(
    window: int, *, is_moved: bool, has_store: bool
) -> None:
    clock = BusyClock()
    broker = made(clock, has_store=has_store, window_messages=window)
    producer = broker.client()
    for number in range(200):
        producer.publish(QUEUE, b"%d" % number, n=str(1_000 + number % 101))
    target = broker.broker.hosts[""].destination("/queue/b")
    assert isinstance(target, Queue)
    outcomes: list[Outcome] = []
    act = move_to(target) if is_moved else drop
    Sweep(queue_of(broker), Selection(selector=Selector(LONG)), act, outcomes.append).start()
    clock.is_busy = True
    # A selector that takes a millisecond leaves a few messages for each iteration.
    assert iterations(clock, lambda: outcomes) > FEW
    assert outcomes == [Outcome(done=199)]
    assert queue_of(broker).messages == 1
    assert not is_moved or target.messages == 199


@either_store
def test_a_retry_into_durable_subscriptions_leaves_time_for_others(*, has_store: bool) -> None:
    clock = BusyClock()
    lived = DestinationConfig(name="/topic/a", message_ttl_s=1.0)
    broker = made(clock, has_store=has_store, expired="dead-letter", destinations=(lived,))
    durable = broker.client(**{"client-id": "c"})
    durable.subscribe("/topic/a", id="s", selector=LONG, **{"activemq.subscriptionName": "s"})
    durable.close()
    producer = broker.client()
    for number in range(200):
        producer.publish("/topic/a", b"%d" % number, n=str(1_000 + number % 100))
    while clock.rightNow < 5.0:
        clock.advance(0.1)
    letters = broker.destinations[dead_letters_of("/durable/c/s")]
    assert isinstance(letters, Queue)
    assert letters.messages == 200
    outcomes: list[Outcome] = []
    Sweep(letters, Selection(), put_back(broker.broker.hosts[""]), outcomes.append).start()
    clock.is_busy = True
    # A selector that takes a millisecond leaves a few messages for each iteration.
    assert iterations(clock, lambda: outcomes) > FEW
    assert outcomes == [Outcome(done=200)]


@either_store
@pytest.mark.parametrize("priority", [False, True])
def test_a_lowered_limit_drops_many_messages_in_parts(*, has_store: bool, priority: bool) -> None:
    clock = BusyClock()
    settings = {"priority": priority, "max_queue_messages": 10_000, "when_full": "drop-oldest"}
    broker = made(clock, has_store=has_store, window_messages=10_000, **settings)
    producer, consumer = broker.client(), broker.client()
    publish_all(producer, QUEUE, numbered(1, 5 * MANY))
    lowered = broker.broker.config.changed(max_queue_messages=10)
    broker.broker.reload(lowered)
    broker.broker.flush()
    queue = queue_of(broker)
    assert queue.messages > 3 * MANY
    # What comes meanwhile adds nothing to the excess, and the consumer gets nothing of it.
    before = queue.messages
    producer.publish(QUEUE, b"last")
    consumer.subscribe(QUEUE)
    assert queue.messages <= before
    assert iterations(clock, lambda: queue.messages <= 10) >= 4
    assert [*consumer.bodies()] == [*numbered(5 * MANY - 8, 5 * MANY), b"last"]


def test_a_large_message_that_pushes_out_many_small_ones_is_delivered_after_these() -> None:
    clock = BusyClock()
    broker = made(clock, has_store=False, max_memory_queue_bytes=1_000_000, when_full="drop-oldest")
    producer = broker.client()
    publish_all(producer, QUEUE, numbered(1, 5 * MANY))
    queue = queue_of(broker)
    producer.publish(QUEUE, bytes(999_000))
    assert queue.messages > 3 * MANY
    iterations(clock, lambda: queue.octets <= 1_000_000)
    consumer = broker.client()
    consumer.subscribe(QUEUE)
    *_, large = consumer.bodies()
    assert large == bytes(999_000)


@either_store
@pytest.mark.parametrize("priority", [False, True])
def test_a_page_leaves_time_for_others_where_consumers_have_very_many_messages(
    *, has_store: bool, priority: bool
) -> None:
    clock = BusyClock()
    broker = made(clock, has_store=has_store, priority=priority)
    producer, *consumers = (broker.client() for _ in range(5))
    sent = numbered(1, 20 * MANY)
    publish_all(producer, QUEUE, sent)
    for consumer in consumers:
        consumer.subscribe(QUEUE, ack="client", prefetch_count=str(5 * MANY - 100))
    seen: list[bytes] = []
    failures: list[StoreError] = []
    after, is_last = (-1, 0), False
    while not is_last:
        pages: list[Page] = []
        peek(queue_of(broker), after, 3 * MANY, pages.append, failures.append)
        assert not pages
        assert iterations(clock, partial(len, pages)) > 1
        [page] = pages
        seen += [each.message.body for each in page]
        is_last = page.is_last
        after = page[-1].sub_queue, page[-1].place
    assert (seen, failures) == (sent, [])
