"""The sink for SQL databases: SQLite, PostgreSQL, MariaDB and MySQL. Needs the extra ``sql``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from stompkit._common.moved import renamed

try:
    from sqlalchemy import URL, Connection, Engine
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "a sink in an SQL database needs SQLAlchemy: pip install 'stompkit[sql]'", name=error.name
    ) from error

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.sinks import ApplyError, Refuse, Refused
from stompkit.replication.sinks.sql._evolution import TableEvolution
from stompkit.replication.sinks.sql._orphans import OrphanQueue
from stompkit.replication.sinks.sql._progress import Progress
from stompkit.replication.sinks.sql._reshaping import runs_of
from stompkit.replication.sinks.sql._row_by_row import RowByRow
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
    key_advice,
    problem_with,
)
from stompkit.replication.sql.statements import Statements

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
        keys = dict(key_columns or {})
        self._make_planner = partial(
            Planner,
            self._catalog,
            keys,
            backend,
            on_missing=on_missing,
            unknown_columns=unknown_columns,
            creates=create,
        )
        self._tables = TableEvolution(self._database, self._catalog, creates=create, evolves=evolve)
        self._rows = RowByRow(
            self._database, self._catalog, self._statements, keys, self._make_planner
        )
        self._orphans = OrphanQueue(
            self._database, self._catalog, self._rows, self._tables.adapt_waiting
        )
        self._progress = Progress(self._database, self._catalog, offsets_table)
        self._is_open = False

    def last(self, origin: str) -> int | None:
        """Return the number of the last changeset of that origin; ``None`` if there was none."""
        self._open()
        return self._progress.last(origin)

    def apply(self, changesets: Sequence[Changeset]) -> None:
        """Apply changesets, and store their numbers, in one transaction.

        Only missing columns and tables are created before, because MySQL cannot do that in a
        transaction. A changeset that renames columns, or gives them other types, begins another
        transaction: the rows before it need the earlier columns.
        """
        for run in runs_of(changesets):
            self._apply_run(run)

    def _apply_run(self, changesets: Sequence[Changeset]) -> None:
        """Apply changesets in one transaction, or, if rows are refused, in several."""
        if self._orphans.was_used and len(changesets) > 1:
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
        if not self._progress.new_ones([changeset])[1]:
            return
        try:
            self._apply_rows(changeset, refuse)
        except BaseException:
            # The waiting rows are unchanged.
            self._is_open = False
            raise

    def _apply_rows(self, changeset: Changeset, refuse: Refuse) -> None:
        refused = self._tables.prepare_each(changeset)
        can_wait = changeset.source.is_snapshot and self._orphans.create()
        with self._database.transaction() as connection:
            last = self._progress.lock(connection, [changeset.origin])[changeset.origin]
            if last is not None and last >= changeset.sequence:
                return
            self._progress.adopt_owners(connection, {changeset.origin: last})
            self._database.defer(connection, at_once=True)
            current = self._tables.adapted_one(changeset)
            rows = [change for change in current.changeset.changes if change.action != "schema"]
            if changeset.source.is_snapshot:
                refused += self._rows.apply_each(connection, changeset, rows)
                if can_wait:
                    refused = self._orphans.keep(connection, changeset, refused)
                self._orphans.retry(connection, changeset)
            else:
                # Rows that waited before come first.
                refused += self._orphans.retry(connection, changeset)
                refused += self._rows.apply_each(connection, changeset, rows)
            if refused:
                refused = [replace(each, change=current.original(each.change)) for each in refused]
                refuse(refused)
            left_out = {id(each.change) for each in refused}
            applied = [each for each in changeset.changes if id(each) not in left_out]
            owners = self._progress.store(connection, changeset, applied)
        self._progress.committed({changeset.origin: owners})

    def skip(self, changeset: Changeset) -> None:
        """Record a changeset as applied without applying it."""
        self._open()
        self._progress.skip(changeset)

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
                for difference in self._tables.differences(table, change):
                    found[difference] = None
        return list(found)

    def close(self) -> None:
        """Disconnect; a given engine stays open."""
        self._database.close()

    def _open(self) -> None:
        """Create the offsets table on first use."""
        if self._is_open:
            return
        self._progress.open()
        self._orphans.load()
        self._is_open = True

    def _apply(self, changesets: Sequence[Changeset], *, alone: bool) -> None:
        """Apply new changesets; if others apply them concurrently, read the offsets again."""
        self._open()
        is_done = False
        try:
            while not is_done:
                known, new = self._progress.new_ones(changesets)
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
            self._is_open = not self._orphans.was_used and self._is_open
            raise

    def _plan(self, changesets: Sequence[Changeset], most_rows: int) -> list[Batch]:
        """Return the batches to apply, after creating missing tables and columns."""
        self._tables.prepare(changesets)
        with suppress(ApplyError):
            adapted = self._tables.adapted(changesets)
            return self._make_planner(most_rows=most_rows).plan(adapted)
        # The tables may have been altered since they were read.
        self._catalog.forget()
        self._tables.look(changesets)
        adapted = self._tables.adapted(changesets)
        return self._make_planner(most_rows=most_rows).plan(adapted)

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
            locked = self._progress.lock(connection, ends)
            if any(locked[origin] != known[origin] for origin in ends):
                return False
            self._database.defer(connection)
            is_snapshot = changesets[0].source.is_snapshot
            for each in () if is_snapshot else self._orphans.retry(connection, changesets[0]):
                # It is refused as a single row, if possible.
                raise ApplyError(each.reason)
            for batch in batches:
                self._write_batch(connection, batch, alone=alone)
            if is_snapshot:
                self._orphans.retry(connection, changesets[-1])
            owners = {}
            for changeset in ends.values():
                of_origin = [each for each in changesets if each.origin == changeset.origin]
                changes = [change for each in of_origin for change in each.changes]
                owners[changeset.origin] = self._progress.store(connection, changeset, changes)
        self._progress.committed(owners)
        return True

    def _write_batch(self, connection: Connection, batch: Batch, *, alone: bool) -> None:
        """Apply one batch."""
        if not alone:
            apply_batch(connection, self._statements, batch)
            return
        try:
            with self._database.errors():
                apply_batch(connection, self._statements, batch)
        except RejectedRowError as rejected:
            advice = key_advice(batch.table, batch.cause[1])
            raise problem_with(*batch.cause, f"{rejected}{advice}") from None


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
