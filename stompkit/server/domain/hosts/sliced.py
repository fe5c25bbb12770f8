"""Work on many destinations in slices: pattern subscriptions and large transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from stompkit.server.domain.deliveries import ConnectionBase, Subscription
from stompkit.server.domain.destinations import Destination, HostBase
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.scheduling.slices import STEP, SlicedWork, Slices

__all__ = ["CommitWork", "PatternWork", "Prepared"]


class PatternWork:
    """Adds subscriptions to all destinations that match their patterns, and removes them.

    An ended subscription receives nothing more at once, even where it is not removed yet.
    """

    def __init__(self, host: HostBase) -> None:
        """Start without work."""
        self._host = host
        self._beginning: deque[tuple[Subscription, Callable[[None], None]]] = deque()
        self._ending: deque[Subscription] = deque()
        #: Destinations to which the first pending subscription has yet to be added.
        self._left: list[Destination] | None = None
        self._sliced = SlicedWork(host.scheduler, self._take_step, steps=STEP)

    def begin(self, subscription: Subscription, done: Callable[[None], None]) -> None:
        """Add a subscription to all existing destinations; ``done`` is called at the end."""
        self._beginning.append((subscription, done))
        self._sliced.go_on()

    def end(self, subscription: Subscription) -> None:
        """Remove a subscription from all destinations."""
        subscription.is_over = True
        self._ending.append(subscription)
        self._sliced.go_on()

    def _take_step(self) -> bool:
        if self._ending:
            self._remove_one(self._ending[0])
        elif self._beginning:
            self._add_one(*self._beginning[0])
        return bool(self._beginning or self._ending)

    def _remove_one(self, subscription: Subscription) -> None:
        home = next(iter(reversed(subscription.homes)), None)
        if home is None:
            self._ending.popleft()
            return
        matters = home.depends_on_takers
        home.remove(subscription)
        if matters or home.is_idle:
            self._host.broker.scheduler.touch(home)

    def _add_one(self, subscription: Subscription, done: Callable[[None], None]) -> None:
        left = self._left
        if left is None:
            left = self._left = list(reversed(self._host.destinations.values()))
        if not left or subscription.is_over:
            self._left = None
            self._beginning.popleft()
            self._host.broker.scheduler.begin(subscription)
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


class _Commit:
    """A transaction that waits for its destinations to be created."""

    __slots__ = ("done", "kept", "maker", "names")

    def __init__(
        self, names: deque[str], maker: ConnectionBase, done: Callable[[Prepared], None]
    ) -> None:
        """Start without destinations."""
        self.names = names
        self.maker = maker
        self.done = done
        self.kept: list[Destination] = []


class Prepared(NamedTuple):
    """Destinations kept until :meth:`CommitWork.let_go`, and any error in creating others."""

    kept: list[Destination]
    refused: RefusedError | None


class CommitWork:
    """Creates the destinations of transactions, and keeps them until the commits are done.

    Transactions are served in rotation, so that a small one does not wait for a large one.
    """

    def __init__(self, host: HostBase) -> None:
        """Start without work."""
        self._host = host
        self._left: deque[_Commit] = deque()
        self._sliced = SlicedWork(host.scheduler, self._take_step, steps=STEP)
        self._over: Slices[Destination] = Slices(host.scheduler, self._let_go_one)

    def begin(
        self, names: Iterable[str], maker: ConnectionBase, done: Callable[[Prepared], None]
    ) -> None:
        """Create destinations for a client; ``done`` is not called if the client ends meanwhile."""
        self._left.append(_Commit(deque(names), maker, done))
        self._sliced.go_on()

    def let_go(self, kept: Iterable[Destination]) -> None:
        """Release destinations; those not in use are removed."""
        self._over.add(kept)

    def _let_go_one(self, destination: Destination) -> None:
        destination.holds -= 1
        self._host.broker.scheduler.touch(destination)

    def _take_step(self) -> bool:
        work = self._left.popleft()
        if work.maker.is_closing:
            self.let_go(work.kept)
            return bool(self._left)
        refused = None
        if work.names:
            try:
                self._keep(work, work.names.popleft())
            except RefusedError as error:
                refused = error
        if work.names and refused is None:
            self._left.append(work)
        else:
            work.done(Prepared(work.kept, refused))
        return bool(self._left)

    def _keep(self, work: _Commit, name: str) -> None:
        # Messages to a temporary destination that no longer exists are dropped later.
        if not self._host.is_gone(name):
            destination = self._host.destination(name, work.maker)
            destination.holds += 1
            work.kept.append(destination)
