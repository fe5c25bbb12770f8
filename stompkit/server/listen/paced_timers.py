"""Deadlines of many connections, paced so that one reactor iteration runs at most one.

Thousands of connections made in one second have their login deadlines in one second, too. A reactor
runs all calls that are due before it checks its sockets, so that all other clients would have to
wait. With one call in each iteration, nearly every message would still wait for one. Each call is
therefore followed by a pause, so that all calls take a tenth of the time. This includes the work
that a call causes, such as bytes to write and the peer's reply, which takes twice as long as the
call. A few thousand calls are then late by some seconds, and do not delay other clients. No call is
delayed to more than twice its time: the pauses end there, since faster arrivals would otherwise use
up all connections.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from stompkit.server.interfaces import Clock, Timer

__all__ = ["PacedTimers"]


#: Back-off: wait this multiple of the last call's duration before the next call. A call causes
#: further work of twice its duration. The maximum wait in seconds follows, since a call that had to
#: wait for a processor says nothing about the next one.
_REST: Final = 29
_MOST_REST_S: Final = 0.01


class _Call:
    """One call among those with the same delay."""

    __slots__ = ("_line", "call", "due")

    def __init__(self, line: _Line, due: float, call: Callable[[], object]) -> None:
        self._line = line
        self.due = due
        self.call = call

    def cancel(self) -> None:
        """Cancel the call."""
        self._line.cancel(self)

    def active(self) -> bool:
        """Return True if the call is still to be made."""
        return self in self._line.calls


class _Line:
    """Calls with the same delay, in order of addition and therefore of due time."""

    def __init__(self, clock: Clock, delay_s: float) -> None:
        self._clock = clock
        self._delay_s = delay_s
        self.calls: OrderedDict[_Call, None] = OrderedDict()
        self._timer: Timer | None = None

    def add(self, call: Callable[[], object]) -> _Call:
        added = _Call(self, self._clock.seconds() + self._delay_s, call)
        self.calls[added] = None
        if self._timer is None:
            self._timer = self._clock.callLater(self._delay_s, self._fire)
        return added

    def cancel(self, call: _Call) -> None:
        del self.calls[call]
        if not self.calls and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        first = next(iter(self.calls))
        wait_s = first.due - self._clock.seconds()
        # A call set before the clock was changed waits no longer than any other.
        if 0 < wait_s <= self._delay_s:
            self._timer = self._clock.callLater(wait_s, self._fire)
            return
        del self.calls[first]
        began = self._clock.seconds()
        try:
            first.call()
        finally:
            if self.calls and self._timer is None:
                self._timer = self._clock.callLater(self._rest(began), self._fire)

    def _rest(self, began: float) -> float:
        """Return the pause in seconds before the next call; 0 if that call is far behind."""
        now = self._clock.seconds()
        if now - next(iter(self.calls)).due >= self._delay_s:
            return 0.0
        # The clock may have been set back meanwhile.
        return max(0.0, min(_REST * (now - began), _MOST_REST_S))


class PacedTimers:
    """Schedules calls like a reactor, but one at a time, with a pause after each."""

    def __init__(self, clock: Clock) -> None:
        """Use a reactor's clock."""
        self._clock = clock
        self._lines: dict[float, _Line] = {}

    def seconds(self) -> float:
        """Return the current time in seconds."""
        return self._clock.seconds()

    def callLater(self, delay: float, call: Callable[..., object], /) -> Timer:
        """Call a function after a delay in seconds; only a few distinct delays should be used."""
        line = self._lines.get(delay)
        if line is None:
            # Remove lines of delays from earlier settings.
            self._lines = {key: each for key, each in self._lines.items() if each.calls}
            line = self._lines[delay] = _Line(self._clock, delay)
        return line.add(call)
