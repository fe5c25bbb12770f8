"""Several brokers with one lease: pauses, lost and late requests, and clocks that are set."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stompkit.server.lease.election import (
    Acquired,
    Ask,
    Election,
    Event,
    LeaseState,
    Lost,
    Request,
)
from tests.effort import drawn
from tests.server.lease.memory_lease import MemoryLease

SECONDS = 10.0
#: Difference between the clocks of the machines; a broker only measures time.
OFFSETS = (0.0, 1e6, -1e6)

#: Interval in seconds at which brokers work in the model.
STEP_S = 0.3

brokers = st.integers(0, len(OFFSETS) - 1)


class Store:
    """A store as that in PostgreSQL: each commit replaces the stamp that it has seen."""

    def __init__(self) -> None:
        """Start with a stamp of nobody."""
        self.stamp = (0, 0)
        #: The epoch of each commit.
        self.commits: list[int] = []

    def open(self, epoch: int) -> tuple[int, int]:
        """Replace the stamp of others; return the new one."""
        self.commits.append(epoch)
        self.stamp = (epoch, len(self.commits))
        return self.stamp

    def commit(self, stamp: tuple[int, int]) -> tuple[int, int] | None:
        """Commit, unless the stamp is another one; return the new stamp."""
        if stamp != self.stamp:
            return None
        return self.open(stamp[0])


class Sent:
    """A request on its way to the database, or its answer on the way back."""

    def __init__(
        self, request: Request, asked_s: float, now: float, delays_s: tuple[float, float]
    ) -> None:
        """Start before the database has it, at the time ``now`` of the world."""
        self.request = request
        self.asked_s = asked_s
        self.arrives = now + delays_s[0]
        self.returns = self.arrives + delays_s[1]
        self.is_done = False
        self.state: LeaseState | None = None


class Broker:
    """A broker with its own clock; its requests take as long as the model says."""

    def __init__(self, number: int) -> None:
        """Start without the lease."""
        self.name = "abc"[number]
        self.offset_s = OFFSETS[number]
        self.election = Election(self.name, f"instance-{self.name}", SECONDS)
        self.sent: Sent | None = None
        self.is_paused = False
        self.pause_ends = 0.0
        #: The epoch for which it has opened the store, and the stamp that it has seen last.
        self.epoch = 0
        self.stamp: tuple[int, int] | None = None
        #: Requests that it has given up, and that the database can still get.
        self.given_up: list[Sent] = []


class Brokers(RuleBasedStateMachine):
    """Draws what happens to brokers, and checks who writes."""

    def __init__(self) -> None:
        """Start with brokers that have not begun."""
        super().__init__()
        self.now = 1000.0
        self.lease = MemoryLease(lambda: self.now)
        self.store = Store()
        self.brokers = [Broker(number) for number in range(len(OFFSETS))]
        self.sets_clock = False
        self.random = Random(0)
        #: Probabilities of a slow request, and of a pause at each step.
        self.slowness = self.pauses = 0.0

    @initialize(sets_clock=st.booleans())
    def begin(self, *, sets_clock: bool) -> None:
        """Let all brokers look once; decide if the clock of the database is ever set."""
        self.sets_clock = sets_clock
        for broker in self.brokers:
            self._work(broker)

    def _delay_s(self) -> float:
        """Return the time that a request takes, or its answer: usually none, sometimes too long."""
        random = self.random
        return random.uniform(0.0, 1.2 * SECONDS) if random.random() < self.slowness else 0.0

    def _now(self, broker: Broker) -> float:
        return self.now + broker.offset_s

    def _take(self, broker: Broker, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Acquired):
                # The store is opened if the lease is still that of this broker.
                mine = (event.epoch, broker.election.instance)
                if (self.lease.epoch, self.lease.instance) == mine:
                    broker.epoch, broker.stamp = event.epoch, self.store.open(event.epoch)
                else:
                    broker.election.leave(event.epoch, self._now(broker), rest_s=1.0)
            elif isinstance(event, Lost):
                broker.epoch, broker.stamp = 0, None

    def _work(self, broker: Broker) -> None:
        """Do what the threads of a keeper do now."""
        now = self._now(broker)
        self._take(broker, broker.election.tick(now))
        if broker.sent is None:
            request = broker.election.next_request(now)
            if request is not None:
                broker.sent = Sent(request, now, self.now, (self._delay_s(), self._delay_s()))

    def _do(self, broker: Broker, sent: Sent) -> None:
        """Have the database execute a request."""
        if not sent.is_done:
            sent.is_done = True
            election = broker.election
            sent.state = self.lease.make(
                sent.request, broker.name, election.instance, election.seconds
            )

    def _answer(self, broker: Broker) -> None:
        sent = broker.sent
        if sent is not None:
            broker.sent = None
            self._do(broker, sent)
            now = self._now(broker)
            events = broker.election.answered(sent.request, sent.asked_s, now, sent.state)
            self._take(broker, events)

    def step(self, broker: Broker) -> None:
        """Have a broker do what is due now, and the database, too."""
        sent = broker.sent
        if sent is not None and self.now >= sent.arrives:
            self._do(broker, sent)
        if broker.is_paused and self.now < broker.pause_ends:
            return
        broker.is_paused = False
        if sent is not None and self.now >= sent.returns:
            self._answer(broker)
        self._work(broker)
        if broker.stamp is not None:
            self._commit(broker)

    def _run(self, seconds: float) -> None:
        """Let brokers work for some time, except those that are paused."""
        end = self.now + seconds
        while self.now < end:
            for broker in self.brokers:
                self.step(broker)
                self._check()
                if self.random.random() < self.pauses:
                    self._pause(broker)
            self.now += STEP_S

    @rule(
        seed=st.integers(0, 2**32),
        seconds=st.sampled_from((1.0, 5.0, 20.0, 100.0)),
        slowness=st.sampled_from((0.0, 0.05, 0.3)),
        pauses=st.sampled_from((0.0, 0.002, 0.01)),
    )
    def run(self, seed: int, seconds: float, slowness: float, pauses: float) -> None:
        """Let brokers work for some time, with requests that are slow and pauses."""
        self.random.seed(seed)
        self.slowness, self.pauses = slowness, pauses
        self._run(seconds)
        self.slowness = self.pauses = 0.0

    def _pause(self, broker: Broker) -> None:
        broker.is_paused = True
        broker.pause_ends = self.now + self.random.uniform(0.0, 1.5 * SECONDS)

    @rule(number=brokers)
    def lose(self, number: int) -> None:
        """Lose a request or its answer: the broker gives it up, but the database may get it."""
        broker = self.brokers[number]
        if broker.sent is not None and not broker.is_paused:
            broker.given_up.append(broker.sent)
            broker.sent = None
            self._take(broker, broker.election.failed(self._now(broker)))

    @rule(number=brokers)
    def execute_late(self, number: int) -> None:
        """Have the database execute a request that was given up."""
        broker = self.brokers[number]
        if broker.given_up:
            self._do(broker, broker.given_up.pop())

    @rule(number=brokers, seconds=st.sampled_from((1.0, 9.0, 11.0, 30.0)))
    def pause(self, number: int, seconds: float) -> None:
        """Stop a broker for some time."""
        broker = self.brokers[number]
        broker.is_paused, broker.pause_ends = True, self.now + seconds

    @rule(skew_s=st.sampled_from((0.0, 3600.0, -3600.0, 7.0)))
    def set_clock(self, skew_s: float) -> None:
        """Set the clock of the database, as a failover to another server does."""
        if self.sets_clock:
            self.lease.skew_s = skew_s

    @rule(number=brokers)
    def commit(self, number: int) -> None:
        """Have a broker commit, also one that does not know yet that it is not active."""
        if self.brokers[number].stamp is not None:
            self._commit(self.brokers[number])

    def _commit(self, broker: Broker) -> None:
        if broker.stamp is not None:
            broker.stamp = self.store.commit(broker.stamp)
            if broker.stamp is None:
                reason = "somebody else has written"
                self._take(broker, broker.election.lose(broker.epoch, reason))

    @rule(number=brokers, successor=brokers)
    def hand_over(self, number: int, successor: int) -> None:
        """Have a broker hand the lease over."""
        broker = self.brokers[number]
        if broker.epoch and not broker.is_paused:
            broker.stamp, epoch, broker.epoch = None, broker.epoch, 0
            name = self.brokers[successor].name
            now = self._now(broker)
            broker.election.leave(epoch, now, successor=name, rest_s=2 * SECONDS)

    @rule()
    def heal(self) -> None:
        """Let all brokers work without faults: one of them is active, in time."""
        for broker in self.brokers:
            broker.is_paused = False
        self._run(6 * SECONDS)
        active = [broker for broker in self.brokers if self._is_valid(broker)]
        assert [broker.name for broker in active] == [self.lease.owner]
        assert self.store.commit(active[0].stamp or (0, 0)) is not None
        active[0].stamp = self.store.stamp

    def _is_valid(self, broker: Broker) -> bool:
        return self._now(broker) < broker.election.expires_s

    @invariant()
    def epochs_never_go_back(self) -> None:
        """What was written was written by one broker after the other."""
        assert self.store.commits == sorted(self.store.commits)

    @invariant()
    def _check(self) -> None:
        """Two leases are valid at a time only if somebody has set the clock of the database.

        The same applies to a lease that somebody else has got since.
        """
        valid = [broker for broker in self.brokers if self._is_valid(broker)]
        if not self.sets_clock:
            assert len(valid) <= 1
            for broker in valid:
                assert broker.election.epoch == self.lease.epoch
                assert self.lease.owners[self.lease.epoch] == broker.election.instance


TestBrokers = Brokers.TestCase
TestBrokers.settings = settings(
    max_examples=drawn(60),
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_never_two_are_active_in_many_short_lives() -> None:
    """Drawn faults, one after the other, find more than rules that shrink."""
    for seed in range(drawn(600)):
        world = Brokers()
        world.sets_clock = seed % 4 == 3
        world.run(seed, 100.0, 0.3, 0.01)
        world.epochs_never_go_back()
        world.heal()


def test_a_request_that_is_executed_late_extends_no_lease() -> None:
    """A renewal that the database gets after a pause of its connection is of no use."""
    world = Brokers()
    a, b, _ = world.brokers
    for _ in range(3):
        world.step(a)
    assert a.epoch == 1
    world.slowness = 1.0
    world.now += 9.0
    world.step(a)
    assert a.sent is not None
    assert a.sent.request.ask is Ask.RENEW
    world.lose(0)
    world.now += 11.0
    world.slowness = 0.0
    for _ in range(3):
        world.step(b)
    assert b.epoch == 2
    world.execute_late(0)
    assert world.lease.owner == "b"
    world.commit(0)
    assert a.stamp is None
