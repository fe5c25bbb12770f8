"""A waiting client is served as soon as its condition is fulfilled.

Each test is a row of the table of waiting in docs/reference/broker.rst: a client waits, and one of
the events happens that end the wait. No other frame arrives, and time passes only where stated.
"""

from __future__ import annotations

import pytest

from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.settings.beanstalk import BeanstalkSettings
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.beanstalk.peers import Front, MemoryWorker
from tests.server.brokers import MakeBroker, publish_all, refusal, take_one
from tests.server.many_queues import numbered

QUEUE = "/queue/a"
LETTERS = "/dlq/a"


def receipts(client: MemoryClient) -> list[str]:
    """Return the receipts received."""
    return [each.headers["receipt-id"] for each in client.take("RECEIPT")]


def change(broker: MemoryBroker, **settings: object) -> None:
    """Reload the broker with other settings."""
    broker.broker.reload(broker.broker.config.changed(**settings))


def blocked_sender(broker: MemoryBroker, *fill: dict[str, str]) -> MemoryClient:
    """Return a client that waits for room in a queue with one message for each *fill*."""
    filler = broker.client()
    for number, headers in enumerate(fill):
        filler.publish(QUEUE, b"%d" % number, **headers)
    sender = broker.client()
    sender.publish(QUEUE, b"late", receipt="late")
    assert receipts(sender) == []
    return sender


# A sender waits for room in a queue.


@pytest.mark.parametrize("expired", ["discard", "dead-letter"])
def test_expiry_of_what_fills_a_queue_lets_a_sender_in(
    broker_with: MakeBroker, expired: str
) -> None:
    broker = broker_with(max_queue_messages=2, when_full="block", expired=expired)
    sender = blocked_sender(broker, {"expiration": "1000"}, {"expiration": "7000"})
    broker.clock.advance(0.999)
    assert receipts(sender) == []
    broker.clock.advance(0.001)
    assert receipts(sender) == ["late"]


def test_expiry_of_what_fills_a_queue_makes_room_whenever_it_is_asked_for(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(max_queue_messages=2)
    client = broker.client()
    for number in range(40):
        client.publish(QUEUE, b"%d" % number, receipt=str(number), expiration="20")
        assert receipts(client) == [str(number)]
        broker.clock.advance(0.011)


def test_expiry_behind_what_never_expires_lets_a_sender_in(broker_with: MakeBroker) -> None:
    broker = broker_with(max_queue_messages=3, when_full="block")
    sender = blocked_sender(broker, {}, {"expiration": "1000"}, {})
    broker.clock.advance(1.0)
    assert receipts(sender) == ["late"]


def test_room_among_dead_letters_lets_a_sender_in_who_waits_behind_what_is_to_be_one(
    broker_with: MakeBroker,
) -> None:
    tables = (DestinationConfig(name=LETTERS, max_queue_messages=1, when_full="reject"),)
    broker = broker_with(
        max_queue_messages=1, when_full="block", expired="dead-letter", destinations=tables
    )
    other = broker.client()
    other.publish(LETTERS, b"first letter")
    sender = blocked_sender(broker, {"expiration": "1000"})
    broker.clock.advance(1.0)
    assert receipts(sender) == []
    other.subscribe(LETTERS, ack="client-individual", prefetch_count="1")
    other.ack(take_one(other))
    assert take_one(other).body == b"0"
    assert receipts(sender) == ["late"]


@pytest.mark.parametrize(
    ("settings", "outcome"),
    [
        ({"max_queue_messages": 2}, ["late"]),
        ({"max_queue_messages": 1_000}, ["late"]),
        ({"when_full": "drop-oldest"}, ["late"]),
        ({"when_full": "reject"}, "queue-full"),
    ],
)
def test_other_settings_decide_at_once_on_a_sender_that_waits(
    broker_with: MakeBroker, settings: dict[str, object], outcome: object
) -> None:
    broker = broker_with(max_queue_messages=1, when_full="block")
    sender = blocked_sender(broker, {})
    change(broker, **settings)
    assert (refusal(sender) or receipts(sender)) == outcome


def test_other_settings_decide_at_once_on_what_waits_to_be_a_dead_letter(
    broker_with: MakeBroker,
) -> None:
    tables = (DestinationConfig(name=LETTERS, max_queue_messages=1, when_full="reject"),)
    broker = broker_with(
        max_queue_messages=1, when_full="block", expired="dead-letter", destinations=tables
    )
    broker.client().publish(LETTERS, b"first letter")
    sender = blocked_sender(broker, {"expiration": "1000"})
    broker.clock.advance(1.0)
    assert receipts(sender) == []
    change(broker, expired="discard")
    assert receipts(sender) == ["late"]


# A consumer waits for messages.


def test_expiry_of_what_fills_the_window_shows_a_selector_what_is_behind_it() -> None:
    broker = MemoryBroker(BrokerConfig(window_messages=3), store=MemoryStore())
    consumer, producer = broker.client(), broker.client()
    consumer.subscribe(QUEUE, selector="colour = 'red'")
    publish_all(producer, QUEUE, numbered(1, 3), expiration="1000")
    publish_all(producer, QUEUE, numbered(4, 6), colour="red")
    assert consumer.bodies() == []
    broker.clock.advance(1.0)
    assert consumer.bodies() == numbered(4, 6)


def test_a_consumer_that_stands_by_gets_messages_when_it_need_not_any_more(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(exclusive=True)
    first, second = broker.client(), broker.client()
    for client in (first, second):
        client.subscribe(QUEUE, ack="client", prefetch_count="1")
    publish_all(broker.client(), QUEUE, numbered(1, 2))
    assert (first.bodies(), second.bodies()) == ([b"1"], [])
    change(broker, exclusive=False)
    assert second.bodies() == [b"2"]


# The limit is a constant of a compiled module.
@pytest.mark.pure
def test_messages_of_a_group_that_was_forgotten_go_to_others(
    broker_with: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompkit.server.domain.queues.dispatcher._MOST_GROUPS", 1)
    broker = broker_with()
    first, second, producer = (broker.client() for _ in range(3))
    first.subscribe(QUEUE, ack="client", prefetch_count="1")
    publish_all(producer, QUEUE, [b"a1", b"a2"], JMSXGroupID="a")
    second.subscribe(QUEUE, ack="client", prefetch_count="2")
    assert (first.bodies(), second.bodies()) == ([b"a1"], [])
    producer.publish(QUEUE, b"b1", JMSXGroupID="b")
    assert sorted(second.bodies()) == [b"a2", b"b1"]


# A client of beanstalkd waits for a job.


@pytest.fixture
def front(broker_with: MakeBroker) -> Front:
    """The front end for clients of beanstalkd."""
    return Front(broker_with())


@pytest.fixture
def waiting(front: Front) -> MemoryWorker:
    """A worker that waits for a job of a paused tube, which has one."""
    other = front.worker()
    assert other.ask(b"put 0 0 60 1\r\nx\r\n") == b"INSERTED 1\r\n"
    assert other.ask(b"pause-tube default 600\r\n") == b"PAUSED\r\n"
    worker = front.worker()
    assert worker.ask(b"reserve\r\n") == b""
    return worker


@pytest.mark.parametrize(("seconds", "wait_s"), [(0, 0.0), (5, 5.0), (600, 600.0)])
def test_the_end_of_a_pause_is_that_of_the_last_pause_tube(
    front: Front, waiting: MemoryWorker, seconds: int, wait_s: float
) -> None:
    front.worker().ask(b"pause-tube default %d\r\n" % seconds)
    if wait_s:
        front.clock.advance(wait_s - 0.5)
        assert waiting.heard() == b""
        front.clock.advance(0.5)
    assert waiting.heard() == b"RESERVED 1 1\r\nx\r\n"


def test_a_longer_pause_is_longer(front: Front, waiting: MemoryWorker) -> None:
    front.worker().ask(b"pause-tube default 700\r\n")
    front.clock.advance(650.0)
    assert waiting.heard() == b""
    front.clock.advance(50.0)
    assert waiting.heard() == b"RESERVED 1 1\r\nx\r\n"


def test_the_end_of_an_operators_pause_gives_a_worker_its_job(
    front: Front, waiting: MemoryWorker
) -> None:
    queue = front.broker.destinations["/queue/default"]
    queue.is_paused = True
    front.worker().ask(b"pause-tube default 0\r\n")
    assert waiting.heard() == b""
    queue.resume()  # type: ignore[attr-defined]  # it is a queue
    front.broker.broker.flush()
    assert waiting.heard() == b"RESERVED 1 1\r\nx\r\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"max_reserved": 1}, {"max_reserved": 2}),
        ({"tubes": ("other",)}, {"tubes": ("other", "default")}),
        ({"tubes": ("other",)}, {}),
    ],
)
def test_other_settings_show_a_worker_jobs_at_once(
    before: dict[str, object], after: dict[str, object]
) -> None:
    broker = MemoryBroker()
    front = Front(broker, **before)
    worker = front.worker()
    publish_all(broker.client(), "/queue/default", [b"1", b"2"])
    if "max_reserved" in before:
        assert worker.ask(b"reserve\r\n").endswith(b" 1\r\n1\r\n")
    assert worker.ask(b"reserve\r\n") == b""
    front.factory.hub.configure(BeanstalkSettings(**after))  # type: ignore[arg-type]  # as above
    broker.broker.flush()
    assert b"RESERVED" in worker.heard()


def test_a_worker_gets_the_jobs_of_a_tube_that_there_was_no_room_for() -> None:
    broker = MemoryBroker(BrokerConfig(max_destinations=1))
    front = Front(broker)
    holder = broker.client()
    holder.subscribe("/queue/only", id="1")
    worker = front.worker()
    assert worker.ask(b"reserve\r\n") == b""
    holder.send("UNSUBSCRIBE", id="1")
    broker.client().publish("/queue/default", b"x")
    assert worker.heard().startswith(b"RESERVED")


def test_a_worker_that_leaves_waits_for_no_tube_any_more() -> None:
    broker = MemoryBroker(BrokerConfig(max_destinations=1))
    front = Front(broker)
    holder = broker.client()
    holder.subscribe("/queue/only", id="1")
    worker = front.worker()
    assert worker.ask(b"reserve-with-timeout 5\r\n") == b""
    broker.clock.advance(5.0)
    assert worker.heard() == b"TIMED_OUT\r\n"
    holder.send("UNSUBSCRIBE", id="1")
    broker.client().publish("/queue/default", b"x")
    assert worker.heard() == b""
