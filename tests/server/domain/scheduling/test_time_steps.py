"""The system's time is set while the broker runs, as by NTP or after a pause of its machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.server import BrokerConfig
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker
from tests.server.brokers import take_one
from tests.server.system_clock import SystemClock

QUEUE = "/queue/a"
HOUR_S = 3600.0
#: Makes a store, or returns None.
MakeStore = Callable[[], MemoryStore | None]
either_store = pytest.mark.parametrize("make_store", [lambda: None, MemoryStore])
both_ways = pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])


def broker_on(
    clock: SystemClock, store: MemoryStore | None = None, **settings: object
) -> MemoryBroker:
    """Return a broker on this clock."""
    return MemoryBroker(BrokerConfig().changed(**settings), clock=clock, store=store)


def waiting(broker: MemoryBroker) -> int:
    """Return the number of messages in the queue that are not delayed."""
    queue = broker.destinations.get(QUEUE)
    return 0 if queue is None else queue.ready


@both_ways
def test_a_silent_client_is_disconnected_after_its_time(step_s: float) -> None:
    clock = SystemClock()
    client = broker_on(clock).client(heart_beat="10000,0")
    clock.ahead += step_s
    clock.advance(9.0)
    assert not client.eof
    clock.advance(60.0)
    assert client.eof


@both_ways
def test_acknowledgements_have_their_time(step_s: float) -> None:
    clock = SystemClock()
    broker = broker_on(clock, ack_timeout_s=30.0)
    client, producer = broker.client(), broker.client()
    client.subscribe(QUEUE, ack="client-individual")
    producer.publish(QUEUE, b"x")
    assert take_one(client).body == b"x"
    clock.ahead += step_s
    clock.advance(29.0)
    assert client.bodies() == []
    clock.advance(1.1)
    assert take_one(client).headers["delivery-count"] == "2"


@either_store
def test_a_message_is_due_at_its_date(make_store: MakeStore) -> None:
    clock = SystemClock()
    broker = broker_on(clock, make_store())
    client, producer = broker.client(), broker.client()
    client.subscribe(QUEUE)
    for hours in (1, 3):
        producer.publish(QUEUE, b"%d" % hours, delay=str(hours * 3_600_000))
    clock.ahead += HOUR_S
    clock.advance(1.0)
    assert client.bodies() == [b"1"]
    clock.ahead -= HOUR_S
    clock.advance(2 * HOUR_S)
    assert client.bodies() == []
    clock.advance(HOUR_S)
    assert client.bodies() == [b"3"]


@either_store
def test_a_message_expires_at_its_date(make_store: MakeStore) -> None:
    clock = SystemClock()
    broker = broker_on(clock, make_store())
    producer = broker.client()
    for hours in (1, 3):
        producer.publish(QUEUE, b"%d" % hours, expiration=str(hours * 3_600_000))
    clock.ahead += HOUR_S
    clock.advance(1.0)
    assert waiting(broker) == 1
    clock.ahead -= HOUR_S
    clock.advance(2 * HOUR_S)
    assert waiting(broker) == 1
    clock.advance(HOUR_S)
    assert waiting(broker) == 0


def test_a_slow_correction_adds_up() -> None:
    clock = SystemClock()
    broker = broker_on(clock)
    client = broker.client()
    client.subscribe(QUEUE)
    client.publish(QUEUE, b"x", delay="100000")
    for _ in range(60):
        clock.ahead += 0.05
        clock.advance(1.0)
    clock.advance(37.2)
    assert client.bodies() == [b"x"]


def test_dates_are_kept_across_a_restart() -> None:
    clock, store = SystemClock(), MemoryStore()
    broker = broker_on(clock, store)
    broker.client().publish(QUEUE, b"x", delay="3600000")
    clock.ahead += 600.0
    clock.advance(1.0)
    broker.broker.close()
    again = SystemClock(clock.time_of_day())
    client = broker_on(again, store).client()
    client.subscribe(QUEUE)
    again.advance(HOUR_S - 602.0)
    assert client.bodies() == []
    again.advance(1.0)
    assert client.bodies() == [b"x"]


#: Seconds that pass, and by how much the time of day is set then. A second at least passes between
#: two steps, because the broker notices them after at most one.
passing = st.lists(st.tuples(st.integers(1, 50), st.sampled_from([0, 0, 20, -20, 45, -45])))


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 90)), max_size=8),
    passing,
    st.sampled_from([None, MemoryStore]),
)
def test_messages_change_at_their_dates_and_at_no_other_time(
    messages: list[tuple[bool, int]],
    steps: list[tuple[int, int]],
    make_store: type[MemoryStore] | None,
) -> None:
    clock = SystemClock()
    began = clock.time_of_day()
    broker = broker_on(clock, make_store() if make_store else None)
    producer = broker.client()
    for is_delayed, seconds in messages:
        # Half a second apart from all steps.
        milliseconds = str(seconds * 1000 - 500)
        header = {"delay" if is_delayed else "expiration": milliseconds}
        producer.publish(QUEUE, b"x", **header)
    latest = 0.0
    for seconds, step in steps:
        clock.ahead += step
        clock.advance(seconds)
        latest = max(latest, clock.time_of_day() - began)
        expected = sum(is_delayed == (at - 0.5 <= latest) for is_delayed, at in messages)
        assert waiting(broker) == expected


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("step_s", [-240 * HOUR_S, 240 * HOUR_S])
def test_a_durable_subscription_has_its_time(step_s: float, *, restarts: bool) -> None:
    """It is removed after a day without use, also where a broker starts again after the step."""
    clock, store = SystemClock(), MemoryStore()
    settings = {"durable_expiry_s": 24 * HOUR_S}
    broker = broker_on(clock, store, **settings)
    client = broker.client(client_id="c")
    headers = {"activemq.subscriptionName": "s", "destination": "/topic/a", "id": "0"}
    client.send("SUBSCRIBE", headers)
    client.close()
    clock.advance(HOUR_S)
    clock.ahead += step_s
    clock.advance(61.0)
    if restarts:
        broker.broker.close()
        broker = broker_on(clock, store, **settings)
    clock.advance(22 * HOUR_S)
    assert list(broker.destinations) == ["/topic/a"]
    clock.advance(2 * HOUR_S)
    assert not broker.destinations
