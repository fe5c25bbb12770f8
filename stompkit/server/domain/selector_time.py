"""Time that selectors may take in one iteration of the reactor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stompkit.server.domain.broker import Broker
    from stompkit.server.domain.destinations import Destination

__all__ = ["SelectorTime"]

#: Seconds that all selectors have in one iteration, and those of one connection.
_ALL_S: Final = 0.005
_EACH_S: Final = 0.003
#: Words of selectors that are evaluated before the clock is looked at.
_WORDS: Final = 50


class SelectorTime:
    """Bounds the time that selectors take before everybody else is served again.

    Whoever has no time left goes on in the next iteration of the reactor, where it had stopped.
    """

    def __init__(self, broker: Broker) -> None:
        """Begin with all the time of an iteration."""
        self._broker = broker
        self._left = _ALL_S
        #: What was spent by each connection, and by those who are asked before a message is taken.
        self._spent: dict[object, float] = {}
        self._words = 0
        self._since = 0.0
        self._is_renewed = False
        #: Destinations that have stopped for want of time: those that had some are the last.
        self._without: dict[Destination, None] = {}
        self._begun: dict[Destination, None] = {}
        self._calls: list[Callable[[], None]] = []

    @property
    def is_left(self) -> bool:
        """Return whether there is time left for anybody."""
        return self._left > 0

    def is_left_for(self, spender: object) -> bool:
        """Return whether a selector of a connection, or for who else spends, may be evaluated."""
        if self._left <= 0:
            return False
        return not self._spent or self._spent.get(spender, 0.0) < _EACH_S

    def begin(self) -> None:
        """Note the time before selectors are evaluated."""
        self._since = self._broker.clock.seconds()

    def charge(self, spender: object, words: int) -> None:
        """Count the evaluation of a selector of so many words, of a spender unless that is None."""
        self._words += words
        if self._words < _WORDS:
            return
        self._words = 0
        now = self._broker.clock.seconds()
        spent = now - self._since
        self._since = now
        if spent > 0:
            self._left -= spent
            if spender is not None:
                self._spent[spender] = self._spent.get(spender, 0.0) + spent
            self._renew_later()

    def postpone(self, destination: Destination, *, has_begun: bool) -> None:
        """Have a destination go on when there is time again, after those that had none."""
        if has_begun:
            self._without.pop(destination, None)
            self._begun[destination] = None
        elif destination not in self._begun:
            self._without[destination] = None
        self._renew_later()

    def wait(self, call: Callable[[], None]) -> None:
        """Call something when there is time again; it is the first to have some."""
        self._calls.append(call)
        self._renew_later()

    def _renew_later(self) -> None:
        if not self._is_renewed:
            self._is_renewed = True
            self._broker.later(0.0, self._renew)

    def _renew(self) -> None:
        self._is_renewed = False
        self._left = _ALL_S
        self._spent.clear()
        destinations = [*self._without, *self._begun]
        self._without.clear()
        self._begun.clear()
        calls, self._calls = self._calls, []
        for destination in destinations:
            self._broker.touch(destination)
        for call in calls:
            call()
