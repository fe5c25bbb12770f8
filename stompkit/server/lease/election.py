"""Decide when a broker asks for the lease of its store, renews it, and stops using it.

Nothing here has a clock or does I/O: times are seconds of any steady clock, and requests are made
by :mod:`stompkit.server.lease.keeper`. Safety does not depend on any of this: each commit checks
that nobody else has taken over. It keeps brokers from taking over without need, and an old one
from delivering messages.

A lease is free in three cases: its owner has released it, its deadline has passed by the clock of
the database, or it was not renewed for its whole time by the clock of this machine. The last one
does without the clock of the database, which a failover to another server can change.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, TypeAlias

__all__ = [
    "Acquired",
    "Ask",
    "Election",
    "Event",
    "HandOver",
    "LeaseState",
    "Lost",
    "Request",
]

#: Part of the time of a lease that is left when it is renewed.
_RENEWED_AT: Final = 2 / 3
#: Interval in seconds, and as a part of the time of a lease, at which a broker looks at the lease.
_LOOK_S: Final = 0.5
_LOOK_PART: Final = 0.2
#: Interval while a lease is handed over to this broker.
_EAGER_LOOK_S: Final = 0.05
#: Margin for clocks of two machines that run at different speeds.
_DRIFT: Final = 1.01


class LeaseState(NamedTuple):
    """The lease as the database has it.

    ``owner`` is the name of a broker, empty after a release, and ``instance`` identifies its
    process. ``remaining_s`` and ``held_s`` are by the clock of the database: the time to the
    deadline, and the time since the owner changed. ``successor`` is the broker that is to be the
    next owner, empty if that is open. ``renewals`` changes with each change of the lease.
    """

    epoch: int
    owner: str
    instance: str
    seconds: float
    remaining_s: float
    renewals: int
    held_s: float
    successor: str


class Ask(Enum):
    """A request to the database."""

    LOOK = "look"
    ACQUIRE = "acquire"
    RENEW = "renew"
    RELEASE = "release"


class Request(NamedTuple):
    """A request to the database; it fails if the lease is not that of ``epoch`` any more.

    ACQUIRE also fails if ``renewals`` has changed.
    """

    ask: Ask
    epoch: int = 0
    renewals: int = 0
    successor: str = ""


class Acquired(NamedTuple):
    """A lease that this broker has got: it is to begin."""

    epoch: int


class Lost(NamedTuple):
    """A lease that this broker has no longer: it is to end all sessions at once."""

    epoch: int
    reason: str


class HandOver(NamedTuple):
    """A request to hand the lease over."""

    epoch: int
    successor: str


Event: TypeAlias = Acquired | Lost | HandOver


class Election:
    """One broker's view of the lease."""

    def __init__(self, name: str, instance: str, seconds: float) -> None:
        """Start without the lease; ``seconds`` is the time for which it is acquired or renewed."""
        self.name: Final = name
        self.instance: Final = instance
        self.seconds: Final = seconds
        self._look_s = min(_LOOK_S, seconds * _LOOK_PART)
        #: The epoch if this broker has the lease, else 0.
        self._epoch = 0
        self._expires_s = 0.0
        self._state: LeaseState | None = None
        #: Times of the last request that was answered, and of its answer.
        self._asked_s = float("-inf")
        self._answered_s = float("-inf")
        #: Time since which the lease has not changed, as far as this broker has seen.
        self._unchanged_s = 0.0
        self._retry_s = float("-inf")
        self._rests_until_s = float("-inf")
        self._release: Request | None = None
        self._is_asked_to_leave = False

    @property
    def epoch(self) -> int:
        """The epoch if this broker has the lease, else 0."""
        return self._epoch

    @property
    def expires_s(self) -> float:
        """Time at which the lease of this broker expires; in the past without a lease."""
        return self._expires_s if self._epoch else float("-inf")

    @property
    def state(self) -> LeaseState | None:
        """The lease as this broker has last seen it."""
        return self._state

    @property
    def answered_s(self) -> float:
        """Time at which the database has last answered."""
        return self._answered_s

    # Requests.

    def next_request(self, now: float) -> Request | None:
        """Return the request to make now, if any; none may be in progress."""
        if now < self._retry_s:
            return None
        if self._release is not None:
            return self._release
        if self._epoch:
            if now >= self._renew_s:
                return Request(Ask.RENEW, self._epoch)
        elif self._state is not None and now >= self._free_s(self._state):
            return Request(Ask.ACQUIRE, self._state.epoch, self._state.renewals)
        return Request(Ask.LOOK) if now >= self._next_look_s else None

    def due_s(self) -> float:
        """Return the time at which there is something to do next, if nothing happens before."""
        if self._release is not None:
            due_s = float("-inf")
        elif self._epoch:
            due_s = min(self._renew_s, self._next_look_s)
        else:
            free_s = float("inf") if self._state is None else self._free_s(self._state)
            due_s = min(free_s, self._next_look_s)
        due_s = max(due_s, self._retry_s)
        return min(due_s, self._expires_s) if self._epoch else due_s

    @property
    def _renew_s(self) -> float:
        return self._expires_s - self.seconds * _RENEWED_AT

    @property
    def _next_look_s(self) -> float:
        state = self._state
        if state is None:
            return float("-inf")
        is_next = not self._epoch and state.successor == self.name
        return self._asked_s + (min(_EAGER_LOOK_S, self._look_s) if is_next else self._look_s)

    def _free_s(self, state: LeaseState) -> float:
        """Return the time at which this broker may take the lease, if it does not change."""
        expires_s = self._answered_s + max(state.remaining_s, 0.0)
        if state.instance == self.instance:
            free_s = float("-inf")
        elif state.owner:
            free_s = min(expires_s, self._unchanged_s + state.seconds * _DRIFT)
        else:
            free_s = float("-inf") if state.successor in ("", self.name) else expires_s
        return max(free_s, self._rests_until_s)

    # Answers.

    def answered(
        self, request: Request, asked_s: float, now: float, state: LeaseState | None
    ) -> list[Event]:
        """Take the answer to a request made at ``asked_s``; ``None`` if it was refused."""
        self._retry_s = float("-inf")
        if request is self._release:
            self._release = None
        old, self._state = self._state, state
        if state is not None:
            self._asked_s, self._answered_s = asked_s, now
            if old is None or (old.epoch, old.renewals) != (state.epoch, state.renewals):
                self._unchanged_s = now
        if request.ask is Ask.ACQUIRE and state is not None:
            return self._acquired(state, asked_s, now)
        if not self._epoch or request.ask is Ask.RELEASE:
            return []
        return self._checked(request, state, asked_s, now)

    def _acquired(self, state: LeaseState, asked_s: float, now: float) -> list[Event]:
        if now >= asked_s + self.seconds:
            # The answer has come too late to be of use.
            return []
        self._epoch = state.epoch
        self._expires_s = asked_s + self.seconds
        self._is_asked_to_leave = False
        return [Acquired(state.epoch)]

    def _checked(
        self, request: Request, state: LeaseState | None, asked_s: float, now: float
    ) -> list[Event]:
        """Compare the lease with that of this broker."""
        if state is None or state.epoch != self._epoch or state.instance != self.instance:
            owner = state.owner if state is not None else ""
            return self._lose(f"the broker {owner or 'that took over'} has the lease")
        if request.ask is Ask.RENEW and request.epoch == self._epoch:
            self._expires_s = max(self._expires_s, asked_s + self.seconds)
        if state.successor in ("", self.name) or self._is_asked_to_leave:
            return self.tick(now)
        self._is_asked_to_leave = True
        return [*self.tick(now), HandOver(self._epoch, state.successor)]

    def failed(self, now: float) -> list[Event]:
        """Take note that the database has not answered a request."""
        self._retry_s = now + self._look_s
        if not self._epoch:
            # A request to acquire may have been done.
            self._state = None
        return self.tick(now)

    # The end of the lease.

    def tick(self, now: float) -> list[Event]:
        """Return the loss of the lease if it has expired."""
        if self._epoch and now >= self._expires_s:
            return self._lose("it could not renew its lease in time")
        return []

    def lose(self, epoch: int, reason: str) -> list[Event]:
        """Stop using the lease of an epoch: a commit has shown that another broker has it."""
        return self._lose(reason) if epoch == self._epoch else []

    def leave(self, epoch: int, now: float, *, successor: str = "", rest_s: float = 0.0) -> None:
        """Release the lease of an epoch, and do not ask for one for ``rest_s`` seconds.

        Only ``successor``, if it is not empty, may take the lease before its deadline.
        """
        if epoch == self._epoch and epoch:
            self._epoch = 0
            self._release = Request(Ask.RELEASE, epoch, successor=successor)
            self._retry_s = float("-inf")
        self._rests_until_s = now + rest_s

    def _lose(self, reason: str) -> list[Event]:
        epoch, self._epoch = self._epoch, 0
        self._state = None
        return [Lost(epoch, reason)]
