"""Dead letters against a model: a retried message has the same headers as the original.

The model keeps, for each message, the frame that its consumers got first, and the one place where
it must be: its queue, or one of the dead-letter queues. It knows the rules of the documentation,
but not the way the broker records them. Senders use the broker's own names for their headers, and
send forged dead letters to dead-letter queues. The broker is ended, killed and restarted. Wrong
versions of the broker show that the model would detect them.
"""

# The names of a machine's rules and invariants describe them, like those of tests.
# ruff: noqa: D102

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
from stompkit.server import BrokerConfig, DestinationConfig, MessageStore
from stompkit.server.domain import messages as _messages
from stompkit.server.domain.hosts import virtual_host as _hosts
from stompkit.server.domain.queues import dead_letters as _dead_letters
from stompkit.server.domain.queues import upkeep as _upkeep
from stompkit.server.domain.queues.upkeep import Outcome, Selection, Sweep, move_to, put_back
from stompkit.server.stores.lmdb import LmdbStore
from stompkit.server.stores.sqlalchemy import SqlAlchemyStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.effort import drawn

#: The homes of messages, with their dead-letter queues.
DEAD: Final = {
    "/queue/a": "/dlq/a",
    "/queue/b": "/dlq/b",
    "/queue/durable/c/n": "/dlq/~durable/c/n",
    "/durable/c/n": "/dlq/durable/c/n",
    "/durable/c/m": "/dlq/durable/c/m",
}
TOPICS: Final = {"/durable/c/n": "/topic/t.>", "/durable/c/m": "/topic/t.eu"}
#: Destinations as clients spell them, with the homes of the copies.
TARGETS: Final = {
    "/queue/a": ("/queue/a",),
    "queue://b": ("/queue/b",),
    "/queue/durable/c/n": ("/queue/durable/c/n",),
    "/fanout/f": ("/queue/a", "/queue/b"),
    "/topic/t.eu": ("/durable/c/n", "/durable/c/m"),
    "topic://t.us": ("/durable/c/n",),
}
NAMES: Final = (
    "original-destination",
    "dead-letter-reason",
    "dead-letter-deliveries",
    "stompkit-dead-letter-source",
    "stompkit-dead-letter-destination",
    "stompkit-dead-letter-headers",
    "priority",
    "colour",
)
VALUES: Final = ("/queue/secret", "/queue/a", "rejected", "1", "{}", "", "a:b\nc", "\u00e9")
OF_THE_DELIVERY: Final = (
    "subscription",
    "message-id",
    "ack",
    "redelivered",
    "delivery-count",
)
LIFE_S: Final = 50
CONFIG: Final = BrokerConfig(
    dialect="activemq",
    window_messages=2,
    destinations=(DestinationConfig(name="/fanout/f", children=("/queue/a", "/queue/b")),),
)

Headers = list[tuple[str, str]]


@dataclass(eq=False)
class Known:
    """A message, identified by its body and its home."""

    body: bytes
    home: str
    headers: Headers
    expires: float
    is_letter: bool = True


def kept(headers: Headers) -> Headers:
    """Return the headers that consumers get of those that a client sends."""
    return [each for each in headers if not each[0].startswith("stompkit-")]


def seen(frame: Frame) -> Headers:
    """Return the headers of a MESSAGE, without those of the delivery."""
    return [each for each in frame.headers.items() if each[0] not in OF_THE_DELIVERY]


targets = st.sampled_from(list(TARGETS))
homes = st.sampled_from((*["/queue/a"] * 2, *DEAD))
places = st.sampled_from((*["/dlq/a"] * 2, *DEAD.values()))
headers = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=4)


class DeadLetterMachine(RuleBasedStateMachine):
    """Messages that become dead letters and are retried."""

    @staticmethod
    def make_store(directory: Path) -> MessageStore | None:
        """Create the store in an empty directory; here none, so messages are in memory."""
        return None

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.store = self.make_store(Path(self.directory.name))
        self.broker = MemoryBroker(CONFIG, store=self.store)
        self.waiting: dict[str, list[Known]] = {each: [] for each in (*DEAD, *DEAD.values())}
        self.last = 0
        for home in TOPICS:
            self.consumer(home).close()

    @property
    def now(self) -> float:
        return self.broker.clock.seconds()

    def consumer(self, home: str) -> MemoryClient:
        """Return a client that gets one message of a home."""
        if home not in TOPICS:
            client = self.broker.client()
            client.subscribe(home, ack="client-individual", prefetch_count="1")
            return client
        client = self.broker.client(client_id="c")
        name = {"activemq.subscriptionName": home.rpartition("/")[2]}
        client.subscribe(TOPICS[home], ack="client-individual", prefetch_count="1", **name)
        return client

    def sweep(self, name: str, act: _upkeep.Act) -> Outcome:
        queue = self.broker.broker.hosts[""].destination(name)
        outcomes: list[Outcome] = []
        Sweep(queue, Selection(), act, outcomes.append).start()  # type: ignore[arg-type]
        for _ in range(1_000):
            if outcomes:
                break
            self.broker.clock.advance(0)
        [outcome] = outcomes
        return outcome

    # Actions.

    @rule(to=targets, more=headers, first=st.booleans(), lives=st.booleans())
    def send(self, to: str, more: dict[str, str], *, first: bool, lives: bool) -> None:
        self.last += 1
        body = b"%d" % self.last
        own = list(more.items())
        expires = 0.0
        if lives:
            milliseconds = round((self.now + LIFE_S) * 1000)
            expires = milliseconds / 1000
            own.append(("expires", str(milliseconds)))
        where = ("destination", to)
        own = [where, *own] if first else [*own, where]
        client = self.broker.client()
        client.send("SEND", dict(own), body)
        assert client.error is None
        client.close()
        frame = [*kept(own), ("content-length", str(len(body)))]
        for home in TARGETS[to]:
            copy = frame
            if to.startswith("/fanout/"):
                said = {"destination": home, "original-destination": to}
                copy = [*said.items(), *(each for each in frame if each[0] not in said)]
            self.waiting[home].append(Known(body, home, copy, expires))

    @rule(place=places, whence=st.sampled_from((*DEAD, "/queue/secret")), old=st.booleans())
    def forge(self, place: str, whence: str, *, old: bool) -> None:
        """Send a forged dead letter, of this version or an older one."""
        self.last += 1
        body = b"%d" % self.last
        record = dict.fromkeys(NAMES[:3] if old else NAMES[:5], whence)
        client = self.broker.client()
        client.send("SEND", {"destination": place, **record}, body)
        assert client.error is None
        client.close()
        known = Known(body, "", [], 0.0, is_letter=False)
        self.waiting[place].append(known)

    def first_of(self, home: str) -> Known | None:
        """Remove expired messages; return the message that a consumer gets next."""
        alive = [each for each in self.waiting[home] if not 0 < each.expires <= self.now]
        self.waiting[home] = alive
        return alive[0] if alive else None

    @rule(home=homes)
    def bury(self, home: str) -> None:
        """Refuse the first message of a home."""
        known = self.first_of(home)
        client = self.consumer(home)
        frames = client.take("MESSAGE")
        if known is None:
            assert frames == []
            client.close()
            return
        [frame] = frames
        assert frame.body == known.body
        assert seen(frame) == known.headers
        client.nack(frame, requeue="false")
        client.send("DISCONNECT", receipt="r")
        self.waiting[home].remove(known)
        self.waiting[DEAD[home]].append(known)

    @rule(place=places)
    def retry(self, place: str) -> None:
        """Retry dead letters."""
        letters = self.waiting[place]
        outcome = self.sweep(place, put_back(self.broker.broker.hosts[""]))
        back = [each for each in letters if each.is_letter and not 0 < each.expires <= self.now]
        assert (outcome.done, outcome.left) == (len(back), len(letters) - len(back))
        self.waiting[place] = [each for each in letters if each not in back]
        for each in back:
            self.waiting[each.home].append(each)

    @rule(place=places, other=places)
    def move(self, place: str, other: str) -> None:
        """Move dead letters to another dead-letter queue."""
        if place != other:
            target = self.broker.broker.hosts[""].destination(other)
            target.holds += 1
            self.sweep(place, move_to(target))  # type: ignore[arg-type]
            target.holds -= 1
            self.broker.broker.touch(target)
            self.waiting[other] += self.waiting[place]
            self.waiting[place] = []

    @rule(seconds=st.sampled_from((1, 10, LIFE_S)))
    def wait(self, seconds: int) -> None:
        self.broker.clock.advance(seconds)

    @precondition(lambda self: self.store is not None)
    @rule(is_killed=st.booleans())
    def start_again(self, *, is_killed: bool) -> None:
        if is_killed:
            assert self.store is not None
            self.store.close()
        else:
            self.broker.broker.close()
        # A new clock: pending calls of the previous broker must not run.
        clock = Clock()
        clock.rightNow = self.broker.clock.seconds()
        self.broker = MemoryBroker(CONFIG, store=self.store, clock=clock)

    @invariant()
    def nothing_is_sent_anywhere_else(self) -> None:
        if hasattr(self, "broker"):
            assert "/queue/secret" not in self.broker.destinations

    def teardown(self) -> None:
        """Check that each message is in its place, unchanged."""
        if not hasattr(self, "broker"):
            return
        try:
            self.check()
        finally:
            self.broker.broker.close()
            self.directory.cleanup()

    def check(self) -> None:
        """Check all remaining messages."""
        for place in DEAD.values():
            client = self.broker.client()
            client.subscribe(place)
            assert client.bodies() == [each.body for each in self.waiting[place]]
            client.close()
        for home in DEAD:
            client = self.consumer(home)
            while (known := self.first_of(home)) is not None:
                frames = client.take("MESSAGE")
                expected = [(known.body, known.headers)]
                assert [(each.body, seen(each)) for each in frames] == expected
                client.ack(frames[0])
                self.waiting[home].remove(known)
            assert client.take("MESSAGE") == []
            client.close()


class LmdbMachine(DeadLetterMachine):
    """The same with the durable store."""

    @staticmethod
    def make_store(directory: Path) -> MessageStore | None:
        """Create a store that does not wait for the disk: the power does not fail here."""
        return LmdbStore(directory, synchronous=False, max_octets=1 << 28)


class SqlMachine(DeadLetterMachine):
    """The same with a relational database."""

    @staticmethod
    def make_store(directory: Path) -> MessageStore | None:
        """Create an SQLite store that does not wait for the disk either."""
        return SqlAlchemyStore(f"sqlite:///{directory / 'store.db'}", synchronous=False)


def _settings(examples: int, steps: int = 30) -> settings:
    return settings(
        max_examples=drawn(examples),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


TestDeadLetters = DeadLetterMachine.TestCase
TestDeadLetters.settings = _settings(100)
TestLmdb = LmdbMachine.TestCase
TestLmdb.settings = _settings(40)
# No code of this store is compiled.
TestSqlAlchemy = pytest.mark.pure(SqlMachine.TestCase)
TestSqlAlchemy.settings = _settings(20)


# Faulty versions of the broker.


def _forgets_the_senders_headers(patch: pytest.MonkeyPatch) -> None:
    """A faulty broker that does not restore headers that it has changed."""
    before = _dead_letters._before

    def without(headers: dict[str, str]) -> dict[str, str | None]:
        return {**before(headers), **dict.fromkeys(NAMES[:3])}

    patch.setattr(_dead_letters, "_before", without)


def _believes_its_senders(patch: pytest.MonkeyPatch) -> None:
    """A faulty broker that forwards the headers of the record, like other headers."""
    allowed = _messages._NOT_PASSED_ON - _messages.RECORD
    patch.setattr(_messages, "_NOT_PASSED_ON", allowed)


def _takes_older_letters_of_everybody(patch: pytest.MonkeyPatch) -> None:
    """A faulty broker that accepts forged dead letters of older versions from clients."""
    patch.setattr(_messages, "DEAD_LETTERS", "/none/")


def _goes_by_the_queue(patch: pytest.MonkeyPatch) -> None:
    """A faulty broker that retries messages to the name of the queue where they were refused."""
    as_sent = _upkeep._as_sent
    patch.setattr(
        _upkeep, "_as_sent", lambda letter, queue: as_sent(letter, queue).moved(queue.name, {})
    )


def _forgets_the_time(patch: pytest.MonkeyPatch) -> None:
    """A faulty broker that drops the expiry time of retried messages."""
    patch.setattr(_hosts, "sent_expiry", lambda *_: 0.0)


def _has_one_name_for_two(patch: pytest.MonkeyPatch) -> None:
    """A faulty broker with one dead-letter queue for a durable subscription and a queue."""

    def name_of(name: str) -> str:
        return "/dlq/" + name.removeprefix("/queue/").removeprefix("/")

    patch.setattr(_dead_letters, "dead_letters_of", name_of)


@pytest.mark.matrix
@pytest.mark.pure
@pytest.mark.parametrize(
    "make_wrong",
    [
        _forgets_the_senders_headers,
        _believes_its_senders,
        _takes_older_letters_of_everybody,
        _goes_by_the_queue,
        _forgets_the_time,
        _has_one_name_for_two,
    ],
)
def test_a_wrong_broker_is_found(
    monkeypatch: pytest.MonkeyPatch, make_wrong: Callable[[pytest.MonkeyPatch], None]
) -> None:
    make_wrong(monkeypatch)
    # One failure is enough: shrinking the example is not needed here.
    found = settings(_settings(10_000), derandomize=True, database=None, phases=[Phase.generate])
    with pytest.raises(AssertionError):
        run_state_machine_as_test(DeadLetterMachine, settings=found)
