"""Single changes: each is applied completely or refused, and others make refused ones possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from sqlalchemy import Connection

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.sinks import ApplyError, Refused
from stompkit.replication.sinks.sql._circles import Circles
from stompkit.replication.sql.batches import apply_batch
from stompkit.replication.sql.catalog import Catalog
from stompkit.replication.sql.database import Database, OrphanRowError, RejectedRowError
from stompkit.replication.sql.planner import Planner, children_first, key_advice, problem_with
from stompkit.replication.sql.statements import Statements

__all__ = ["RefusedOrphan", "RowByRow"]


class RefusedOrphan(Refused):
    """A change that is refused because of a missing reference."""


class RowByRow:
    """Applies changes one by one, within the transaction of a changeset."""

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        statements: Statements,
        key_columns: Mapping[str, Sequence[str]],
        make_planner: Callable[..., Planner],
    ) -> None:
        """Plan each change by a planner of its own, from ``make_planner``."""
        self._database = database
        self._catalog = catalog
        self._statements = statements
        self._make_planner = make_planner
        self.circles = Circles(database, catalog, statements, key_columns, self.apply_one)
        """Rows with circular references."""

    def apply_each(
        self, connection: Connection, changeset: Changeset, changes: Sequence[RowChange]
    ) -> list[Refused]:
        """Apply changes, with retries after others have succeeded; return the refused ones."""
        left: Sequence[RowChange] = children_first(self._catalog, changes)
        overtaken: list[Refused] = []
        while True:
            refused = self._pass(connection, changeset, left, overtaken)
            if len(refused) == len(left):
                refused = self._store_circles(connection, changeset, refused)
                if len(refused) == len(left):
                    break
            if not refused:
                break
            left = self._in_order(connection, changeset, refused)
        places = {id(change): place for place, change in enumerate(changes)}
        return sorted([*overtaken, *refused], key=lambda each: places[id(each.change)])

    def _store_circles(
        self, connection: Connection, changeset: Changeset, refused: Sequence[Refused]
    ) -> list[Refused]:
        """Apply changes with circular references; return those that are still refused."""
        if changeset.source.is_snapshot or _has_truncate(refused):
            # Referenced rows may come later, or the rows stored now would be truncated.
            return [*refused]
        orphans = [each.change for each in refused if isinstance(each, RefusedOrphan)]
        stored = self.circles.store(connection, [(changeset, each) for each in orphans])
        done = {id(orphans[at]) for at in stored}
        return [each for each in refused if id(each.change) not in done]

    def _in_order(
        self, connection: Connection, changeset: Changeset, refused: Sequence[Refused]
    ) -> list[RowChange]:
        """Return changes in an order in which earlier ones make later ones possible."""
        left = [each.change for each in refused]
        if _has_truncate(refused) or not any(isinstance(each, RefusedOrphan) for each in refused):
            return left
        order = self.circles.order(connection, [(changeset, each) for each in left])
        return [left[at] for at in order]

    def _pass(
        self,
        connection: Connection,
        changeset: Changeset,
        changes: Sequence[RowChange],
        overtaken: list[Refused],
    ) -> list[Refused]:
        """Apply changes once; changes after a refused change of the same row wait.

        A failed truncation is not retried if rows were written to the table since: it is added to
        ``overtaken``.
        """
        refused: list[Refused] = []
        reasons: dict[bytes, str] = {}
        orphans: set[str] = set()
        #: Tables that cannot be truncated.
        waiting: dict[str, list[Refused]] = {}
        for change in changes:
            rows = _rows_of(change)
            reason = next((reasons[row] for row in rows if row in reasons), "")
            if not reason:
                try:
                    self.apply_one(connection, changeset, change)
                except ApplyError as problem:
                    reason = str(problem)
                    if isinstance(problem, _OrphanError):
                        orphans.add(reason)
            if reason:
                kind = RefusedOrphan if reason in orphans else Refused
                refused.append(kind(change, reason))
                if change.action == "truncate":
                    waiting.setdefault(change.name, []).append(refused[-1])
                reasons.update(dict.fromkeys(rows, reason))
            elif change.action == "truncate":
                # Earlier changes of the table have no effect any more, applied or not.
                waiting.pop(change.name, None)
                refused = [each for each in refused if each.change.name != change.name]
            elif change.name in waiting:
                overtaken += waiting[change.name]
                late = {id(each) for each in waiting.pop(change.name)}
                refused = [each for each in refused if id(each) not in late]
        return refused

    def apply_one(self, connection: Connection, changeset: Changeset, change: RowChange) -> None:
        """Apply a change completely, or not at all; raises ApplyError."""
        one = msgspec.structs.replace(changeset, changes=(change,))
        batches = self._make_planner(most_rows=1).plan([one])
        try:
            with self._database.errors(), self._database.savepoint(connection):
                for batch in batches:
                    apply_batch(connection, self._statements, batch)
        except OrphanRowError as orphan:
            raise _OrphanError(str(problem_with(changeset, change, str(orphan)))) from None
        except RejectedRowError as rejected:
            advice = key_advice(batches[0].table, change)
            raise problem_with(changeset, change, f"{rejected}{advice}") from None


class _OrphanError(ApplyError):
    """A row references a missing row."""


def _has_truncate(refused: Sequence[Refused]) -> bool:
    """Return True if one of the changes is a truncation."""
    return any(each.change.action == "truncate" for each in refused)


def _rows_of(change: RowChange) -> list[bytes]:
    """Return the identities of a change's rows; empty if rows have no key."""
    old = msgspec.structs.replace(change, key=change.old_key) if change.old_key else None
    return [each.identity for each in (change, old) if each is not None and each.key]
