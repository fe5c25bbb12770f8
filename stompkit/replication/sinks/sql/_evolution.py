"""Missing tables and columns of a target, created as the source describes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from sqlalchemy import Connection

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.sinks import Refused, sifted
from stompkit.replication.sinks.sql._reshaping import Adapted, adapted, reshapes_of
from stompkit.replication.sql.catalog import Catalog, TablesClashError
from stompkit.replication.sql.database import Database, RejectedRowError, StaleRowError
from stompkit.replication.sql.planner import problem_with
from stompkit.replication.sql.replacing import replace_columns
from stompkit.replication.sql.schema import (
    SchemaError,
    SourceColumn,
    changes_of,
    columns_of,
    differences,
    make_columns,
    make_table,
    rename_columns,
)
from stompkit.replication.sql.tables import TargetTable
from stompkit.replication.sql.unpublished import check_unpublished

__all__ = ["TableEvolution"]


class TableEvolution:
    """Reads the target's tables, and creates missing tables and columns if allowed."""

    def __init__(
        self, database: Database, catalog: Catalog, *, creates: bool, evolves: bool
    ) -> None:
        """Create tables if ``creates``, and columns if ``evolves``."""
        self._database = database
        self._catalog = catalog
        self._creates = creates
        self._evolves = evolves

    def prepare(self, changesets: Iterable[Changeset]) -> None:
        """Read all tables, and create missing ones if allowed."""
        self._catalog.forget(missing_only=True)
        for changeset in changesets:
            for change in changeset.changes:
                if change.action == "schema":
                    self._evolve(changeset, change)
        self.look(changesets)

    def prepare_each(self, changeset: Changeset) -> list[Refused]:
        """Create missing tables and columns; return the invalid ``schema`` changes."""
        self._catalog.forget()
        schemas = [change for change in changeset.changes if change.action == "schema"]
        _, refused = sifted(schemas, partial(self._evolve, changeset))
        self.look([changeset])
        return refused

    def look(self, changesets: Iterable[Changeset]) -> None:
        """Load all tables into the catalog."""
        names = {(change.schema, change.table) for each in changesets for change in each.changes}
        with self._database.transaction() as connection:
            for schema, table in sorted(names):
                # A clash is reported with the change that it prevents.
                with suppress(TablesClashError):
                    self._catalog.find(connection, schema, table)

    def adapted(self, changesets: Iterable[Changeset]) -> list[Changeset]:
        """Return changesets whose rows have the columns of the prepared tables."""
        return [self.adapted_one(changeset).changeset for changeset in changesets]

    def adapted_one(self, changeset: Changeset) -> Adapted:
        """Return a changeset whose rows have the columns of the prepared tables."""
        return adapted(changeset, self._known, replaces=self._replaces)

    def adapt_waiting(self, changeset: Changeset, waiting: RowChange) -> RowChange:
        """Return a row from before a changeset with the columns afterwards."""
        source = waiting.schema, waiting.table
        reshape = reshapes_of(changeset, replaces=self._replaces).get(source)
        table = self._known(*source)
        return waiting if reshape is None or table is None else reshape.adapt(waiting, table)

    @property
    def _replaces(self) -> bool:
        """True if columns are recreated when their type changes."""
        return self._evolves and self._creates

    def _known(self, schema: str, table: str) -> TargetTable | None:
        """Return a loaded table; None if it is missing or ambiguous."""
        with suppress(TablesClashError):
            return self._catalog.known(schema, table)
        return None

    def _evolve(self, changeset: Changeset, change: RowChange) -> None:
        """Create missing tables and columns of the source, in a separate transaction."""
        try:
            columns = columns_of(change)
            try:
                self._make_missing(change, columns)
            except StaleRowError:
                # Another sink has created it, or dropped the table, meanwhile.
                self._make_missing(change, columns)
        except (SchemaError, TablesClashError) as problem:
            raise problem_with(changeset, change, str(problem)) from None
        except RejectedRowError as rejected:
            raise problem_with(changeset, change, str(rejected)) from None
        finally:
            self._catalog.forget()

    def _make_missing(self, change: RowChange, columns: Sequence[SourceColumn]) -> None:
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
        if table is not None:
            statement = (change.after or {}).get("statement")
            check_unpublished(table, change.name, changes_of(change), columns, statement)
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
        # Rows that are not published again keep their columns.
        if self._creates and not changes.untold:
            retyped = [column for column in columns if column.name in changes.retyped]
            is_other = replace_columns(connection, table, retyped) or is_other
        return self._looked_up(connection, change) if is_other else table

    def _looked_up(self, connection: Connection, change: RowChange) -> TargetTable | None:
        self._catalog.forget()
        return self._catalog.find(connection, change.schema, change.table)

    def differences(self, table: TargetTable | None, change: RowChange) -> list[str]:
        """Return the reasons that prevent a change from being stored in a table."""
        if table is None:
            return [f"{change.name}: the target has no such table"]
        if change.action == "schema":
            try:
                return differences(table, change.name, columns_of(change))
            except SchemaError as problem:
                return [f"{change.name}: {problem}"]
        reported = {**change.key, **(change.after or {})}
        return [
            f"{change.name}: the target has no column {name!r}"
            for name in reported
            if table.column(name) is None
        ]
