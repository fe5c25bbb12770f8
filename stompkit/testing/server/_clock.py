"""The clock of a broker launched by tests: the real time plus an offset set by tests."""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any, Final

from twisted.internet.base import DelayedCall
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

__all__ = ["ShiftedClock"]

_log: Final = Logger()


@implementer(IReactorTime)
class ShiftedClock:
    """A reactor clock that can be moved forward.

    Pending calls are made in order, with :meth:`seconds` at their due time, as if the time had
    passed.
    """

    def __init__(self, reactor: IReactorTime) -> None:
        """Start with the time of ``reactor``."""
        self._reactor = reactor
        #: Offset from the real time in seconds.
        self.offset_s = 0.0
        #: The current time during a move; otherwise None.
        self._held_at: float | None = None
        #: Heap of pending calls; each move of a call to an earlier time adds another entry.
        self._calls: list[tuple[float, int, DelayedCall]] = []
        self._numbers = count()
        self._alarm: IDelayedCall | None = None

    # The interface of Twisted's reactors.

    def seconds(self) -> float:
        """Return the seconds since the epoch, by this clock."""
        if self._held_at is not None:
            return self._held_at
        return self._reactor.seconds() + self.offset_s

    def callLater(
        self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object
    ) -> DelayedCall:
        """Schedule a call after a delay in seconds."""
        at = self.seconds() + delay
        call = DelayedCall(
            at, callable, args, kwargs, lambda _: None, self._enter, seconds=self.seconds
        )
        self._enter(call)
        return call

    def getDelayedCalls(self) -> Sequence[IDelayedCall]:
        """Return all pending calls."""
        return list({id(call): call for _, _, call in self._calls if call.active()}.values())

    # Called by tests.

    async def advance(self, seconds: float, settle: Callable[[], Awaitable[None]]) -> None:
        """Advance the clock; ``settle`` is awaited after each time at which calls were made."""
        until = self.seconds() + seconds
        try:
            while (at := self._next()) is not None and at <= until:
                self._held_at = max(at, self.seconds())
                self._call_due()
                await settle()
        finally:
            self._held_at = None
            self.offset_s += seconds
            self._set_alarm()

    def reset(self) -> None:
        """Return to the real time; pending calls keep their remaining time."""
        calls = self.getDelayedCalls()
        self._calls.clear()
        for call in calls:
            assert isinstance(call, DelayedCall)  # callLater() has created them
            call.time -= self.offset_s
            heapq.heappush(self._calls, (call.getTime(), next(self._numbers), call))
        self.offset_s = 0.0
        self._set_alarm()

    # Calling.

    def _enter(self, call: DelayedCall) -> None:
        """Record the time of a call that is new, or rescheduled to an earlier time."""
        entry = (call.getTime(), next(self._numbers), call)
        heapq.heappush(self._calls, entry)
        if self._calls[0] is entry:
            self._set_alarm()

    def _next(self) -> float | None:
        """Return the time of the next call, if there is one."""
        while self._calls:
            at, _, call = self._calls[0]
            if call.active() and call.getTime() <= at:
                return at
            heapq.heappop(self._calls)
            if call.active():
                # It has been delayed meanwhile.
                heapq.heappush(self._calls, (call.getTime(), next(self._numbers), call))
        return None

    def _set_alarm(self) -> None:
        """Schedule the alarm of the reactor for the next due call."""
        if self._alarm is not None and self._alarm.active():
            self._alarm.cancel()
        self._alarm = None
        at = self._next()
        if at is not None and self._held_at is None:
            self._alarm = self._reactor.callLater(max(0.0, at - self.seconds()), self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        self._call_due()
        self._set_alarm()

    def _call_due(self) -> None:
        """Make the calls that are due; calls that they schedule wait for the next round."""
        now = self.seconds()
        due: list[DelayedCall] = []
        while (at := self._next()) is not None and at <= now:
            due.append(heapq.heappop(self._calls)[2])
        for call in due:
            if not call.active():
                continue
            if call.getTime() > now:
                self._enter(call)
                continue
            call.called = 1
            try:
                call.func(*call.args, **call.kw)
            except Exception:
                _log.failure("a call that had waited for its time failed")
