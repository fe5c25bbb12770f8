"""The right of the broker that has the lease in the database of the store."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, cast
from uuid import uuid4

from twisted.internet.interfaces import IReactorFromThreads, IReactorTime

from stompkit.server.interfaces import StoreError
from stompkit.server.lease.election import Acquired, Election, Event, HandOver, Lost
from stompkit.server.lease.keeper import LeaseKeeper, LeaseStatus
from stompkit.server.lease.table import LeaseTable
from stompkit.server.log import lease_events
from stompkit.server.process.activation import Activation, Opened, Owner, StartError
from stompkit.server.settings.high_availability import HighAvailabilitySettings
from stompkit.server.settings.process import StoreSettings
from stompkit.server.stores.postgresql.connection import LostError
from stompkit.server.stores.postgresql.store import PostgresStore, Term
from stompkit.server.stores.runner import ThreadRunner

__all__ = ["LeaseActivation"]

#: Time in seconds for which a broker does not ask for the lease after it could not open the store.
_REST_S: Final = 5.0


class _CurrentTerm:
    """The time for which this broker has the lease, with the store and the thread that it uses."""

    def __init__(self, epoch: int, store: PostgresStore, runner: ThreadRunner) -> None:
        self.epoch = epoch
        self.store = store
        self.runner = runner

    def end(self) -> None:
        """Abort all calls of the store, without waiting for their end."""
        self.store.abort()
        with suppress(RuntimeError):  # it is stopped already, and the store is closed
            self.runner.run(self.store.close, lambda _: None, lambda _: None)
        self.runner.abandon()


class LeaseActivation(Activation):
    """Competes for the lease; it opens the store each time that this broker gets it."""

    def __init__(
        self, store: StoreSettings, settings: HighAvailabilitySettings, reactor: IReactorTime
    ) -> None:
        """Describe the lease without using it; raises ValueError for an invalid URL."""
        url = store.database_url
        assert url is not None  # settings are checked
        self._url = url
        self._synchronous = store.is_synchronous
        self._seconds = settings.lease_s
        self._from_thread = cast("IReactorFromThreads", reactor).callFromThread
        self._name = settings.effective_name
        self._instance = uuid4().hex
        self._table = LeaseTable(self._url, self._name, self._instance, self._seconds)
        election = Election(self._name, self._instance, self._seconds)
        self._keeper = LeaseKeeper(self._table, election, self._report)
        self._owner: Owner | None = None
        self._term: _CurrentTerm | None = None
        #: True once the broker works with the store of the current term.
        self._has_begun = False
        self._successor = ""
        self._is_stopped = False

    @property
    def is_active(self) -> bool:
        """True if this broker has a lease that has certainly not expired."""
        return self._keeper.is_valid

    @property
    def lease(self) -> LeaseStatus:
        """The state of the lease."""
        return self._keeper.status()

    @property
    def rival(self) -> str:
        """The owner of the lease, if it is another broker."""
        owner = self.lease.owner
        return "" if owner is None or owner == self._name else owner

    @property
    def trouble(self) -> str:
        """The reason why this broker does not work."""
        if self._term is not None:
            return "it is taking over"
        lease = self.lease
        if lease.owner and lease.owner != self._name:
            return f"it is passive: the broker {lease.owner} is active"
        if lease.failure is not None:
            return "it is passive, and the database of the lease does not answer"
        if math.isinf(lease.age_s):
            return "it is passive, and has not read yet which broker is active"
        return "it is passive, and no broker is active"

    def start(self, owner: Owner) -> None:
        """Compete for the lease; raises :class:`StartError` if the database refuses this broker.

        A database that does not answer may be restarting or failing over: the broker is passive
        until it answers.
        """
        self._owner = owner
        failure = None
        try:
            self._table.prepare()
        except StoreError as error:
            if not isinstance(error, LostError) or self._table.is_refused:
                raise StartError(f"cannot read the lease: {error}") from error
            failure = str(error)
            lease_events.lease_waits(error=failure)
        owner.status(f"{self._name} is passive")
        lease_events.lease_joined(name=self._name, store=self._table.name)
        self._keeper.start(failure)

    def _report(self, event: Event) -> None:
        """Pass an event on from another thread."""
        term = self._term
        if isinstance(event, Lost) and term is not None and term.epoch == event.epoch:
            # The broker's thread may wait for the store.
            term.store.abort()
        self._from_thread(self._take, event)

    def _take(self, event: Event) -> None:
        if self._is_stopped:
            return
        match event:
            case Acquired(epoch):
                self._open(epoch)
            case Lost(epoch, reason):
                self._lost(epoch, reason)
            case HandOver(epoch, successor):
                self._hand_over(epoch, successor)

    # The beginning of a term.

    def _open(self, epoch: int) -> None:
        """Open the store in its thread, since that can take long."""
        lease_events.lease_acquired(name=self._name, epoch=epoch)
        lost = partial(self._from_thread, self._lost, epoch)
        term = Term(epoch, self._instance, self._seconds, lost)
        store = PostgresStore(self._url, synchronous=self._synchronous, term=term)
        runner = ThreadRunner(self._from_thread)
        self._term = current = _CurrentTerm(epoch, store, runner)

        def work() -> Opened:
            store.open()
            return Opened(store, runner, store.lanes(), dict(store.records()))

        runner.run(
            work,
            lambda opened: self._opened(current, cast("Opened", opened)),
            lambda error: self._failed(current, error),
        )

    def _opened(self, term: _CurrentTerm, opened: Opened) -> None:
        if term is not self._term or self._owner is None:
            return
        self._has_begun = True
        try:
            self._owner.begin(opened)
        except StartError as error:
            self._owner.end(error)

    def _failed(self, term: _CurrentTerm, error: StoreError) -> None:
        if term is not self._term:
            return
        lease_events.takeover_failed(name=self._name, error=str(error))
        self._end_term()
        self._keeper.leave(term.epoch, rest_s=_REST_S)

    # The end of a term.

    def _lost(self, epoch: int, reason: str) -> None:
        """End the term of an epoch at once; does nothing the second time."""
        if self._term is None or self._term.epoch != epoch or self._is_stopped:
            return
        self._keeper.lose(epoch, reason)
        lease_events.lease_lost(name=self._name, epoch=epoch, reason=reason)
        self._end_term()
        self._stand_by(reason)

    def _stand_by(self, reason: str) -> None:
        if self._has_begun and self._owner is not None:
            self._has_begun = False
            self._owner.stand_by(reason)
            self._owner.status(f"{self._name} is passive")

    def _end_term(self) -> None:
        if self._term is not None:
            self._term.end()
            self._term = None

    def _hand_over(self, epoch: int, successor: str) -> None:
        if self._term is None or self._term.epoch != epoch or not self._has_begun:
            return
        lease_events.lease_handed_over(name=self._name, successor=successor)
        self._successor = successor
        assert self._owner is not None  # it has begun
        self._owner.hand_over()

    def leave(self) -> None:
        """Release the lease for the successor; the store is closed."""
        term, self._term = self._term, None
        if term is not None:
            self._has_begun = False
            rest_s = 2 * self._seconds
            self._keeper.leave(term.epoch, successor=self._successor, rest_s=rest_s)

    def ask_to_leave(self, successor: str, done: Callable[[StoreError | None], object]) -> None:
        """Ask the active broker to hand over; ``done`` is called in the broker's thread."""
        self._keeper.ask_to_leave(successor, lambda error: self._from_thread(done, error))

    def stop(self) -> None:
        """Release the lease if this broker has it, and stop competing."""
        self._is_stopped = True
        self._end_term()
        self._keeper.stop()
