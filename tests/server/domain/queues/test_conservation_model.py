"""Accepted messages against a model: each is in one place until somebody settles it.

Messages expire, also during a delay. They die, are moved and put back, while the dead letters are
full and the store fails. The model knows only how many copies of a message there must be. They are
counted as operators see them, in all states. Wrong versions of the broker show that the model would
detect them.
"""

# The names of a machine's rules and invariants describe them, like those of tests.
# ruff: noqa: D102

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

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

from stompkit.frames import Frame
from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.domain.commits.batches import RecordingCommitQueue
from stompkit.server.domain.queues.expiry import Expiry
from stompkit.server.domain.queues.overdue import Overdue
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
from stompkit.server.interfaces import Operation, Put, StoredMessage
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.effort import drawn
from tests.server.failing import FailingStore, everything

#: Queues that refuse, drop nothing and delay senders, and a durable subscription.
REFUSING, BLOCKING, DURABLE = "/queue/a", "/queue/b", "/durable/c/n"
HOMES: Final = (REFUSING, BLOCKING, DURABLE)
DEAD: Final = {REFUSING: "/dlq/a", BLOCKING: "/dlq/b", DURABLE: "/dlq/durable/c/n"}
#: Destinations, and how many copies of a message they make.
TARGETS: Final = {REFUSING: 1, BLOCKING: 1, "/topic/t": 1, "/fanout/f": 2}
#: Durations in milliseconds.
TIMES: Final = ("", "1000", "3000")
#: Longer than the time after which expired messages are tried again, in seconds.
AGAIN_S: Final = 31.0


def config(letters: int) -> BrokerConfig:
    """Return settings with room for a number of dead letters in each queue."""
    limits = (DestinationConfig(name=each, max_queue_messages=letters) for each in DEAD.values())
    return BrokerConfig(
        dialect="activemq",
        expired="dead-letter",
        max_delayed=3,
        window_messages=2,
        destinations=(
            DestinationConfig(name=REFUSING, max_queue_messages=4),
            DestinationConfig(name=BLOCKING, max_queue_messages=4, when_full="block"),
            DestinationConfig(name="/fanout/f", children=(REFUSING, "/queue/d")),
            *limits,
        ),
    )


def _puts(operations: Sequence[Operation]) -> bool:
    return any(isinstance(each, Put) for each in operations)


class ConservationMachine(RuleBasedStateMachine):
    """Messages that are sent, held, refused, moved and dropped."""

    @initialize(letters=st.integers(1, 3))
    def begin(self, letters: int) -> None:
        self.store = FailingStore()
        self.is_failing = False
        self.broker = MemoryBroker(config(letters), store=self.store)
        self.last = 0
        #: How many copies of each message are somewhere.
        self.copies: Counter[bytes] = Counter()
        #: Senders that wait, with their messages and the number of copies.
        self.waiting: list[tuple[MemoryClient, bytes, int]] = []
        #: Consumers that hold a message.
        self.held: list[tuple[MemoryClient, Frame]] = []
        self.consumer(DURABLE).close()

    def consumer(self, home: str) -> MemoryClient:
        """Return a client that gets one message of a queue or of the durable subscription."""
        client = self.broker.client(client_id="c")
        named = {"ack": "client-individual", "prefetch_count": "1"}
        if home == DURABLE:
            client.subscribe("/topic/t", **named, **{"activemq.subscriptionName": "n"})
        else:
            client.subscribe(home, **named)
        return client

    def queues(self) -> list[Queue]:
        """Return all queues, also those of durable subscriptions."""
        host = self.broker.broker.hosts[""]
        return [
            *(each for each in host.destinations.values() if isinstance(each, Queue)),
            *host.durables.values(),
        ]

    def queue(self, name: str) -> Queue:
        """Return a queue or the durable subscription."""
        host = self.broker.broker.hosts[""]
        found = host.durable_named(name) or host.destination(name)
        assert isinstance(found, Queue)
        return found

    def settle(self) -> None:
        """End the current cycle, and note what senders have been told."""
        for _ in range(3):
            self.broker.clock.advance(0)
        for sender in list(self.waiting):
            client, body, copies = sender
            if client.take("RECEIPT"):
                self.copies[body] += copies
            elif client.error is None:
                continue
            client.close()
            self.waiting.remove(sender)
        self.broker.clock.advance(0)

    # Clients.

    @rule(
        to=st.sampled_from(list(TARGETS)),
        lives=st.sampled_from(TIMES),
        waits=st.sampled_from(TIMES),
        in_transaction=st.booleans(),
    )
    def send(self, to: str, lives: str, waits: str, *, in_transaction: bool) -> None:
        # A topic keeps delayed messages in memory.
        given = {"expiration": lives, "delay": "" if to.startswith("/topic/") else waits}
        headers = {name: value for name, value in given.items() if value}
        self.last += 1
        body = b"%d" % self.last
        client = self.broker.client()
        if in_transaction:
            client.send("BEGIN", transaction="t")
            client.publish(to, body, transaction="t", **headers)
            self.broker.clock.advance(1)
            client.send("COMMIT", transaction="t", receipt="r")
        else:
            client.publish(to, body, receipt="r", **headers)
        # The copy of an expired message is not made.
        is_over = to.startswith("/topic/") and in_transaction and lives == "1000"
        self.waiting.append((client, body, 0 if is_over else TARGETS[to]))

    @rule(home=st.sampled_from([*HOMES, *DEAD.values()]))
    def take(self, home: str) -> None:
        if home == DURABLE and any(client.error is None for client, _ in self.held):
            return  # it has one consumer at a time
        client = self.consumer(home)
        frames = client.take("MESSAGE")
        if frames:
            self.held.append((client, frames[0]))
        else:
            client.close()

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 9), how=st.sampled_from(("ACK", "NACK", "dead", "close")))
    def give_back(self, which: int, how: str) -> None:
        client, frame = self.held.pop(which % len(self.held))
        if how != "close":
            more = {"requeue": "false"} if how == "dead" else {}
            command = "ACK" if how == "ACK" else "NACK"
            client.send(command, id=frame.headers["ack"], receipt="r", **more)
            self.broker.clock.advance(0)
            # Dead letters that are refused are dropped. Even if the store fails, a message that
            # only has to be removed does not come back: the removal is repeated.
            if how == "ACK" or (how == "dead" and frame.headers["destination"][:5] == "/dlq/"):
                self.copies[frame.body] -= 1
        client.close()

    # Operators.

    def sweep(self, name: str, act: Act) -> Outcome:
        outcomes: list[Outcome] = []
        Sweep(self.queue(name), Selection(), act, outcomes.append).start()
        for _ in range(1_000):
            if outcomes:
                break
            self.broker.clock.advance(0.001)
        [outcome] = outcomes
        return outcome

    @precondition(lambda self: not self.is_failing)
    @rule(home=st.sampled_from([*HOMES, *DEAD.values()]))
    def purge(self, home: str) -> None:
        swept = [
            each.message.body for each in self.seen(home) if each.state in ("ready", "expired")
        ]
        assert self.sweep(home, drop).done == len(swept)
        self.copies.subtract(swept)

    @rule(home=st.sampled_from([REFUSING, BLOCKING]), other=st.sampled_from([REFUSING, BLOCKING]))
    def move(self, home: str, other: str) -> None:
        if home == other:
            return
        target = self.queue(other)
        target.holds += 1
        self.sweep(home, move_to(target))
        target.holds -= 1
        self.broker.broker.touch(target)

    @rule(home=st.sampled_from(HOMES))
    def retry(self, home: str) -> None:
        self.sweep(DEAD[home], put_back(self.broker.broker.hosts[""]))

    @rule(letters=st.integers(1, 5))
    def reload(self, letters: int) -> None:
        self.broker.broker.reload(config(letters))

    # Time and faults.

    @rule(seconds=st.sampled_from((0.5, 1.0, 3.0, AGAIN_S)))
    def wait(self, seconds: float) -> None:
        self.broker.clock.advance(seconds)

    @rule(fails=st.sampled_from((_puts, everything)))
    def fail(self, fails: Callable[[Sequence[Operation]], bool]) -> None:
        self.store.fails, self.is_failing = fails, True

    @precondition(lambda self: self.is_failing)
    @rule()
    def recover(self) -> None:
        self.store.fails, self.is_failing = lambda _: False, False
        # Operations that failed are repeated.
        self.broker.clock.advance(2)

    @precondition(lambda self: not self.is_failing)
    @rule()
    def start_again(self) -> None:
        self.settle()
        clients = [client for client, *_ in self.waiting] + [client for client, _ in self.held]
        for client in clients:
            client.close()
        self.settle()
        self.waiting.clear()
        self.held.clear()
        letters = self.broker.broker.config
        self.broker.broker.close()
        # A new clock: pending calls of the previous broker must not run.
        clock = Clock()
        clock.rightNow = self.broker.clock.seconds()
        self.broker = MemoryBroker(letters, store=self.store, clock=clock)

    # What operators see.

    def seen(self, name: str) -> list[Seen]:
        """Return all messages of a queue."""
        pages: list[Page] = []
        peek(self.queue(name), (-1, 0), 1_000, pages.append, lambda _: None)
        [page] = pages
        return page

    @invariant()
    def each_message_is_somewhere(self) -> None:
        if not hasattr(self, "broker"):
            return
        self.settle()
        if self.is_failing:
            return
        found: Counter[bytes] = Counter()
        for queue in self.queues():
            seen = self.seen(queue.name)
            states = Counter(each.state for each in seen)
            assert queue.messages == len(seen), queue.name
            assert (queue.ready, queue.unsettled, queue.delayed, len(queue.overdue)) == (
                states["ready"],
                states["in-flight"],
                states["delayed"],
                states["expired"],
            ), queue.name
            found.update(each.message.body for each in seen)
        assert found == +self.copies

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.broker.broker.close()


def _settings(examples: int) -> settings:
    return settings(
        max_examples=drawn(examples),
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


TestConservation = ConservationMachine.TestCase
TestConservation.settings = _settings(90)


# Faulty versions of the broker.


def _forgets_what_the_store_refuses(patch: pytest.MonkeyPatch) -> None:
    """A faulty broker that takes no message back whose dead letter cannot be stored."""
    patch.setattr(RecordingCommitQueue, "take", lambda self, entries: None)


def _loads_expired_messages_again(patch: pytest.MonkeyPatch) -> None:
    """A faulty broker whose expired messages wait both for room and behind the window."""

    def expire(self: Expiry, sub_queue: Any, stored: StoredMessage) -> bool:
        sub_queue.take_stored(1, stored.size)
        self.expire_read(sub_queue, stored)
        return True

    patch.setattr(Expiry, "_expire_stored", expire)


def _counts_expired_messages_as_held(patch: pytest.MonkeyPatch) -> None:
    """A faulty broker that shows expired messages to nobody, and moves none."""
    patch.setattr(Queue, "overdue", Overdue())


@pytest.mark.matrix
@pytest.mark.pure
@pytest.mark.parametrize(
    "fault",
    [
        _forgets_what_the_store_refuses,
        _loads_expired_messages_again,
        _counts_expired_messages_as_held,
    ],
)
def test_a_faulty_broker_is_found(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    searched = settings(_settings(3_000), database=None, derandomize=True, phases=[Phase.generate])
    with pytest.raises(AssertionError):
        run_state_machine_as_test(ConservationMachine, settings=searched)
