"""The clock of a launched broker: it runs by itself, and can be advanced."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs

from stompkit.testing.server._clock import ShiftedClock


class Times:
    """Records the times of calls."""

    def __init__(self, clock: ShiftedClock) -> None:
        """Set the clock."""
        self._clock = clock
        self.noted: list[tuple[str, float]] = []

    def __call__(self, name: str) -> None:
        """Record one call."""
        self.noted.append((name, self._clock.seconds()))


@pytest.fixture
def reactor() -> Clock:
    """The clock of the real time."""
    reactor = Clock()
    reactor.advance(1_000.0)
    return reactor


@pytest.fixture
def clock(reactor: Clock) -> ShiftedClock:
    return ShiftedClock(cast("IReactorTime", reactor))


@pytest.fixture
def times(clock: ShiftedClock) -> Times:
    return Times(clock)


async def at_once() -> None:
    """Return at once."""


def advance(clock: ShiftedClock, seconds: float) -> None:
    """Advance the time, without waiting for anything."""
    done: list[None] = []
    Deferred.fromCoroutine(clock.advance(seconds, at_once)).addCallback(done.append)
    assert done == [None]


def test_it_goes_as_the_real_time_does(clock: ShiftedClock, reactor: Clock, times: Times) -> None:
    clock.callLater(5.0, times, "a")
    clock.callLater(2.0, times, "b")
    assert clock.seconds() == 1_000.0
    reactor.advance(1.5)
    assert (clock.seconds(), times.noted) == (1_001.5, [])
    reactor.advance(0.5)
    assert times.noted == [("b", 1_002.0)]
    reactor.advance(10.0)
    assert times.noted[1:] == [("a", 1_012.0)]


def test_what_is_moved_past_happens_in_order_at_its_time(
    clock: ShiftedClock, reactor: Clock, times: Times
) -> None:
    for delay, name in ((3.0, "c"), (1.0, "a"), (9.0, "late"), (2.0, "b"), (3.0, "d")):
        clock.callLater(delay, times, name)
    advance(clock, 5.0)
    assert times.noted == [("a", 1_001.0), ("b", 1_002.0), ("c", 1_003.0), ("d", 1_003.0)]
    assert (clock.seconds(), clock.offset_s) == (1_005.0, 5.0)
    reactor.advance(4.0)
    assert times.noted[4:] == [("late", 1_009.0)]


def test_what_is_due_exactly_at_the_end_happens(clock: ShiftedClock, times: Times) -> None:
    clock.callLater(5.0, times, "a")
    advance(clock, 5.0)
    assert times.noted == [("a", 1_005.0)]


def test_what_is_asked_for_meanwhile_happens_meanwhile(clock: ShiftedClock, times: Times) -> None:
    def again() -> None:
        times("a")
        clock.callLater(2.0, again)

    clock.callLater(2.0, again)
    advance(clock, 7.0)
    assert times.noted == [("a", 1_002.0), ("a", 1_004.0), ("a", 1_006.0)]
    advance(clock, 1.0)
    assert times.noted[3:] == [("a", 1_008.0)]


def test_real_time_and_moves_add_up(clock: ShiftedClock, reactor: Clock, times: Times) -> None:
    clock.callLater(10.0, times, "a")
    reactor.advance(3.0)
    advance(clock, 4.0)
    assert clock.seconds() == 1_007.0
    reactor.advance(2.9)
    assert times.noted == []
    reactor.advance(0.1)
    assert times.noted == [("a", 1_010.0)]


def test_time_stands_still_between_two_moments_until_all_has_settled(
    clock: ShiftedClock, reactor: Clock, times: Times
) -> None:
    settled: list[Deferred[None]] = []

    async def settle() -> None:
        waiting: Deferred[None] = Deferred()
        settled.append(waiting)
        await waiting

    clock.callLater(1.0, times, "a")
    clock.callLater(1.0, times, "b")
    clock.callLater(2.0, times, "c")
    done: list[None] = []
    Deferred.fromCoroutine(clock.advance(3.0, settle)).addCallback(done.append)
    assert times.noted == [("a", 1_001.0), ("b", 1_001.0)]
    # Waiting for a store takes real time, and none of the broker's time.
    reactor.advance(0.25)
    assert clock.seconds() == 1_001.0
    clock.callLater(0.5, times, "from the store")
    settled.pop().callback(None)
    assert times.noted[2:] == [("from the store", 1_001.5)]
    settled.pop().callback(None)
    settled.pop().callback(None)
    assert times.noted[3:] == [("c", 1_002.0)]
    assert done == [None]
    assert clock.seconds() == 1_003.25


def test_going_back_leaves_what_waits_as_long_as_it_was(
    clock: ShiftedClock, reactor: Clock, times: Times
) -> None:
    advance(clock, 100.0)
    clock.callLater(5.0, times, "a")
    clock.reset()
    assert (clock.seconds(), clock.offset_s) == (1_000.0, 0.0)
    reactor.advance(4.9)
    assert times.noted == []
    reactor.advance(0.1)
    assert times.noted == [("a", 1_005.0)]


def test_what_was_cancelled_does_not_happen(
    clock: ShiftedClock, reactor: Clock, times: Times
) -> None:
    first, second, third = (clock.callLater(number, times, "x") for number in (1.0, 2.0, 3.0))
    clock.callLater(1.0, second.cancel)
    first.cancel()
    assert not first.active()
    advance(clock, 2.5)
    assert times.noted == []
    third.cancel()
    reactor.advance(10.0)
    assert times.noted == []
    assert reactor.getDelayedCalls() == []


def test_one_that_is_cancelled_by_another_of_the_same_time_does_not_happen(
    clock: ShiftedClock, times: Times
) -> None:
    calls = [clock.callLater(1.0, lambda: calls[1].cancel()), clock.callLater(1.0, times, "x")]
    advance(clock, 1.0)
    assert times.noted == []


@pytest.mark.parametrize(
    ("change", "at"),
    [
        (lambda call: call.delay(3.0), 1_008.0),
        (lambda call: call.delay(-3.0), 1_002.0),
        (lambda call: call.reset(1.0), 1_001.0),
        (lambda call: call.reset(9.0), 1_009.0),
    ],
)
def test_a_call_can_be_moved(
    clock: ShiftedClock,
    reactor: Clock,
    times: Times,
    change: Callable[[object], None],
    at: float,
) -> None:
    call = clock.callLater(5.0, times, "a")
    change(call)
    assert (call.getTime(), clock.getDelayedCalls()) == (at, [call])
    advance(clock, 20.0)
    assert times.noted == [("a", at)]
    reactor.advance(20.0)
    assert len(times.noted) == 1
    assert clock.getDelayedCalls() == []


def test_one_that_is_put_off_by_another_of_the_same_time_waits(
    clock: ShiftedClock, times: Times
) -> None:
    calls = [clock.callLater(1.0, lambda: calls[1].delay(2.0)), clock.callLater(1.0, times, "x")]
    advance(clock, 5.0)
    assert times.noted == [("x", 1_003.0)]


def test_arguments_are_passed_on(clock: ShiftedClock) -> None:
    found: list[tuple[int, str]] = []
    clock.callLater(0.0, lambda a, *, b: found.append((a, b)), 1, b="x")
    advance(clock, 0.0)
    assert found == [(1, "x")]


def test_what_fails_is_logged_and_keeps_nothing_from_happening(
    clock: ShiftedClock, reactor: Clock, times: Times
) -> None:
    def fail() -> None:
        raise RuntimeError("no good")

    for _ in range(2):
        clock.callLater(1.0, fail)
        clock.callLater(1.0, times, "a")
    with capturedLogs() as events:
        reactor.advance(1.0)
    assert times.noted == [("a", 1_001.0)] * 2
    assert [event["log_level"] for event in events] == [LogLevel.critical] * 2


def test_a_call_without_delay_happens_once_the_reactor_comes_round(
    clock: ShiftedClock, reactor: Clock, times: Times
) -> None:
    clock.callLater(0.0, times, "a")
    assert times.noted == []
    reactor.advance(0.0)
    assert times.noted == [("a", 1_000.0)]
