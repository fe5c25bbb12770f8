"""Full queues drop the oldest messages, wherever they are stored, and only for stored ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from stompkit.frames import Frame, encode
from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.queues.upkeep import Outcome, Selection, Sweep, move_to
from stompkit.server.interfaces import Operation, Put
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import publish_all, refusal, take_one
from tests.server.failing import KINDS, FailingStore, HeldRunner, failing_store
from tests.server.many_queues import numbered

QUEUE, TOPIC, FANOUT = "/queue/a", "/topic/t", "/fanout/f"
DURABLE = {"activemq.subscriptionName": "d"}
#: Size of one message with a one-digit body, as the broker counts it.
SIZE = len("destination" + QUEUE + "content-length" + "1" + "1")


class Home:
    """A store of one kind, with one broker after the other."""

    def __init__(self, kind: str, directory: Path) -> None:
        """Create the store, but no broker yet."""
        self.store: FailingStore | None = None
        if kind != "none":
            self.store = failing_store(kind, directory)
        self.runner = HeldRunner()
        self.clock = Clock()
        self.config = BrokerConfig()

    def broker(self, **settings: object) -> MemoryBroker:
        """Return a new broker, with a window of three messages."""
        self.runner = HeldRunner()
        self.config = self.config.changed(window_messages=3, when_full="drop-oldest", **settings)
        runner = None if self.store is None else self.runner
        return MemoryBroker(self.config, clock=self.clock, store=self.store, runner=runner)

    def killed(self) -> None:
        """Leave the store as a killed broker does."""
        assert self.store is not None
        self.store.close()
        clock = Clock()
        clock.rightNow = self.clock.seconds()
        self.clock = clock


@pytest.fixture(params=["none", *KINDS])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """In memory, and with each kind of store."""
    made = Home(request.param, tmp_path)
    yield made
    if made.store is not None:
        made.store.close()


@pytest.fixture(params=KINDS)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """With each kind of store."""
    made = Home(request.param, tmp_path)
    yield made
    assert made.store is not None
    made.store.close()


def burst(
    client: MemoryClient, bodies: list[bytes], destination: str = QUEUE, **headers: str
) -> None:
    """Send messages in one write."""
    frames = [Frame("SEND", {"destination": destination, **headers}, body) for body in bodies]
    client.write(b"".join(encode(frame, "1.2") for frame in frames))


def collect(broker: MemoryBroker) -> MemoryClient:
    """Return the durable subscriber, which gets the collected messages."""
    client = broker.client(client_id="c")
    client.send("SUBSCRIBE", {"id": "0", "destination": TOPIC, **DURABLE})
    return client


def drained(broker: MemoryBroker, queue: str = QUEUE) -> list[bytes]:
    """Remove and return all messages of a queue."""
    client = broker.client()
    client.subscribe(queue)
    bodies = client.bodies()
    client.close()
    return bodies


def fails_with(*bodies: bytes) -> Callable[[Sequence[Operation]], bool]:
    """Return a function that is true if operations store one of these messages."""

    def fails(operations: Sequence[Operation]) -> bool:
        return any(isinstance(each, Put) and each.body in bodies for each in operations)

    return fails


# The oldest are dropped, in memory and in any store.


@pytest.mark.parametrize("most", [1, 5])
def test_a_burst_leaves_the_newest(home: Home, most: int) -> None:
    broker = home.broker(max_queue_messages=most)
    sender = broker.client()
    for first in (1, 101):
        burst(sender, numbered(first, first + 99))
    assert refusal(sender) is None
    assert broker.destinations[QUEUE].dropped == 200 - most
    assert drained(broker) == numbered(201 - most, 200)


def test_a_burst_leaves_a_durable_subscription_the_newest(home: Home) -> None:
    broker = home.broker(max_queue_messages=10)
    collect(broker).close()
    sender = broker.client()
    for first in (1, 41):
        burst(sender, numbered(first, first + 39), TOPIC)
    sender.publish(TOPIC, b"last")
    assert refusal(sender) is None
    assert collect(broker).bodies() == [*numbered(72, 80), b"last"]


def test_a_large_message_pushes_out_what_is_only_in_the_store(home: Home) -> None:
    broker = home.broker(max_queue_bytes=20 * SIZE)
    sender = broker.client()
    publish_all(sender, QUEUE, [b"%d" % (n % 10) for n in range(20)])
    large = b"x" * (16 * SIZE - 50)
    sender.publish(QUEUE, large, receipt="r")
    assert refusal(sender) is None
    assert drained(broker) == [*numbered(6, 9), large][-5:]


def test_a_transaction_pushes_out_what_is_only_in_the_store(home: Home) -> None:
    broker = home.broker(max_queue_messages=20)
    sender = broker.client()
    publish_all(sender, QUEUE, numbered(1, 20))
    sender.send("BEGIN", transaction="t")
    publish_all(sender, QUEUE, numbered(21, 35), transaction="t")
    sender.send("COMMIT", transaction="t", receipt="r")
    assert refusal(sender) is None
    assert drained(broker) == numbered(16, 35)


def test_the_lowest_priority_goes_first_wherever_it_is(home: Home) -> None:
    broker = home.broker(max_queue_messages=12, priority=True)
    sender = broker.client()
    for priority in "951":
        publish_all(
            sender, QUEUE, [b"%s-%d" % (priority.encode(), n) for n in range(4)], priority=priority
        )
    burst(sender, [b"7-%d" % n for n in range(6)], priority="7")
    left = [(b"9", 0, 4), (b"7", 0, 6), (b"5", 2, 4)]
    assert drained(broker) == [b"%s-%d" % (p, n) for p, a, b in left for n in range(a, b)]


def test_a_low_priority_beyond_the_window_goes_before_a_high_one_within(home: Home) -> None:
    broker = home.broker(max_queue_messages=8, priority=True)
    sender = broker.client()
    burst(sender, [b"low %d" % n for n in range(6)], priority="0")
    burst(sender, [b"high %d" % n for n in range(6)], priority="9")
    assert drained(broker) == [*(b"high %d" % n for n in range(6)), b"low 4", b"low 5"]


def test_what_goes_on_collecting_after_a_restart_drops_the_oldest(stored: Home) -> None:
    broker = stored.broker(max_queue_messages=10)
    collect(broker).close()
    publish_all(broker.client(), TOPIC, numbered(1, 10))
    publish_all(broker.client(), QUEUE, numbered(1, 10))
    broker.broker.close()
    broker = stored.broker()
    for name in (TOPIC, QUEUE):
        burst(broker.client(), numbered(11, 17), name)
    assert collect(broker).bodies() == numbered(8, 17)
    assert drained(broker) == numbered(8, 17)


def test_a_broker_that_was_killed_has_no_more_than_its_limits_allow(stored: Home) -> None:
    broker = stored.broker(max_queue_messages=5)
    sender = broker.client()
    burst(sender, numbered(1, 40))
    burst(sender, numbered(41, 80), receipt="r")
    assert len(sender.take("RECEIPT")) == 40
    stored.killed()
    assert drained(stored.broker()) == numbered(76, 80)


def test_lower_limits_hold_at_once(home: Home) -> None:
    broker = home.broker(max_queue_messages=20)
    publish_all(broker.client(), QUEUE, numbered(1, 20))
    broker.broker.reload(home.config.changed(max_queue_messages=4))
    assert broker.destinations[QUEUE].dropped == 16
    broker.broker.reload(home.config)
    assert drained(broker) == numbered(17, 20)


def test_a_queue_that_refuses_drops_nothing_for_lower_limits(home: Home) -> None:
    broker = home.broker(max_queue_messages=20)
    publish_all(broker.client(), QUEUE, numbered(1, 20))
    broker.broker.reload(home.config.changed(max_queue_messages=4, when_full="reject"))
    assert drained(broker) == numbered(1, 20)


def test_what_a_store_can_not_read_for_now_is_dropped_later(stored: Home) -> None:
    broker = stored.broker(max_queue_messages=10)
    sender = broker.client()
    publish_all(sender, QUEUE, numbered(1, 10))
    assert stored.store is not None
    stored.store.reads_fail = True
    burst(sender, numbered(11, 18))
    assert refusal(sender) is None
    consumer = broker.client()
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == []
    stored.store.reads_fail = False
    broker.clock.advance(1.0)
    assert consumer.bodies() == numbered(9, 18)


def test_no_limit_keeps_messages_back_that_is_no_more(stored: Home) -> None:
    broker = stored.broker(max_queue_messages=10)
    publish_all(broker.client(), QUEUE, numbered(1, 10))
    assert stored.store is not None
    stored.store.reads_fail = True
    burst(broker.client(), numbered(11, 18))
    consumer = broker.client()
    consumer.subscribe(QUEUE)
    broker.broker.reload(stored.config.changed(when_full="reject"))
    stored.store.reads_fail = False
    broker.clock.advance(1.0)
    # These three messages were in memory, and are dropped.
    assert consumer.bodies() == numbered(4, 18)


# Only stored messages push others out.


def test_what_the_store_can_not_keep_drops_nothing(stored: Home) -> None:
    broker = stored.broker(max_queue_messages=3)
    publish_all(broker.client(), QUEUE, numbered(1, 3))
    assert stored.store is not None
    stored.store.fails = fails_with(b"4", b"6")
    for bodies in ([b"4"], numbered(4, 6)):
        sender = broker.client()
        burst(sender, bodies)
        assert refusal(sender) == "store-full"
    # The second of the last three was stored, independently of its neighbours.
    assert drained(broker) == [b"2", b"3", b"5"]


def test_a_transaction_that_the_store_can_not_keep_drops_nothing(stored: Home) -> None:
    broker = stored.broker(max_queue_messages=3)
    consumer = broker.client()
    publish_all(broker.client(), QUEUE, numbered(1, 3))
    consumer.subscribe(QUEUE, ack="client", prefetch_count="1")
    message = take_one(consumer)
    assert stored.store is not None
    stored.store.fails = fails_with(b"5")
    consumer.send("BEGIN", transaction="t")
    consumer.ack(message, transaction="t")
    # The ACK leaves room for the second message, which must not be dropped any more.
    publish_all(consumer, QUEUE, numbered(4, 5), transaction="t")
    consumer.send("COMMIT", transaction="t")
    assert refusal(consumer) == "store-full"
    assert drained(broker) == numbered(1, 3)


def test_a_message_for_durable_subscriptions_that_can_not_be_kept_drops_nothing(
    stored: Home,
) -> None:
    broker = stored.broker(max_queue_messages=3)
    collect(broker).close()
    publish_all(broker.client(), TOPIC, numbered(1, 3))
    assert stored.store is not None
    stored.store.fails = fails_with(b"4")
    sender = broker.client()
    sender.publish(TOPIC, b"4")
    assert refusal(sender) == "store-full"
    assert collect(broker).bodies() == numbered(1, 3)


def test_a_copy_that_can_not_be_kept_drops_nothing_of_any_child(stored: Home) -> None:
    children = ("/queue/a", "/queue/b")
    table = DestinationConfig(name=FANOUT, children=children)
    broker = stored.broker(max_queue_messages=2, destinations=(table,))
    publish_all(broker.client(), FANOUT, numbered(1, 2))
    assert stored.store is not None
    stored.store.fails = fails_with(b"3")
    sender = broker.client()
    sender.publish(FANOUT, b"3")
    assert refusal(sender) == "store-full"
    assert [drained(broker, child) for child in children] == [numbered(1, 2)] * 2


def test_a_dead_letter_that_can_not_be_kept_drops_no_other(stored: Home) -> None:
    broker = stored.broker(max_queue_messages=2)
    consumer = broker.client()
    consumer.subscribe(QUEUE, ack="client", prefetch_count="1")
    for body in numbered(1, 3):
        broker.client().publish(QUEUE, body)
        if body == b"3":
            assert stored.store is not None
            stored.store.fails = fails_with(b"3")
        consumer.nack(take_one(consumer), requeue="false")
    assert refusal(consumer) == "store-full"
    assert drained(broker, "/dlq/a") == numbered(1, 2)
    assert drained(broker) == [b"3"]


@pytest.mark.parametrize("verb", ["ACK", "NACK"])
def test_a_transaction_needs_no_room_that_it_makes_itself(home: Home, verb: str) -> None:
    broker = home.broker(max_queue_messages=3)
    consumer = broker.client()
    publish_all(broker.client(), QUEUE, numbered(1, 3))
    consumer.subscribe(QUEUE, ack="client", prefetch_count="1")
    message = take_one(consumer)
    consumer.send("BEGIN", transaction="t")
    headers = {"transaction": "t"} | ({"requeue": "false"} if verb == "NACK" else {})
    consumer.send(verb, {"id": message.headers["ack"], **headers})
    consumer.publish(QUEUE, b"4", transaction="t")
    consumer.send("COMMIT", transaction="t")
    assert refusal(consumer) is None
    assert broker.destinations[QUEUE].dropped == 0
    consumer.close()
    assert drained(broker) == numbered(2, 4)


def test_a_subscriber_can_take_a_copy_after_what_the_same_transaction_acknowledges() -> None:
    broker = MemoryBroker(BrokerConfig(max_topic_backlog=1))
    client = broker.client()
    client.subscribe(TOPIC, ack="client", prefetch_count="1")
    publish_all(client, TOPIC, numbered(1, 2))
    client.send("BEGIN", transaction="t")
    client.ack(take_one(client), transaction="t")
    client.publish(TOPIC, b"3", transaction="t")
    client.send("COMMIT", transaction="t")
    client.ack(take_one(client))
    assert take_one(client).body == b"3"


def test_what_can_never_have_room_is_refused_alone(home: Home) -> None:
    broker = home.broker(max_queue_bytes=9 * SIZE)
    publish_all(broker.client(), QUEUE, numbered(1, 9))
    for in_transaction in (False, True):
        sender = broker.client()
        if in_transaction:
            sender.send("BEGIN", transaction="t")
            sender.publish(QUEUE, b"x" * 9 * SIZE, transaction="t")
            sender.send("COMMIT", transaction="t")
        else:
            sender.publish(QUEUE, b"x" * 9 * SIZE)
        assert refusal(sender) == "queue-too-small"
    assert drained(broker) == numbered(1, 9)


def test_what_a_durable_subscription_can_never_hold_is_lost_alone(home: Home) -> None:
    size = len("destination" + TOPIC + "content-length" + "1" + "1")
    broker = home.broker(max_queue_bytes=9 * size)
    collect(broker).close()
    sender = broker.client()
    publish_all(sender, TOPIC, [*numbered(1, 9), b"x" * 9 * size])
    assert refusal(sender) is None
    assert collect(broker).bodies() == numbered(1, 9)


def test_what_consumers_have_is_never_dropped_however_it_is_sent(home: Home) -> None:
    broker = home.broker(max_queue_messages=3)
    consumer = broker.client()
    consumer.subscribe(QUEUE, ack="client-individual", prefetch_count="2")
    burst(broker.client(), numbered(1, 3))
    burst(broker.client(), numbered(4, 20))
    first, second = consumer.take("MESSAGE")
    for message in (first, second):
        consumer.ack(message, receipt="r")
    assert [each.body for each in consumer.take("MESSAGE")] == [b"20"]
    assert consumer.error is None


def test_what_a_consumer_takes_at_once_is_not_dropped(home: Home) -> None:
    broker = home.broker(max_queue_messages=3)
    consumer = broker.client()
    consumer.subscribe(QUEUE)
    burst(broker.client(), numbered(1, 50))
    assert consumer.bodies() == numbered(1, 50)


def test_what_has_expired_goes_before_what_is_alive(home: Home) -> None:
    broker = home.broker(max_queue_messages=4)
    sender = broker.client()
    sender.publish(QUEUE, b"1")
    sender.publish(QUEUE, b"short-lived", expiration="1000")
    publish_all(sender, QUEUE, numbered(2, 3))
    broker.clock.advance(2.0)
    sender.publish(QUEUE, b"4")
    assert drained(broker) == numbered(1, 4)


def test_messages_that_an_operator_moves_push_out_the_oldest(home: Home) -> None:
    broker = home.broker(max_queue_messages=5)
    publish_all(broker.client(), QUEUE, numbered(1, 5))
    publish_all(broker.client(), "/queue/b", numbered(6, 8))
    source, target = broker.destinations["/queue/b"], broker.destinations[QUEUE]
    assert isinstance(source, Queue)
    assert isinstance(target, Queue)
    outcomes: list[Outcome] = []
    Sweep(source, Selection(), move_to(target), outcomes.append).start()
    broker.clock.pump([0.0] * 10)
    assert [each.done for each in outcomes] == [3]
    assert drained(broker) == numbered(4, 8)


# While messages are being stored.


def test_a_consumer_that_comes_after_a_burst_gets_the_newest_only(stored: Home) -> None:
    broker = stored.broker(max_queue_messages=3)
    stored.runner.is_held = True
    # The first write is in progress; the others wait for it.
    for first in (1, 21, 41):
        burst(broker.client(), numbered(first, first + 19))
    consumer, browser = broker.client(), broker.client()
    consumer.subscribe(QUEUE, ack="client", prefetch_count="1")
    browser.subscribe(QUEUE, browser="true")
    stored.runner.go_on()
    assert take_one(consumer).body == b"58"
    assert browser.bodies()[:-1] == numbered(58, 60)


def test_a_connection_with_one_message_at_a_time_is_served_once_all_is_dropped(
    stored: Home,
) -> None:
    broker = stored.broker(max_queue_messages=10, flow="one-in-flight")
    sender, consumer = broker.client(), broker.client()
    burst(sender, numbered(1, 10))
    stored.runner.is_held = True
    burst(sender, numbered(11, 27))
    consumer.subscribe(QUEUE, ack="client")
    stored.runner.go_on()
    bodies = []
    while messages := consumer.take("MESSAGE"):
        bodies += [each.body for each in messages]
        consumer.ack(messages[-1])
    assert bodies == numbered(18, 27)


def test_a_consumer_of_a_queue_that_is_not_full_need_not_wait(stored: Home) -> None:
    broker = stored.broker(max_queue_messages=30)
    burst(broker.client(), numbered(1, 2))
    stored.runner.is_held = True
    burst(broker.client(), numbered(3, 20))
    consumer = broker.client()
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == numbered(1, 2)
    stored.runner.go_on()
    assert consumer.bodies() == numbered(3, 20)


def test_a_durable_subscriber_that_comes_back_during_a_burst_gets_the_newest(
    stored: Home,
) -> None:
    broker = stored.broker(max_queue_messages=3)
    collect(broker).close()
    stored.runner.is_held = True
    for first in (1, 21):
        burst(broker.client(), numbered(first, first + 19), TOPIC)
    client = collect(broker)
    stored.runner.go_on()
    assert client.bodies() == numbered(38, 40)


@pytest.mark.parametrize("when_full", ["reject", "block"])
def test_what_is_on_its_way_has_a_place_in_queues_that_refuse(stored: Home, when_full: str) -> None:
    broker = stored.broker(max_queue_messages=3)
    broker.broker.reload(stored.config.changed(when_full=when_full))
    stored.runner.is_held = True
    sender = broker.client()
    burst(sender, numbered(1, 5))
    stored.runner.go_on()
    assert refusal(sender) == ("queue-full" if when_full == "reject" else None)
    assert broker.destinations[QUEUE].ready == 3
