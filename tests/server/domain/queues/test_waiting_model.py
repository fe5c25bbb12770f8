"""No client waits in vain: senders, consumers and workers against a model.

The model has the messages of one queue and its dead-letter queue, their expiry times, the waiting
clients and the reasons. Clients send, acknowledge, reject and leave. An operator pauses, purges and
reloads settings; time passes. After each step, the model checks that each waiting client really
lacks something. It detects faulty versions of the broker that forget to wake a client, as the last
tests show.
"""

# The names of a machine's rules and invariants describe them, like those of tests.
# ruff: noqa: D102

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stompkit.frames import Frame
from stompkit.server import BrokerConfig, DestinationConfig, MessageStore
from stompkit.server.beanstalk.hub import Hub
from stompkit.server.domain.queues.expiry import Expiry
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.stores.lmdb import LmdbStore
from stompkit.server.stores.memory import MemoryStore
from stompkit.server.stores.sqlalchemy import SqlAlchemyStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.effort import drawn
from tests.server.beanstalk.peers import Front, MemoryWorker
from tests.server.brokers import purged

Expired = Literal["discard", "dead-letter"]

QUEUE = "/queue/t"
LETTERS = "/dlq/t"
MOST_CLIENTS = 3
#: A binary fraction, so that sums of times are exact.
STEP_S = 0.125

_T = TypeVar("_T")


@dataclass(eq=False)
class Message:
    """A message, identified by its body."""

    body: bytes
    expires: float
    #: State: not sent yet, ready, held, overdue, in the dead letters, or gone.
    state: str = "sent"
    #: Number of messages that became overdue before it.
    place: int = 0


@dataclass(eq=False)
class Sender:
    """A client that sends one message at a time, and waits for its receipt."""

    stream: MemoryClient
    waits_for: Message | None = None


@dataclass(eq=False)
class Consumer:
    """A client that gets one message at a time."""

    stream: MemoryClient
    queue: str
    held: Frame | None = None


@dataclass(eq=False)
class Worker:
    """A client of beanstalkd that waits for a job, or has one."""

    stream: MemoryWorker
    is_waiting: bool = False
    held: Message | None = None


@dataclass
class Settings:
    """Settings of the operator."""

    most: int = 3
    when_full: str = "block"
    exclusive: bool = False
    expired: Expired = "discard"
    max_reserved: int = 1
    pause_until: float = 0.0
    is_paused: bool = False
    changes: dict[str, object] = field(default_factory=dict)


numbers = st.integers(0, 999)
#: Half a second to four seconds, or without limit.
lives = st.sampled_from((0, 4, 8, 16, 32))


def pick(things: list[_T], number: int) -> _T:
    return things[number % len(things)]


class WaitingMachine(RuleBasedStateMachine):
    """Clients of one queue with little room."""

    #: True if the broker always notices expired messages. It does not examine messages that are
    #: only in the store before a client waits, so the time at which they become dead letters
    #: varies.
    all_in_memory = True
    first_expired: Expired = "discard"
    most_letters = 2

    @staticmethod
    def make_store(directory: Path) -> MessageStore | None:
        """Return no store: messages are in memory."""
        return None

    @initialize()
    def begin(self) -> None:
        self.settings = Settings(expired=self.first_expired)
        self.directory = tempfile.TemporaryDirectory()
        letters = DestinationConfig(
            name=LETTERS,
            max_queue_messages=self.most_letters,
            when_full="reject",
            exclusive=False,
            message_ttl_s=0.0,
        )
        self.broker = MemoryBroker(
            BrokerConfig(
                max_queue_messages=self.settings.most,
                when_full="block",
                expired=self.settings.expired,
                window_messages=2,
                max_deliveries=1_000,
                destinations=(letters,),
            ),
            store=self.make_store(Path(self.directory.name)),
        )
        # Expiry uses wall-clock time, and 0 means "never".
        self.broker.clock.advance(1_000.0)
        self.front = Front(self.broker, max_reserved=1)
        self.senders = [Sender(self.broker.client()) for _ in range(MOST_CLIENTS)]
        self.consumers: list[Consumer] = []
        self.workers = [Worker(self.front.worker()) for _ in range(2)]
        for worker in self.workers:
            worker.stream.ask(b"use t\r\nwatch t\r\nignore default\r\n")
        self.operator = self.front.worker()
        # Creates the tube for pause-tube.
        self.operator.ask(b"use t\r\n")
        self.messages: dict[bytes, Message] = {}
        self.next_place = 0

    @property
    def now(self) -> float:
        return self.broker.clock.seconds()

    def in_state(self, *states: str) -> list[Message]:
        return [each for each in self.messages.values() if each.state in states]

    # Received frames.

    def observe(self) -> None:
        for _ in range(3):
            self.broker.clock.advance(0)
        self.expire()
        self.note_receipts()
        # Some messages expired while their senders waited. They arrive in the order of sending.
        self.expire(on_arrival=True)
        for consumer in self.consumers:
            for frame in consumer.stream.take("MESSAGE"):
                assert consumer.held is None
                message = self.messages[frame.body]
                wanted = "ready" if consumer.queue == QUEUE else "letter"
                assert message.state == wanted, message
                message.state = "held" if wanted == "ready" else "held letter"
                consumer.held = frame
                # A message that leaves the dead-letter queue makes room for others.
        for worker in self.workers:
            if answer := worker.stream.heard():
                self.note_answer(worker, answer)
        self.expire()

    def note_receipts(self) -> None:
        for sender in self.senders:
            if sender.waits_for is None:
                continue
            if sender.stream.error is not None:
                assert self.settings.when_full == "reject"
                assert sender.stream.error.headers["stompkit-code"] == "queue-full"
                sender.waits_for = None
                self.senders.remove(sender)
                self.senders.append(Sender(self.broker.client()))
                return self.note_receipts()
            if sender.stream.take("RECEIPT"):
                message, sender.waits_for = sender.waits_for, None
                message.state = "ready"
                self.messages[message.body] = message
        return None

    def note_answer(self, worker: Worker, answer: bytes) -> None:
        if answer == b"DEADLINE_SOON\r\n":
            worker.is_waiting = False
            return
        head, body, _ = answer.split(b"\r\n")
        assert head.startswith(b"RESERVED")
        assert worker.is_waiting
        message = self.messages[body]
        assert message.state == "ready"
        message.state, worker.held, worker.is_waiting = "held", message, False

    def expire(self, *, on_arrival: bool = False) -> None:
        """Record the automatic events: expired messages."""
        # Waiting clients are recorded in the order of senders, not of messages.
        expired = [each for each in self.in_state("ready") if 0 < each.expires <= self.now]
        expired.sort(key=lambda each: (0.0 if on_arrival else each.expires, int(each.body)))
        for message in expired:
            message.state, message.place = "overdue", self.next_place
            self.next_place += 1
        # A message that has already expired on arrival is behind those that wait for room.
        for message in sorted(self.in_state("overdue"), key=lambda each: each.place):
            if self.settings.expired == "discard":
                message.state = "gone"
            elif len(self.in_state("letter", "held letter")) < self.most_letters:
                message.state = "letter"

    # Actions of clients.

    @rule(who=numbers, life=lives)
    def send(self, who: int, life: int) -> None:
        free = [each for each in self.senders if each.waits_for is None]
        if not free:
            return
        sender = pick(free, who)
        expires = self.now + life * STEP_S if life else 0.0
        body = b"%d" % (len(self.messages) + 1_000 * len(self.senders) + self.next_number())
        sender.waits_for = Message(body, expires)
        headers = {"expires": str(round(expires * 1_000))} if life else {}
        sender.stream.publish(QUEUE, body, receipt="r", **headers)
        self.observe()

    def next_number(self) -> int:
        self.last = getattr(self, "last", 0) + 1
        return 1_000_000 * self.last

    @precondition(lambda self: len(self.consumers) < MOST_CLIENTS)
    @rule(queue=st.sampled_from((QUEUE, QUEUE, LETTERS)))
    def subscribe(self, queue: str) -> None:
        consumer = Consumer(self.broker.client(), queue)
        self.consumers.append(consumer)
        consumer.stream.subscribe(queue, ack="client-individual", prefetch_count="1")
        self.observe()

    @precondition(lambda self: any(each.held for each in self.consumers))
    @rule(who=numbers, verb=st.sampled_from(("ACK", "ACK", "NACK")))
    def answer(self, who: int, verb: str) -> None:
        consumer = pick([each for each in self.consumers if each.held], who)
        frame, consumer.held = consumer.held, None
        assert frame is not None
        self.messages[frame.body].state = "gone" if verb == "ACK" else self.back_in(consumer)
        (consumer.stream.ack if verb == "ACK" else consumer.stream.nack)(frame)
        self.observe()

    @staticmethod
    def back_in(consumer: Consumer) -> str:
        return "ready" if consumer.queue == QUEUE else "letter"

    @precondition(lambda self: self.consumers)
    @rule(who=numbers)
    def leave(self, who: int) -> None:
        consumer = pick(self.consumers, who)
        self.consumers.remove(consumer)
        if consumer.held is not None:
            self.messages[consumer.held.body].state = self.back_in(consumer)
        consumer.stream.drop()
        self.observe()

    @rule(who=numbers)
    def reserve(self, who: int) -> None:
        worker = pick(self.workers, who)
        if not worker.is_waiting:
            worker.is_waiting = True
            worker.stream.transport.deliver(b"reserve\r\n")
            self.observe()

    # Actions of operators, and time.

    @rule(seconds=st.sampled_from((0, 0, 1, 3, 60)))
    def pause_tube(self, seconds: int) -> None:
        assert self.operator.ask(b"pause-tube t %d\r\n" % seconds) == b"PAUSED\r\n"
        self.settings.pause_until = self.now + seconds
        self.observe()

    @rule(paused=st.booleans())
    def pause_deliveries(self, paused: bool) -> None:  # noqa: FBT001 (drawn by Hypothesis)
        queue = self.broker.destinations.get(QUEUE)
        if isinstance(queue, Queue):
            self.settings.is_paused = paused
            if paused:
                queue.is_paused = True
            else:
                queue.resume()
            self.broker.broker.flush()
            self.observe()

    @rule()
    def purge(self) -> None:
        queue = self.broker.destinations.get(QUEUE)
        if isinstance(queue, Queue):
            purged(self.broker, QUEUE)
            for message in self.in_state("ready", "overdue"):
                message.state = "gone"
            self.observe()

    @rule(
        most=st.integers(1, 4),
        when_full=st.sampled_from(("block", "block", "reject")),
        exclusive=st.booleans(),
        is_letter=st.booleans(),
    )
    def reload(self, most: int, when_full: str, exclusive: bool, is_letter: bool) -> None:  # noqa: FBT001
        own = self.settings
        if is_letter and self.all_in_memory:
            expired: Expired = "dead-letter"
        else:
            expired = self.first_expired
        own.most, own.when_full, own.exclusive, own.expired = most, when_full, exclusive, expired
        self.broker.broker.reload(
            self.broker.broker.config.changed(
                max_queue_messages=most,
                when_full=when_full,
                exclusive=exclusive,
                expired=expired,
            )
        )
        self.observe()

    @rule(steps=st.sampled_from((1, 2, 4, 8, 32)))
    def wait(self, steps: int) -> None:
        for _ in range(steps):
            self.broker.clock.advance(STEP_S)
            self.observe()

    # Invariants after each step.

    @invariant()
    def a_sender_waits_only_for_room(self) -> None:
        if any(each.waits_for for each in self.senders):
            count = len(self.in_state("ready", "held", "overdue"))
            assert self.settings.when_full == "block"
            assert count >= self.settings.most, "a sender waits though there is room"

    @invariant()
    def a_consumer_waits_only_for_messages(self) -> None:
        consumers = [each for each in self.consumers if each.queue == QUEUE]
        if self.settings.exclusive:
            consumers = consumers[:1]
        if any(each.held is None for each in consumers) and not self.settings.is_paused:
            assert not self.in_state("ready"), "a consumer waits though there is a message"

    @invariant()
    def a_reader_of_dead_letters_waits_only_for_messages(self) -> None:
        readers = [each for each in self.consumers if each.queue == LETTERS]
        if any(each.held is None for each in readers):
            assert not self.in_state("letter"), "a reader waits though there is a dead letter"

    @invariant()
    def a_worker_waits_only_for_jobs(self) -> None:
        is_paused = self.settings.is_paused or self.settings.pause_until > self.now
        if any(each.is_waiting and each.held is None for each in self.workers) and not is_paused:
            assert not self.in_state("ready"), "a worker waits though there is a job"

    @invariant()
    def what_has_expired_waits_only_for_room_among_dead_letters(self) -> None:
        count = len(self.in_state("letter", "held letter"))
        if self.in_state("overdue"):
            assert count >= self.most_letters
        letters = self.broker.destinations.get(LETTERS)
        assert count == (letters.messages if isinstance(letters, Queue) else 0)

    def teardown(self) -> None:
        """Close the broker."""
        self.broker.broker.close()
        self.directory.cleanup()


class LettersMachine(WaitingMachine):
    """The same, with expired messages that always wait for room in the dead-letter queue."""

    first_expired: Expired = "dead-letter"
    most_letters = 1


class StoredMachine(WaitingMachine):
    """The same with a store in memory."""

    all_in_memory = False

    @staticmethod
    def make_store(directory: Path) -> MessageStore | None:
        """Create a store in memory."""
        return MemoryStore()


class LmdbMachine(StoredMachine):
    """The same with the durable store."""

    @staticmethod
    def make_store(directory: Path) -> MessageStore | None:
        """Create a store that does not wait for the disk."""
        return LmdbStore(directory, synchronous=False, max_octets=1 << 28)


class SqlMachine(StoredMachine):
    """The same with a relational database."""

    @staticmethod
    def make_store(directory: Path) -> MessageStore | None:
        """Create an SQLite store that does not wait for the disk either."""
        return SqlAlchemyStore(f"sqlite:///{directory / 'store.db'}", synchronous=False)


def _settings(examples: int) -> settings:
    return settings(
        max_examples=drawn(examples),
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        report_multiple_bugs=False,
    )


TestWaiting = WaitingMachine.TestCase
TestWaiting.settings = _settings(150)
TestLetters = LettersMachine.TestCase
TestLetters.settings = _settings(100)
TestStored = StoredMachine.TestCase
TestStored.settings = _settings(80)
TestLmdb = LmdbMachine.TestCase
TestLmdb.settings = _settings(30)
# No code of this store is compiled.
TestSqlAlchemy = pytest.mark.pure(SqlMachine.TestCase)
TestSqlAlchemy.settings = _settings(15)


# Faulty versions, each of which forgets to wake a client.


def _forget_pauses(patch: pytest.MonkeyPatch) -> None:
    """A faulty broker: the end of a pause wakes no worker, as happened with ``pause-tube 0``."""

    def end_pause(hub: Hub, tube: str) -> None:
        hub._pause_ends.discard(tube)
        hub.pauses.pop(tube, None)

    patch.setattr(Hub, "_end_pause", end_pause)


def _forget_settings(patch: pytest.MonkeyPatch) -> None:
    """A faulty broker: new settings take effect with the next event only."""

    def configure(queue: Queue, policy: object) -> None:
        queue.policy = policy  # type: ignore[assignment]  # it is one
        queue._dispatcher.take(policy)  # type: ignore[arg-type]
        queue._read_policy()

    patch.setattr(Queue, "configure", configure)


def _forget_expiry(patch: pytest.MonkeyPatch) -> None:
    """A faulty broker: it notices expired messages with the next event only."""
    patch.setattr(Expiry, "_wake_at", lambda *_: None)


def _forget_letters(patch: pytest.MonkeyPatch) -> None:
    """A faulty broker: room in the dead-letter queue does not wake waiting messages."""
    patch.setattr(Queue, "retry_overdue", lambda _: None)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("spoil", "machine"),
    [
        (_forget_pauses, WaitingMachine),
        (_forget_settings, WaitingMachine),
        (_forget_expiry, WaitingMachine),
        (_forget_letters, LettersMachine),
    ],
)
def test_the_model_finds_a_broker_that_forgets_to_wake_somebody(
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[pytest.MonkeyPatch], None],
    machine: type[WaitingMachine],
) -> None:
    spoil(monkeypatch)
    wanted = settings(
        _settings(10_000),
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        print_blob=False,
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=wanted)
