"""The sink for SQL databases: SQLite, PostgreSQL, MariaDB and MySQL. Needs the extra ``sql``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from stompkit._common.moved import renamed

try:
    from sqlalchemy import URL, Connection, Engine
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "a sink in an SQL database needs SQLAlchemy: pip install 'stompkit[sql]'", name=error.name
    ) from error

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.sinks import ApplyError, Refuse, Refused, sifted
from stompkit.replication.sinks.sql._circles import Circles
from stompkit.replication.sinks.sql._offsets import OffsetTable, Owners
from stompkit.replication.sinks.sql._waiting import WaitingRows, alone
from stompkit.replication.sql.batches import apply_batch
from stompkit.replication.sql.catalog import Catalog, TablesClashError
from stompkit.replication.sql.database import (
    Database,
    ForeignKeys,
    OrphanRowError,
    RejectedRowError,
    SinkDeniedError,
    SinkUnavailableError,
    StaleRowError,
)
from stompkit.replication.sql.planner import (
    MOST_ROWS,
    Batch,
    OnMissing,
    Planner,
    children_first,
    problem_with,
)
from stompkit.replication.sql.schema import (
    SchemaError,
    SourceColumn,
    changes_of,
    columns_of,
    differences,
    make_columns,
    make_table,
    rename_columns,
    replace_columns,
)
from stompkit.replication.sql.statements import Statements
from stompkit.replication.sql.tables import TargetTable

__all__ = ["SinkDeniedError", "SinkUnavailableError", "SqlSink"]


class SqlSink:
    """Applies changesets to tables of an SQL database.

    Only the columns that a change reports are written; other columns are unchanged. An update of
    the key moves the row; if the new key exists already, that row gets the values, and the old one
    is deleted. Rows of tables without a key are found by all reported old values, one at a time.

    Values are stored in the types of the target's columns, exactly or not at all. Times with a zone
    are stored as UTC in columns without one; intervals of time only as microseconds in integer
    columns; sets as text with commas. SQLite stores decimals of more than 15 digits in text columns
    only.

    Raises :class:`~stompkit.replication.sinks.ApplyError` for changes that can never be applied,
    naming changeset, table, key and, if it is about one, the column. Raises
    :class:`SinkUnavailableError` if the database is unavailable, or has refused because of
    concurrent transactions. Its subclass :class:`SinkDeniedError` is permanent, and is about the
    user or the database. The sink reconnects by itself. No message contains a password.
    """

    def __init__(
        self,
        engine_or_url: Engine | URL | str,
        *,
        schema_map: Mapping[str, str] | None = None,
        table_map: Mapping[str, str] | None = None,
        key_columns: Mapping[str, Sequence[str]] | None = None,
        create: bool = False,
        evolve: bool = True,
        on_missing: OnMissing = "error",
        unknown_columns: OnMissing = "error",
        foreign_keys: ForeignKeys = "deferred",
        lossy: bool = False,
        offsets_table: str = "stompkit_offsets",
    ) -> None:
        """Configure a sink; nothing is connected yet.

        ``schema_map``
            Target schemas by source schemas; a schema that is not in it has no target. Without it,
            all tables are in the target's default schema.
        ``table_map``
            Target tables by source tables, each as ``table`` or ``schema.table``. Tables and
            columns that are not found by their names are found by names that differ by case only.
        ``key_columns``
            Columns that identify the rows of tables, by the source's ``table`` or ``schema.table``;
            they take precedence over the changes' own keys. Without any key, the target's primary
            key is used if all of it is reported.
        ``create``
            True to create missing tables, by ``schema`` changes.
        ``evolve``
            True to add missing columns, by ``schema`` changes; columns are never dropped.
        ``on_missing``, ``unknown_columns``
            Policy for tables, and for columns, that the target lacks: raise an ``"error"``, or skip
            their changes and values (``"ignore"``).
        ``foreign_keys``
            ``"enforced"``: changes are applied in the source's order, and the target checks each.
            ``"deferred"``: it checks at the end of a transaction, if possible: SQLite always,
            PostgreSQL for those that are DEFERRABLE, MySQL never. ``"off"``: the target does not
            check; in PostgreSQL this is for superusers only, and turns triggers off as well.
        ``lossy``
            True if the database may round digits of numbers and of seconds for which a column has
            no room. Days of intervals may then be 24 hours.
        ``offsets_table``
            Table in which the sink stores its offsets; several sinks can share it.

        Raises ``ValueError`` for an invalid URL, or an unsupported kind of database.
        """
        self._database = Database(engine_or_url, foreign_keys)
        self._offsets = OffsetTable(offsets_table)
        self._waiting = WaitingRows("stompkit_waiting")
        #: Number of waiting rows by origin, and of rows to receive before the next retry.
        self._waits: dict[str, int] = {}
        self._rest = 0
        #: Stored owners of tables by origin, with the sequence number at which they were read.
        self._owners: dict[str, tuple[int | None, Owners]] = {}
        self._creates = create
        self._evolves = evolve
        self._on_missing = on_missing
        self._unknown_columns = unknown_columns
        self._key_columns = dict(key_columns or {})
        backend = self._database.backend
        self._catalog = Catalog(
            schema_map=dict(schema_map or {}),
            table_map=dict(table_map or {}),
            reserved=offsets_table,
            backend=backend,
            is_lossy=lossy,
            checks_foreign_keys=foreign_keys != "off",
            defers_foreign_keys=foreign_keys == "deferred",
        )
        self._statements = Statements(backend, self._database.engine.dialect.paramstyle)
        self._circles = Circles(
            self._database, self._catalog, self._statements, self._key_columns, self._apply_one
        )
        self._is_open = False

    def last(self, origin: str) -> int | None:
        """Return the number of the last changeset of that origin; ``None`` if there was none."""
        self._open()
        with self._database.transaction() as connection:
            return self._offsets.load(connection, origin)

    def apply(self, changesets: Sequence[Changeset]) -> None:
        """Apply changesets, and store their numbers, in one transaction.

        Only missing columns and tables are created before, because MySQL cannot do that in a
        transaction.
        """
        if self._waits and len(changesets) > 1:
            for changeset in changesets:
                self.apply([changeset])
            return
        try:
            self._apply(changesets, alone=False)
        except OrphanRowError:
            if len(changesets) > 1 and not any(each.source.is_snapshot for each in changesets):
                self._apply_alone(changesets)
                return

            def refuse(refused: Sequence[Refused]) -> None:
                raise ApplyError(refused[0].reason)

            # Rows that come later may be the referenced ones.
            for changeset in changesets:
                if changeset.source.is_snapshot or len(changesets) == 1:
                    self.apply_rows(changeset, refuse)
                else:
                    self.apply([changeset])
        except RejectedRowError:
            self._apply_alone(changesets)

    def _apply_alone(self, changesets: Sequence[Changeset]) -> None:
        """Apply each row by itself, to find the refused one, or to succeed.

        If names are stale, the tables are read again, and the change is refused the second time.
        """
        self._catalog.forget()
        try:
            self._apply(changesets, alone=True)
        except RejectedRowError as rejected:
            # Constraints checked at the end of a transaction do not name a row.
            raise ApplyError(f"{_numbers(changesets)}: {rejected}") from None

    def apply_rows(self, changeset: Changeset, refuse: Refuse) -> None:
        """Apply the acceptable changes of a changeset, each by itself; see RowSink.

        Missing tables and columns are created before, by each valid ``schema`` change. Foreign keys
        and unique columns are checked after each change, and refused changes are retried once after
        the others. Snapshot rows that reference missing rows wait in the table
        ``stompkit_waiting``, and are retried with later changesets; at the end of the snapshot the
        remaining ones are refused.
        """
        self._open()
        if not self._news([changeset])[1]:
            return
        try:
            self._apply_rows(changeset, refuse)
        except BaseException:
            # The waiting rows are unchanged.
            self._is_open = False
            raise

    def _apply_rows(self, changeset: Changeset, refuse: Refuse) -> None:
        refused = self._prepare_each(changeset)
        can_wait = changeset.source.is_snapshot and self._make_waiting()
        with self._database.transaction() as connection:
            last = self._offsets.lock(connection, [changeset.origin])[changeset.origin]
            if last is not None and last >= changeset.sequence:
                return
            self._adopt_owners(connection, {changeset.origin: last})
            self._database.defer(connection, at_once=True)
            rows = [change for change in changeset.changes if change.action != "schema"]
            if changeset.source.is_snapshot:
                refused += self._apply_each(connection, changeset, rows)
                if can_wait:
                    refused = self._keep_orphans(connection, changeset, refused)
                self._try_waiting(connection, changeset)
            else:
                # Rows that waited before come first.
                refused += self._try_waiting(connection, changeset)
                refused += self._apply_each(connection, changeset, rows)
            if refused:
                refuse(refused)
            left_out = {id(each.change) for each in refused}
            applied = [each for each in changeset.changes if id(each) not in left_out]
            owners = self._store(connection, changeset, applied)
        self._owners[changeset.origin] = owners

    def skip(self, changeset: Changeset) -> None:
        """Record a changeset as applied without applying it."""
        self._open()
        with self._database.transaction() as connection:
            last = self._offsets.lock(connection, [changeset.origin])[changeset.origin]
            if last is None or last < changeset.sequence:
                self._offsets.store(connection, changeset)

    def check(self, changes: Iterable[RowChange]) -> list[str]:
        """Return all reasons that prevent changes from being stored, by the target's tables.

        Nothing is created. Changes with the action ``schema`` allow the most checks; for others,
        only the existence of the tables and columns is checked.
        """
        self._open()
        self._catalog.forget()
        found: dict[str, None] = {}
        with self._database.transaction() as connection:
            for change in changes:
                try:
                    table = self._catalog.find(connection, change.schema, change.table)
                except TablesClashError as clash:
                    found[f"{change.name}: {clash}"] = None
                    continue
                for difference in self._differences(table, change):
                    found[difference] = None
        return list(found)

    def close(self) -> None:
        """Disconnect; a given engine stays open."""
        self._database.close()

    def _open(self) -> None:
        """Create the offsets table on first use."""
        if self._is_open:
            return
        with self._database.transaction() as connection:
            is_there = self._offsets.is_there(connection)
        if not is_there:
            try:
                with self._database.transaction() as connection:
                    self._offsets.create(connection)
            except (RejectedRowError, SinkUnavailableError):
                # Another sink may have created it meanwhile.
                with self._database.transaction() as connection:
                    if not self._offsets.is_there(connection):
                        raise
        with suppress(RejectedRowError, SinkDeniedError):
            # If the column cannot be added, owners are known only while the process runs.
            self._add_owners()
        self._owners = {}
        # A user without access to the table has nothing waiting in it.
        self._waits = {}
        with suppress(SinkDeniedError), self._database.transaction() as connection:
            self._waits = self._waiting.counts(connection)
        self._is_open = True

    def _apply(self, changesets: Sequence[Changeset], *, alone: bool) -> None:
        """Apply new changesets; if others apply them concurrently, read the offsets again."""
        self._open()
        is_done = False
        try:
            while not is_done:
                known, new = self._news(changesets)
                if not new:
                    return
                batches = self._plan(new, 1 if alone else MOST_ROWS)
                is_done = self._write(known, new, batches, alone=alone)
        except SinkUnavailableError:
            # Tables may have been altered or missing meanwhile.
            self._catalog.forget()
            self._is_open = False
            raise
        except StaleRowError:
            # The offsets table may be the missing one.
            self._is_open = False
            raise
        except ApplyError:
            # The waiting rows are unchanged.
            self._is_open = not self._waits and self._is_open
            raise

    def _plan(self, changesets: Sequence[Changeset], most_rows: int) -> list[Batch]:
        """Return the batches to apply, after creating missing tables and columns."""
        self._prepare(changesets)
        with suppress(ApplyError):
            return self._planner(most_rows).plan(changesets)
        # The tables may have been altered since they were read.
        self._catalog.forget()
        self._look(changesets)
        return self._planner(most_rows).plan(changesets)

    def _planner(self, most_rows: int) -> Planner:
        return Planner(
            self._catalog,
            self._key_columns,
            self._database.backend,
            on_missing=self._on_missing,
            unknown_columns=self._unknown_columns,
            most_rows=most_rows,
        )

    def _news(
        self, changesets: Sequence[Changeset]
    ) -> tuple[dict[str, int | None], list[Changeset]]:
        """Return the last numbers, and the changesets above them."""
        with self._database.transaction() as connection:
            known = {
                origin: self._offsets.load(connection, origin)
                for origin in {changeset.origin for changeset in changesets}
            }
            self._adopt_owners(connection, known)
        new = []
        lasts = dict(known)
        for changeset in changesets:
            last = lasts[changeset.origin]
            if last is None or changeset.sequence > last:
                lasts[changeset.origin] = changeset.sequence
                new.append(changeset)
        return known, new

    def _write(
        self,
        known: Mapping[str, int | None],
        changesets: Sequence[Changeset],
        batches: Iterable[Batch],
        *,
        alone: bool,
    ) -> bool:
        """Write the batches and return True, unless the last numbers have changed."""
        ends = {changeset.origin: changeset for changeset in changesets}
        with self._database.transaction() as connection:
            locked = self._offsets.lock(connection, ends)
            if any(locked[origin] != known[origin] for origin in ends):
                return False
            self._database.defer(connection)
            is_snapshot = changesets[0].source.is_snapshot
            for each in () if is_snapshot else self._try_waiting(connection, changesets[0]):
                # It is refused as a single row, if possible.
                raise ApplyError(each.reason)
            for batch in batches:
                self._write_batch(connection, batch, alone=alone)
            if is_snapshot:
                self._try_waiting(connection, changesets[-1])
            owners = {}
            for changeset in ends.values():
                of_origin = [each for each in changesets if each.origin == changeset.origin]
                changes = [change for each in of_origin for change in each.changes]
                owners[changeset.origin] = self._store(connection, changeset, changes)
        self._owners.update(owners)
        return True

    def _store(
        self, connection: Connection, changeset: Changeset, changes: Iterable[RowChange]
    ) -> tuple[int | None, Owners]:
        """Store a number, and the owners of tables that are used first; return both."""
        _, stored = self._owners.get(changeset.origin, (None, {}))
        new = self._catalog.owned({(change.schema, change.table) for change in changes})
        owners = {**stored, **new}
        self._offsets.store(connection, changeset, None if owners == stored else owners)
        return changeset.sequence, owners

    def _adopt_owners(self, connection: Connection, lasts: Mapping[str, int | None]) -> None:
        """Load the owners of tables, which others may have stored since they were read."""
        for origin, last in lasts.items():
            if origin not in self._owners or self._owners[origin][0] != last:
                stored = self._offsets.owners(connection, origin)
                self._owners[origin] = last, stored
                self._catalog.adopt(stored)

    def _add_owners(self) -> None:
        """Add the missing column of an older version's offsets table."""
        with self._database.transaction() as connection:
            is_old = self._offsets.lacks_owners(connection)
        if is_old:
            try:
                with self._database.transaction() as connection:
                    self._offsets.add_owners(connection)
            finally:
                with self._database.transaction() as connection:
                    self._offsets.lacks_owners(connection)

    def _write_batch(self, connection: Connection, batch: Batch, *, alone: bool) -> None:
        """Apply one batch."""
        if not alone:
            apply_batch(connection, self._statements, batch)
            return
        try:
            with self._database.errors():
                apply_batch(connection, self._statements, batch)
        except RejectedRowError as rejected:
            raise problem_with(*batch.cause, str(rejected)) from None

    # Waiting rows.

    def _make_waiting(self) -> bool:
        """Create the table for waiting rows; return True if it exists and is accessible."""
        try:
            with self._database.transaction() as connection:
                self._waiting.create(connection)
        except StaleRowError:
            # Another sink has created it meanwhile.
            return True
        except (RejectedRowError, SinkDeniedError):
            return False
        return True

    def _keep_orphans(
        self, connection: Connection, changeset: Changeset, refused: list[Refused]
    ) -> list[Refused]:
        """Store changes with missing references as waiting; return the other refused ones."""
        # Deletions cannot wait: later, they would also delete rows written since.
        orphans = [
            each
            for each in refused
            if isinstance(each, _RefusedOrphan) and each.change.action not in ("truncate", "delete")
        ]
        if orphans:
            rows = [alone(changeset, each.change) for each in orphans]
            self._waiting.add(connection, changeset, rows)
            origin = changeset.origin
            self._waits[origin] = self._waits.get(origin, 0) + len(rows)
        waiting = {id(each) for each in orphans}
        return [each for each in refused if id(each) not in waiting]

    def _try_waiting(self, connection: Connection, changeset: Changeset) -> list[Refused]:
        """Apply waiting rows if possible; return those refused at the end of a snapshot.

        During the snapshot, this is done when about as many rows have been received as are waiting.
        """
        origin = changeset.origin
        if not self._waits.get(origin):
            return []
        self._rest -= len(changeset.changes)
        if changeset.source.is_snapshot and self._rest > 0:
            return []
        left = self._waiting.load(connection, origin)
        for _, _, one in left:
            self._catalog.find(connection, one.changes[0].schema, one.changes[0].table)
        order = self._circles.order(connection, [(one, one.changes[0]) for _, _, one in left])
        left = [left[at] for at in order]
        is_over = not changeset.source.is_snapshot
        reasons: dict[tuple[int, int], str] = {}
        while left:
            changes = [(one, one.changes[0]) for _, _, one in left]
            reasons = {}
            for each, change in zip(left, changes, strict=True):
                try:
                    self._apply_one(connection, *change)
                except ApplyError as problem:
                    reasons[each[:2]] = str(problem)
            if is_over and len(reasons) == len(left):
                for at in self._circles.store(connection, changes):
                    del reasons[left[at][:2]]
            done = [each[:2] for each in left if each[:2] not in reasons]
            self._waiting.remove(connection, origin, done)
            left = [each for each in left if each[:2] in reasons]
            if not done:
                break
        left.sort(key=lambda each: each[:2])
        refused = [Refused(one.changes[0], reasons[at, n]) for at, n, one in left if is_over]
        if is_over:
            self._waiting.remove(connection, origin, [each[:2] for each in left])
            left = []
        self._waits[origin] = self._rest = len(left)
        return refused

    # Single changes.

    def _prepare_each(self, changeset: Changeset) -> list[Refused]:
        """Create missing tables and columns; return the invalid ``schema`` changes."""
        self._catalog.forget()
        schemas = [change for change in changeset.changes if change.action == "schema"]
        _, refused = sifted(schemas, partial(self._evolve, changeset))
        self._look([changeset])
        return refused

    def _apply_each(
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
        orphans = [each.change for each in refused if isinstance(each, _RefusedOrphan)]
        stored = self._circles.store(connection, [(changeset, each) for each in orphans])
        done = {id(orphans[at]) for at in stored}
        return [each for each in refused if id(each.change) not in done]

    def _in_order(
        self, connection: Connection, changeset: Changeset, refused: Sequence[Refused]
    ) -> list[RowChange]:
        """Return changes in an order in which earlier ones make later ones possible."""
        left = [each.change for each in refused]
        if _has_truncate(refused) or not any(isinstance(each, _RefusedOrphan) for each in refused):
            return left
        order = self._circles.order(connection, [(changeset, each) for each in left])
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
                    self._apply_one(connection, changeset, change)
                except ApplyError as problem:
                    reason = str(problem)
                    if isinstance(problem, _OrphanError):
                        orphans.add(reason)
            if reason:
                kind = _RefusedOrphan if reason in orphans else Refused
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

    def _apply_one(self, connection: Connection, changeset: Changeset, change: RowChange) -> None:
        """Apply a change completely, or not at all; raises ApplyError."""
        one = msgspec.structs.replace(changeset, changes=(change,))
        batches = self._planner(1).plan([one])
        try:
            with self._database.errors(), self._database.savepoint(connection):
                for batch in batches:
                    apply_batch(connection, self._statements, batch)
        except OrphanRowError as orphan:
            raise _OrphanError(str(problem_with(changeset, change, str(orphan)))) from None
        except RejectedRowError as rejected:
            raise problem_with(changeset, change, str(rejected)) from None

    # Tables.

    def _prepare(self, changesets: Iterable[Changeset]) -> None:
        """Read all tables, and create missing ones if allowed."""
        self._catalog.forget(missing_only=True)
        for changeset in changesets:
            for change in changeset.changes:
                if change.action == "schema":
                    self._evolve(changeset, change)
        self._look(changesets)

    def _look(self, changesets: Iterable[Changeset]) -> None:
        """Load all tables into the catalog."""
        names = {(change.schema, change.table) for each in changesets for change in each.changes}
        with self._database.transaction() as connection:
            for schema, table in sorted(names):
                # A clash is reported with the change that it prevents.
                with suppress(TablesClashError):
                    self._catalog.find(connection, schema, table)

    def _evolve(self, changeset: Changeset, change: RowChange) -> None:
        """Create missing tables and columns of the source, in a separate transaction."""
        try:
            columns = columns_of(change)
            try:
                self._make_now(change, columns)
            except StaleRowError:
                # Another sink has created it, or dropped the table, meanwhile.
                self._make_now(change, columns)
        except (SchemaError, TablesClashError) as problem:
            raise problem_with(changeset, change, str(problem)) from None
        except RejectedRowError as rejected:
            raise problem_with(changeset, change, str(rejected)) from None
        finally:
            self._catalog.forget()

    def _make_now(self, change: RowChange, columns: Sequence[SourceColumn]) -> None:
        """Create missing tables and columns by the current state of the database."""
        self._catalog.forget()
        with self._database.transaction() as connection:
            self._make(connection, change, columns)

    def _make(
        self, connection: Connection, change: RowChange, columns: Sequence[SourceColumn]
    ) -> None:
        wanted = self._catalog.wanted(change.schema, change.table)
        try:
            table = self._catalog.find(connection, change.schema, change.table)
        except TablesClashError:
            can_make = self._creates and columns and wanted is not None
            if not can_make or wanted is None or not self._catalog.is_free(connection, *wanted):
                raise
            table = None
        if table is not None and self._evolves:
            table = self._change_columns(connection, table, change, columns)
        if table is not None:
            missing = [column for column in columns if table.column(column.name) is None]
            if missing and self._evolves:
                make_columns(connection, table, missing)
            return
        if wanted is not None and columns and self._creates:
            make_table(connection, *wanted, columns)

    def _change_columns(
        self,
        connection: Connection,
        table: TargetTable,
        change: RowChange,
        columns: Sequence[SourceColumn],
    ) -> TargetTable | None:
        """Apply renamed columns, and new types in the sink's own tables; return the new table."""
        changes = changes_of(change)
        is_other = rename_columns(connection, table, changes.renamed)
        if is_other:
            table = self._looked_up(connection, change) or table
        if self._creates:
            retyped = [column for column in columns if column.name in changes.retyped]
            is_other = replace_columns(connection, table, retyped) or is_other
        return self._looked_up(connection, change) if is_other else table

    def _looked_up(self, connection: Connection, change: RowChange) -> TargetTable | None:
        self._catalog.forget()
        return self._catalog.find(connection, change.schema, change.table)

    def _differences(self, table: TargetTable | None, change: RowChange) -> list[str]:
        if table is None:
            return [f"{change.name}: the target has no such table"]
        if change.action == "schema":
            try:
                return differences(table, change.name, columns_of(change))
            except SchemaError as problem:
                return [f"{change.name}: {problem}"]
        told = {**change.key, **(change.after or {})}
        return [
            f"{change.name}: the target has no column {name!r}"
            for name in told
            if table.column(name) is None
        ]


class _OrphanError(ApplyError):
    """A row references a missing row."""


class _RefusedOrphan(Refused):
    """A change that is refused because of a missing reference."""


def _has_truncate(refused: Sequence[Refused]) -> bool:
    """Return True if one of the changes is a truncation."""
    return any(each.change.action == "truncate" for each in refused)


def _rows_of(change: RowChange) -> list[bytes]:
    """Return the identities of a change's rows; empty if rows have no key."""
    old = msgspec.structs.replace(change, key=change.old_key) if change.old_key else None
    return [each.identity for each in (change, old) if each is not None and each.key]


def _numbers(changesets: Sequence[Changeset]) -> str:
    """Return a short description of the changesets."""
    first, last = changesets[0], changesets[-1]
    if first is last:
        return f"changeset {first.sequence} of {first.origin!r}"
    return f"changesets {first.sequence} of {first.origin!r} to {last.sequence} of {last.origin!r}"


renamed(
    __name__,
    SinkDenied="SinkDeniedError",
    SinkUnavailable="SinkUnavailableError",
)
