"""Publishing of an outbox's changesets, with sequence numbers. Needs ``replication``.

Ids of rows are not in the order of commits: a row with a smaller id may be committed later. A relay
therefore numbers rows when it first sees them, in its own transaction. A number is never changed
or reused, and there are no gaps. If two transactions change the same row, the second waits for the
commit of the first before it writes to the outbox. For each row of a table, numbers are therefore
in the order of commits.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any, Final, Protocol, runtime_checkable

from sqlalchemy import Engine, case, create_engine, func, inspect, make_url, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from stompkit._common.lease import database_clock
from stompkit._common.moved import renamed
from stompkit._common.retry import Backoff
from stompkit.replication.model.events import Changeset, EncodedChangeset
from stompkit.replication.sources._outbox_lease import (
    OutboxError,
    OutboxLease,
    OutboxLeaseLostError,
)
from stompkit.replication.sources._outbox_rows import OutboxRows
from stompkit.replication.sources.outbox_tables import OutboxTables
from stompkit.replication.sql.failures import failure_of

__all__ = ["OutboxError", "OutboxRelay", "Publish", "RelayStatus", "SendsEncoded"]

_log: Final = logging.getLogger(__name__)

#: Maximum pause in seconds after repeated failures.
_MAX_PAUSE_S: Final = 30.0
#: Time in seconds to wait for the last confirmations when a relay is stopped.
_DRAIN_S: Final = 5.0
#: Maximum number, and maximum size in bytes, of the changesets that are sent with one call. The
#: lease is renewed between calls. A single changeset may be larger.
_GROUP: Final = 100
_GROUP_BYTES: Final = 1024 * 1024
#: Function that sends a changeset; its future is done when the changeset is stored.
Publish = Callable[[Changeset], "Future[Any] | None"]


@runtime_checkable
class SendsEncoded(Protocol):
    """A publisher that takes several changesets at once, without decoded changes.

    :class:`~stompkit.replication.sinks.forwarders.stomp.StompSub` is one.
    """

    def send_encoded(self, changesets: Sequence[EncodedChangeset]) -> Future[Any] | None:
        """Send changesets in order; the future is done when all are stored."""


@dataclass(frozen=True, slots=True)
class RelayStatus:
    """Status of an outbox."""

    origin: str | None
    #: Last assigned sequence number.
    last_sequence: int
    #: Number of changesets that are not published, or not confirmed.
    backlog: int
    #: Age in seconds of the oldest of them; 0 if there are none.
    oldest_age_s: float
    #: Name of the publishing relay; ``None`` if there is none.
    lease_owner: str | None
    #: True if this relay is publishing.
    is_leading: bool


@dataclass(slots=True)
class _Sent:
    """Range of sequence numbers that are confirmed together."""

    first: int
    last: int
    future: Future[Any] | None

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def is_confirmed(self) -> bool:
        return self.future is None or self.future.done()


class OutboxRelay:
    """Publishes the changesets of an outbox in order, and removes confirmed ones.

    Of several relays of one outbox, one publishes at a time. When it dies or cannot reach the
    database, another takes over after ``lease_s`` seconds. It publishes unconfirmed changesets
    again, with the same ids and numbers.
    """

    def __init__(
        self,
        engine_or_url: Engine | str,
        publish: Publish | SendsEncoded,
        *,
        origin: str | None = None,
        table_name: str = "stompkit_outbox",
        batch: int = 500,
        max_unconfirmed: int = 2000,
        poll_s: float = 0.2,
        lease_s: float = 15.0,
        keep_s: float = 0.0,
    ) -> None:
        """Configure a relay; it does nothing yet.

        ``publish`` is called with one changeset after the other, and may block. An object with the
        method of :class:`SendsEncoded` gets several at once, which costs less. ``origin`` names the
        publisher; the first relay of an outbox stores it there, or a random one. ``batch`` rows are
        read in one transaction, and at most ``max_unconfirmed`` wait for confirmation. An empty
        outbox is checked every ``poll_s`` seconds. Rows are kept for ``keep_s`` seconds after they
        were confirmed.

        Raises ValueError for an unsupported database, or an invalid number.
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
        self._lease = OutboxLease(self._tables, self._engine, lease_s)
        self._rows = OutboxRows(self._tables, self._engine, self._lease, keep_s)
        self._sent: deque[_Sent] = deque()
        self._published = 0
        self._has_led = False

    # Running.

    def run(self, stop: Event) -> None:
        """Publish until ``stop`` is set; failures are logged, and retried after a pause.

        Raises :class:`OutboxError` if the outbox has another origin, or the database has no outbox
        or refuses the user at the start.
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
                except OutboxError:
                    raise
                except Exception as error:
                    if isinstance(error, DBAPIError):
                        self._check_tables(error)
                    self._give_up(error)
                    stop.wait(backoff.fail())
                else:
                    if is_idle:
                        stop.wait(self._poll_s)
            if self._lease.is_owned:
                self._drain(_DRAIN_S)
        except OutboxError:
            raise
        except Exception as error:
            self._give_up(error)
        finally:
            self.close()

    def run_once(self, timeout_s: float | None = None, stop: Event | None = None) -> int:
        """Publish the outbox's changesets, wait for all confirmations, and return their number.

        The number is 0 while another relay publishes. When ``stop`` is set, changesets that are not
        confirmed within some seconds will be published again. Raises errors of publishing and of
        the database, and TimeoutError; unconfirmed changesets will then be published again.
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
                    raise TimeoutError(f"{self._unconfirmed} changesets were not confirmed in time")
        except BaseException:
            self._forget()
            raise
        return self._published - begun

    def _check_tables(self, failed: DBAPIError) -> None:
        """Raise OutboxError if waiting is useless.

        That is if the database refuses the user at the start, or can be asked and has no outbox.
        """
        name = self._engine.dialect.name
        backend = "mysql" if name == "mariadb" else name
        if not self._has_led and failure_of(failed.orig, backend) == "denied":
            reason = str(failed.orig and failed.orig.args[-1]).strip().partition("\n")[0]
            raise OutboxError(
                f"the database refuses this user: {reason}. Check the URL, and what the user is"
                " granted."
            ) from None
        with suppress(SQLAlchemyError):
            known = inspect(self._engine)
            table = self._tables.state
            if not known.has_table(table.name, schema=table.schema):
                raise OutboxError(
                    f"the database has no outbox: there is no table {table.name}. Create it with"
                    " Outbox.create(engine) in the application, or check the URL."
                )

    def close(self) -> None:
        """Release the lease, and close an engine that was created here."""
        self._forget()
        try:
            self._lease.release()
        except DBAPIError as error:
            _log.warning("the lease of an outbox has to expire: %s", error.orig)
        if self._is_own_engine:
            self._engine.dispose()

    def status(self) -> RelayStatus:
        """Query the database; raises its errors."""
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

    # The lease.

    def _lead(self) -> bool:
        """Return True if this relay has the lease; acquire it if it is free."""
        if self._lease.is_owned:
            return True
        self._forget()
        state = self._lease.acquire(self._origin_wanted)
        if state is None:
            return False
        self._rows.begin(state)
        self._has_led = True
        return True

    def _give_up(self, error: BaseException) -> None:
        """Forget sent changesets, because the next leader sends them again."""
        self._forget()
        trace = None if isinstance(error, OutboxLeaseLostError) else error
        _log.warning("publishing the outbox has failed, and starts over: %s", error, exc_info=trace)

    def _forget(self) -> None:
        """Start with the unconfirmed changesets, as a relay that takes over does."""
        self._sent.clear()
        self._lease.expire()

    # Publishing.

    def _step(self) -> bool:
        """Remove confirmed rows, read more and publish them; return True if there were any."""
        self._wait_for_room()
        confirmed = self._confirmed()
        room = min(self._batch, self._most - self._unconfirmed)
        changesets = self._rows.exchange(confirmed, room)
        if isinstance(self._publish, SendsEncoded):
            for group in _groups(changesets):
                self._send(group, partial(self._publish.send_encoded, group))
        else:
            for changeset in changesets:
                self._send([changeset], partial(self._publish, changeset.decoded()))
        if not changesets:
            self._wait(self._sent)
        return bool(changesets)

    def _send(
        self, changesets: Sequence[EncodedChangeset], send: Callable[[], Future[Any] | None]
    ) -> None:
        if not self._lease.is_owned:
            raise OutboxLeaseLostError("publishing has taken longer than the lease lasts")
        self._sent.append(_Sent(changesets[0].sequence, changesets[-1].sequence, send()))
        self._published += len(changesets)
        if self._lease.is_due:
            self._rows.exchange(self._confirmed(), 0)

    @property
    def _unconfirmed(self) -> int:
        """Number of changesets that are published and not known to be confirmed."""
        return self._sent[-1].last - self._sent[0].first + 1 if self._sent else 0

    def _wait_for_room(self) -> None:
        """Wait for a while until a whole batch can be published."""
        excess = self._unconfirmed - (self._most - self._batch)
        oldest = []
        for each in self._sent:
            if excess <= 0:
                break
            oldest.append(each)
            excess -= each.count
        self._wait(oldest)

    def _wait(self, sent: Iterable[_Sent]) -> None:
        """Wait for a while until these are confirmed."""
        deadline = time.monotonic() + self._poll_s
        for each in sent:
            if each.future is not None and not each.future.done():
                wait([each.future], max(0.0, deadline - time.monotonic()))
                if not each.future.done():
                    return

    def _confirmed(self) -> tuple[int, int] | None:
        """Return and forget the range of numbers that is confirmed."""
        first = self._sent[0].first if self._sent else 0
        last = 0
        while self._sent and self._sent[0].is_confirmed:
            done = self._sent.popleft()
            if done.future is not None:
                done.future.result()
            last = done.last
        return (first, last) if last else None

    def _drain(self, timeout_s: float) -> None:
        """Wait for confirmations, and remove the confirmed rows."""
        wait([each.future for each in self._sent if each.future is not None], timeout_s)
        confirmed = self._confirmed()
        if confirmed:
            self._rows.exchange(confirmed, 0)


def _groups(changesets: Sequence[EncodedChangeset]) -> Iterator[list[EncodedChangeset]]:
    """Yield the changesets that are sent with one call."""
    group: list[EncodedChangeset] = []
    size = 0
    for each in changesets:
        octets = len(memoryview(each.changes))
        if group and (len(group) == _GROUP or size + octets > _GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(each)
        size += octets
    if group:
        yield group


renamed(
    __name__,
    OutboxProblem="OutboxError",
)
