"""Keep the lease of a store: make the requests of an election in threads, and report events.

One thread makes the requests, and can wait long for an answer. Another one watches the time, so
that a lease that expires meanwhile is noticed. Neither uses the clock of the reactor, which anybody
can set.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeAlias

from stompkit._common.lease import steady_s
from stompkit.server.interfaces import StoreError
from stompkit.server.lease.election import Ask, Election, Event, LeaseState, Request
from stompkit.server.lease.table import BrokerState, Look
from stompkit.server.log import lease_events

__all__ = ["Database", "LeaseKeeper", "LeaseStatus"]

#: Time in seconds, as a part of that of the lease, after which a request is given up, and its least
#: value.
_PATIENCE_PART: Final = 0.25
_LEAST_PATIENCE_S: Final = 0.5


class Database(Protocol):
    """The requests that a keeper makes; each raises :class:`StoreError`."""

    def look(self, role: str) -> Look:
        """Report the role of this broker; return the lease and all brokers."""

    def make(self, request: Request) -> LeaseState | None:
        """Make a request other than LOOK; return ``None`` if it was refused."""

    def ask_to_leave(self, successor: str) -> LeaseState | None:
        """Ask the owner to hand the lease over; return ``None`` if there is no owner."""

    def leave(self) -> None:
        """Remove this broker from the list."""

    def abort(self) -> None:
        """End any call in progress with an error, from any thread."""

    def close(self) -> None:
        """Disconnect."""


class LeaseStatus(NamedTuple):
    """The lease as this broker has last seen it.

    ``epoch`` is that of the lease, ``own_epoch`` that of this broker, 0 without the lease.
    ``held_s`` and ``remaining_s`` are of the time of the answer, which is ``age_s`` seconds ago;
    it is infinite before the first answer. ``failure`` is the error of the last request, if it
    failed.
    """

    name: str
    own_epoch: int
    epoch: int
    owner: str
    successor: str
    seconds: float
    held_s: float
    remaining_s: float
    age_s: float
    failure: str | None
    brokers: tuple[BrokerState, ...]


class _Answer(NamedTuple):
    """The result of a request: a state, ``None`` if it was refused, or an error."""

    request: Request
    asked_s: float
    result: Look | LeaseState | StoreError | None


#: A call for the thread that watches the time; the argument is that time.
_Call: TypeAlias = Callable[[float], object]


class LeaseKeeper:
    """Takes part in an election, from :meth:`start` to :meth:`stop`."""

    def __init__(
        self,
        database: Database,
        election: Election,
        report: Callable[[Event], object],
        *,
        now_s: Callable[[], float] = steady_s,
    ) -> None:
        """Create without threads; ``report`` is called with each event, from a thread."""
        self._database = database
        self._election = election
        self._report = report
        self._now_s = now_s
        self._patience_s = max(election.seconds * _PATIENCE_PART, _LEAST_PATIENCE_S)
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        #: Requests for the database that come before those of the election.
        self._first: list[Callable[[], None]] = []
        self._is_busy = False
        self._give_up_s = float("inf")
        self._is_stopping = False
        self._failure: str | None = None
        self._brokers: tuple[BrokerState, ...] = ()
        self._previous = ""
        self._is_named_twice = False
        self._seen: tuple[LeaseState | None, float, int] = (None, float("-inf"), 0)
        #: The epoch of this broker, 0 without a lease, and when it expires; the thread that watches
        #: the time writes both. Leases up to an epoch can be revoked from any thread.
        self._held = (0, float("-inf"))
        self._revoked = 0
        self._threads = (
            threading.Thread(target=self._watch, name="stompkit-lease", daemon=True),
            threading.Thread(target=self._ask, name="stompkit-lease-database", daemon=True),
        )

    # Called from any thread.

    def start(self, failure: str | None = None) -> None:
        """Start to compete for the lease; ``failure`` is a known one of the database."""
        self._failure = failure
        for thread in self._threads:
            thread.start()

    @property
    def is_valid(self) -> bool:
        """True if this broker has a lease that has certainly not expired."""
        epoch, expires_s = self._held
        return epoch > self._revoked and self._now_s() < expires_s

    def _revoke(self, epoch: int) -> None:
        self._revoked = max(self._revoked, epoch)

    def lose(self, epoch: int, reason: str) -> None:
        """Stop using the lease of an epoch: a commit has shown that another broker has it."""
        self._revoke(epoch)
        self._calls.put(lambda _: self._deliver(self._election.lose(epoch, reason)))

    def leave(self, epoch: int, *, successor: str = "", rest_s: float = 0.0) -> None:
        """Release the lease of an epoch, as :meth:`Election.leave` does."""
        self._revoke(epoch)
        self._calls.put(
            lambda now: self._election.leave(epoch, now, successor=successor, rest_s=rest_s)
        )

    def ask_to_leave(self, successor: str, done: Callable[[StoreError | None], object]) -> None:
        """Ask the owner to hand the lease over; ``done`` is called from a thread."""

        def ask() -> None:
            error = None
            try:
                if self._database.ask_to_leave(successor) is None:
                    error = StoreError("no broker is active: there is nothing to hand over")
            except StoreError as problem:
                error = problem
            done(error)

        self._calls.put(lambda _: self._first.append(ask))

    def status(self) -> LeaseStatus:
        """Return the lease as it was last seen."""
        state, answered_s, epoch = self._seen
        own_epoch = epoch if self.is_valid else 0
        age_s = self._now_s() - answered_s
        name, brokers = self._election.name, self._brokers
        if state is None:
            seconds = self._election.seconds
            return LeaseStatus(
                name, own_epoch, 0, "", "", seconds, 0.0, 0.0, age_s, self._failure, brokers
            )
        return LeaseStatus(
            name,
            own_epoch,
            state.epoch,
            state.owner,
            state.successor,
            state.seconds,
            state.held_s,
            state.remaining_s,
            age_s,
            self._failure,
            brokers,
        )

    def stop(self) -> None:
        """Release the lease if it is held, and end the threads; waits for a limited time."""
        if not self._threads[0].is_alive():
            return
        self._revoke(self._held[0])
        self._calls.put(self._begin_to_stop)
        for thread in self._threads:
            thread.join(3 * self._patience_s)

    # Called from the thread that watches the time.

    def _watch(self) -> None:
        while True:
            now = self._now_s()
            self._deliver(self._election.tick(now))
            if self._is_busy and now >= self._give_up_s:
                self._give_up_s = float("inf")
                self._database.abort()
            if not self._is_busy and not self._begin_work(now):
                return
            self._note()
            due_s = self._election.due_s() if not self._is_busy else self._give_up_s
            if self._is_busy and self._election.epoch:
                due_s = min(due_s, self._election.expires_s)
            try:
                call = self._calls.get(timeout=min(max(due_s - self._now_s(), 0.0), 1.0))
            except queue.Empty:
                continue
            call(self._now_s())

    def _begin_work(self, now: float) -> bool:
        """Pass the next request to the other thread; return False at the end of all work."""
        if self._first:
            self._begin(self._first.pop(0), now)
            return True
        request = self._election.next_request(now)
        if self._is_stopping and (request is None or request.ask is not Ask.RELEASE):
            self._work.put(self._end)
            self._work.put(None)
            return False
        if request is not None:
            role = "active" if self._election.epoch else "passive"
            made = request
            self._begin(lambda: self._make(made, role), now)
        return True

    def _begin(self, work: Callable[[], None], now: float) -> None:
        self._is_busy = True
        self._give_up_s = now + self._patience_s
        self._work.put(work)

    def _begin_to_stop(self, now: float) -> None:
        self._is_stopping = True
        self._election.leave(self._election.epoch, now)

    def _take(self, answer: _Answer, now: float) -> None:
        """Pass an answer to the election."""
        result = answer.result
        if isinstance(result, StoreError):
            if self._failure is None:
                lease_events.lease_failed(error=str(result))
            self._failure = str(result)
            if self._is_stopping:
                # There is no time for another attempt.
                self._first.clear()
                self._election = Election(
                    self._election.name, self._election.instance, self._election.seconds
                )
            self._deliver(self._election.failed(now))
            return
        self._failure = None
        if isinstance(result, Look):
            self._brokers = result.brokers
            self._compare(result.previous)
            result = result.state
        self._deliver(self._election.answered(answer.request, answer.asked_s, now, result))

    def _compare(self, previous: str) -> None:
        """Warn if another process reports under the name of this broker."""
        own = self._election.instance
        is_twice = self._previous == own and previous != own
        self._previous = own
        if is_twice and not self._is_named_twice:
            self._is_named_twice = True
            lease_events.name_taken(name=self._election.name)

    def _deliver(self, events: list[Event]) -> None:
        self._note()
        for event in events:
            self._report(event)

    def _note(self) -> None:
        """Publish the state of the election to other threads."""
        election = self._election
        self._seen = (election.state, election.answered_s, election.epoch)
        self._held = (election.epoch, election.expires_s)

    # Called from the thread that makes requests.

    def _ask(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            self._calls.put(self._is_done)

    def _is_done(self, _: float) -> None:
        self._is_busy = False

    def _make(self, request: Request, role: str) -> None:
        asked_s = self._now_s()
        result: Look | LeaseState | StoreError | None
        try:
            if request.ask is Ask.LOOK:
                result = self._database.look(role)
            else:
                result = self._database.make(request)
        except StoreError as error:
            result = error
        answer = _Answer(request, asked_s, result)
        self._calls.put(lambda now: self._take(answer, now))

    def _end(self) -> None:
        try:
            self._database.leave()
        except StoreError:
            pass  # it is forgotten after some time
        finally:
            self._database.close()
