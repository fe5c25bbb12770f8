"""Full queues against a model: refused, dropped and remaining messages.

The model keeps the ready, held and delayed messages of each queue. It processes the units of a
burst one after the other, as if there were neither a store to wait for nor a window. After each
rule, the queues of the broker must have exactly the same messages.

``WRONG`` has faulty versions of the broker, by the kinds of faults that the machines are for. A
test shows that the machines detect each of them.
"""

# The names of a machine's rules and invariants describe them, like those of tests.
# ruff: noqa: D102

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
from twisted.internet.task import Clock

from stompkit.frames import Frame, encode
from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.domain.deliveries import Subscription
from stompkit.server.domain.hosts.virtual_host import VirtualHost
from stompkit.server.domain.queues.delays import Delays
from stompkit.server.domain.queues.durables import DurableQueue
from stompkit.server.domain.queues.peeking import Seen, peek
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.topics import Topic
from stompkit.server.interfaces import Operation, Put
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.effort import drawn
from tests.server.brokers import refusal
from tests.server.failing import FailingStore, HeldRunner, failing_store

OLDEST, OCTETS, RANKED = "/queue/oldest", "/queue/octets", "/queue/ranked"
REJECT, CHILD = "/queue/reject", "/queue/child"
#: In memory, with or without a store.
MEMORY = "/queue/memory"
TOPIC, FANOUT, DURABLE = "/topic/t", "/fanout/f", "/durable/c/d"
QUEUES = (OLDEST, OCTETS, RANKED, REJECT, CHILD, MEMORY)
TARGETS = (*QUEUES, TOPIC, FANOUT)
MOST_OCTETS = 500
MOST_DELAYED = 2
DELAY_S = 1.0
#: Longer than the delay of low-priority writes to the store; a binary fraction, so exact.
LULL_S = 0.25


@dataclass(eq=False)
class Message:
    """A message in one queue."""

    body: bytes
    size: int
    priority: int = 4
    due: float = 0.0
    place: int = 0


@dataclass(eq=False)
class Box:
    """A queue in the model."""

    name: str
    most: int
    most_octets: int = 1 << 40
    drops: bool = True
    ranked: bool = False
    ready: list[Message] = field(default_factory=list)
    held: list[Message] = field(default_factory=list)
    delayed: list[Message] = field(default_factory=list)
    #: Messages being stored, and how many of them must be stored before any delivery.
    coming: list[Message] = field(default_factory=list)
    awaited: int = 0
    client: MemoryClient | None = None
    is_auto: bool = False
    prefetch: int = 1
    #: Number of messages that the open transaction of the consumer acknowledges.
    acked: int = 0
    frames: dict[bytes, Frame] = field(default_factory=dict)
    #: Bodies that the consumer must receive next.
    expected: list[bytes] = field(default_factory=list)

    @property
    def kept(self) -> list[Message]:
        return [*self.ready, *self.held, *self.delayed]

    def fits(self, messages: Iterable[Message], more: int = 0, size: int = 0) -> bool:
        there = list(messages)
        return (
            len(there) + more <= self.most
            and sum(each.size for each in there) + size <= self.most_octets
        )

    def order(self, message: Message) -> tuple[int, int]:
        return (-message.priority if self.ranked else 0, message.place)

    def add(self, message: Message) -> None:
        self.ready.append(message)
        self.ready.sort(key=self.order)

    def hand_out(self) -> None:
        most = self.prefetch + self.acked
        while self.client is not None and self.ready and len(self.held) < most:
            message = self.ready.pop(0)
            if not self.is_auto:
                self.held.append(message)
            self.expected.append(message.body)

    def make_room(self, more: Sequence[Message] = ()) -> int:
        """Drop messages to make room; return their number."""
        if not self.drops or self.fits([*self.kept, *more]):
            return 0
        if self.is_auto and not self.awaited:
            self.hand_out()
        dropped = 0
        while self.ready and not self.fits([*self.kept, *more]):
            lowest = min(self.ready, key=lambda each: (each.priority * self.ranked, each.place))
            self.ready.remove(lowest)
            dropped += 1
        return dropped

    def refusals(self, more: int, size: int, delayed: int) -> set[str]:
        """Return why *more* messages, *delayed* of them with a delay, are refused now."""
        found: set[str] = set()
        coming = [each for each in self.coming if each.due]
        if delayed and len(self.delayed) + len(coming) + delayed > MOST_DELAYED:
            found.add("queue-full")
        stays = [*self.held, *self.delayed, *coming]
        if self.fits([*self.kept, *self.coming], more, size):
            return found
        if not self.fits([], more, size):
            found.add("queue-too-small")
        elif not self.drops or not self.fits(stays, more, size):
            found.add("queue-full")
        return found


@dataclass(eq=False)
class Unit:
    """Messages that take effect together or not at all."""

    puts: list[tuple[Box, Message]]
    sender: MemoryClient
    fails: bool = False
    taken: list[tuple[Box, Message]] = field(default_factory=list)
    #: True for a single message with a delay that is no transaction's.
    is_delayed_alone: bool = False


def pick(things: Sequence[Any], number: int) -> Any:
    return things[number % len(things)]


numbers = st.integers(0, 99)
#: A destination, a number of bytes in the body, a priority, and True for a delay.
sends = st.tuples(
    st.sampled_from(TARGETS),
    st.sampled_from((0, 0, 0, 60, 150, 600)),
    st.integers(0, 9),
    st.sampled_from((False, False, False, True)),
)
bursts = st.lists(sends, min_size=1, max_size=8)
#: The store fails for one of this number of messages.
failures = st.sampled_from((0, 0, 0, 1, 3))


def config_of(most: int) -> BrokerConfig:
    """Return settings with a limit of *most* messages for queues."""
    return BrokerConfig(
        window_messages=2,
        max_delayed=MOST_DELAYED,
        max_queue_messages=most,
        when_full="drop-oldest",
        destinations=(
            DestinationConfig(name=OCTETS, max_queue_messages=99, max_queue_bytes=MOST_OCTETS),
            DestinationConfig(name=RANKED, priority=True),
            DestinationConfig(name=REJECT, when_full="reject"),
            DestinationConfig(name=MEMORY, storage="memory"),
            DestinationConfig(name=FANOUT, children=(CHILD, REJECT, MEMORY)),
            DestinationConfig(name=TOPIC, when_full="reject", max_queue_bytes=MOST_OCTETS),
        ),
    )


class OverflowMachine(RuleBasedStateMachine):
    """Senders that send more than there is room for, and slow consumers."""

    kind: str | None = None

    @initialize(most=st.integers(2, 5))
    def begin(self, most: int) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.store: FailingStore | None = None
        self.runner = HeldRunner()
        if self.kind is not None:
            self.store = failing_store(self.kind, Path(self.directory.name))
        self.config = config_of(most)
        self.broker = self.make_broker()
        self.boxes = {
            OLDEST: Box(OLDEST, most),
            OCTETS: Box(OCTETS, 99, MOST_OCTETS),
            RANKED: Box(RANKED, most, ranked=True),
            REJECT: Box(REJECT, most, drops=False),
            CHILD: Box(CHILD, most),
            MEMORY: Box(MEMORY, most),
            DURABLE: Box(DURABLE, most, MOST_OCTETS),
        }
        self.units: list[Unit] = []
        self.place = 0
        self.bad: set[bytes] = set()
        self.dropped: int | None = 0
        self.is_restarted = False
        self.subscribe_durably().close()

    def make_broker(self, clock: Clock | None = None) -> MemoryBroker:
        runner = None if self.store is None else self.runner
        return MemoryBroker(self.config, clock=clock, store=self.store, runner=runner)

    def subscribe_durably(self, prefetch: int = 1, ack: str = "client-individual") -> MemoryClient:
        client = self.broker.client(client_id="c")
        name = {"activemq.subscriptionName": "d", "prefetch-count": str(prefetch)}
        client.send("SUBSCRIBE", {"id": "0", "destination": TOPIC, "ack": ack, **name})
        return client

    # State changes of the model.

    def message(self, box: Box, headers: dict[str, str], body: bytes) -> Message:
        """Return a message as stored in a queue."""
        self.place += 1
        size = sum(len(name) + len(value) for name, value in headers.items()) + len(body)
        due = self.broker.clock.seconds() + DELAY_S if "delay" in headers else 0.0
        return Message(body, size, int(headers["priority"]), due, self.place)

    def copies(
        self, target: str, headers: dict[str, str], body: bytes
    ) -> list[tuple[Box, Message]]:
        """Return the messages that a SEND creates, with their queues."""
        headers = {**headers, "content-length": str(len(body))}
        if target == TOPIC:
            box = self.boxes[DURABLE]
            return [(box, self.message(box, headers, body))]
        names = (CHILD, REJECT, MEMORY) if target == FANOUT else (target,)
        puts = []
        for name in names:
            more = {"destination": name}
            if target == FANOUT:
                more["original-destination"] = FANOUT
            box = self.boxes[name]
            puts.append((box, self.message(box, {**headers, **more}, body)))
        return puts

    def refusals(
        self, puts: list[tuple[Box, Message]], freed: Sequence[tuple[Box, Message]] = ()
    ) -> set[str]:
        """Return why a unit is refused, if it is; a full durable subscription refuses none."""
        found: set[str] = set()
        for box in dict.fromkeys(box for box, _ in puts if box.name != DURABLE):
            wanted = [each for home, each in puts if home is box]
            frees = [each for home, each in freed if home is box]
            more = max(0, len(wanted) - len(frees))
            size = max(0, sum(e.size for e in wanted) - sum(e.size for e in frees))
            delayed = sum(each.due > 0 for each in wanted)
            found |= box.refusals(more, size, delayed)
        return found

    def put(self, unit: Unit) -> None:
        """Start storing a unit, or complete it if there is no store."""
        for box, message in list(unit.puts):
            if box.name == DURABLE and box.refusals(1, message.size, 0):
                unit.puts.remove((box, message))
                self.count_dropped(1)
            else:
                box.coming.append(message)
        parts = [*unit.puts, *unit.taken]
        is_in_memory = all(box.name == MEMORY for box, _ in parts)
        # A delayed message that is sent alone has no order to keep.
        waits = not unit.is_delayed_alone and any(
            box.coming != [message] for box, message in unit.puts if box.name == MEMORY
        )
        if self.store is None or (is_in_memory and not waits):
            self.arrive(unit)
        elif parts:
            unit.fails = any(
                message.body in self.bad for box, message in unit.puts if box.name != MEMORY
            )
            self.units.append(unit)

    def count_dropped(self, messages: int) -> None:
        if self.dropped is not None:
            self.dropped += messages

    def arrive(self, unit: Unit) -> None:
        """Complete a unit."""
        boxes = dict.fromkeys(box for box, _ in unit.puts)
        for box, message in unit.puts:
            box.coming.remove(message)
        if unit.fails:
            for box, message in unit.taken:
                box.add(message)
        else:
            for box in boxes:
                arrived = [message for home, message in unit.puts if home is box]
                self.count_dropped(box.make_room(arrived))
                for message in arrived:
                    if message.due:
                        box.delayed.append(message)
                    else:
                        box.add(message)
        for box, _ in unit.puts:
            box.awaited = max(0, box.awaited - 1)

    def end_turn(self, *, since: int = 0) -> None:
        """Complete all units in progress, and deliver."""
        for unit in self.units[since:]:
            self.arrive(unit)
            if unit.fails:
                self.gone(unit.sender)
        del self.units[since:]
        self.deliver()

    def deliver(self) -> None:
        for box in self.boxes.values():
            self.deliver_from(box)

    def deliver_from(self, box: Box) -> None:
        if not box.awaited:
            self.count_dropped(box.make_room())
            box.hand_out()

    def gone(self, client: MemoryClient) -> None:
        """Requeue the messages of a consumer whose connection has ended."""
        for box in self.boxes.values():
            if box.client is client:
                for message in box.held:
                    box.add(message)
                box.held.clear()
                box.expected.clear()
                box.client = None
                self.count_dropped(box.make_room())

    # Actions of senders.

    def encoded(self, headers: dict[str, str], body: bytes) -> bytes:
        return encode(Frame("SEND", headers, body), "1.2")

    def new_send(self, send: tuple[str, int, int, bool]) -> tuple[str, dict[str, str], bytes]:
        target, octets, priority, is_delayed = send
        self.place += 1
        body = b"%05d" % self.place + b"x" * octets
        headers = {"destination": target, "priority": str(priority)}
        if is_delayed and target != TOPIC:
            headers["delay"] = str(int(DELAY_S * 1000))
        return target, headers, body

    def send_burst(self, sends: list[tuple[str, int, int, bool]], one_in: int) -> MemoryClient:
        """Send in one write; return the sender, to check later whether it was refused."""
        sender = self.broker.client()
        octets = []
        refused: set[str] = set()
        for number, send in enumerate(sends):
            target, headers, body = self.new_send(send)
            octets.append(self.encoded(headers, body))
            if one_in and number % one_in == one_in - 1:
                self.bad.add(body)
            if not refused:
                puts = self.copies(target, headers, body)
                refused = self.refusals(puts)
                if not refused:
                    is_delayed = len(puts) == 1 and puts[0][1].due > 0
                    self.put(Unit(puts, sender, is_delayed_alone=is_delayed))
        self.refused = refused
        self.set_failures()
        sender.write(b"".join(octets))
        if self.store is not None:
            self.deliver_from(self.boxes[MEMORY])
        return sender

    def set_failures(self) -> None:
        if self.store is not None:
            self.store.fails = self.fails

    def fails(self, operations: Sequence[Operation]) -> bool:
        return any(isinstance(each, Put) and each.body in self.bad for each in operations)

    @rule(sends=bursts, one_in=failures)
    def burst(self, sends: list[tuple[str, int, int, bool]], one_in: int) -> None:
        sender = self.send_burst(sends, one_in)
        # An earlier frame that the store refuses ends the session first.
        is_unkept = any(unit.fails for unit in self.units)
        expected: set[str | None] = {"store-full"} if is_unkept else {*self.refused} or {None}
        self.end_turn()
        assert refusal(sender) in expected
        sender.close()
        self.observe()

    @precondition(lambda self: self.store is not None)
    @rule(first=bursts, second=bursts, one_in=failures, queue=st.sampled_from(QUEUES))
    def somebody_comes_while_much_is_on_its_way(
        self,
        first: list[tuple[str, int, int, bool]],
        second: list[tuple[str, int, int, bool]],
        one_in: int,
        queue: str,
    ) -> None:
        if self.is_restarted:
            # A full queue with the policy "reject" first looks for expired messages. That may take
            # long enough for others to make room.
            first, second = (
                [each for each in sends if each[0] not in (REJECT, FANOUT)]
                for sends in (first, second)
            )
        self.runner.is_held = True
        senders = [self.send_burst(first, one_in)]
        since = len(self.units)
        senders.append(self.send_burst(second, one_in))
        box = self.boxes[queue]
        if box.client is None and not box.fits([*box.kept, *box.coming]) and box.drops:
            # The consumer gets nothing until all earlier messages are stored.
            box.client, box.is_auto, box.prefetch = self.broker.client(), False, 2
            box.awaited = len(box.coming)
            box.client.subscribe(queue, ack="client-individual", prefetch_count="2")
        self.runner.go_on()
        if since:
            late, self.units = self.units[since:], self.units[:since]
            self.end_turn()
            self.units = late
        self.end_turn()
        for sender in senders:
            sender.close()
        self.observe()

    @rule(
        queue=st.sampled_from((*QUEUES, DURABLE)),
        acks=st.lists(numbers, max_size=3),
        sends=bursts,
        one_in=failures,
    )
    def transaction(
        self,
        queue: str,
        acks: list[int],
        sends: list[tuple[str, int, int, bool]],
        one_in: int,
    ) -> None:
        box = self.boxes[queue]
        client = box.client or self.broker.client()
        client.send("BEGIN", transaction="t")
        acked: dict[Message, None] = {}
        for number in acks:
            if box.client is not None and box.held:
                acked[pick(box.held, number)] = None
        for message in acked:
            client.ack(box.frames[message.body], transaction="t")
        box.acked = len(acked)
        self.deliver()
        self.observe()
        puts: list[tuple[Box, Message]] = []
        for number, send in enumerate(sends):
            target, headers, body = self.new_send(send)
            client.write(self.encoded({**headers, "transaction": "t"}, body))
            puts += self.copies(target, headers, body)
            if one_in and number % one_in == one_in - 1:
                self.bad.add(body)
        freed = [(box, message) for message in acked]
        self.set_failures()
        box.acked = 0
        if refused := self.refusals(puts, freed):
            client.send("COMMIT", transaction="t")
            assert refusal(client) in refused
            self.gone(client)
        else:
            for message in acked:
                box.held.remove(message)
            unit = Unit(puts, client, taken=freed)
            self.put(unit)
            if self.store is not None:
                self.deliver()
            self.end_turn()
            client.send("COMMIT", transaction="t")
            assert refusal(client) == ("store-full" if unit.fails else None)
        self.deliver()
        if box.client is not client:
            client.close()
        self.observe()

    # Actions of consumers.

    @rule(queue=st.sampled_from((*QUEUES, DURABLE)), prefetch=st.integers(0, 3))
    def consume(self, queue: str, prefetch: int) -> None:
        """Connect a consumer that acknowledges, or with a prefetch of 0 one in the mode "auto"."""
        box = self.boxes[queue]
        if box.client is not None:
            return
        box.is_auto, box.prefetch = prefetch == 0, prefetch or 999
        ack = "auto" if box.is_auto else "client-individual"
        if queue == DURABLE:
            box.client = self.subscribe_durably(box.prefetch, ack)
        else:
            box.client = self.broker.client()
            box.client.subscribe(queue, ack=ack, prefetch_count=str(box.prefetch))
        self.deliver()
        self.observe()

    @rule(queue=st.sampled_from((*QUEUES, DURABLE)), which=numbers)
    def acknowledge(self, queue: str, which: int) -> None:
        box = self.boxes[queue]
        if box.client is None or not box.held:
            return
        message = pick(box.held, which)
        box.held.remove(message)
        box.client.ack(box.frames[message.body])
        self.deliver()
        self.observe()

    @rule(queue=st.sampled_from((*QUEUES, DURABLE)))
    def leave(self, queue: str) -> None:
        box = self.boxes[queue]
        if box.client is not None:
            client = box.client
            client.drop()
            self.gone(client)
            self.observe()

    # Actions on the broker.

    @rule(most=st.integers(2, 6))
    def other_limits(self, most: int) -> None:
        # The messages dropped by the old limits are removed from the store.
        self.pass_time(LULL_S)
        self.config = config_of(most)
        self.broker.broker.reload(self.config)
        for box in self.boxes.values():
            if box.name != OCTETS:
                box.most = most
            self.count_dropped(box.make_room())
        self.deliver()
        self.observe()

    @rule()
    def time_passes(self) -> None:
        self.pass_time(DELAY_S / 2)

    def pass_time(self, seconds: float) -> None:
        self.broker.clock.advance(seconds)
        now = self.broker.clock.seconds()
        for box in self.boxes.values():
            ripe = [each for each in box.delayed if each.due <= now]
            for message in sorted(ripe, key=lambda each: (each.due, each.place)):
                self.place += 1
                box.delayed.remove(message)
                message.place, message.due = self.place, 0.0
                self.count_dropped(box.make_room([message]))
                box.add(message)
                if self.store is not None and box.name != MEMORY:
                    # Each is read in a separate iteration.
                    self.deliver_from(box)
        self.deliver()
        self.observe()

    @precondition(lambda self: self.store is not None)
    @rule(is_killed=st.booleans())
    def begin_again(self, is_killed: bool) -> None:  # noqa: FBT001 (drawn by Hypothesis)
        """Replace the broker by a new one with the same store."""
        assert self.store is not None
        if is_killed:
            if self.boxes[RANKED].ready or any(box.held for box in self.boxes.values()):
                # The store removes dropped messages with a delay. The next broker drops the oldest
                # once more, without knowledge of the deliveries.
                self.pass_time(LULL_S)
            self.store.close()
            self.dropped = None
        else:
            self.broker.broker.close()
        for box in self.boxes.values():
            if box.client is not None:
                self.gone(box.client)
        if self.dropped is not None:
            self.dropped = 0
        for left in (self.boxes[MEMORY].ready, self.boxes[MEMORY].delayed):
            left.clear()
        self.is_restarted = True
        clock = Clock()
        clock.rightNow = self.broker.clock.seconds()
        self.runner = HeldRunner()
        self.broker = self.make_broker(clock)

    # Invariants.

    def observe(self) -> None:
        """Check that consumers got the messages of the model, in order."""
        for box in self.boxes.values():
            if box.client is None:
                continue
            assert box.client.error is None, box.client.error
            frames = box.client.take("MESSAGE")
            assert [frame.body for frame in frames] == box.expected, box.name
            box.expected.clear()
            box.frames.update((frame.body, frame) for frame in frames)

    def queue(self, name: str) -> Queue | None:
        if name == DURABLE:
            [found] = next(iter(self.broker.broker.hosts.values())).durables.values()
            return found
        destination = self.broker.destinations.get(name)
        assert destination is None or isinstance(destination, Queue)
        return destination

    @invariant()
    def the_queues_have_what_the_model_has(self) -> None:
        for box in self.boxes.values():
            queue = self.queue(box.name)
            seen: list[Seen] = []
            if queue is not None:
                peek(queue, (0, 0), 100, seen.extend, _no_failure)
                assert (queue.messages, queue.incoming) == (len(box.kept), 0), box.name
                assert not queue.is_held_back, box.name
                assert queue.octets == sum(each.size for each in box.kept), box.name
            by_state = {
                state: [each.message.body for each in seen if each.state == state]
                for state in ("ready", "in-flight", "delayed")
            }
            assert by_state["ready"] == [each.body for each in box.ready], box.name
            assert sorted(by_state["in-flight"]) == sorted(each.body for each in box.held)
            assert sorted(by_state["delayed"]) == sorted(each.body for each in box.delayed)

    @invariant()
    def what_was_dropped_is_counted(self) -> None:
        if self.dropped is None:
            return
        host = next(iter(self.broker.broker.hosts.values()))
        there = [*host.destinations.values(), *host.durables.values()]
        assert host.past.dropped + sum(each.dropped for each in there) == self.dropped

    def teardown(self) -> None:
        """Check that all messages left in the model are delivered in order."""
        if not hasattr(self, "broker"):
            return
        try:
            for box in self.boxes.values():
                self.take_out(box)
        finally:
            self.broker.broker.close()
            self.directory.cleanup()

    def take_out(self, box: Box) -> None:
        if box.client is not None:
            client = box.client
            client.drop()
            self.gone(client)
        last = self.subscribe_durably(999) if box.name == DURABLE else self.broker.client()
        if box.name != DURABLE:
            last.subscribe(box.name)
        assert last.bodies() == [each.body for each in box.ready], box.name
        last.close()


def _no_failure(error: Exception) -> None:
    raise error


class MemoryStoreMachine(OverflowMachine):
    """The same with a store in memory."""

    kind = "memory"


class LmdbMachine(OverflowMachine):
    """The same with the durable store."""

    kind = "lmdb"


class SqlMachine(OverflowMachine):
    """The same with a relational database."""

    kind = "sqlite"


# Subscribers of topics.


@dataclass(eq=False)
class Reader:
    """A subscription of a topic in the model."""

    topic: str
    prefetch: int
    held: list[bytes] = field(default_factory=list)
    backlog: list[tuple[bytes, int, float]] = field(default_factory=list)

    @property
    def is_able(self) -> bool:
        return len(self.held) < self.prefetch

    @property
    def octets(self) -> int:
        return sum(size for _, size, _ in self.backlog)


MOST_BACKLOG = 3
MOST_OF_CONNECTION = 4
TOPICS = ("/topic/a", "/topic/b")
#: A topic, a number of bytes in the body, and True if it expires soon.
copies = st.tuples(st.sampled_from(TOPICS), st.sampled_from((0, 0, 60, 600)), st.booleans())


class ReaderMachine(RuleBasedStateMachine):
    """A connection with two subscriptions of topics that acknowledges slowly."""

    @initialize(
        policy=st.sampled_from(("drop-oldest", "drop-oldest", "drop-newest", "disconnect")),
        prefetches=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    )
    def begin(self, policy: str, prefetches: tuple[int, int]) -> None:
        self.policy = policy
        self.broker = MemoryBroker(
            BrokerConfig().changed(
                slow_reader=policy,
                max_topic_backlog=MOST_BACKLOG,
                max_topic_backlog_bytes=MOST_OCTETS,
                max_connection_backlog=MOST_OF_CONNECTION,
            )
        )
        self.prefetches = prefetches
        self.last = self.lost = 0
        self.come()

    def come(self) -> None:
        self.client = self.broker.client()
        self.is_doomed = False
        self.readers = {
            name: Reader(name, prefetch)
            for name, prefetch in zip(TOPICS, self.prefetches, strict=True)
        }
        self.frames: dict[bytes, Frame] = {}
        self.expected: list[bytes] = []
        for name, reader in self.readers.items():
            self.client.subscribe(
                name, id=name, ack="client-individual", prefetch_count=str(reader.prefetch)
            )

    def encoded(self, copy: tuple[str, int, bool]) -> bytes:
        """Return an encoded SEND, and add it to the messages that the model expects."""
        topic, octets, expires = copy
        self.last += 1
        body = b"%05d" % self.last + b"x" * octets
        headers = {"destination": topic, "content-length": str(len(body))}
        if expires:
            headers["expiration"] = "1000"
        size = sum(len(name) + len(value) for name, value in headers.items()) + len(body)
        until = self.broker.clock.seconds() + 1.0 if expires else float("inf")
        self.send_to(self.readers[topic], (body, size, until))
        return encode(Frame("SEND", headers, body), "1.2")

    def send_to(self, reader: Reader, copy: tuple[bytes, int, float]) -> None:
        if reader.is_able and not reader.backlog:
            self.deliver(reader, copy)
            return
        if not self.is_full(reader, copy):
            reader.backlog.append(copy)
            return
        self.catch_up(reader)
        if reader.is_able and not reader.backlog:
            self.deliver(reader, copy)
            return
        if self.policy == "drop-oldest" and copy[1] <= MOST_OCTETS:
            while reader.backlog and self.is_full(reader, copy):
                reader.backlog.pop(0)
                self.lost += 1
            if self.is_full(reader, copy):
                max(self.readers.values(), key=lambda each: len(each.backlog)).backlog.pop(0)
                self.lost += 1
        if self.is_full(reader, copy):
            self.lost += 1
            self.is_doomed |= self.policy == "disconnect"
        else:
            reader.backlog.append(copy)

    def is_full(self, reader: Reader, copy: tuple[bytes, int, float]) -> bool:
        return (
            len(reader.backlog) >= MOST_BACKLOG
            or reader.octets + copy[1] > MOST_OCTETS
            or sum(len(each.backlog) for each in self.readers.values()) >= MOST_OF_CONNECTION
        )

    def deliver(self, reader: Reader, copy: tuple[bytes, int, float]) -> None:
        reader.held.append(copy[0])
        self.expected.append(copy[0])

    def catch_up(self, reader: Reader) -> None:
        now = self.broker.clock.seconds()
        while reader.backlog and (reader.backlog[0][2] <= now or reader.is_able):
            copy = reader.backlog.pop(0)
            if copy[2] > now:
                self.deliver(reader, copy)

    def observe(self) -> None:
        """Check the received messages, in the order of each topic, and the end of slow readers."""
        frames = self.client.take("MESSAGE")
        self.frames.update((frame.body, frame) for frame in frames)
        assert [frame.body for frame in frames] == self.expected
        self.expected.clear()
        assert refusal(self.client) == ("slow-reader" if self.is_doomed else None)
        if self.is_doomed:
            self.client.close()
            self.come()

    @rule(wanted=st.lists(copies, min_size=1, max_size=6))
    def burst(self, wanted: list[tuple[str, int, bool]]) -> None:
        producer = self.broker.client()
        producer.write(b"".join(map(self.encoded, wanted)))
        assert refusal(producer) is None
        producer.close()
        self.observe()

    @rule(which=numbers, wanted=st.lists(copies, max_size=3))
    def acknowledge_and_send_in_one_write(
        self, which: int, wanted: list[tuple[str, int, bool]]
    ) -> None:
        held = [(reader, body) for reader in self.readers.values() for body in reader.held]
        if not held:
            return
        reader, body = pick(held, which)
        octets = [encode(Frame("ACK", {"id": self.frames[body].headers["ack"]}), "1.2")]
        reader.held.remove(body)
        octets += map(self.encoded, wanted)
        self.client.write(b"".join(octets))
        self.catch_up(reader)
        self.observe()

    @rule()
    def time_passes(self) -> None:
        self.broker.clock.advance(0.6)

    @invariant()
    def what_waits_is_counted(self) -> None:
        [connection] = self.broker.broker.connections
        there = {each.id: each for each in connection.subscriptions.values()}
        for name, reader in self.readers.items():
            assert [each.message.body for each in there[name].backlog] == [
                body for body, _, _ in reader.backlog
            ]
            assert there[name].backlog_bytes == reader.octets
        assert connection.backlog == sum(len(each.backlog) for each in self.readers.values())

    @invariant()
    def what_is_lost_is_counted(self) -> None:
        host = next(iter(self.broker.broker.hosts.values()))
        there = sum(each.dropped for each in host.destinations.values())
        assert host.past.dropped + there == self.lost


# Faulty versions.


def _only_the_window_is_dropped(queue: Queue, lane: Any) -> None:
    """Drop messages in memory only, not those in the store: a faulty broker."""


def _only_the_window_can_be_dropped(queue: Queue, messages: int, size: int) -> bool:
    kept = queue.messages - sum(len(lane.ready) for lane in queue.sub_queues)
    octets = queue.octets - sum(lane.window_octets for lane in queue.sub_queues)
    return kept + messages <= queue._max_messages and octets + size <= queue._max_octets


def _the_highest_priority_goes_first(queue: Queue) -> None:
    queue.sub_queues.reverse()
    try:
        _drop_oldest(queue)
    finally:
        queue.sub_queues.reverse()


_drop_oldest = Queue._drop_oldest


def _a_full_durable_subscription_loses_the_newest(queue: DurableQueue, message: Any) -> None:
    if queue._fits(1, message.size):
        queue.put(message)
    else:
        queue.dropped += 1


def _what_is_on_its_way_counts_as_kept(queue: Queue) -> bool:
    return queue.messages > queue._max_messages or queue.octets > queue._max_octets


_put = Queue.put


def _puts_take_effect_before_acknowledgements(queue: Queue, message: Any) -> None:
    arriving, queue.host.arriving = queue.host.arriving, None
    _put(queue, message)
    queue.host.arriving = arriving


def _is_dropped_before_the_store_is_asked(queue: Queue, message: Any) -> None:
    for lane in reversed(queue.sub_queues):
        while queue._is_trimmed and lane.ready and not queue._fits(1, message.size):
            queue._drop(lane.popleft())
    _put(queue, message)


def _what_never_fits_empties_a_durable_subscription(queue: DurableQueue, message: Any) -> None:
    for lane in queue.sub_queues:
        while lane.ready and not queue._fits(1, message.size):
            queue._drop(lane.popleft())
    _offer(queue, message)


_offer = DurableQueue.offer


def _what_is_in_memory_does_not_wait_for_the_store(host: VirtualHost) -> None:
    arriving, host.arriving = host.arriving or [], None
    for queue, entry in arriving:
        queue.count_off(entry)
        queue.take_in(entry)
        host.scheduler.touch(queue)


def _what_never_fits_empties_a_backlog(
    topic: Topic, subscription: Subscription, entry: Any
) -> None:
    subscription.enqueue(entry)
    while len(subscription.backlog) > MOST_BACKLOG or subscription.backlog_bytes > MOST_OCTETS:
        subscription.drop_oldest()


def _only_delayed_messages_that_are_kept_count(delays: Delays, messages: int) -> None:
    coming, delays.incoming = delays.incoming, 0
    try:
        _check_delays(delays, messages)
    finally:
        delays.incoming = coming


_check_delays = Delays.check_room


def _each_delayed_message_of_a_transaction_counts_alone(delays: Delays, messages: int) -> None:
    _check_delays(delays, 1)


def _only_what_is_kept_counts(queue: Queue, messages: int, size: int) -> bool:
    return (
        queue.messages - queue.incoming + messages <= queue._max_messages
        and queue.octets - queue.incoming_octets + size <= queue._max_octets
    )


def _each_subscription_counts_alone(topic: Topic, subscription: Subscription, size: int) -> bool:
    policy = topic.policy
    return (
        len(subscription.backlog) >= policy.max_topic_backlog
        or subscription.backlog_bytes + size > policy.max_topic_backlog_bytes
    )


def _what_is_sent_in_a_transaction_is_not_summed_up(
    host: VirtualHost, messages: Any, settlements: Any, acknowledged: Any, maker: Any
) -> None:
    for message in messages:
        _check_unit(host, [message], settlements, acknowledged, maker)


_check_unit = VirtualHost._check_unit

#: The fault, its kind, the function that it replaces, and the machines that detect it.
WRONG: dict[str, list[tuple[Callable[..., Any], type, str, type[RuleBasedStateMachine]]]] = {
    "overflow knows only what is loaded": [
        (_only_the_window_is_dropped, Queue, "_owe", MemoryStoreMachine),
        (_only_the_window_can_be_dropped, Queue, "_would_fit", MemoryStoreMachine),
        (_the_highest_priority_goes_first, Queue, "_drop_oldest", OverflowMachine),
        (
            _a_full_durable_subscription_loses_the_newest,
            DurableQueue,
            "offer",
            MemoryStoreMachine,
        ),
    ],
    "what need not be dropped is": [
        (_what_is_on_its_way_counts_as_kept, Queue, "is_over", MemoryStoreMachine),
        (_puts_take_effect_before_acknowledgements, Queue, "put", OverflowMachine),
        (_is_dropped_before_the_store_is_asked, Queue, "put", MemoryStoreMachine),
        (
            _what_never_fits_empties_a_durable_subscription,
            DurableQueue,
            "offer",
            OverflowMachine,
        ),
        (_what_never_fits_empties_a_backlog, Topic, "_hold_if_possible", ReaderMachine),
        (
            _what_is_in_memory_does_not_wait_for_the_store,
            VirtualHost,
            "end_together",
            MemoryStoreMachine,
        ),
    ],
    "what is on its way is not counted": [
        (_only_delayed_messages_that_are_kept_count, Delays, "check_room", MemoryStoreMachine),
        (
            _each_delayed_message_of_a_transaction_counts_alone,
            Delays,
            "check_room",
            OverflowMachine,
        ),
        (_only_what_is_kept_counts, Queue, "_fits", MemoryStoreMachine),
        (
            _what_is_sent_in_a_transaction_is_not_summed_up,
            VirtualHost,
            "_check_unit",
            OverflowMachine,
        ),
        (_each_subscription_counts_alone, Topic, "_is_full_for", ReaderMachine),
    ],
}


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("wrong", "where", "name", "machine"), [each for kind in WRONG.values() for each in kind]
)
def test_a_wrong_version_is_found(
    monkeypatch: pytest.MonkeyPatch,
    wrong: Callable[..., Any],
    where: type,
    name: str,
    machine: type[RuleBasedStateMachine],
) -> None:
    is_property = isinstance(where.__dict__.get(name), property)
    monkeypatch.setattr(where, name, property(wrong) if is_property else wrong)
    # The random examples depend on the imported modules: stop at the first failure.
    found = settings(
        _settings(10_000),
        phases=[Phase.generate],
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        print_blob=False,
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=found)


def test_there_are_three_wrong_versions_of_each_kind() -> None:
    assert all(len(each) >= 3 for each in WRONG.values())


def _settings(examples: int, steps: int = 30) -> settings:
    return settings(
        max_examples=drawn(examples),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


TestReaders = ReaderMachine.TestCase
TestReaders.settings = _settings(150)
TestMemory = pytest.mark.matrix(OverflowMachine.TestCase)
TestMemory.settings = _settings(150)
TestMemoryStore = MemoryStoreMachine.TestCase
TestMemoryStore.settings = _settings(150)
TestLmdb = LmdbMachine.TestCase
TestLmdb.settings = _settings(60)
# stores/test_agreement.py compares this store with the others.
TestSqlAlchemy = pytest.mark.matrix(SqlMachine.TestCase)
TestSqlAlchemy.settings = _settings(25)
