"""Deadlines in any order: those that are due are found, whatever else is set."""

from __future__ import annotations

import gc
import weakref

from hypothesis import given
from hypothesis import strategies as st

from stompkit.server import BrokerConfig
from stompkit.server.domain.scheduling.alarm import Alarm
from stompkit.server.domain.scheduling.deadlines import Deadlines
from stompkit.testing.memory import MemoryBroker
from tests.server.beanstalk.peers import Front
from tests.server.brokers import MakeBroker, publish_all, take_one

QUEUE = "/queue/a"
#: A key with its deadline, or with None to discard it.
moves = st.lists(
    st.tuples(st.integers(0, 9), st.one_of(st.none(), st.integers(0, 20))), max_size=300
)


@given(moves, st.integers(0, 20))
def test_deadlines_are_a_sorted_table(steps: list[tuple[int, int | None]], now: int) -> None:
    deadlines: Deadlines[int] = Deadlines()
    known: dict[int, tuple[int, int]] = {}
    for number, (thing, when) in enumerate(steps):
        if when is None:
            deadlines.discard(thing)
            known.pop(thing, None)
        else:
            deadlines.set(thing, when)
            known[thing] = when, number
        assert len(deadlines) == len(known)
        assert deadlines.get(thing) == when
        first = min(((*known[each], each) for each in known), default=None)
        assert deadlines.first() == (None if first is None else (first[0], first[2]))
    due = []
    while (found := deadlines.pop_due(now)) is not None:
        due.append(found)
    assert due == sorted((each for each in known if known[each][0] <= now), key=known.__getitem__)


def test_a_thing_that_was_discarded_is_not_kept() -> None:
    class Thing:
        """An object with support for weak references."""

    deadlines: Deadlines[Thing] = Deadlines()
    thing = Thing()
    gone = weakref.ref(thing)
    deadlines.set(thing, 1.0)
    deadlines.discard(thing)
    del thing
    gc.collect()
    assert gone() is None


def test_an_alarm_rings_at_the_earliest_time_that_it_was_set_to() -> None:
    broker = MemoryBroker()
    rung: list[float] = []
    alarm = Alarm(broker.broker.scheduler, lambda: rung.append(broker.clock.seconds()))
    for when in (5.0, 3.0, 4.0):
        alarm.set(when)
    broker.clock.advance(2.5)
    assert rung == []
    broker.clock.advance(0.5)
    broker.clock.advance(10.0)
    assert rung == [3.0]


# Settings that use deadlines.


def test_a_shorter_time_for_acknowledgement_holds_for_what_is_delivered_from_then_on(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(ack_timeout_s=600.0)
    slow, other, producer = (broker.client() for _ in range(3))
    producer.publish(QUEUE, b"old")
    slow.subscribe(QUEUE, ack="client-individual", prefetch_count="1")
    assert take_one(slow).body == b"old"
    broker.broker.reload(broker.broker.config.changed(ack_timeout_s=1.0))
    other.subscribe(QUEUE, ack="client-individual", prefetch_count="1")
    producer.publish(QUEUE, b"new")
    assert take_one(other).body == b"new"
    broker.clock.advance(1.0)
    assert take_one(other).headers["delivery-count"] == "2"
    broker.clock.advance(598.9)
    assert slow.bodies() == []
    other.close()
    broker.clock.advance(0.1)
    assert b"old" in slow.bodies()


def test_a_longer_time_does_not_keep_what_was_delivered_before_it(broker_with: MakeBroker) -> None:
    broker = broker_with(ack_timeout_s=10.0)
    client, producer = broker.client(), broker.client()
    publish_all(producer, QUEUE, [b"1", b"2"])
    client.subscribe(QUEUE, ack="client-individual", prefetch_count="1")
    first = take_one(client)
    broker.broker.reload(broker.broker.config.changed(ack_timeout_s=100.0))
    client.ack(first)
    second = take_one(client)
    broker.broker.reload(broker.broker.config.changed(ack_timeout_s=0.0))
    broker.clock.advance(99.0)
    assert client.bodies() == []
    broker.clock.advance(1.0)
    assert take_one(client).body == second.body


def test_many_deliveries_whose_time_is_over_come_back_in_their_order() -> None:
    broker = MemoryBroker(BrokerConfig(ack_timeout_s=1.0, max_prefetch=1_000))
    slow, producer = broker.client(), broker.client()
    bodies = [b"%d" % number for number in range(700)]
    publish_all(producer, QUEUE, bodies)
    slow.subscribe(QUEUE, id="1", ack="client-individual", prefetch_count="1000")
    assert slow.bodies() == bodies
    slow.send("UNSUBSCRIBE", id="1")
    broker.clock.advance(1.0)
    for _ in range(10):
        broker.clock.advance(0)
    other = broker.client()
    other.subscribe(QUEUE)
    assert other.bodies() == bodies


def test_messages_expire_in_any_order(broker_with: MakeBroker) -> None:
    broker = broker_with(max_queue_messages=4)
    producer = broker.client()
    for life_s in (8, 2, 6, 4):
        producer.publish(QUEUE, b"%d" % life_s, expiration=str(life_s * 1_000))
    for number in range(1, 4):
        broker.clock.advance(2.0)
        assert broker.destinations[QUEUE].messages == 4 - number  # type: ignore[attr-defined]
    broker.clock.advance(2.0)
    assert broker.destinations == {}


def test_jobs_with_a_shorter_time_to_run_come_back_before_others() -> None:
    front = Front(MemoryBroker())
    worker, other = front.worker(), front.worker()
    for ttr in (50, 10, 30):
        worker.ask(b"put 0 0 %d 2\r\n%d\r\n" % (ttr, ttr))
    for _ in range(3):
        assert b"RESERVED" in worker.ask(b"reserve\r\n")
    for wait_s, body, number in ((10, b"10", 2), (20, b"30", 3), (20, b"50", 1)):
        front.clock.advance(wait_s - 0.5)
        assert other.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
        front.clock.advance(0.5)
        assert other.ask(b"reserve-with-timeout 0\r\n").endswith(body + b"\r\n")
        assert other.ask(b"delete %d\r\n" % number) == b"DELETED\r\n"
