"""Queues against a model: whatever clients do, each message is in exactly one place.

The model is independent of the broker's implementation. It keeps, for each message, the one place
where it must be: ready in a queue, held by one delivery of one subscription, or gone. Frames of the
broker are checked against that, and move the message. Frames of clients move messages in the model
by the rules of the documentation. After each step the two must agree. With a store, the broker is
ended and killed occasionally, and the next one has to continue with the same state.
"""

# The names of a machine's rules and invariants describe them, like those of tests.
# ruff: noqa: D102

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from stompkit.frames import VERSIONS, Frame, encode
from stompkit.server import BrokerConfig, MessageStore
from stompkit.server.stores.lmdb import LmdbStore
from stompkit.server.stores.sqlalchemy import SqlAlchemyStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.effort import drawn

QUEUES = ("/queue/a", "/queue/b")
DEAD = {"/queue/a": "/dlq/a", "/queue/b": "/dlq/b"}
ALL = (*QUEUES, *DEAD.values())
MOST_CLIENTS = 4
MOST_MESSAGES = 10
MOST_DELIVERIES = 2
MOST_FRAMES = 6

_T = TypeVar("_T")


@dataclass(eq=False)
class Message:
    """A message, identified by its body."""

    body: bytes
    queue: str
    place: int = 0
    deliveries: int = 0
    #: True if the broker may have lost the count of some deliveries, because it was killed.
    uncertain: bool = False


@dataclass(eq=False)
class Delivery:
    """A message delivered to a client, not acknowledged."""

    message: Message
    frame: Frame
    subscription: Subscription
    transaction: Transaction | None = None
    leaves_room: bool = False
    """True if the transaction acknowledges it."""


@dataclass(eq=False)
class Subscription:
    """A subscription of a client."""

    id: str
    queue: str
    mode: str
    prefetch: int
    active: bool = True
    held: list[Delivery] = field(default_factory=list)

    @property
    def takes_more(self) -> bool:
        """True if the broker must deliver ready messages."""
        # Messages that an open transaction has acknowledged leave room for others.
        waiting = sum(each.transaction is None or not each.leaves_room for each in self.held)
        return self.active and (self.mode == "auto" or waiting < self.prefetch)


@dataclass(eq=False)
class Transaction:
    """Frames that wait for COMMIT."""

    name: str
    messages: list[Message] = field(default_factory=list)
    settlements: list[tuple[list[Delivery], str]] = field(default_factory=list)
    frames: int = 0


@dataclass(eq=False)
class Client:
    """A client, with its state in the model."""

    stream: MemoryClient
    version: str
    subscriptions: list[Subscription] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    spent: list[Frame] = field(default_factory=list)
    reading: bool = True

    @property
    def active(self) -> list[Subscription]:
        """Subscriptions that have not ended."""
        return [each for each in self.subscriptions if each.active]

    @property
    def held(self) -> list[Delivery]:
        """All unacknowledged deliveries."""
        return [delivery for each in self.subscriptions for delivery in each.held]


def pick(things: list[_T], number: int) -> _T:
    return things[number % len(things)]


numbers = st.integers(0, 999)
versions = st.sampled_from(VERSIONS)
#: One queue is more frequent than others, so that clients compete.
queues = st.sampled_from((*["/queue/a"] * 4, "/queue/b", "/dlq/a"))
modes = st.sampled_from(("auto", "client", "client", "client-individual", "client-individual"))
prefetches = st.integers(1, 3)
verbs = st.sampled_from(("ACK", "ACK", "NACK", "NACK", "bury"))


class QueueMachine(RuleBasedStateMachine):
    """Clients with permitted actions, and sometimes with forbidden ones."""

    @staticmethod
    def make_store(directory: Path) -> MessageStore | None:
        """Create the store in an empty directory; here none, so messages are in memory."""
        return None

    @initialize(
        wanted=st.lists(st.tuples(versions, queues, modes, prefetches), min_size=3, max_size=3)
    )
    def begin_with_some_clients(self, wanted: list[tuple[str, str, str, int]]) -> None:
        config = BrokerConfig(
            max_queue_messages=MOST_MESSAGES,
            max_deliveries=MOST_DELIVERIES,
            max_transaction_frames=MOST_FRAMES,
            # Small enough for the rest to be read from the store repeatedly.
            window_messages=3,
        )
        self.config = config
        self.directory = tempfile.TemporaryDirectory()
        self.store = self.make_store(Path(self.directory.name))
        self.broker = MemoryBroker(config, store=self.store)
        self.clients: list[Client] = []
        self.ready: dict[str, list[Message]] = {queue: [] for queue in ALL}
        self.known: dict[bytes, Message] = {}
        self.last = 0
        for each in wanted:
            self.connect(*each)

    # State changes of the model.

    def put(self, message: Message, queue: str) -> None:
        """Append a message to a queue, as new."""
        self.last += 1
        message.queue, message.place, message.deliveries = queue, self.last, 0
        self.known[message.body] = message
        self.ready[queue].append(message)

    def held_of(self, queue: str) -> int:
        return sum(d.message.queue == queue for client in self.clients for d in client.held)

    def room(self, queue: str) -> int:
        return MOST_MESSAGES - len(self.ready[queue]) - self.held_of(queue)

    def give_back(self, message: Message) -> None:
        """Return a message to its old place in its queue."""
        self.ready[message.queue].append(message)
        self.ready[message.queue].sort(key=lambda each: each.place)

    def settle(self, client: Client, deliveries: list[Delivery], verb: str) -> None:
        for delivery in deliveries:
            delivery.subscription.held.remove(delivery)
            client.spent.append(delivery.frame)
        for delivery in deliveries:
            message = delivery.message
            if verb == "ACK":
                del self.known[message.body]
            elif verb == "NACK" and message.deliveries < MOST_DELIVERIES:
                self.give_back(message)
            elif message.queue not in DEAD:
                del self.known[message.body]
            elif self.room(DEAD[message.queue]) > 0:
                self.put(message, DEAD[message.queue])
            else:
                self.give_back(message)

    def named_by(self, delivery: Delivery) -> list[Delivery]:
        """Return all deliveries that an ACK of a delivery covers."""
        if delivery.subscription.mode == "client-individual":
            return [delivery]
        held = delivery.subscription.held
        upto = held[: held.index(delivery) + 1]
        return [each for each in upto if each.transaction is None]

    def gone(self, client: Client) -> None:
        """Requeue the messages of a client whose connection has ended."""
        self.clients.remove(client)
        for delivery in client.held:
            self.give_back(delivery.message)

    def refused(self, client: Client, code: str) -> None:
        client.stream.start_reading()
        assert client.stream.error is not None, f"no ERROR, but {code} was due"
        assert client.stream.error.headers["stompkit-code"] == code
        assert client.stream.eof
        self.gone(client)
        self.observe()
        client.stream.close()

    # Frames from the broker.

    def observe(self) -> None:
        """Check and record the deliveries of one step."""
        delivered: dict[str, list[int]] = {queue: [] for queue in ALL}
        for client in self.clients:
            assert client.stream.error is None, client.stream.error
            places: dict[str, int] = dict.fromkeys(ALL, 0)
            for frame in client.stream.take("MESSAGE"):
                message = self.delivered(client, frame)
                assert message.place > places[message.queue], "not in order"
                places[message.queue] = message.place
                delivered[message.queue].append(message.place)
        for queue, ready in self.ready.items():
            for message in ready:
                assert all(place < message.place for place in delivered[queue]), "passed over"

    def delivered(self, client: Client, frame: Frame) -> Message:
        message = self.known[frame.body]
        queue = message.queue
        assert message in self.ready[queue], "was not ready: it is with somebody else"
        assert frame.headers["destination"] == queue
        assert client.reading
        [subscription] = [
            each for each in client.active if each.id == frame.headers["subscription"]
        ]
        assert subscription.queue == queue
        assert subscription.takes_more, "more than it can take"
        self.ready[queue].remove(message)
        message.deliveries += 1
        if message.uncertain:
            count = int(frame.headers.get("delivery-count", 1))
            assert count <= message.deliveries
            message.deliveries, message.uncertain = count, False
        assert (frame.headers.get("redelivered") == "true") == (message.deliveries > 1)
        assert int(frame.headers.get("delivery-count", 1)) == message.deliveries
        if subscription.mode == "auto":
            del self.known[message.body]
        else:
            subscription.held.append(Delivery(message, frame, subscription))
        return message

    # Actions of clients.

    @precondition(lambda self: len(self.clients) < MOST_CLIENTS)
    @rule(version=versions, queue=queues, mode=modes, prefetch=prefetches)
    def connect(self, version: str, queue: str, mode: str, prefetch: int) -> None:
        self.clients.append(Client(self.broker.client(version), version))
        self.subscribe(-1, queue, mode, prefetch)

    @precondition(lambda self: self.clients)
    @rule(who=numbers, queue=queues, mode=modes, prefetch=prefetches)
    def subscribe(self, who: int, queue: str, mode: str, prefetch: int) -> None:
        client = pick(self.clients, who)
        names = [str(number) for number in range(3)]
        used = {each.id for each in client.active}
        free = [name for name in names if name not in used]
        if not free:
            return
        client.subscriptions.append(Subscription(free[0], queue, mode, prefetch))
        client.stream.subscribe(queue, id=free[0], ack=mode, prefetch_count=str(prefetch))
        self.observe()

    @precondition(lambda self: any(each.active for each in self.clients))
    @rule(who=numbers, which=numbers)
    def unsubscribe(self, who: int, which: int) -> None:
        client = pick([each for each in self.clients if each.active], who)
        subscription = pick(client.active, which)
        subscription.active = False
        client.stream.send("UNSUBSCRIBE", id=subscription.id)
        self.observe()

    @precondition(lambda self: self.clients)
    @rule(who=numbers, queue=queues, count=numbers)
    def send(self, who: int, queue: str, count: int) -> None:
        client = pick(self.clients, who)
        messages = [self.new_message(queue) for _ in range(1 + count % 3)]
        fitting = messages[: self.room(queue)]
        for message in fitting:
            self.put(message, queue)
        client.stream.write(b"".join(self.encoded(client, message) for message in messages))
        if len(fitting) < len(messages):
            self.refused(client, "queue-full")
        else:
            self.observe()

    def new_message(self, queue: str) -> Message:
        self.last += 1
        return Message(b"%d" % self.last, queue)

    def encoded(self, client: Client, message: Message, **headers: str) -> bytes:
        frame = Frame("SEND", {"destination": message.queue, **headers}, message.body)
        return encode(frame, client.stream.version)

    @precondition(lambda self: any(each.held for each in self.clients))
    @rule(who=numbers, answers=st.lists(st.tuples(numbers, verbs), min_size=1, max_size=4))
    def acknowledge(self, who: int, answers: list[tuple[int, str]]) -> None:
        client = pick([each for each in self.clients if each.held], who)
        for which, verb in answers:
            if client in self.clients and client.held:
                self.answer(client, pick(client.held, which), verb, None)

    def answer(
        self, client: Client, delivery: Delivery, verb: str, transaction: Transaction | None
    ) -> None:
        if client.version == "1.0":
            verb = "ACK"
        headers = {} if transaction is None else {"transaction": transaction.name}
        if verb == "bury":
            headers["requeue"] = "false"
        stream = client.stream
        (stream.ack if verb == "ACK" else stream.nack)(delivery.frame, **headers)
        if delivery.transaction is not None:
            self.refused(client, "unknown-acknowledgement")
        elif transaction is None:
            self.settle(client, self.named_by(delivery), verb)
            self.observe()
        elif transaction.frames == MOST_FRAMES:
            self.refused(client, "transaction-too-large")
        else:
            transaction.frames += 1
            named = self.named_by(delivery)
            transaction.settlements.append((named, verb))
            for each in named:
                each.transaction, each.leaves_room = transaction, verb == "ACK"
            self.observe()

    @precondition(lambda self: any(each.spent for each in self.clients))
    @rule(who=numbers, which=numbers)
    def acknowledge_again(self, who: int, which: int) -> None:
        client = pick([each for each in self.clients if each.spent], who)
        frame = pick(client.spent, which)
        if client.version != "1.2" and any(self.same(each.frame, frame) for each in client.held):
            return  # delivered again, with the same id on 1.0 and 1.1
        client.stream.ack(frame)
        self.refused(client, "unknown-acknowledgement")

    @staticmethod
    def same(first: Frame, second: Frame) -> bool:
        return first.headers["message-id"] == second.headers["message-id"]

    # Transactions.

    @precondition(lambda self: any(each.held for each in self.clients))
    @rule(who=numbers, which=numbers, verb=verbs)
    def acknowledge_within(self, who: int, which: int, verb: str) -> None:
        client = pick([each for each in self.clients if each.held], who)
        transaction = self.open_transaction(client, which)
        self.answer(client, pick(client.held, which), verb, transaction)

    def open_transaction(self, client: Client, which: int) -> Transaction:
        if len(client.transactions) < 1 + which % 2:
            used = {each.name for each in client.transactions}
            name = "t" if "t" not in used else "u"
            client.transactions.append(Transaction(name))
            client.stream.send("BEGIN", transaction=name)
            self.observe()
        return pick(client.transactions, which)

    @precondition(lambda self: self.clients)
    @rule(who=numbers, which=numbers, queue=queues)
    def send_within(self, who: int, which: int, queue: str) -> None:
        client = pick(self.clients, who)
        transaction = self.open_transaction(client, which)
        message = self.new_message(queue)
        client.stream.write(self.encoded(client, message, transaction=transaction.name))
        if transaction.frames == MOST_FRAMES:
            self.refused(client, "transaction-too-large")
            return
        transaction.frames += 1
        transaction.messages.append(message)
        self.observe()

    @precondition(lambda self: any(each.transactions for each in self.clients))
    @rule(who=numbers, which=numbers)
    def commit(self, who: int, which: int) -> None:
        client, transaction = self.ended(who, which, "COMMIT")
        wanted = [message.queue for message in transaction.messages]
        freed = [
            delivery.message.queue
            for deliveries, verb in transaction.settlements
            for delivery in deliveries
            if verb == "ACK"
        ]
        if any(
            wanted.count(queue) and wanted.count(queue) > self.room(queue) + freed.count(queue)
            for queue in ALL
        ):
            self.refused(client, "queue-full")
            return
        for message in transaction.messages:
            self.put(message, message.queue)
        for deliveries, verb in transaction.settlements:
            self.settle(client, deliveries, verb)
        self.observe()

    @precondition(lambda self: any(each.transactions for each in self.clients))
    @rule(who=numbers, which=numbers)
    def abort(self, who: int, which: int) -> None:
        self.ended(who, which, "ABORT")
        self.observe()

    def ended(self, who: int, which: int, command: str) -> tuple[Client, Transaction]:
        client = pick([each for each in self.clients if each.transactions], who)
        transaction = pick(client.transactions, which)
        client.transactions.remove(transaction)
        for delivery in client.held:
            if delivery.transaction is transaction:
                delivery.transaction = None
        client.stream.send(command, transaction=transaction.name)
        return client, transaction

    # Streams.

    @precondition(lambda self: self.clients)
    @rule(who=numbers)
    def stop_reading(self, who: int) -> None:
        client = pick(self.clients, who)
        client.reading = False
        client.stream.stop_reading()

    @precondition(lambda self: not all(each.reading for each in self.clients))
    @rule()
    def start_reading(self) -> None:
        for client in self.clients:
            if not client.reading:
                client.reading = True
                client.stream.start_reading()
                self.observe()

    @precondition(lambda self: len(self.clients) > 1)
    @rule(who=numbers, way=st.sampled_from(("DISCONNECT", "close", "drop", "nonsense")))
    def leave(self, who: int, way: str) -> None:
        client = pick(self.clients, who)
        if way == "nonsense":
            client.stream.write(b"nonsense\n\n\0")
            self.refused(client, "unknown-command")
            return
        if way == "DISCONNECT":
            client.stream.send("DISCONNECT", receipt="bye")
            client.stream.start_reading()
            assert client.stream.frames[-1].headers == {"receipt-id": "bye"}
            assert client.stream.eof
        elif way == "close":
            client.stream.close()
        else:
            client.stream.drop()
        self.gone(client)
        self.observe()
        client.stream.close()

    # Ends of the broker.

    @precondition(lambda self: self.store is not None)
    @rule(killed=st.booleans())
    def begin_again(self, killed: bool) -> None:  # noqa: FBT001 (drawn by Hypothesis)
        """Replace the broker by a new one with the same store."""
        assert self.store is not None
        if killed:
            self.store.close()
        else:
            self.broker.broker.close()
        for client in list(self.clients):
            self.gone(client)
        for message in self.known.values():
            message.uncertain |= killed
        self.broker = MemoryBroker(self.config, store=self.store)

    # Invariants after each step.

    @invariant()
    def nothing_waits_for_somebody_who_could_take_it(self) -> None:
        for client in self.clients:
            for subscription in client.active:
                if client.reading and subscription.takes_more:
                    assert not self.ready[subscription.queue]

    @invariant()
    def each_message_is_in_one_place(self) -> None:
        places = [message for ready in self.ready.values() for message in ready]
        places += [delivery.message for client in self.clients for delivery in client.held]
        assert len(places) == len({message.body for message in places}) == len(self.known)

    @invariant()
    def the_broker_has_the_destinations_that_are_in_use(self) -> None:
        used = {message.queue for message in self.known.values()}
        for client in self.clients:
            used.update(each.queue for each in client.active)
        assert used == set(self.broker.destinations)
        assert len(self.broker.broker.connections) == len(self.clients)

    def teardown(self) -> None:
        """Check that no message is lost: the next client gets all messages left in the model."""
        for client in list(self.clients):
            client.stream.drop()
            self.gone(client)
            self.observe()
        last = self.broker.client()
        for queue in ALL:
            last.subscribe(queue, id=queue)
            bodies = [message.body for message in self.ready[queue]]
            assert last.bodies() == bodies
        last.close()
        assert self.broker.destinations == {}
        self.broker.clock.advance(1.0)
        assert self.broker.clock.getDelayedCalls() == []
        self.broker.broker.close()
        self.directory.cleanup()


class LmdbMachine(QueueMachine):
    """The same with the durable store."""

    @staticmethod
    def make_store(directory: Path) -> MessageStore | None:
        """Create a store that does not wait for the disk: the power does not fail here."""
        return LmdbStore(directory, synchronous=False, max_octets=1 << 28)


class SqlMachine(QueueMachine):
    """The same with a relational database."""

    @staticmethod
    def make_store(directory: Path) -> MessageStore | None:
        """Create an SQLite store that does not wait for the disk either."""
        return SqlAlchemyStore(f"sqlite:///{directory / 'store.db'}", synchronous=False)


def _settings(examples: int) -> settings:
    return settings(
        max_examples=drawn(examples),
        stateful_step_count=60,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


TestQueues = QueueMachine.TestCase
TestQueues.settings = _settings(200)
TestLmdb = LmdbMachine.TestCase
TestLmdb.settings = _settings(100)
# stores/test_agreement.py compares this store with the others.
TestSqlAlchemy = pytest.mark.matrix(SqlMachine.TestCase)
TestSqlAlchemy.settings = _settings(40)
