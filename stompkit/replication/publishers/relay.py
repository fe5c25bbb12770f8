"""Publishing what is in an outbox, with numbers that say the order. Needs ``replication``.

Ids of rows are no order of commits: a row with a smaller id may be committed later. So a relay
numbers rows when it first sees them, in a transaction of its own; a number is never changed nor
given again, and there are no gaps. Of two transactions that change the same row, the second has to
wait for the commit of the first before it can get to its own row of the outbox: for each row of a
table, numbers are in the order of commits.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from threading import Event
from typing import Any, Final

from sqlalchemy import Engine, case, create_engine, func, make_url, select
from sqlalchemy.exc import DBAPIError

from stompkit._common.retry import Backoff
from stompkit.replication.events import Changeset
from stompkit.replication.publishers._lease import Lease, LeaseLost, OutboxProblem
from stompkit.replication.publishers._outbox_rows import OutboxRows
from stompkit.replication.publishers.outbox_tables import OutboxTables, database_clock

__all__ = ["OutboxProblem", "OutboxRelay", "Publish", "RelayStatus"]

_log: Final = logging.getLogger(__name__)

#: The longest pause after something has failed again and again, in seconds.
_MAX_PAUSE_S: Final = 30.0
#: How long the last confirmations are waited for when a relay is told to stop, in seconds.
_DRAIN_S: Final = 5.0
#: Takes a changeset to where it is to go; the future is done when it is kept there.
Publish = Callable[[Changeset], "Future[Any] | None"]


@dataclass(frozen=True, slots=True)
class RelayStatus:
    """How an outbox is doing."""

    origin: str | None
    #: The last number that was given.
    last_sequence: int
    #: Changesets that are not published, or not confirmed.
    backlog: int
    #: How old the oldest of them is, in seconds; 0 where there is none.
    oldest_age_s: float
    #: Who publishes, as the relays have named themselves; ``None`` where nobody does.
    lease_owner: str | None
    #: Whether it is this relay.
    is_leading: bool


@dataclass(slots=True)
class _Sent:
    sequence: int
    future: Future[Any] | None


class OutboxRelay:
    """Publishes the changesets of an outbox in order, and removes them when that is confirmed.

    Of several relays of one outbox one publishes at a time. When it dies or can't reach the
    database, another takes over after ``lease_s``; what was not confirmed is published again then,
    with the same ids and numbers.
    """

    def __init__(
        self,
        engine_or_url: Engine | str,
        publish: Publish,
        *,
        origin: str | None = None,
        table_name: str = "stompkit_outbox",
        batch: int = 500,
        max_unconfirmed: int = 2000,
        poll_s: float = 0.2,
        lease_s: float = 15.0,
        keep_s: float = 0.0,
    ) -> None:
        """Describe a relay; it does nothing yet.

        ``publish`` is called with one changeset after the other, and may wait. ``origin`` names who
        publishes; the first relay of an outbox keeps it there, or one that is random. ``batch``
        rows are taken in one transaction, and at most ``max_unconfirmed`` wait for confirmation.
        An empty outbox is looked at every ``poll_s``. Rows are kept for ``keep_s`` after they were
        confirmed.

        Raises ValueError for a database that an outbox can't be in, or a number that makes no
        sense.
        """
        if batch < 1 or max_unconfirmed < 1 or poll_s <= 0 or lease_s <= 0 or keep_s < 0:
            raise ValueError(
                "batch, max_unconfirmed, poll_s and lease_s are above 0, keep_s not below"
            )
        self._is_own_engine = isinstance(engine_or_url, str)
        if isinstance(engine_or_url, str):
            url = make_url(engine_or_url)
            waits = {"timeout": lease_s} if url.get_backend_name() == "sqlite" else {}
            self._engine = create_engine(url, pool_pre_ping=True, connect_args=waits)
        else:
            self._engine = engine_or_url
        self._publish = publish
        self._origin_wanted = origin
        self._batch = min(batch, max_unconfirmed)
        self._most = max_unconfirmed
        self._poll_s = poll_s
        self._tables = OutboxTables(table_name)
        self._lease = Lease(self._tables, self._engine, lease_s)
        self._rows = OutboxRows(self._tables, self._engine, self._lease, keep_s)
        self._sent: deque[_Sent] = deque()
        self._published = 0

    # Running.

    def run(self, stop: Event) -> None:
        """Publish until ``stop`` is set; what fails is logged, and tried again after a pause.

        Raises :class:`OutboxProblem` where the outbox has another origin.
        """
        backoff = Backoff(2 * self._poll_s, _MAX_PAUSE_S)
        try:
            while not stop.is_set():
                try:
                    if not self._lead():
                        stop.wait(self._poll_s)
                        continue
                    is_idle = not self._step() and not self._sent
                    backoff.reset()
                except OutboxProblem:
                    raise
                except Exception as error:
                    self._give_up(error)
                    stop.wait(backoff.fail())
                else:
                    if is_idle:
                        stop.wait(self._poll_s)
            if self._lease.is_owned:
                self._drain(_DRAIN_S)
        except OutboxProblem:
            raise
        except Exception as error:
            self._give_up(error)
        finally:
            self.close()

    def run_once(self, timeout_s: float | None = None, stop: Event | None = None) -> int:
        """Publish what is in the outbox, and wait for all confirmations; gives how many there were.

        That is 0 while another relay publishes. When ``stop`` is set, what is not confirmed within
        some seconds is left to be published again. Raises what publishing has failed with, what the
        database fails with, and TimeoutError: what was not confirmed then is published again.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            if not self._lead():
                return 0
            begun = self._published
            while self._step() or self._sent:
                if stop is not None and stop.is_set():
                    self._drain(_DRAIN_S)
                    self._forget()
                    break
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"{len(self._sent)} changesets were not confirmed in time")
        except BaseException:
            self._forget()
            raise
        return self._published - begun

    def close(self) -> None:
        """Give the lease back to other relays, and close an engine that was made here."""
        self._forget()
        try:
            self._lease.release()
        except DBAPIError as error:
            _log.warning("the lease of an outbox has to expire: %s", error.orig)
        if self._is_own_engine:
            self._engine.dispose()

    def status(self) -> RelayStatus:
        """Ask the database; raises what it fails with."""
        rows, state = self._tables.rows, self._tables.state
        clock = database_clock(self._engine.dialect.name)
        waiting = select(func.count(), func.min(rows.c.stored_at), clock)
        owner = case((state.c.lease_expires > clock, state.c.lease_owner))
        with self._engine.connect() as connection:
            count, oldest, now = connection.execute(
                waiting.where(rows.c.published_at.is_(None))
            ).one()
            found = connection.execute(
                select(state.c.origin, state.c.last_sequence, owner)
            ).one_or_none()
        origin, last, holder = found or (self._origin_wanted, 0, None)
        return RelayStatus(
            origin=origin,
            last_sequence=last,
            backlog=count,
            oldest_age_s=0.0 if oldest is None else max(0.0, float(now) - oldest),
            lease_owner=holder,
            is_leading=holder == self._lease.owner and self._lease.is_owned,
        )

    # Leading.

    def _lead(self) -> bool:
        """Whether we have the lease; takes it where it is free."""
        if self._lease.is_owned:
            return True
        self._forget()
        state = self._lease.acquire(self._origin_wanted)
        if state is None:
            return False
        self._rows.begin(state)
        return True

    def _give_up(self, error: BaseException) -> None:
        """Forget what was sent, since it will be sent again, by whoever leads then."""
        self._forget()
        trace = None if isinstance(error, LeaseLost) else error
        _log.warning("publishing the outbox has failed, and begins anew: %s", error, exc_info=trace)

    def _forget(self) -> None:
        """Begin with what is not confirmed, as somebody who takes over does."""
        self._sent.clear()
        self._lease.expire()

    # Publishing.

    def _step(self) -> bool:
        """Remove what is confirmed, take more and publish it; gives whether there was any."""
        if len(self._sent) > self._most - self._batch:
            self._wait()
        confirmed = self._confirmed()
        room = min(self._batch, self._most - len(self._sent))
        changesets = self._rows.exchange(confirmed, room)
        for changeset in changesets:
            if not self._lease.is_owned:
                raise LeaseLost("publishing has taken longer than the lease lasts")
            self._sent.append(_Sent(changeset.sequence, self._publish(changeset)))
            self._published += 1
            if self._lease.is_due:
                self._rows.exchange(self._confirmed(), 0)
        if not changesets and self._sent:
            self._wait()
        return bool(changesets)

    def _wait(self) -> None:
        """Wait for a while until what was sent first is confirmed."""
        future = self._sent[0].future
        if future is not None:
            wait([future], self._poll_s)

    def _confirmed(self) -> tuple[int, int] | None:
        """The first and last number that nobody has to publish any more; forgets about them."""
        first = self._sent[0].sequence if self._sent else 0
        last = 0
        while self._sent and (self._sent[0].future is None or self._sent[0].future.done()):
            done = self._sent.popleft()
            if done.future is not None:
                done.future.result()
            last = done.sequence
        return (first, last) if last else None

    def _drain(self, timeout_s: float) -> None:
        """Wait for confirmations, and remove what has them."""
        wait([each.future for each in self._sent if each.future is not None], timeout_s)
        confirmed = self._confirmed()
        if confirmed:
            self._rows.exchange(confirmed, 0)
