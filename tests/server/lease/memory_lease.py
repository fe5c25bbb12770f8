"""A lease in memory that behaves as that of a database."""

from __future__ import annotations

from collections.abc import Callable

from stompkit.server.lease.election import Ask, LeaseState, Request

__all__ = ["MemoryLease"]


class MemoryLease:
    """The row of the lease, with a clock that can be set."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """Start without an owner; ``now_s`` is the time of the world."""
        self._now_s = now_s
        #: Difference between the clock of the database and the time of the world.
        self.skew_s = 0.0
        self.epoch = 0
        self.owner = ""
        self.instance = ""
        self.seconds = 0.0
        self.deadline = 0.0
        self.renewals = 0
        self.changed = 0.0
        self.successor = ""
        #: The instance that has got each epoch.
        self.owners: dict[int, str] = {}

    @property
    def _clock(self) -> float:
        return self._now_s() + self.skew_s

    def state(self) -> LeaseState:
        """Return the row."""
        return LeaseState(
            self.epoch,
            self.owner,
            self.instance,
            self.seconds,
            self.deadline - self._clock,
            self.renewals,
            self._clock - self.changed,
            self.successor,
        )

    def make(self, request: Request, name: str, instance: str, seconds: float) -> LeaseState | None:
        """Make a request of a broker; return ``None`` if it is refused."""
        if request.ask is Ask.LOOK:
            return self.state()
        if request.ask is Ask.ACQUIRE:
            if (request.epoch, request.renewals) != (self.epoch, self.renewals):
                return None
            self.epoch += 1
            self.owners[self.epoch] = instance
            self.owner, self.instance, self.successor = name, instance, ""
            self.changed = self._clock
        elif (request.epoch, instance) != (self.epoch, self.instance):
            return None
        elif request.ask is Ask.RELEASE:
            self.owner, self.instance, self.successor = "", "", request.successor
            self.deadline = self._clock + (self.seconds if request.successor else 0.0)
            self.changed = self._clock
            self.renewals += 1
            return self.state()
        self.seconds = seconds
        self.deadline = self._clock + seconds
        self.renewals += 1
        return self.state()
