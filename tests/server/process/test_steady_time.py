"""The timers of a reactor while the system's time is set."""

from __future__ import annotations

import time
from typing import Protocol, cast

import pytest
from twisted.internet.selectreactor import SelectReactor

from stompkit.server.process.steady_time import make_steady


class Stepped(Protocol):
    """The additional method of a reactor."""

    def time_of_day(self) -> float:
        """Return the system's time."""


class SteppedReactor(SelectReactor):
    """A reactor as Twisted's are, whose time is the system's, which tests set."""

    step_s = 0.0

    def seconds(self) -> float:
        """Return the system's time."""
        return time.time() + self.step_s


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_timers_do_not_follow_the_system_time(step_s: float) -> None:
    reactor = SteppedReactor()
    make_steady(reactor)
    make_steady(reactor)  # which changes nothing
    began = reactor.seconds()
    assert abs(began - time.time()) < 60.0
    called: list[str] = []
    reactor.callLater(0, called.append, "soon")
    late = reactor.callLater(1800.0, called.append, "late")
    reactor.step_s = step_s
    assert began <= reactor.seconds() < began + 60.0
    reactor.runUntilCurrent()
    assert called == ["soon"]
    late.cancel()


def test_the_time_of_day_is_the_system_time() -> None:
    reactor = SteppedReactor()
    make_steady(reactor)
    before = time.time()
    assert before <= cast("Stepped", reactor).time_of_day() <= time.time()
