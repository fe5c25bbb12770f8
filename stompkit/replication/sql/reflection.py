"""Descriptions of tables, from a database."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sqlalchemy import Connection, text
from sqlalchemy.engine.interfaces import ReflectedColumn, ReflectedForeignKeyConstraint
from sqlalchemy.engine.reflection import Inspector
from sqlalchemy.exc import SAWarning
from sqlalchemy.types import LargeBinary

from stompkit.replication.sql.families import bare_type, plain_types
from stompkit.replication.sql.row_id import row_id_of
from stompkit.replication.sql.tables import ForeignKey, TargetColumn, TargetTable, quote
from stompkit.replication.sql.values import adapter

__all__ = ["Reflector"]

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


class Reflector:
    """Describes the tables of a database."""

    def __init__(
        self,
        backend: str,
        *,
        is_lossy: bool,
        checks_foreign_keys: bool,
        defers_foreign_keys: bool,
    ) -> None:
        """Describe tables of ``sqlite``, ``postgresql`` or ``mysql``."""
        self._backend = backend
        self._is_lossy = is_lossy
        self._checks_foreign_keys = checks_foreign_keys
        self._defers_foreign_keys = defers_foreign_keys

    def describe(
        self, connection: Connection, inspector: Inspector, schema: str | None, name: str
    ) -> TargetTable:
        """Return the description of an existing table."""
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
        quoted = f"{quote(connection, schema)}.{quoted}" if schema else quoted
        foreign_keys = inspector.get_foreign_keys(name, schema)
        nullable = {self._named(each["name"]) for each in found_columns if each["nullable"]}
        found = TargetTable(
            schema,
            name,
            quoted,
            columns,
            primary_key,
            frozenset(set(map(frozenset, uniques)) - self._late(connection, schema, name)),
            len(uniques) + partial > 1,
            frozenset(self._related(foreign_keys, schema)),
            self._engine_without_transactions(inspector, name, schema),
            tuple(self._foreign_key(each, schema, nullable) for each in foreign_keys),
            row_id_of(connection, self._backend, quoted, found_columns, primary_key),
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
            self._backend == "postgresql" and "identity" in column and column["identity"]["always"],
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
