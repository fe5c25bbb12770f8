"""Timers that do not depend on changes of the system's time."""

from __future__ import annotations

import time
from typing import cast

from twisted.internet.interfaces import IReactorTime

from stompkit.server.interfaces import Clock

__all__ = ["make_steady"]


def make_steady(reactor: IReactorTime) -> IReactorTime:
    """Make the timers of a reactor measure durations, and return it.

    Twisted's timers follow the time of day: if it is set back by an hour, they are an hour late. If
    it is set forward, all of them are due. Afterwards ``seconds`` increases steadily from the
    present time, and ``time_of_day`` returns the system's time.
    """
    if hasattr(reactor, "time_of_day"):
        return reactor
    ahead = cast("Clock", reactor).seconds() - time.monotonic()
    # Twisted's reactors look up this method for each timer.
    setattr(reactor, "seconds", lambda: time.monotonic() + ahead)  # noqa: B010 (a method)
    setattr(reactor, "time_of_day", time.time)  # noqa: B010 (an additional method)
    return reactor
