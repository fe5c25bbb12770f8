"""Expensive requests of one client run in parts, and other clients are served in between."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompkit.frames import Frame, encode
from stompkit.server import BrokerConfig
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.interfaces import Operation, Remove
from stompkit.server.selectors import Selector
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.effort import drawn
from tests.server.beanstalk.peers import Front
from tests.server.brokers import publish_all, refusal
from tests.server.busy import LONG, BusyClock, frames, is_served, iterate, iterations, receipts
from tests.server.failing import FailingStore

QUEUE = "/queue/a"


@pytest.fixture
def clock() -> BusyClock:
    """The clock of the broker."""
    return BusyClock()


@pytest.fixture(params=["memory", "stored"])
def broker(request: pytest.FixtureRequest, clock: BusyClock) -> MemoryBroker:
    """A broker with this clock."""
    store = MemoryStore() if request.param == "stored" else None
    return MemoryBroker(clock=clock, store=store)


# Selectors.


def test_selectors_of_one_client_leave_time_for_others(
    broker: MemoryBroker, clock: BusyClock
) -> None:
    producer, picky, other = (broker.client() for _ in range(3))
    publish_all(producer, QUEUE, [b"x"] * 200, n="1")
    producer.publish(QUEUE, b"found", n="1050")
    clock.is_busy = True
    picky.subscribe(QUEUE, selector=LONG)
    assert picky.bodies() == []
    found: list[bytes] = []

    def is_found() -> bool:
        assert is_served(other)
        found.extend(picky.bodies())
        return bool(found)

    assert iterations(clock, is_found) > 1
    assert found == [b"found"]


def test_a_consumer_without_a_selector_does_not_wait_for_those_of_others(
    broker: MemoryBroker, clock: BusyClock
) -> None:
    producer, picky, plain = (broker.client() for _ in range(3))
    publish_all(producer, QUEUE, [b"x"] * 200, n="1")
    clock.is_busy = True
    picky.subscribe(QUEUE, selector=LONG)
    plain.subscribe(QUEUE)
    assert plain.bodies() == [b"x"] * 200


def test_a_selector_is_evaluated_once_for_each_message(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0
    takes = Selector.takes

    def counted(self: Selector, headers: dict[str, str]) -> bool:
        nonlocal count
        count += 1
        return takes(self, headers)

    monkeypatch.setattr(Selector, "takes", counted)
    producer, picky, other = (broker.client() for _ in range(3))
    publish_all(producer, QUEUE, [b"x"] * 100, n="1")
    for number in range(10):
        picky.subscribe(QUEUE, id=str(number), selector="n = 2", ack="client")
    assert count <= 1_000
    count = 0
    # Messages with equal headers are evaluated together.
    publish_all(producer, QUEUE, [b"x"] * 10, n="1")
    assert count == 10
    # A requeued message is evaluated again.
    other.subscribe(QUEUE, id="taker", ack="client-individual", prefetch_count="1")
    [message] = other.take("MESSAGE")
    count = 0
    other.nack(message)
    other.close()
    assert 0 < count <= 10 * 110


def test_messages_of_a_topic_with_costly_selectors_come_in_their_order(
    broker: MemoryBroker, clock: BusyClock
) -> None:
    sender, reader, other, plain = (broker.client() for _ in range(4))
    plain.subscribe("/topic/t")
    for number in range(40):
        reader.subscribe("/topic/t", id=str(number), selector=f"{LONG} OR n = {number}")
    bodies = [b"%d" % number for number in range(1, 6)]
    clock.is_busy = True
    sender.write(
        b"".join(
            encode(
                Frame("SEND", {"destination": "/topic/t", "n": "1000", "receipt": str(n)}, body),
                "1.2",
            )
            for n, body in enumerate(bodies)
        )
    )
    answered: list[str] = []

    def is_over() -> bool:
        assert is_served(other)
        answered.extend(receipts(sender))
        return len(answered) == len(bodies)

    assert iterations(clock, is_over) > 1
    iterations(clock, lambda: not broker.destinations["/topic/t"].is_busy)
    assert answered == [str(number) for number in range(len(bodies))]
    assert plain.bodies() == bodies
    by_subscription: dict[str, list[bytes]] = {}
    for message in reader.take("MESSAGE"):
        by_subscription.setdefault(message.headers["subscription"], []).append(message.body)
    assert list(by_subscription.values()) == [bodies] * 40


def test_who_subscribes_later_gets_nothing_of_what_was_sent_before(
    broker: MemoryBroker, clock: BusyClock
) -> None:
    sender, reader, late = (broker.client() for _ in range(3))
    for number in range(40):
        reader.subscribe("/topic/t", id=str(number), selector=f"{LONG} OR n = {number}")
    clock.is_busy = True
    sender.publish("/topic/t", b"before", n="1000")
    sender.publish("/topic/t", b"after", n="1000")
    late.subscribe("/topic/t", id="late")
    iterations(clock, lambda: not broker.destinations["/topic/t"].is_busy)
    assert b"before" not in late.bodies()


# Patterns.


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_pattern_comes_to_many_queues_a_part_at_a_time(
    broker: MemoryBroker, clock: BusyClock, kind: str
) -> None:
    producer, reader, other, holder = (broker.client() for _ in range(4))
    names = [f"/{kind}/p.{number}" for number in range(600)]
    for number, name in enumerate(names):
        if kind == "topic":
            holder.subscribe(name, id=str(number))
        else:
            producer.publish(name, name.encode())
    clock.is_busy = True
    reader.send("SUBSCRIBE", id="1", destination=f"/{kind}/p.*", receipt="r")
    came: list[Frame] = []

    def is_over() -> bool:
        assert is_served(other)
        came.extend(reader.take())
        return any(each.command == "RECEIPT" for each in came)

    assert iterations(clock, is_over) > 1
    if kind == "topic":
        for name in names:
            producer.publish(name, name.encode())

    def is_all() -> bool:
        came.extend(reader.take())
        bodies = {each.body for each in came if each.command == "MESSAGE"}
        return bodies == {name.encode() for name in names}

    iterations(clock, is_all)
    reader.send("UNSUBSCRIBE", id="1")
    for name in names:
        producer.publish(name, b"too late")
    for _ in range(100):
        iterate(clock)
    assert reader.bodies() == []
    assert refusal(reader) is None


def test_a_client_that_leaves_while_it_subscribes_is_nowhere(
    broker: MemoryBroker, clock: BusyClock
) -> None:
    producer, reader = broker.client(), broker.client()
    for number in range(600):
        producer.publish(f"/queue/p.{number}", b"x")
    clock.is_busy = True
    for number in range(3):
        reader.send("SUBSCRIBE", id=str(number), destination="/queue/p.*", ack="client")
    reader.drop()
    for _ in range(300):
        iterate(clock)
    clock.is_busy = False
    assert all(each.consumers == 0 for each in broker.destinations.values())
    last = broker.client()
    last.subscribe("/queue/p.*")
    assert len(last.bodies()) == 600


# Frames and commands.


def test_many_frames_of_one_client_leave_time_for_others(
    broker: MemoryBroker, clock: BusyClock
) -> None:
    busy, other = broker.client(), broker.client()
    clock.is_busy = True
    numbers = [str(number) for number in range(2_000)]
    busy.write(frames(*(("SEND", {"destination": QUEUE, "receipt": number}) for number in numbers)))
    answered = receipts(busy)
    assert len(answered) < len(numbers)

    def is_over() -> bool:
        assert is_served(other)
        answered.extend(receipts(busy))
        return len(answered) == len(numbers)

    iterations(clock, is_over)
    assert answered == numbers


def test_many_commands_of_one_worker_leave_time_for_others(clock: BusyClock) -> None:
    front = Front(MemoryBroker(clock=clock))
    worker, other = front.worker(), front.worker()
    clock.is_busy = True
    worker.transport.deliver(b"put 0 0 60 1\r\nx\r\n" * 500)
    answers = worker.transport.take()
    assert answers.count(b"INSERTED") < 500

    def is_over() -> bool:
        nonlocal answers
        other.transport.deliver(b"list-tube-used\r\n")
        assert other.transport.take() == b"USING default\r\n"
        answers += worker.transport.take()
        return answers.count(b"INSERTED") == 500

    iterations(clock, is_over)
    assert answers == b"".join(b"INSERTED %d\r\n" % number for number in range(1, 501))


# Delayed jobs.


def test_kick_takes_the_jobs_that_are_due_first() -> None:
    front = Front(MemoryBroker())
    worker = front.worker()
    for delay in range(1_000, 0, -1):
        worker.ask(b"put 0 %d 60 %d\r\n%d\r\n" % (delay, len(str(delay)), delay))
    # Jobs 1000 down to 1 are due after 1000 down to 1 seconds.
    assert worker.ask(b"delete 999\r\n") == b"DELETED\r\n"
    worker.transport.deliver(b"kick 600\r\n")
    answers = b""
    for _ in range(20):
        answers += worker.heard()
    assert answers == b"KICKED 600\r\n"
    bodies = []
    for _ in range(600):
        _, body, _ = worker.ask(b"reserve\r\n").split(b"\r\n")
        bodies.append(int(body))
    assert sorted(bodies) == [1, *range(3, 602)]
    assert worker.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"


def test_what_a_connection_has_not_acknowledged_comes_back_in_parts_and_in_its_order(
    broker: MemoryBroker, clock: BusyClock
) -> None:
    broker.broker.reload(broker.broker.config.changed(max_prefetch=10_000))
    bodies = [b"%d" % number for number in range(3_000)]
    publish_all(broker.client(), QUEUE, bodies)
    reader, waiting, other = (broker.client() for _ in range(3))
    reader.subscribe(QUEUE, ack="client-individual", prefetch_count="2500")
    assert reader.bodies() == bodies[:2_500]
    # Other consumers may have a few of the messages.
    waiting.subscribe(QUEUE, ack="client-individual", prefetch_count="100")
    first = waiting.take("MESSAGE")
    clock.is_busy = True
    reader.drop()
    assert waiting.take("MESSAGE") == []
    other.publish("/topic/none", receipt="r")
    assert other.take("RECEIPT") != []
    clock.is_busy = False
    queue = broker.destinations[QUEUE]
    assert isinstance(queue, Queue)
    assert iterations(clock, lambda: not queue.returning) > 0
    for message in first:
        waiting.ack(message)
    waiting.close()
    last = broker.client()
    last.subscribe(QUEUE)
    assert last.bodies() == bodies[:2_500] + bodies[2_600:]
    assert queue.messages == 0


def test_what_is_coming_back_when_the_broker_ends_is_marked_as_delivered(clock: BusyClock) -> None:
    store = MemoryStore()
    broker = MemoryBroker(clock=clock, store=store)
    publish_all(broker.client(), QUEUE, [b"%d" % number for number in range(2_000)])
    reader = broker.client()
    reader.subscribe(QUEUE, ack="client-individual", prefetch_count="1500")
    clock.is_busy = True
    reader.drop()
    broker.broker.close()
    clock.is_busy = False
    reader = MemoryBroker(clock=clock, store=store).client()
    reader.subscribe(QUEUE)
    iterate(clock)
    messages = reader.take("MESSAGE")
    assert [each.body for each in messages] == [b"%d" % number for number in range(2_000)]
    assert sum("redelivered" in each.headers for each in messages) == 1_500


def test_messages_that_come_back_are_not_taken_away_by_the_timeout(clock: BusyClock) -> None:
    broker = MemoryBroker(BrokerConfig(ack_timeout_s=1.0), clock=clock)
    publish_all(broker.client(), QUEUE, [b"%d" % number for number in range(2_000)])
    reader = broker.client()
    reader.subscribe(QUEUE, ack="client-individual", prefetch_count="1500")
    clock.is_busy = True
    reader.drop()
    clock.is_busy = False
    clock.advance(5.0)
    iterations(clock, lambda: not broker.destinations[QUEUE].returning)
    last = broker.client()
    last.subscribe(QUEUE)
    assert last.bodies() == [b"%d" % number for number in range(2_000)]


def test_settings_of_many_destinations_change_in_parts(
    broker: MemoryBroker, clock: BusyClock
) -> None:
    sender = broker.client()
    for number in range(1_000):
        sender.publish(f"/queue/{number}", b"x")
    clock.is_busy = True
    broker.broker.reload(broker.broker.config.changed(max_queue_messages=1))
    assert {each.policy.max_queue_messages for each in broker.destinations.values()} > {1}
    # New queues get the new settings, and another change starts again.
    sender.publish("/queue/new", b"x")
    assert broker.destinations["/queue/new"].policy.max_queue_messages == 1
    broker.broker.reload(broker.broker.config.changed(max_queue_messages=2))
    clock.is_busy = False

    def is_over() -> bool:
        return {each.policy.max_queue_messages for each in broker.destinations.values()} == {2}

    assert iterations(clock, is_over) > 0


# Transactions.


def begun(client: MemoryClient, names: list[str]) -> None:
    """Send to destinations in a transaction, but no COMMIT."""
    client.send("BEGIN", transaction="t")
    for name in names:
        client.send("SEND", destination=name, transaction="t")


def test_a_commit_makes_many_destinations_a_part_at_a_time(
    broker: MemoryBroker, clock: BusyClock
) -> None:
    sender, reader, other = (broker.client() for _ in range(3))
    names = [f"/queue/{number}" for number in range(600)]
    begun(sender, names)
    clock.is_busy = True
    sender.write(
        frames(
            ("COMMIT", {"transaction": "t", "receipt": "commit"}),
            ("SEND", {"destination": names[-1], "receipt": "behind"}),
        )
    )
    assert receipts(sender) == []
    answered: list[str] = []

    def is_over() -> bool:
        assert is_served(other)
        answered.extend(receipts(sender))
        if not answered:
            assert {each.received for each in broker.destinations.values()} == {0}
        return len(answered) == 2

    assert iterations(clock, is_over) > 1
    assert answered == ["commit", "behind"]
    clock.is_busy = False
    reader.subscribe("/queue/*")
    assert len(reader.bodies()) == 601
    reader.close()
    iterations(clock, lambda: not broker.destinations)


def test_a_small_commit_does_not_wait_for_a_large_one(
    broker: MemoryBroker, clock: BusyClock
) -> None:
    large, small = broker.client(), broker.client()
    begun(large, [f"/queue/{number}" for number in range(2_000)])
    begun(small, [f"/queue/small/{number}" for number in range(40)])
    clock.is_busy = True
    for client in (large, small):
        client.send("COMMIT", transaction="t", receipt="r")
    iterations(clock, lambda: receipts(small))
    assert receipts(large) == []
    iterations(clock, lambda: receipts(large))


@pytest.mark.parametrize("why", ["limit", "message", "cut", "reset"])
def test_what_was_made_for_a_commit_goes_again_where_that_is_not_done(
    broker: MemoryBroker, clock: BusyClock, why: str
) -> None:
    broker.broker.reload(
        broker.broker.config.changed(
            max_destinations=500 if why == "limit" else 10_000,
            max_queue_messages=1,
        )
    )
    sender, other = broker.client(), broker.client()
    other.publish("/queue/full", b"kept")
    other.publish(QUEUE, b"kept")
    sender.subscribe(QUEUE, ack="client-individual")
    [message] = sender.take("MESSAGE")
    begun(sender, [f"/queue/{number}" for number in range(600)])
    sender.send("ACK", id=message.headers["ack"], transaction="t")
    if why == "message":
        sender.send("SEND", destination="/queue/full", transaction="t")
    clock.is_busy = True
    sender.send("COMMIT", transaction="t", receipt="r")
    assert receipts(sender) == []
    if why == "cut":
        sender.drop()
    elif why == "reset":
        broker.broker.reset()
    left = {"/queue/full", QUEUE} if why != "reset" else set()
    iterations(clock, lambda: broker.destinations.keys() == left)
    assert receipts(sender) == []
    codes = {"limit": "too-many-destinations", "message": "queue-full", "reset": "reset"}
    if why in codes:
        assert refusal(sender) == codes[why]
    clock.is_busy = False
    reader = broker.client()
    reader.subscribe(QUEUE)
    assert reader.bodies() == ([] if why == "reset" else [b"kept"])
    # The next transaction is committed.
    sender = broker.client()
    begun(sender, [f"/queue/{number}" for number in range(400)])
    sender.send("COMMIT", transaction="t", receipt="r")
    assert receipts(sender) == ["r"]


def test_a_commit_that_takes_its_time_is_not_one_that_is_open_for_too_long(
    clock: BusyClock,
) -> None:
    broker = MemoryBroker(BrokerConfig(transaction_timeout_s=0.3), clock=clock)
    sender = broker.client()
    begun(sender, [f"/queue/{number}" for number in range(10_000)])
    clock.is_busy = True
    sender.send("COMMIT", transaction="t", receipt="r")
    began = clock.rightNow
    iterations(clock, lambda: receipts(sender))
    assert clock.rightNow > began + 0.3
    assert refusal(sender) is None


def test_a_destination_that_a_commit_needs_stays_until_then(
    broker: MemoryBroker, clock: BusyClock
) -> None:
    sender, other = broker.client(), broker.client()
    names = [f"/{kind}/{number}" for number in range(300) for kind in ("queue", "topic")]
    begun(sender, names)
    clock.is_busy = True
    sender.send("COMMIT", transaction="t", receipt="r")
    first = broker.destinations[names[0]]
    other.subscribe(names[0], id="1")
    other.send("UNSUBSCRIBE", id="1")
    assert broker.destinations[names[0]] is first
    iterations(clock, lambda: receipts(sender))
    assert broker.destinations[names[0]] is first
    iterations(clock, lambda: not any(name in broker.destinations for name in names[1::2]))


# Acknowledgements of many messages.


def holding(broker: MemoryBroker, count: int) -> tuple[MemoryClient, Frame]:
    """Return a client with *count* messages in the mode ``client``, and the last message."""
    broker.broker.reload(broker.broker.config.changed(max_prefetch=10_000, nack="requeue"))
    publish_all(broker.client(), QUEUE, [b"%d" % number for number in range(count)])
    reader = broker.client()
    reader.subscribe(QUEUE, ack="client", prefetch_count="5000")
    *_, last = reader.take("MESSAGE")
    return reader, last


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_an_answer_for_many_messages_is_done_in_parts(
    broker: MemoryBroker, clock: BusyClock, command: str
) -> None:
    reader, last = holding(broker, 5_000)
    other = broker.client()
    clock.is_busy = True
    reader.write(
        frames(
            (command, {"id": last.headers["ack"], "receipt": "all"}),
            ("SEND", {"destination": "/topic/none", "receipt": "behind"}),
        )
    )
    came = reader.take()
    assert "RECEIPT" not in {each.command for each in came}
    queue = broker.destinations[QUEUE]
    assert isinstance(queue, Queue)

    def is_over() -> bool:
        assert is_served(other)
        came.extend(reader.take())
        return sum(each.command == "RECEIPT" for each in came) == 2

    assert iterations(clock, is_over) > 0
    clock.is_busy = False
    if command == "ACK":
        assert queue.messages == queue.unsettled == 0
    else:
        again = [each for each in [*came, *reader.take()] if each.command == "MESSAGE"]
        assert [each.body for each in again] == [b"%d" % number for number in range(5_000)]
        assert {each.headers["redelivered"] for each in again} == {"true"}
    assert refusal(reader) is None


def test_what_a_client_has_acknowledged_before_it_left_does_not_come_again(
    broker: MemoryBroker, clock: BusyClock
) -> None:
    reader, last = holding(broker, 5_000)
    sender = broker.client()
    sender.publish(QUEUE, b"later")
    clock.is_busy = True
    reader.ack(last)
    reader.drop()
    clock.is_busy = False
    queue = broker.destinations[QUEUE]
    assert isinstance(queue, Queue)
    iterations(clock, lambda: queue.messages == 1)
    last_reader = broker.client()
    last_reader.subscribe(QUEUE)
    assert last_reader.bodies() == [b"later"]


def test_what_is_being_acknowledged_when_the_broker_ends_is_acknowledged(clock: BusyClock) -> None:
    store = MemoryStore()
    broker = MemoryBroker(clock=clock, store=store)
    reader, last = holding(broker, 3_000)
    clock.is_busy = True
    reader.ack(last)
    broker.broker.close()
    clock.is_busy = False
    reader = MemoryBroker(clock=clock, store=store).client()
    reader.subscribe(QUEUE)
    assert reader.bodies() == []


def test_messages_that_are_being_acknowledged_are_not_taken_away_by_the_timeout(
    clock: BusyClock,
) -> None:
    broker = MemoryBroker(BrokerConfig(ack_timeout_s=0.5), clock=clock)
    reader, last = holding(broker, 5_000)
    other = broker.client()
    other.subscribe(QUEUE)
    clock.is_busy = True
    reader.ack(last, receipt="r")
    clock.rightNow += 0.6
    iterations(clock, lambda: receipts(reader))
    assert other.bodies() == []
    assert broker.destinations[QUEUE].totals.dead_lettered == 0


def test_an_answer_of_which_the_store_keeps_a_part_only_gets_no_receipt(clock: BusyClock) -> None:
    store = FailingStore()
    broker = MemoryBroker(clock=clock, store=store)
    reader, last = holding(broker, 5_000)
    removed = 0

    def fails(operations: Sequence[Operation]) -> bool:
        nonlocal removed
        removed += sum(isinstance(each, Remove) for each in operations)
        return removed > 1_000

    store.fails = fails
    clock.is_busy = True
    reader.ack(last, receipt="r")
    iterations(clock, lambda: reader.error is not None)
    assert receipts(reader) == []
    assert refusal(reader) == "store-full"


@pytest.mark.parametrize("end", ["stays", "leaves"])
def test_a_commit_settles_many_messages_in_parts(
    broker: MemoryBroker, clock: BusyClock, end: str
) -> None:
    reader, last = holding(broker, 5_000)
    other, sink = broker.client(), broker.client()
    sink.subscribe("/queue/other")
    reader.send("BEGIN", transaction="t")
    reader.ack(last, transaction="t")
    reader.send("SEND", destination="/queue/other", transaction="t")
    queue = broker.destinations[QUEUE]
    assert isinstance(queue, Queue)
    clock.is_busy = True
    reader.send("COMMIT", transaction="t", receipt="all")
    # The transaction takes effect at one moment, which has not come yet.
    assert queue.messages == 5_000

    def is_over() -> bool:
        assert is_served(other)
        assert queue.messages in (0, 5_000)
        return not queue.messages

    assert iterations(clock, is_over) > 0
    if end == "leaves":
        reader.drop()
    else:
        assert receipts(reader) == ["all"]
        # The cleanup needs more iterations, but the acknowledgements are already invalid.
        reader.ack(last)
        assert refusal(reader) == "unknown-acknowledgement"
    clock.is_busy = False
    for _ in range(20):
        iterate(clock)
    assert sink.bodies() == [b""]
    again = broker.client()
    again.subscribe(QUEUE)
    assert again.bodies() == []
    again.close()
    assert QUEUE not in broker.destinations


def test_who_leaves_before_a_large_transaction_is_committed_has_not_committed_it(
    broker: MemoryBroker, clock: BusyClock
) -> None:
    reader, last = holding(broker, 5_000)
    reader.send("BEGIN", transaction="t")
    reader.ack(last, transaction="t")
    reader.send("SEND", destination="/queue/other", transaction="t")
    clock.is_busy = True
    reader.send("COMMIT", transaction="t", receipt="all")
    reader.drop()
    clock.is_busy = False
    for _ in range(100):
        iterate(clock)
    again = broker.client()
    again.subscribe(QUEUE)
    assert again.bodies() == [b"%d" % number for number in range(5_000)]
    assert "/queue/other" not in broker.destinations


@pytest.mark.parametrize("size", [10, 5_000])
def test_a_commit_that_the_store_can_not_keep_gives_back_what_it_acknowledged(
    clock: BusyClock, size: int
) -> None:
    store = FailingStore()
    broker = MemoryBroker(clock=clock, store=store)
    reader, last = holding(broker, size)
    reader.send("BEGIN", transaction="t")
    reader.ack(last, transaction="t")
    reader.send("SEND", destination="/queue/other", transaction="t")
    store.fails = lambda operations: any(isinstance(each, Remove) for each in operations)
    clock.is_busy = True
    reader.send("COMMIT", transaction="t", receipt="all")
    iterations(clock, lambda: reader.error is not None)
    assert receipts(reader) == []
    store.fails = lambda _: False
    clock.is_busy = False
    for _ in range(100):
        iterate(clock)
    again = broker.client()
    again.subscribe(QUEUE)
    assert again.bodies() == [b"%d" % number for number in range(size)]
    assert "/queue/other" not in broker.destinations


@pytest.mark.parametrize("destination", [QUEUE, "/topic/t"])
def test_what_a_commit_settles_makes_room_for_what_it_sends(
    broker: MemoryBroker, destination: str
) -> None:
    reader, last = holding(broker, 1_000)
    changed = broker.broker.config.changed(max_queue_messages=1_000, when_full="reject")
    broker.broker.reload(changed)
    reader.subscribe("/topic/t", id="topic")
    reader.send("BEGIN", transaction="t")
    reader.ack(last, transaction="t")
    for _ in range(1_000):
        reader.send("SEND", destination=destination, transaction="t")
    reader.send("COMMIT", transaction="t", receipt="all")
    messages = reader.take("MESSAGE")
    assert [each.headers["destination"] for each in messages] == [destination] * 1_000
    assert refusal(reader) is None


@given(data=st.data())
@settings(max_examples=drawn(40))
def test_a_large_transaction_takes_effect_as_a_whole_or_not_at_all(data: st.DataObject) -> None:
    clock = BusyClock()
    store = data.draw(st.sampled_from([None, FailingStore()]), "store")
    broker = MemoryBroker(clock=clock, store=store)
    count = data.draw(st.integers(450, 1_600), "messages")
    sent = data.draw(st.lists(st.sampled_from([QUEUE, "/queue/b", "/topic/t"]), max_size=5), "sent")
    reader, last = holding(broker, count)
    other, topic = broker.client(), broker.client()
    topic.subscribe("/topic/t")
    reader.send("BEGIN", transaction="t")
    reader.ack(last, transaction="t")
    for number, name in enumerate(sent):
        reader.publish(name, b"sent %d" % number, transaction="t")
    fails = store is not None and data.draw(st.booleans(), "the store fails")
    if store is not None:
        store.fails = lambda operations: fails and any(isinstance(op, Remove) for op in operations)
    is_full = data.draw(st.booleans(), "no queue has room for more")
    if is_full:
        other.publish("/queue/b", b"before")
        broker.broker.reload(broker.broker.config.changed(max_queue_messages=1))
    end = data.draw(st.sampled_from(["COMMIT", "ABORT"]), "end")
    clock.is_busy = True
    reader.send(end, transaction="t", receipt="r")
    for _ in range(data.draw(st.integers(0, 6), "turns until it leaves")):
        assert is_served(other)
        iterate(clock)
    is_receipted = receipts(reader) == ["r"]
    reader.drop()
    fails = False
    clock.is_busy = False
    for _ in range(50):
        iterate(clock)
    broker.broker.reload(broker.broker.config.changed(max_queue_messages=10_000))

    def of(name: str) -> list[bytes]:
        return [b"sent %d" % number for number, to in enumerate(sent) if to == name]

    before = [b"before"] if is_full else []
    done = [of(QUEUE), before + of("/queue/b"), of("/topic/t")]
    undone = [[b"%d" % number for number in range(count)], before, []]
    found = [drained(broker, QUEUE), drained(broker, "/queue/b"), topic.bodies()]
    if end == "ABORT":
        assert found == undone
    elif is_receipted:
        assert found == done
    else:
        assert found in (done, undone)


def drained(broker: MemoryBroker, queue: str) -> list[bytes]:
    """Remove and return all messages of a queue."""
    reader = broker.client()
    reader.subscribe(queue)
    found = reader.bodies()
    reader.close()
    return found
