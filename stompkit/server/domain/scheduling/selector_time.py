"""Time limits for selectors in one reactor iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from stompkit.server.domain.deliveries import DestinationBase
from stompkit.server.domain.scheduling.scheduler import Scheduler

__all__ = ["SelectorTime"]

#: Maximum time in seconds of all selectors, and of those of one connection, in one iteration.
_ALL_S: Final = 0.005
_EACH_S: Final = 0.003
#: Number of words of selectors evaluated between two checks of the clock.
_WORDS: Final = 50


class SelectorTime:
    """Limits the time that selectors take before other work is done.

    Work that has used its time resumes in the next reactor iteration.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        """Start with the full time of an iteration."""
        self._scheduler = scheduler
        self._left = _ALL_S
        #: Time spent by each connection, and for durable subscriptions before a message is
        #: accepted.
        self._spent: dict[object, float] = {}
        self._words = 0
        self._since = 0.0
        self._is_renewed = False
        #: Destinations that stopped for lack of time; those that had some are last.
        self._without: dict[DestinationBase, None] = {}
        self._begun: dict[DestinationBase, None] = {}
        self._calls: list[Callable[[], None]] = []

    @property
    def is_left(self) -> bool:
        """Return True if time is left."""
        return self._left > 0

    def is_left_for(self, spender: object) -> bool:
        """Return True if a selector may be evaluated for a spender, such as a connection."""
        if self._left <= 0:
            return False
        return not self._spent or self._spent.get(spender, 0.0) < _EACH_S

    def begin(self) -> None:
        """Record the time before selectors are evaluated."""
        self._since = self._scheduler.clock.seconds()

    def charge(self, spender: object, words: int) -> None:
        """Charge the evaluation of a selector with *words* words to a spender, if any."""
        self._words += words
        if self._words < _WORDS:
            return
        self._words = 0
        now = self._scheduler.clock.seconds()
        spent = now - self._since
        self._since = now
        if spent > 0:
            self._left -= spent
            if spender is not None:
                self._spent[spender] = self._spent.get(spender, 0.0) + spent
            self._renew_later()

    def postpone(self, destination: DestinationBase, *, has_begun: bool) -> None:
        """Schedule a destination to continue when there is time, after those that had none."""
        if has_begun:
            self._without.pop(destination, None)
            self._begun[destination] = None
        elif destination not in self._begun:
            self._without[destination] = None
        self._renew_later()

    def wait(self, call: Callable[[], None]) -> None:
        """Call a function first when there is time again."""
        self._calls.append(call)
        self._renew_later()

    def _renew_later(self) -> None:
        if not self._is_renewed:
            self._is_renewed = True
            self._scheduler.later(0.0, self._renew)

    def _renew(self) -> None:
        self._is_renewed = False
        self._left = _ALL_S
        self._spent.clear()
        destinations = [*self._without, *self._begun]
        self._without.clear()
        self._begun.clear()
        calls, self._calls = self._calls, []
        for destination in destinations:
            self._scheduler.touch(destination)
        for call in calls:
            call()
