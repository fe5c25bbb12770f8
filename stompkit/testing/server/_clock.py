"""The time of a broker that tests launch: the real one, and what they have put on top of it."""

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
    """Goes as a reactor's clock does, and can be moved forward.

    All that waits is moved along: it happens in order, with :meth:`seconds` at its time, as if
    the time had passed.
    """

    def __init__(self, reactor: IReactorTime) -> None:
        """Begin with the time of ``reactor``."""
        self._reactor = reactor
        #: How far it is ahead, in seconds.
        self.offset_s = 0.0
        #: The time while it is being moved.
        self._held_at: float | None = None
        #: A call is in it once more for each time that it has been moved forward to.
        self._calls: list[tuple[float, int, DelayedCall]] = []
        self._numbers = count()
        self._alarm: IDelayedCall | None = None

    # What Twisted's reactors have.

    def seconds(self) -> float:
        """Seconds since the epoch, by this clock."""
        if self._held_at is not None:
            return self._held_at
        return self._reactor.seconds() + self.offset_s

    def callLater(
        self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object
    ) -> DelayedCall:
        """Have a function called after a delay in seconds."""
        at = self.seconds() + delay
        call = DelayedCall(
            at, callable, args, kwargs, lambda _: None, self._enter, seconds=self.seconds
        )
        self._enter(call)
        return call

    def getDelayedCalls(self) -> Sequence[IDelayedCall]:
        """All calls that wait."""
        return list({id(call): call for _, _, call in self._calls if call.active()}.values())

    # What tests do.

    async def advance(self, seconds: float, settle: Callable[[], Awaitable[None]]) -> None:
        """Let time pass, all at once; ``settle`` is awaited after each moment that had calls."""
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
        """Go back to the real time; what waits does so for as long as it would have."""
        calls = self.getDelayedCalls()
        self._calls.clear()
        for call in calls:
            assert isinstance(call, DelayedCall)  # callLater() has made them
            call.time -= self.offset_s
            heapq.heappush(self._calls, (call.getTime(), next(self._numbers), call))
        self.offset_s = 0.0
        self._set_alarm()

    # Calling.

    def _enter(self, call: DelayedCall) -> None:
        """Note the time of a call that is new, or is to be made earlier than was said."""
        entry = (call.getTime(), next(self._numbers), call)
        heapq.heappush(self._calls, entry)
        if self._calls[0] is entry:
            self._set_alarm()

    def _next(self) -> float | None:
        """The time of the next call, if there is one."""
        while self._calls:
            at, _, call = self._calls[0]
            if call.active() and call.getTime() <= at:
                return at
            heapq.heappop(self._calls)
            if call.active():
                # It was delayed since.
                heapq.heappush(self._calls, (call.getTime(), next(self._numbers), call))
        return None

    def _set_alarm(self) -> None:
        """Have the reactor tell when the next call is due."""
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
        """Make the calls that are due; those that they ask for have to wait for the next time."""
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
