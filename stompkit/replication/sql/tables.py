"""Tables of a target, as its database describes them."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from sqlalchemy import Connection, inspect, text
from sqlalchemy.engine.interfaces import ReflectedColumn, ReflectedForeignKeyConstraint
from sqlalchemy.engine.reflection import Inspector
from sqlalchemy.exc import SAWarning
from sqlalchemy.types import LargeBinary, TypeEngine

from stompkit.replication.sinks import ApplyError
from stompkit.replication.sql.values import (
    Adapt,
    Family,
    adapter,
    bare_type,
    family_of,
    plain_types,
)

__all__ = [
    "Catalog",
    "ForeignKey",
    "TablesClashError",
    "TargetColumn",
    "TargetTable",
    "groups_of",
    "quote",
    "table_options",
]


@dataclass(frozen=True, eq=False)
class TargetColumn:
    """A column, with its name in the database, plain and quoted."""

    name: str
    quoted: str
    type_: TypeEngine[Any]
    adapt: Adapt
    #: Types of values that are stored unchanged.
    plain: frozenset[type]
    #: True if new rows must have a value.
    is_required: bool
    #: True if the database generates its values.
    is_generated: bool

    @cached_property
    def family(self) -> Family:
        """Kind of values in the column."""
        return family_of(self.type_)


@dataclass(frozen=True)
class ForeignKey:
    """Columns that reference those of another table, or of the same one."""

    columns: tuple[str, ...]
    parent: tuple[str | None, str]
    referred: tuple[str, ...]
    #: Nullable columns among them.
    nullable: frozenset[str]


@dataclass(frozen=True, eq=False)
class TargetTable:
    """A table, with its name in the database, plain and quoted."""

    schema: str | None
    name: str
    quoted: str
    columns: Mapping[str, TargetColumn]
    primary_key: tuple[str, ...]
    #: Sets of columns that can be the conflict target of an upsert.
    uniques: frozenset[frozenset[str]]
    #: True if there is more than one key that a new row can clash with.
    has_more_keys: bool
    #: Tables whose changes must stay in order with those of this one.
    related: frozenset[tuple[str | None, str]]
    #: Storage engine, if it does not support transactions; otherwise empty.
    engine_without_transactions: str = ""
    foreign_keys: tuple[ForeignKey, ...] = ()
    _folded: dict[str, str | None] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[str | None, str]:
        """Schema and name of the table."""
        return self.schema, self.name

    @property
    def parents(self) -> frozenset[tuple[str | None, str]]:
        """Tables that its foreign keys reference."""
        return frozenset(each.parent for each in self.foreign_keys)

    def column(self, name: str) -> TargetColumn | None:
        """Return the column of that name, or the only one whose name differs by case."""
        found = self.columns.get(name)
        if found is None and (other := self._folded.get(name.casefold())) is not None:
            found = self.columns[other]
        return found


class TablesClashError(ApplyError):
    """Two tables of the source map to the same one of the target; ``str()`` names both."""


class Catalog:
    """Finds and caches the target's tables for changes."""

    def __init__(
        self,
        *,
        schema_map: Mapping[str, str],
        table_map: Mapping[str, str],
        reserved: str,
        backend: str,
        is_lossy: bool,
        checks_foreign_keys: bool,
        defers_foreign_keys: bool,
    ) -> None:
        """Start empty; ``reserved`` is a table that no change may use."""
        self._schema_map = schema_map
        self._table_map = table_map
        self._reserved = reserved
        self._backend = backend
        self._is_lossy = is_lossy
        self._checks_foreign_keys = checks_foreign_keys
        self._defers_foreign_keys = defers_foreign_keys
        #: Target tables, by schema and name of the source.
        self._tables: dict[tuple[str, str], TargetTable | None] = {}
        self._names: dict[str | None, list[str]] = {}
        #: First source table of each target table.
        self._owners: dict[tuple[str | None, str], tuple[str, str]] = {}

    def forget(self, *, missing_only: bool = False) -> None:
        """Clear the cache; with ``missing_only`` only for tables that did not exist."""
        self._names.clear()
        if not missing_only:
            self._tables.clear()
            return
        for source in [name for name, table in self._tables.items() if table is None]:
            del self._tables[source]

    def wanted(self, schema: str, table: str) -> tuple[str | None, str] | None:
        """Return the target of a source table's changes; ``None`` if there is none."""
        mapped = self._table_map.get(f"{schema}.{table}" if schema else table)
        mapped = self._table_map.get(table) if mapped is None else mapped
        if mapped is not None:
            target_schema, _, name = mapped.rpartition(".")
            return target_schema or None, name
        if not self._schema_map:
            return None, table
        return (self._schema_map[schema] or None, table) if schema in self._schema_map else None

    def known(self, schema: str, table: str) -> TargetTable | None:
        """Return the cached target of a source's table; raises :class:`TablesClashError`."""
        return self._owned((schema, table), self._tables.get((schema, table)))

    def find(self, connection: Connection, schema: str, table: str) -> TargetTable | None:
        """Return the target of a source's table; ``None`` if there is none."""
        source = (schema, table)
        if source not in self._tables:
            self._tables[source] = self._look(connection, source)
        return self._owned(source, self._tables[source])

    def adopt(self, owners: Mapping[tuple[str | None, str], tuple[str, str]]) -> None:
        """Restore the stored owners of target tables."""
        self._owners.update(owners)

    def owned(
        self, sources: Collection[tuple[str, str]]
    ) -> dict[tuple[str | None, str], tuple[str, str]]:
        """Return the target's tables that these tables of the source own."""
        return {target: owner for target, owner in self._owners.items() if owner in sources}

    def is_free(self, connection: Connection, schema: str | None, name: str) -> bool:
        """Return True if a table of exactly this name can be created."""
        if self._backend == "sqlite":
            return False
        if self._folds_names(connection):
            return False
        return name not in inspect(connection).get_table_names(schema)

    def _owned(self, source: tuple[str, str], found: TargetTable | None) -> TargetTable | None:
        """Check that a target's table has one source, unless the settings allow more."""
        if found is not None:
            owner = self._owners.setdefault(found.identity, source)
            if not self._goes_to(owner, found):
                # The settings were different when that was stored.
                owner = self._owners[found.identity] = source
            if owner != source and not self._may_share(source, owner, found):
                raise TablesClashError(
                    f"the tables {'.'.join(filter(None, owner))} and "
                    f"{'.'.join(filter(None, source))} would both be the target's table "
                    f"{found.name}: leave one out, or give them names of their own by --table-map "
                    "or --schema-map"
                )
        return found

    def _folds_names(self, connection: Connection) -> bool:
        """Return True if the server's names of tables are case-insensitive."""
        query = "SELECT @@lower_case_table_names"
        return self._backend == "mysql" and bool(connection.exec_driver_sql(query).scalar())

    def _goes_to(self, source: tuple[str, str], found: TargetTable) -> bool:
        """Return True if a source table still maps to a target table."""
        schema, name = self.wanted(*source) or (None, "")
        theirs = (schema or "", name), (found.schema or "", found.name)
        return len({(one.casefold(), other.casefold()) for one, other in theirs}) == 1

    def _may_share(
        self, source: tuple[str, str], owner: tuple[str, str], found: TargetTable
    ) -> bool:
        """Return True if the settings let two source tables share a target table.

        A table map allows it for tables with exactly the same target name, a schema map for tables
        with the same name. Names that differ by case are never shared.
        """
        wanted = self.wanted(*source)
        if self._is_mapped(source):
            return wanted is not None and wanted[1] == found.name
        if self._is_mapped(owner):
            return wanted == self.wanted(*owner)
        return bool(self._schema_map) and source[1] == owner[1]

    def _is_mapped(self, source: tuple[str, str]) -> bool:
        """Return True if the table map has this table."""
        schema, table = source
        return (f"{schema}.{table}" if schema else table) in self._table_map or (
            table in self._table_map
        )

    def _look(self, connection: Connection, source: tuple[str, str]) -> TargetTable | None:
        wanted = self.wanted(*source)
        if wanted is None or wanted[1].casefold() == self._reserved.casefold():
            return None
        schema, name = wanted
        inspector = inspect(connection)
        if schema is not None and schema not in self._names:
            schemas = inspector.get_schema_names()
            if schema not in schemas and self._folds_names(connection):
                # Otherwise the same table could be found in two schemas.
                alike = (each for each in schemas if each.casefold() == schema.casefold())
                schema = next(alike, schema)
            if schema not in schemas:
                return None
        if schema not in self._names:
            self._names[schema] = inspector.get_table_names(schema)
        names = self._names[schema]
        if name not in names:
            similar = [each for each in names if each.casefold() == name.casefold()]
            if len(similar) != 1:
                return None
            name = similar[0]
        return self._describe(connection, inspector, schema, name)

    def _describe(
        self, connection: Connection, inspector: Inspector, schema: str | None, name: str
    ) -> TargetTable:
        dialect: Any = connection.dialect
        if self._backend == "mysql" and "vector" not in dialect.ischema_names:
            # The dialect fails for unknown types with a length.
            dialect.ischema_names = {"vector": LargeBinary, **dialect.ischema_names}
        with warnings.catch_warnings():
            # MySQL's dialect does not know all types of MariaDB; they are written as text.
            warnings.filterwarnings("ignore", "Did not recognize type", SAWarning)
            found_columns = inspector.get_columns(name, schema)
        columns = {
            column.name: column
            for column in (self._column(connection, each) for each in found_columns)
        }
        key = inspector.get_pk_constraint(name, schema)["constrained_columns"]
        primary_key = tuple(map(self._named, key))
        uniques = {tuple(primary_key)} if primary_key else set()
        partial = 0
        for index in inspector.get_indexes(name, schema):
            parts = [self._named(part) for part in index["column_names"] if part is not None]
            options = index.get("dialect_options", {})
            if not index["unique"]:
                continue
            if len(parts) < len(index["column_names"]) or any(
                value for option, value in options.items() if option.endswith(("where", "length"))
            ):
                partial += 1
            else:
                uniques.add(tuple(parts))
        for constraint in inspector.get_unique_constraints(name, schema):
            uniques.add(tuple(map(self._named, constraint["column_names"])))
        quoted = quote(connection, name)
        foreign_keys = inspector.get_foreign_keys(name, schema)
        nullable = {self._named(each["name"]) for each in found_columns if each["nullable"]}
        found = TargetTable(
            schema,
            name,
            f"{quote(connection, schema)}.{quoted}" if schema else quoted,
            columns,
            primary_key,
            frozenset(set(map(frozenset, uniques)) - self._late(connection, schema, name)),
            len(uniques) + partial > 1,
            frozenset(self._related(foreign_keys, schema)),
            self._engine_without_transactions(inspector, name, schema),
            tuple(self._foreign_key(each, schema, nullable) for each in foreign_keys),
        )
        for column in columns:
            # Two names that differ by case only are ambiguous.
            folded = column.casefold()
            found._folded[folded] = None if folded in found._folded else column
        return found

    def _column(self, connection: Connection, column: ReflectedColumn) -> TargetColumn:
        gives_itself = column.get("autoincrement") is True or "identity" in column
        name = self._named(column["name"])
        type_ = bare_type(column["type"])
        return TargetColumn(
            name,
            quote(connection, name),
            type_,
            adapter(type_, self._backend, lossy=self._is_lossy),
            plain_types(type_, self._backend),
            not column["nullable"] and column.get("default") is None and not gives_itself,
            "computed" in column,
        )

    def _named(self, name: str) -> str:
        """Return a column's name; SQLAlchemy returns MySQL's names as quoted in the statement."""
        return name.replace("``", "`") if self._backend == "mysql" else name

    def _late(self, connection: Connection, schema: str | None, name: str) -> set[frozenset[str]]:
        """Return the deferrable keys of PostgreSQL, which an upsert cannot use."""
        if self._backend != "postgresql":
            return set()
        parameters = {"schema": schema, "name": name}
        return {frozenset(row[0]) for row in connection.execute(_LATE, parameters)}

    def _related(
        self, keys: Iterable[ReflectedForeignKeyConstraint], schema: str | None
    ) -> Iterable[tuple[str | None, str]]:
        """Return the tables that foreign keys reference, if the time of their checks matters."""
        if not self._checks_foreign_keys:
            return
        for key in keys:
            options: Mapping[str, Any] = key.get("options", {})
            # SQLite can defer all checks, PostgreSQL those that are declared so, and MySQL none.
            # Actions of foreign keys on other rows are always immediate.
            is_late = self._defers_foreign_keys and (
                self._backend == "sqlite" or bool(options.get("deferrable"))
            )
            acts = any(
                options.get(action, "NO ACTION") not in ("NO ACTION", "RESTRICT")
                for action in ("ondelete", "onupdate")
            )
            if acts or not is_late or "RESTRICT" in options.values():
                yield key["referred_schema"] or schema, key["referred_table"]

    def _foreign_key(
        self, key: ReflectedForeignKeyConstraint, schema: str | None, nullable: set[str]
    ) -> ForeignKey:
        columns = tuple(map(self._named, key["constrained_columns"]))
        return ForeignKey(
            columns,
            (key["referred_schema"] or schema, key["referred_table"]),
            tuple(map(self._named, key["referred_columns"])),
            frozenset(columns) & nullable,
        )

    def _engine_without_transactions(
        self, inspector: Inspector, name: str, schema: str | None
    ) -> str:
        """Return the engine of a MySQL table without transactions; otherwise empty."""
        if self._backend != "mysql":
            return ""
        options = inspector.get_table_options(name, schema)
        engine = next((options[each] for each in _ENGINES if each in options), "InnoDB")
        return engine if engine.casefold() in _WITHOUT_TRANSACTIONS else ""


_LATE: Final = text(
    "SELECT array_agg(CAST(a.attname AS text)) FROM pg_constraint c"
    " JOIN pg_class t ON t.oid = c.conrelid JOIN pg_namespace n ON n.oid = t.relnamespace"
    " JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = ANY (c.conkey)"
    " WHERE c.condeferrable AND c.contype IN ('p', 'u') AND t.relname = :name"
    " AND n.nspname = COALESCE(CAST(:schema AS text), current_schema()) GROUP BY c.oid"
)

#: SQLAlchemy's names of the option for a table's engine.
_ENGINES: Final = ("mysql_engine", "mariadb_engine")
_WITHOUT_TRANSACTIONS: Final = frozenset({"myisam", "aria", "memory", "csv", "archive"})


def quote(connection: Connection, name: str) -> str:
    """Return a quoted name for a driver's statement."""
    return connection.dialect.identifier_preparer.quote_identifier(name)


def table_options(connection: Connection) -> dict[str, str]:
    """Return the options of tables that a sink creates in MySQL or MariaDB.

    With them, keys that differ by case, or by trailing blanks, are different.
    """
    dialect = connection.dialect
    if dialect.name not in ("mysql", "mariadb"):
        return {}
    is_mariadb = getattr(dialect, "is_mariadb", False)
    return {
        f"{dialect.name}_engine": "InnoDB",
        f"{dialect.name}_charset": "utf8mb4",
        f"{dialect.name}_collate": "utf8mb4_nopad_bin" if is_mariadb else "utf8mb4_0900_bin",
    }


def groups_of(tables: Sequence[TargetTable]) -> dict[tuple[str | None, str], int]:
    """Return group numbers of tables: equal for tables whose changes must stay in order."""
    groups = {table.identity: number for number, table in enumerate(tables)}
    for table in tables:
        for other in table.related & groups.keys():
            one, another = groups[table.identity], groups[other]
            groups = {name: one if each == another else each for name, each in groups.items()}
    return groups
