"""Rates and history, computed from the broker's totals."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from stompkit.server.domain.broker import Broker
from stompkit.server.domain.destinations import Destination, Totals
from stompkit.server.domain.queues.queue import Queue

__all__ = ["INTERVAL_S", "PERIOD_S", "Followed", "Statistics", "Sums", "in_flight"]

#: Interval in seconds between two samples, and between two values of a destination's history.
PERIOD_S: Final = 1.0
INTERVAL_S: Final = 2.0
#: Number of samples for which the rates of the whole broker are kept.
_RATES_LENGTH: Final = 300
_HISTORY_LENGTH: Final = 150
#: Number of destinations sampled in one reactor iteration.
_STEP: Final = 1_000

State = tuple[int, int, int, int, int, int, bool]


class Sums:
    """Sums over all destinations at the last sample."""

    def __init__(self) -> None:
        """Start with zero."""
        self.totals = Totals()
        self.destinations = 0
        self.ready = 0
        self.in_flight = 0
        self.delayed = 0

    def add(self, destination: Destination) -> None:
        """Add one destination."""
        self.totals = self.totals.plus(destination.totals)
        self.destinations += 1
        self.ready += destination.ready
        self.in_flight += in_flight(destination)
        self.delayed += destination.delayed


class Followed:
    """A destination over the last minutes."""

    __slots__ = (
        "_before",
        "_since",
        "into",
        "key",
        "out",
        "rate_in",
        "rate_out",
        "ready",
        "serial",
        "state",
    )

    def __init__(self, destination: Destination) -> None:
        """Start now."""
        #: Host and name of the destination.
        self.key = destination.host.name, destination.name
        self.rate_in = self.rate_out = 0.0
        self.ready = array("q")
        self.into = array("f")
        self.out = array("f")
        self._before = (destination.received, destination.delivered)
        self._since = self._before
        self.state: State | None = None
        #: Serial of the sample at which the destination last changed.
        self.serial = 0

    def look(self, destination: Destination, seconds: float, serial: int) -> None:
        """Compute the rates since the last sample; ``serial`` increases with each sample."""
        into = (destination.received - self._before[0]) / seconds
        out = (destination.delivered - self._before[1]) / seconds
        self._before = (destination.received, destination.delivered)
        state = (
            destination.ready,
            in_flight(destination),
            destination.delayed,
            destination.consumers,
            destination.dropped + destination.dead_lettered + destination.expired,
            destination.received + destination.delivered,
            destination.is_paused,
        )
        # Rates that drop to zero are a change, too.
        if state != self.state or (into, out) != (self.rate_in, self.rate_out):
            self.serial = serial
        self.state = state
        self.rate_in, self.rate_out = into, out

    def remember(self, destination: Destination, seconds: float) -> None:
        """Add one interval to the history."""
        now = (destination.received, destination.delivered)
        self.ready.append(destination.ready)
        self.into.append((now[0] - self._since[0]) / seconds)
        self.out.append((now[1] - self._since[1]) / seconds)
        self._since = now
        for each in (self.ready, self.into, self.out):
            if len(each) > _HISTORY_LENGTH:
                del each[0]


class Statistics:
    """Samples all destinations every second, a part of them in each reactor iteration."""

    def __init__(self, broker: Broker, clock: IReactorTime, max_followed: int) -> None:
        """Follow at most that many destinations."""
        self._broker = broker
        self._clock = clock
        self._max_followed = max_followed
        self.followed: dict[Destination, Followed] = {}
        self._sampled = Sums()
        #: Messages per second at the last samples, by the fields of :class:`Totals`.
        self.history: deque[tuple[float, ...]] = deque(maxlen=_RATES_LENGTH)
        #: The serial of the last sample, and the functions called after each.
        self.serial = 0
        self.watchers: list[Callable[[], None]] = []
        self._timer: IDelayedCall | None = None
        self._looked_at = clock.seconds()
        self._remembered_at = clock.seconds()

    @property
    def rates(self) -> tuple[float, ...]:
        """Messages in the last second, by the fields of :class:`Totals`."""
        return self.history[-1] if self.history else (0.0,) * len(Totals._fields)

    def start(self) -> None:
        """Start sampling."""
        self._looked_at = self._remembered_at = self._clock.seconds()
        self._timer = self._clock.callLater(PERIOD_S, self._begin)

    def stop(self) -> None:
        """Stop sampling."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    @property
    def sums(self) -> Sums:
        """The current sums, or those of the last sample if there are very many destinations.

        A broker that has just loaded its store shows its messages at once.
        """
        hosts = self._broker.hosts.values()
        if sum(len(host.destinations) + len(host.durables) for host in hosts) <= _STEP:
            return self.current()
        return self._sampled if self.history else self.current()

    def current(self) -> Sums:
        """Return the current sums."""
        sums = Sums()
        for _ in self._count(sums):
            pass
        return sums

    def _count(self, sums: Sums) -> Iterator[list[Destination]]:
        for host in self._broker.hosts.values():
            sums.totals = sums.totals.plus(host.past)
            found: list[Destination] = [*host.destinations.values(), *host.durables.values()]
            for start in range(0, len(found), _STEP):
                part = found[start : start + _STEP]
                for destination in part:
                    sums.add(destination)
                yield part

    def _begin(self) -> None:
        now = self._clock.seconds()
        seconds = max(now - self._looked_at, 0.001)
        since = now - self._remembered_at
        self._looked_at = now
        # Timers fire a little early or late.
        does_remember = since >= INTERVAL_S - PERIOD_S / 2
        if does_remember:
            self._remembered_at = now
        self.serial += 1
        sums = Sums()
        self._go_on(self._count(sums), sums, seconds, since if does_remember else 0.0, {})

    def _go_on(
        self,
        parts: Iterator[list[Destination]],
        sums: Sums,
        seconds: float,
        since: float,
        seen: dict[Destination, Followed],
    ) -> None:
        part = next(parts, None)
        if part is None:
            self._end(sums, seconds, seen)
            return
        for destination in part:
            followed = self.followed.get(destination)
            if followed is None:
                if len(seen) >= self._max_followed:
                    continue
                followed = Followed(destination)
            seen[destination] = followed
            followed.look(destination, seconds, self.serial)
            if since:
                followed.remember(destination, since)
        self._timer = self._clock.callLater(0, self._go_on, parts, sums, seconds, since, seen)

    def _end(self, sums: Sums, seconds: float, seen: dict[Destination, Followed]) -> None:
        before, now = self._sampled.totals, sums.totals
        self.history.append(
            tuple(max(0.0, (new - old) / seconds) for old, new in zip(before, now, strict=True))
        )
        self._sampled = sums
        self.followed = seen
        self._timer = self._clock.callLater(PERIOD_S, self._begin)
        for watcher in list(self.watchers):
            watcher()


def in_flight(destination: Destination) -> int:
    """Return the number of messages that consumers have not acknowledged."""
    if isinstance(destination, Queue):
        return destination.unsettled
    return 0
