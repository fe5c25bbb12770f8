"""When a broker asks for the lease of its store, renews it, and stops using it."""

from __future__ import annotations

import pytest

from stompkit.server.lease.election import (
    Acquired,
    Ask,
    Election,
    Event,
    HandOver,
    Lost,
    Request,
)
from tests.server.lease.memory_lease import MemoryLease

SECONDS = 10.0


class Clock:
    """The time of the world, which all brokers measure at the same rate."""

    def __init__(self) -> None:
        """Start at some time."""
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class Candidate:
    """A broker whose requests are answered at once, as long as it is connected."""

    def __init__(self, name: str, lease: MemoryLease, clock: Clock) -> None:
        """Start without the lease."""
        self.election = Election(name, f"instance-{name}", SECONDS)
        self.is_connected = True
        self.events: list[Event] = []
        self.asked: list[Ask] = []
        self._lease = lease
        self._clock = clock

    @property
    def is_active(self) -> bool:
        """True if it has a lease that has certainly not expired."""
        return self._clock.now < self.election.expires_s

    def make(self, request: Request) -> None:
        """Make a request."""
        self.asked.append(request.ask)
        election, now = self.election, self._clock.now
        if self.is_connected:
            state = self._lease.make(request, election.name, election.instance, SECONDS)
            self.events += election.answered(request, now, now, state)
        else:
            self.events += election.failed(now)

    def work(self) -> None:
        """Do all that there is to do now."""
        self.events += self.election.tick(self._clock.now)
        while (request := self.election.next_request(self._clock.now)) is not None:
            self.make(request)


class World:
    """Candidates that share a lease."""

    def __init__(self) -> None:
        """Start with two candidates that have not begun."""
        self.clock = Clock()
        self.lease = MemoryLease(self.clock)
        self.a, self.b = (Candidate(name, self.lease, self.clock) for name in "ab")

    def run(self, seconds: float, *working: Candidate) -> None:
        """Have candidates work each time that one of them has something to do."""
        end = self.clock.now + seconds
        while True:
            for each in working:
                each.work()
            due = min(each.election.due_s() for each in working)
            if due > end:
                self.clock.now = end
                return
            assert due > self.clock.now, "it does nothing, at once, for ever"
            self.clock.now = due


@pytest.fixture
def world() -> World:
    """Two candidates, of which the first has the lease."""
    world = World()
    world.run(0.0, world.a)
    assert world.a.events == [Acquired(1)]
    world.a.events.clear()
    world.a.asked.clear()
    return world


def test_one_has_the_lease_as_long_as_it_renews_it(world: World) -> None:
    world.run(100.0, world.a, world.b)
    assert (world.a.events, world.b.events) == ([], [])
    assert world.a.is_active
    assert not world.b.is_active
    # It is renewed after a third of its time.
    assert 28 <= world.a.asked.count(Ask.RENEW) <= 31
    assert Ask.ACQUIRE not in world.b.asked


def test_another_takes_over_when_the_lease_has_expired(world: World) -> None:
    world.run(3.0, world.b)
    assert world.b.events == []
    begun = world.clock.now
    while not world.b.events:
        world.run(0.01, world.b)
    assert world.b.events == [Acquired(2)]
    assert world.clock.now - begun == pytest.approx(SECONDS - 3.0, abs=0.02)
    # A broker that was paused until now notices.
    world.a.work()
    assert world.a.events == [Lost(1, "it could not renew its lease in time")]
    world.run(30.0, world.a, world.b)
    assert world.b.events == [Acquired(2)]


def test_a_lease_ends_where_the_database_does_not_answer(world: World) -> None:
    world.a.is_connected = False
    world.run(SECONDS - 0.01, world.a)
    assert world.a.events == []
    assert world.a.is_active
    world.run(0.02, world.a)
    assert world.a.events == [Lost(1, "it could not renew its lease in time")]
    world.a.is_connected = True
    world.run(1.0, world.a)
    assert world.a.events[1:] == [Acquired(2)]


def test_a_broker_that_lost_its_lease_notices_when_it_looks(world: World) -> None:
    # By a clock of the database that was set, another one takes over too early.
    world.lease.skew_s = 3600.0
    world.run(0.0, world.b)
    assert world.b.events == [Acquired(2)]
    assert world.a.is_active
    world.run(0.6, world.a)
    assert world.a.events == [Lost(1, "the broker b has the lease")]


@pytest.mark.parametrize("skew_s", [-3600.0, -5.0])
def test_a_clock_of_the_database_that_was_set_back_delays_nobody_for_long(
    world: World, skew_s: float
) -> None:
    world.run(0.0, world.b)
    world.lease.skew_s = skew_s
    world.run(1.02 * SECONDS, world.b)
    assert world.b.events == [Acquired(2)]


def test_a_lease_is_not_taken_while_its_owner_renews_it_whatever_the_clock_says(
    world: World,
) -> None:
    for _ in range(20):
        world.lease.skew_s -= 1000.0
        world.run(4.0, world.a, world.b)
    assert (world.a.events, world.b.events) == ([], [])


def test_of_several_only_one_acquires_a_lease_that_is_free(world: World) -> None:
    world.run(0.0, world.b)
    world.clock.now += 2 * SECONDS
    c = Candidate("c", world.lease, world.clock)
    c.make(Request(Ask.LOOK))
    requests = [each.election.next_request(world.clock.now) for each in (world.b, c)]
    assert [each.ask for each in requests if each is not None] == [Ask.ACQUIRE] * 2
    for each, request in zip((world.b, c), requests, strict=True):
        assert request is not None
        each.make(request)
    assert (world.b.events, c.events) == ([Acquired(2)], [])


def test_an_answer_that_comes_too_late_is_of_no_use(world: World) -> None:
    world.run(0.0, world.b)
    world.clock.now += 2 * SECONDS
    asked_s = world.clock.now
    request = world.b.election.next_request(asked_s)
    assert request is not None
    state = world.lease.make(request, "b", "instance-b", SECONDS)
    world.clock.now += SECONDS
    assert world.b.election.answered(request, asked_s, world.clock.now, state) == []
    assert not world.b.is_active
    # Its own lease is free for it at once.
    world.b.work()
    assert world.b.events == [Acquired(3)]


def test_a_renewal_counts_from_when_it_was_asked_for(world: World) -> None:
    asked_s = world.clock.now
    request = Request(Ask.RENEW, 1)
    state = world.lease.make(request, "a", "instance-a", SECONDS)
    world.clock.now += SECONDS - 1.0
    assert world.a.election.answered(request, asked_s, world.clock.now, state) == []
    world.clock.now += 1.0
    assert world.a.election.tick(world.clock.now) == [
        Lost(1, "it could not renew its lease in time")
    ]


def test_a_commit_that_was_refused_ends_the_lease(world: World) -> None:
    assert world.a.election.lose(7, "of another epoch") == []
    assert world.a.election.lose(1, "fenced") == [Lost(1, "fenced")]
    assert not world.a.is_active
    assert world.a.election.lose(1, "fenced") == []
    world.run(1.0, world.a)
    # Nobody has taken over.
    assert world.a.events == [Acquired(2)]


def test_a_lease_that_was_released_is_free_at_once(world: World) -> None:
    world.run(1.0, world.a, world.b)
    world.a.election.leave(1, world.clock.now, rest_s=5.0)
    assert not world.a.is_active
    world.run(0.6, world.a, world.b)
    assert world.b.events == [Acquired(2)]
    assert world.a.events == []


def test_a_broker_that_rests_does_not_ask_for_the_lease(world: World) -> None:
    world.a.election.leave(1, world.clock.now, rest_s=5.0)
    world.run(4.9, world.a)
    assert world.a.events == []
    world.run(0.6, world.a)
    assert world.a.events == [Acquired(2)]


def test_only_the_successor_gets_a_lease_that_is_handed_over(world: World) -> None:
    c = Candidate("c", world.lease, world.clock)
    world.run(1.0, world.a, world.b, c)
    world.lease.successor = "b"
    world.run(0.6, world.a, c)
    assert world.a.events == [HandOver(1, "b")]
    world.a.election.leave(1, world.clock.now, successor="b", rest_s=2 * SECONDS)
    world.run(1.0, world.a, c)
    assert c.events == []
    world.run(0.6, world.a, world.b, c)
    assert (world.b.events, c.events) == ([Acquired(2)], [])


def test_a_successor_that_does_not_come_is_not_waited_for_for_ever(world: World) -> None:
    world.a.election.leave(1, world.clock.now, successor="nobody", rest_s=2 * SECONDS)
    world.run(SECONDS - 1.0, world.a, world.b)
    assert world.b.events == []
    world.run(2.0, world.a, world.b)
    assert world.b.events == [Acquired(2)]


def test_a_release_is_tried_until_it_is_answered(world: World) -> None:
    world.a.election.leave(1, world.clock.now)
    world.a.is_connected = False
    world.run(2.0, world.a)
    assert set(world.a.asked) == {Ask.RELEASE}
    world.a.is_connected = True
    world.run(1.0, world.a)
    assert world.a.events == [Acquired(2)]
