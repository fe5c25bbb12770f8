"""Deadlines of many connections, of which no turn of the reactor sees more than one.

Thousands that have connected in one second are all due in one second, too, when none of them logs
in. A reactor calls all that is due before it looks at a socket again, so that everybody else would
have to wait for that; and with one in each of its turns nearly every message would wait for one,
as long as they last. So each that follows another comes so much later that the time of all of them
is a tenth of all time, with what a call leaves to do: octets to write, and the peer's answer to the
end of its connection, take twice as long as the call itself. A few thousand are late by some
seconds then, and nobody else notices them. None is twice as late as it should be: there the rest
ends, since who comes faster than that would have all places.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from stompkit.server.interfaces import Clock, Timer

__all__ = ["PacedTimers"]


#: How many times as long as a call took none is made, of which it leaves something to do for twice
#: that time; and seconds that this is at most: a call that had to wait for a processor says nothing
#: of the next one.
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
        """Make it not."""
        self._line.cancel(self)

    def active(self) -> bool:
        """Whether it is still to be made."""
        return self in self._line.calls


class _Line:
    """Those with one delay: who is added last is due last."""

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
        # One that was set when the clock stood elsewhere waits no longer than any other.
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
        """Seconds from a call that has begun then to the next; none where that is far behind."""
        now = self._clock.seconds()
        if now - next(iter(self.calls)).due >= self._delay_s:
            return 0.0
        # A clock may have been set back meanwhile.
        return max(0.0, min(_REST * (now - began), _MOST_REST_S))


class PacedTimers:
    """Calls functions later as a reactor does, but one at a time, with a rest after each."""

    def __init__(self, clock: Clock) -> None:
        """Go by a clock: a reactor's."""
        self._clock = clock
        self._lines: dict[float, _Line] = {}

    def seconds(self) -> float:
        """What time it is."""
        return self._clock.seconds()

    def callLater(self, delay: float, call: Callable[..., object], /) -> Timer:
        """Call a function after so many seconds; there should be few different numbers of them."""
        line = self._lines.get(delay)
        if line is None:
            # Those of settings that have changed meanwhile.
            self._lines = {key: each for key, each in self._lines.items() if each.calls}
            line = self._lines[delay] = _Line(self._clock, delay)
        return line.add(call)
