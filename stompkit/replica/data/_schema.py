"""Table definitions of a replica, as found in its database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import JSON, Column, Connection, Interval, Table, inspect, text

from stompkit.replica.data._links import Links
from stompkit.replica.data._plan import RowFilter, Target
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.tables import Tables
from stompkit.replication.model.values import Interval as Lapse
from stompkit.replication.model.values import Value, portable
from stompkit.replication.sql import (
    Catalog,
    TargetColumn,
    TargetTable,
    UnstorableValueError,
)

__all__ = ["Detail", "Schema", "Source"]

_MICROSECOND: Final = timedelta(microseconds=1)
#: Epoch of intervals that are stored as timestamps, as SQLAlchemy does it.
_EPOCH: Final = datetime(1970, 1, 1)

_DEFERRED: Final = text("SELECT EXISTS (SELECT 1 FROM pg_constraint WHERE condeferred)")
#: Columns with a collation that treats different texts as equal, such as A and a, or padded text.
_MYSQL_FOLDING: Final = text(
    "SELECT column_name FROM information_schema.columns WHERE table_name = :name"
    " AND table_schema = COALESCE(:schema, DATABASE()) AND collation_name <> 'binary'"
    " AND RIGHT(collation_name, 10) <> '_nopad_bin' AND RIGHT(collation_name, 9) <> '_0900_bin'"
)
_POSTGRESQL_FOLDING: Final = text(
    "SELECT a.attname FROM pg_attribute a JOIN pg_class t ON t.oid = a.attrelid"
    " JOIN pg_namespace n ON n.oid = t.relnamespace JOIN pg_type y ON y.oid = a.atttypid"
    " LEFT JOIN pg_collation c ON c.oid = a.attcollation"
    " WHERE (y.typname = 'citext' OR NOT c.collisdeterministic) AND t.relname = :name"
    " AND n.nspname = COALESCE(CAST(:schema AS text), current_schema())"
)


@dataclass(frozen=True)
class Source:
    """The given description of a table."""

    schema: str
    name: str
    #: Table definition of the application, if there is one.
    table: Table | None = None
    keeps: RowFilter | None = None


@dataclass(frozen=True)
class Detail:
    """Details of a table that matter only for rows that block each other."""

    uniques: frozenset[frozenset[str]]
    nullable: frozenset[str]


class Schema:
    """Inspects a database, and caches the results."""

    def __init__(
        self, connection: Connection, backend: str, sources: Mapping[str, Source], select: Tables
    ) -> None:
        """Load the foreign keys; tables are loaded on demand."""
        self._backend = backend
        self._sources = sources
        self._select = select
        schemas = {source.schema for source in sources.values()}
        self._catalog = Catalog(
            schema_map={name: name for name in schemas},
            table_map={},
            reserved="",
            backend=backend,
            is_lossy=False,
            checks_foreign_keys=False,
            defers_foreign_keys=False,
        )
        self.links = Links(connection, schemas)
        #: True if any constraint is checked at the end of a transaction.
        self.is_late = any(link.is_late for link in self.links.all)
        if backend == "postgresql":
            self.is_late = bool(connection.scalar(_DEFERRED))
        self._targets: dict[str, Target] = {}
        self._details: dict[str, Detail] = {}

    def target(self, connection: Connection, name: str) -> Target | None:
        """Return a table by its name; ``None`` if it does not exist."""
        found = self._targets.get(name)
        if found is None and name in self._sources:
            source = self._sources[name]
            self._catalog.forget(missing_only=True)
            table = self._catalog.find(connection, source.schema, source.name)
            if table is not None:
                found = self._targets[name] = self._describe(connection, name, source, table)
        return found

    def detail(self, connection: Connection, target: Target) -> Detail:
        """Return more details of a table."""
        found = self._details.get(target.name)
        if found is None:
            found = self._details[target.name] = _detail(connection, target.table)
        return found

    def _describe(
        self, connection: Connection, name: str, source: Source, table: TargetTable
    ) -> Target:
        others: dict[str, TargetColumn] = {}
        for column in () if source.table is None else source.table.columns:
            found = table.column(str(column.name))
            if found is not None:
                others[found.name] = _as_application(column, found)
        table = replace(table, columns={**table.columns, **others})
        told = RowChange(
            table=source.name,
            schema=source.schema,
            action="write",
            key={},
            after=dict.fromkeys(table.columns),
        )
        columns = {
            each: column
            for each, column in table.columns.items()
            if each in (self._select.shape(told).after or {}) and not column.is_generated
        }
        return Target(
            name=name,
            table=table,
            identity=self.links.identity(table.schema or "", table.name),
            columns=columns,
            folding=_folding(connection, self._backend, table),
            keeps=source.keeps,
        )


def _as_application(column: Column[Any], found: TargetColumn) -> TargetColumn:
    """Return a column that accepts the application's values, if they are stored as another type."""
    adapt = found.adapt
    if isinstance(column.type, Interval) and found.family == "interval":

        def with_days(value: Value) -> object:
            # The application's own driver writes it so, and all nodes need equal values.
            value = portable(value)
            if isinstance(value, timedelta):
                value = Lapse(0, value.days, (value - timedelta(value.days)) // _MICROSECOND)
            return adapt(value)

        return replace(found, adapt=with_days)
    if isinstance(column.type, Interval) and found.family == "datetime":

        def from_epoch(value: Value) -> object:
            value = portable(value)
            if isinstance(value, timedelta):
                try:
                    value = _EPOCH + value
                except OverflowError:
                    raise UnstorableValueError("the interval is too long") from None
            return adapt(value)

        return replace(found, adapt=from_epoch)
    if isinstance(column.type, JSON) and not column.nullable:
        # A None of the application is a JSON null.
        return replace(
            found,
            plain=found.plain - {type(None)},
            adapt=lambda value: "null" if value is None else adapt(value),
        )
    return found


def _folding(connection: Connection, backend: str, table: TargetTable) -> frozenset[str]:
    """Return the columns whose collation treats different texts as equal."""
    if backend == "sqlite":
        columns = (row for rows in _sqlite_indexes(connection, table) for row in rows)
        return frozenset(name for name, collation in columns if name and collation != "BINARY")
    query = _MYSQL_FOLDING if backend == "mysql" else _POSTGRESQL_FOLDING
    place = {"schema": table.schema, "name": table.name}
    return frozenset(connection.scalars(query, place))


def _detail(connection: Connection, table: TargetTable) -> Detail:
    inspector = inspect(connection)
    columns = inspector.get_columns(table.name, table.schema)
    if connection.dialect.name == "sqlite":
        found = _sqlite_indexes(connection, table)
        indexes = [[name for name, _ in columns] for columns in found]
    else:
        indexes = [
            each["column_names"]
            for each in inspector.get_indexes(table.name, table.schema)
            if each["unique"]
        ]
        indexes += [
            list(each["column_names"])
            for each in inspector.get_unique_constraints(table.name, table.schema)
        ]
    uniques = (frozenset(name for name in names if name) for names in indexes if all(names))
    return Detail(
        frozenset(uniques) - {frozenset(table.primary_key)},
        frozenset(each["name"] for each in columns if each["nullable"]),
    )


def _sqlite_indexes(
    connection: Connection, table: TargetTable
) -> list[list[tuple[str | None, str]]]:
    """Return the columns of unique indexes with their collations; SQLAlchemy omits some indexes."""
    quote = connection.dialect.identifier_preparer.quote_identifier
    where = f"PRAGMA {quote(table.schema)}." if table.schema else "PRAGMA "
    indexes = connection.exec_driver_sql(f"{where}index_list({quote(table.name)})").all()
    found = []
    for _, name, is_unique, *_ in indexes:
        if is_unique:
            columns = connection.exec_driver_sql(f"{where}index_xinfo({quote(name)})")
            found.append([(row[2], row[4]) for row in columns if row[5]])
    return found
