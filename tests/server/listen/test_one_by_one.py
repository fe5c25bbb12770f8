"""Deadlines of many connections: each on time, and never two in one reactor iteration."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import cast

import pytest
from twisted.internet.task import Clock

from stompkit.server import BrokerConfig
from stompkit.server.interfaces import Clock as DomainClock
from stompkit.server.listen.paced_timers import PacedTimers
from stompkit.testing.memory import MemoryBroker


def made() -> tuple[Clock, PacedTimers]:
    clock = Clock()
    return clock, PacedTimers(cast("DomainClock", clock))


def test_calls_are_made_in_time_and_in_their_order() -> None:
    clock, later = made()
    came: list[tuple[int, float]] = []

    def note(number: int) -> Callable[[], None]:
        return lambda: came.append((number, clock.seconds()))

    for number in range(5):
        later.callLater(10.0, note(number))
        clock.advance(1.0)
    later.callLater(2.0, note(9))
    clock.pump([0.5] * 40)
    assert came == [(9, 7.0), (0, 10.0), (1, 11.0), (2, 12.0), (3, 13.0), (4, 14.0)]
    assert not clock.getDelayedCalls()


def test_what_is_due_together_is_done_in_as_many_turns() -> None:
    clock, later = made()
    came: list[int] = []
    for number in range(3):
        later.callLater(1.0, lambda number=number: came.append(number))
    for turn in range(1, 4):
        # A reactor makes the calls that are due at the beginning of an iteration.
        [call] = clock.calls
        clock.rightNow = max(clock.rightNow, call.getTime())
        clock.calls.remove(call)
        call.func()
        assert len(came) == turn


def test_who_takes_time_leaves_many_times_as_much_to_others() -> None:
    clock, later = made()
    came: list[float] = []

    def work(seconds: float) -> None:
        came.append(clock.seconds())
        clock.rightNow += seconds

    for seconds in (0.0001, 0.0003, 60.0, -60.0, 0.0):
        later.callLater(1.0, lambda seconds=seconds: work(seconds))
    clock.advance(1.0)
    while clock.calls:
        clock.advance(max(0.0, clock.calls[0].getTime() - clock.seconds()))
    # The system clock may have been changed, and no wait is long.
    assert came == pytest.approx([1.0, 1.003, 1.012, 61.012, 1.012])


def test_who_is_late_by_as_much_as_it_had_to_wait_has_no_rest_before_it() -> None:
    clock, later = made()
    came: list[float] = []

    def work() -> None:
        came.append(clock.seconds())
        clock.rightNow += 0.0003

    for _ in range(30):
        later.callLater(0.09, work)
    while clock.calls:
        clock.advance(max(0.0, clock.calls[0].getTime() - clock.seconds()))
    waits = [second - first for first, second in pairwise(came)]
    # Until the calls are that late, they take a thirtieth of the time.
    assert waits[:9] == pytest.approx([0.009] * 9)
    assert waits[-9:] == pytest.approx([0.0003] * 9)
    assert came[9] < 0.18 <= came[11]


def test_what_is_cancelled_is_not_done_and_leaves_nothing() -> None:
    clock, later = made()
    came: list[int] = []
    calls = [later.callLater(1.0, lambda number=number: came.append(number)) for number in range(3)]
    calls[0].cancel()
    assert [call.active() for call in calls] == [False, True, True]
    clock.advance(1.0)
    assert came == [1, 2]
    assert not any(call.active() for call in calls)
    again = later.callLater(1.0, lambda: came.append(3))
    again.cancel()
    assert not clock.getDelayedCalls()
    clock.advance(5.0)
    assert came == [1, 2]


def test_one_that_breaks_does_not_keep_the_next_from_being_called() -> None:
    clock, later = made()
    came: list[int] = []

    def fail() -> None:
        raise ValueError

    later.callLater(1.0, fail)
    later.callLater(1.0, lambda: came.append(1))
    with pytest.raises(ValueError):
        clock.advance(1.0)
    clock.advance(0.0)
    assert came == [1]


def test_a_call_may_make_others() -> None:
    clock, later = made()
    came: list[float] = []

    def again() -> None:
        came.append(clock.seconds())
        if len(came) < 3:
            later.callLater(1.0, again)

    later.callLater(1.0, again)
    clock.pump([0.25] * 20)
    assert came == [1.0, 2.0, 3.0]


def test_thousands_that_say_nothing_are_all_closed_in_the_end() -> None:
    broker = MemoryBroker(BrokerConfig(login_timeout_s=5))
    clients = [broker.connect(f"192.0.2.{number % 250}") for number in range(2_000)]
    broker.clock.advance(5)
    assert {client.error.headers["stompkit-code"] for client in clients if client.error} == {
        "login-timeout"
    }
    assert all(client.error for client in clients)
    broker.clock.advance(2)
    assert not broker.broker.connections
    assert not broker.clock.getDelayedCalls()
