"""Rows of an outbox for the relay with the lease: numbering, reading and removal."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, Engine, delete, func, select, update

from stompkit._common.lease import database_clock
from stompkit.replication.model.events import EncodedChangeset, decode_head
from stompkit.replication.sources._outbox_lease import OutboxLease, State
from stompkit.replication.sources.outbox_tables import OutboxTables

__all__ = ["OutboxRows"]

_log: Final = logging.getLogger(__name__)

#: Maximum size in bytes of the changesets that are read at once; a single one may be larger.
_PAGE: Final = 8 * 1024 * 1024
#: Interval in seconds between removals of rows whose retention time is over.
_PRUNE_S: Final = 5.0


class OutboxRows:
    """Reads an outbox in order, in transactions that check the lease first."""

    def __init__(
        self, tables: OutboxTables, engine: Engine, lease: OutboxLease, keep_s: float
    ) -> None:
        """Keep rows for ``keep_s`` seconds after they were confirmed."""
        self._rows = tables.rows
        self._state = tables.state
        self._engine = engine
        self._lease = lease
        self._keep_s = keep_s
        self._clock = database_clock(engine.dialect.name)
        self._origin = ""
        #: Last assigned number, and last read number.
        self._last = self._read = 0
        self._pruned_s = 0.0

    def begin(self, state: State) -> None:
        """Continue with rows that are numbered and not confirmed, by any relay."""
        self._origin = state.origin
        self._last = state.last_sequence
        rows = self._rows
        first = select(func.min(rows.c.sequence)).where(rows.c.published_at.is_(None))
        with self._engine.connect() as connection:
            sequence = connection.execute(first).scalar()
        self._read = self._last if sequence is None else sequence - 1
        _log.info("publishing the outbox as %s from %d", self._origin, self._read + 1)

    def exchange(self, confirmed: tuple[int, int] | None, most: int) -> Sequence[EncodedChangeset]:
        """Remove confirmed rows by their range of numbers, and read up to ``most`` changesets.

        An idle outbox is not written to. Raises ``OutboxLeaseLostError``, and the errors of the
        database; then call :meth:`begin` before the next call.
        """
        is_pruning = self._is_pruning_due()
        if not (confirmed or is_pruning or self._lease.is_due or (most and self._is_more())):
            return []
        with self._engine.begin() as connection:
            self._lease.renew(connection)
            if confirmed:
                self._remove(connection, confirmed)
            if is_pruning:
                self._prune(connection)
            changesets = self._take(connection, most) if most else []
        if changesets:
            self._read = changesets[-1].sequence
        return changesets

    def _is_more(self) -> bool:
        """Return True if there are unread rows."""
        if self._read < self._last:
            return True
        rows = self._rows
        unnumbered = select(rows.c.id).where(rows.c.sequence.is_(None)).limit(1)
        with self._engine.connect() as connection:
            return connection.execute(unnumbered).first() is not None

    def _is_pruning_due(self) -> bool:
        every = min(_PRUNE_S, self._keep_s)
        return self._keep_s > 0 and time.monotonic() - self._pruned_s >= every

    def _remove(self, connection: Connection, confirmed: tuple[int, int]) -> None:
        """Remove confirmed rows, or mark them."""
        which = self._rows.c.sequence.between(*confirmed)
        if self._keep_s:
            published = update(self._rows).where(which).values(published_at=self._clock)
            connection.execute(published)
        else:
            connection.execute(delete(self._rows).where(which))

    def _prune(self, connection: Connection) -> None:
        """Remove rows whose retention time is over."""
        self._pruned_s = time.monotonic()
        old = self._rows.c.published_at <= self._clock - self._keep_s
        connection.execute(delete(self._rows).where(old))

    def _take(self, connection: Connection, most: int) -> Sequence[EncodedChangeset]:
        """Read rows that are already numbered, and only then number more."""
        if self._read == self._last:
            self._number(connection, most)
        rows = self._rows
        sizes = (
            select(rows.c.sequence, rows.c.size)
            .where(rows.c.sequence > self._read, rows.c.sequence <= self._last)
            .order_by(rows.c.sequence)
            .limit(most)
        )
        last = octets = 0
        for sequence, size in connection.execute(sizes).all():
            octets += size
            if last and octets > _PAGE:
                break
            last = sequence
        bodies = (
            select(rows.c.sequence, rows.c.body)
            .where(rows.c.sequence > self._read, rows.c.sequence <= last)
            .order_by(rows.c.sequence)
        )
        return [self._changeset(*row) for row in connection.execute(bodies)] if last else []

    def _number(self, connection: Connection, most: int) -> None:
        """Number rows without a number, in the order of their ids."""
        rows = self._rows
        unnumbered = select(rows.c.id).where(rows.c.sequence.is_(None)).order_by(rows.c.id)
        ids = connection.execute(unnumbered.limit(most)).scalars().all()
        # Ids of rows that were committed together are usually consecutive.
        for first, last in _runs(ids):
            distance = self._last + 1 - first
            connection.execute(
                update(rows)
                .where(rows.c.id.between(first, last))
                .values(sequence=rows.c.id + distance)
            )
            self._last += last - first + 1
        if ids:
            connection.execute(update(self._state).values(last_sequence=self._last))

    def _changeset(self, sequence: int, body: bytes) -> EncodedChangeset:
        stored = decode_head(bytes(body))
        source = msgspec.structs.replace(stored.source, position=str(sequence))
        return msgspec.structs.replace(
            stored, origin=self._origin, sequence=sequence, source=source
        )


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of each run of consecutive numbers."""
    begun = 0
    for place, number in enumerate(numbers):
        if place + 1 == len(numbers) or numbers[place + 1] != number + 1:
            yield numbers[begun], number
            begun = place + 1
