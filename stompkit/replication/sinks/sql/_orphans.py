"""Rows of a snapshot whose references are missing: they wait for the rows that they reference."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from sqlalchemy import Connection

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.sinks import ApplyError, Refused
from stompkit.replication.sinks.sql._reshaping import is_reshaping
from stompkit.replication.sinks.sql._row_by_row import RefusedOrphan, RowByRow
from stompkit.replication.sinks.sql._waiting import WaitingRows, encode_one
from stompkit.replication.sql.catalog import Catalog
from stompkit.replication.sql.database import (
    Database,
    RejectedRowError,
    SinkDeniedError,
)

__all__ = ["Adapt", "OrphanQueue"]

#: Function that returns a row from before a changeset, with the columns after it.
Adapt = Callable[[Changeset, RowChange], RowChange]


class OrphanQueue:
    """Stores orphaned rows of snapshots, and retries them with later changesets."""

    def __init__(self, database: Database, catalog: Catalog, rows: RowByRow, adapt: Adapt) -> None:
        """Apply rows by *rows*, with the columns that *adapt* gives them."""
        self._adapt = adapt
        self._database = database
        self._catalog = catalog
        self._rows = rows
        self._table = WaitingRows("stompkit_waiting")
        #: Number of waiting rows by origin, and of rows to receive before the next retry.
        self._counts: dict[str, int] = {}
        self._rest = 0

    @property
    def was_used(self) -> bool:
        """True if rows wait, or have waited since the last :meth:`load`."""
        return bool(self._counts)

    def load(self) -> None:
        """Read the numbers of waiting rows."""
        # A user without access to the table has nothing waiting in it.
        self._counts = {}
        with suppress(SinkDeniedError), self._database.transaction() as connection:
            self._counts = self._table.counts(connection)

    def create(self) -> bool:
        """Create the table for waiting rows; return True if it exists and is accessible."""
        try:
            with self._database.transaction() as connection:
                self._table.create(connection)
        except (RejectedRowError, SinkDeniedError):
            return False
        return True

    def keep(
        self, connection: Connection, changeset: Changeset, refused: list[Refused]
    ) -> list[Refused]:
        """Store changes with missing references as waiting; return the other refused ones."""
        # Deletions cannot wait: later, they would also delete rows written since.
        orphans = [
            each
            for each in refused
            if isinstance(each, RefusedOrphan) and each.change.action not in ("truncate", "delete")
        ]
        if orphans:
            rows = [encode_one(changeset, each.change) for each in orphans]
            self._table.add(connection, changeset, rows)
            origin = changeset.origin
            self._counts[origin] = self._counts.get(origin, 0) + len(rows)
        waiting = {id(each) for each in orphans}
        return [each for each in refused if id(each) not in waiting]

    def retry(self, connection: Connection, changeset: Changeset) -> list[Refused]:
        """Apply waiting rows if possible; return those refused at the end of a snapshot.

        During the snapshot, this is done when about as many rows have been received as are waiting.
        """
        origin = changeset.origin
        if not self._counts.get(origin):
            return []
        self._follow(connection, changeset)
        self._rest -= len(changeset.changes)
        if changeset.source.is_snapshot and self._rest > 0:
            return []
        left = self._table.load(connection, origin)
        for _, _, one in left:
            self._catalog.find(connection, one.changes[0].schema, one.changes[0].table)
        order = self._rows.circles.order(connection, [(one, one.changes[0]) for _, _, one in left])
        left = [left[at] for at in order]
        is_over = not changeset.source.is_snapshot
        reasons: dict[tuple[int, int], str] = {}
        while left:
            changes = [(one, one.changes[0]) for _, _, one in left]
            reasons = {}
            for each, change in zip(left, changes, strict=True):
                try:
                    self._rows.apply_one(connection, *change)
                except ApplyError as problem:
                    reasons[each[:2]] = str(problem)
            if is_over and len(reasons) == len(left):
                for at in self._rows.circles.store(connection, changes):
                    del reasons[left[at][:2]]
            done = [each[:2] for each in left if each[:2] not in reasons]
            self._table.remove(connection, origin, done)
            left = [each for each in left if each[:2] in reasons]
            if not done:
                break
        left.sort(key=lambda each: each[:2])
        refused = [Refused(one.changes[0], reasons[at, n]) for at, n, one in left if is_over]
        if is_over:
            self._table.remove(connection, origin, [each[:2] for each in left])
            left = []
        self._counts[origin] = self._rest = len(left)
        return refused

    def _follow(self, connection: Connection, changeset: Changeset) -> None:
        """Give the waiting rows the columns that their tables have from a changeset on."""
        if not is_reshaping(changeset):
            return
        for sequence, number, one in self._table.load(connection, changeset.origin):
            change = one.changes[0]
            self._catalog.find(connection, change.schema, change.table)
            adapted = self._adapt(changeset, change)
            place = changeset.origin, sequence, number
            self._table.replace(connection, place, encode_one(one, adapted))
