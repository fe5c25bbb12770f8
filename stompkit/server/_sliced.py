"""Work on very many things is done a part at a time, and others are served in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from stompkit.server._broker import Broker
    from stompkit.server._destinations import Destination
    from stompkit.server._hosts import VirtualHost
    from stompkit.server._subscriptions import Subscription

__all__ = ["PatternWork", "Slices"]

_T = TypeVar("_T")

#: Seconds that this may take before others are served, and destinations between two looks at the
#: clock.
_TURN_S: Final = 0.005
_STEP: Final = 32


class Slices(Generic[_T]):
    """Does one thing with each of many, in their order: now, as far as there is time for it."""

    def __init__(self, broker: Broker, act: Callable[[_T], None], *, step: int = _STEP) -> None:
        """Begin with nothing to do; the clock is looked at after each *step* things."""
        self._broker = broker
        self._act = act
        self._step = step
        self._left: deque[_T] = deque()
        self._is_scheduled = False

    def add(self, things: Iterable[_T]) -> None:
        """Have it done with these as well."""
        self._left.extend(things)
        if not self._is_scheduled:
            self._work()

    def finish(self) -> None:
        """Do all that is left, however long it takes."""
        while self._left:
            self._act(self._left.popleft())

    def clear(self) -> None:
        """Do nothing of what is left."""
        self._left.clear()

    def _work(self) -> None:
        # What is done can lead to more of it.
        self._is_scheduled = True
        clock = self._broker.clock
        began = clock.seconds()
        while self._left:
            for _ in range(min(self._step, len(self._left))):
                self._act(self._left.popleft())
            if self._left and clock.seconds() - began > _TURN_S:
                self._broker.later(0.0, self._work)
                return
        self._is_scheduled = False


class PatternWork:
    """Adds subscriptions to all destinations that their patterns match, and removes them.

    A subscription that has ended gets nothing more at once, wherever it still stands.
    """

    def __init__(self, host: VirtualHost) -> None:
        """Begin with nothing to do."""
        self._host = host
        self._beginning: deque[tuple[Subscription, Callable[[None], None]]] = deque()
        self._ending: deque[Subscription] = deque()
        #: What the first that begins has not been added to.
        self._left: list[Destination] | None = None
        self._is_scheduled = False

    def begin(self, subscription: Subscription, done: Callable[[None], None]) -> None:
        """Add a subscription to all destinations that there are; ``done`` is called at the end."""
        self._beginning.append((subscription, done))
        self._work()

    def end(self, subscription: Subscription) -> None:
        """Remove a subscription from all destinations."""
        subscription.is_over = True
        self._ending.append(subscription)
        self._work()

    def _work(self) -> None:
        if self._is_scheduled:
            return
        # Whoever is told of an end may begin with another subscription.
        self._is_scheduled = True
        broker = self._host.broker
        began = broker.clock.seconds()
        while self._beginning or self._ending:
            for _ in range(_STEP):
                if self._ending:
                    self._remove_one(self._ending[0])
                elif self._beginning:
                    self._add_one(*self._beginning[0])
            if broker.clock.seconds() - began > _TURN_S:
                broker.later(0.0, self._go_on)
                return
        self._is_scheduled = False

    def _go_on(self) -> None:
        self._is_scheduled = False
        self._work()

    def _remove_one(self, subscription: Subscription) -> None:
        home = next(iter(reversed(subscription.homes)), None)
        if home is None:
            self._ending.popleft()
            return
        matters = home.depends_on_takers
        home.remove(subscription)
        if matters or home.is_idle:
            self._host.broker.touch(home)

    def _add_one(self, subscription: Subscription, done: Callable[[None], None]) -> None:
        left = self._left
        if left is None:
            left = self._left = list(reversed(self._host.destinations.values()))
        if not left or subscription.is_over:
            self._left = None
            self._beginning.popleft()
            self._host.broker.begin(subscription)
            done(None)
            return
        destination = left.pop()
        pattern = subscription.pattern
        assert pattern is not None  # no others are added here
        if (
            destination.owner is None
            and destination not in subscription.homes
            and pattern.matches(destination.name)
            and self._host.destinations.get(destination.name) is destination
        ):
            destination.add(subscription)
            destination.offer_to(subscription)
