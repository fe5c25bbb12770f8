"""Statements that change rows, for the drivers: quoted names, and parameters for values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from sqlalchemy.dialects import postgresql
from sqlalchemy.types import NullType

from stompkit.replication.sql.tables import TargetColumn, TargetTable

__all__ = ["Statements"]

_POSTGRESQL: Final = postgresql.psycopg.dialect()  # type: ignore[no-untyped-call]
#: Maximum number of cached statements; each shape of a change has some.
_CACHED: Final = 1000

Columns = tuple[TargetColumn, ...]


class Statements:
    """Creates and caches the statements for one kind of database.

    Parameters are those of the columns in the given order: those of the key first if there are
    both.
    """

    def __init__(self, backend: str, paramstyle: str) -> None:
        """Start empty."""
        self._backend = backend
        self._mark = "?" if paramstyle == "qmark" else "%s"
        self.insert = lru_cache(_CACHED)(self._insert)
        self.upsert = lru_cache(_CACHED)(self._upsert)
        self.update = lru_cache(_CACHED)(self._update)
        self.delete = lru_cache(_CACHED)(self._delete)
        self.differing = lru_cache(_CACHED)(self._differing)

    def _insert(self, table: TargetTable, columns: Columns) -> str:
        """Return the statement that inserts a row."""
        names = ", ".join(column.quoted for column in columns)
        marks = ", ".join([self._mark] * len(columns))
        if not columns:
            empty = "() VALUES ()" if self._backend == "mysql" else "DEFAULT VALUES"
            return f"INSERT INTO {table.quoted} {empty}"
        # The source has already generated the target's identity value.
        own = " OVERRIDING SYSTEM VALUE" if self._backend == "postgresql" else ""
        return f"INSERT INTO {table.quoted} ({names}){own} VALUES ({marks})"

    def _upsert(self, table: TargetTable, key: Columns, others: Columns) -> str:
        """Return the statement that inserts a row, or updates the one with the key.

        An update leaves out fixed columns; see :meth:`differing`.
        """
        insert = self._insert(table, key + others)
        if self._backend == "mysql":
            sets = [f"{column.quoted} = VALUES({column.quoted})" for column in others]
            # Without columns the row is unchanged.
            sets = sets or [f"{key[0].quoted} = {key[0].quoted}"]
            return f"{insert} ON DUPLICATE KEY UPDATE {', '.join(sets)}"
        names = ", ".join(column.quoted for column in key)
        changed = [column.quoted for column in others if not column.is_fixed]
        if not changed:
            return f"{insert} ON CONFLICT ({names}) DO NOTHING"
        changes = ", ".join(f"{name} = excluded.{name}" for name in changed)
        return f"{insert} ON CONFLICT ({names}) DO UPDATE SET {changes}"

    def _update(self, table: TargetTable, columns: Columns, key: Columns) -> str:
        """Return the statement that updates the row with a key, whose parameters come last."""
        sets = ", ".join(f"{column.quoted} = {self._mark}" for column in columns)
        # Without columns, it shows if the row exists.
        free = (each for each in (*key, *table.columns.values()) if _can_be_set(each))
        unchanged = next(free, key[0]).quoted
        sets = sets or f"{unchanged} = {unchanged}"
        return f"UPDATE {table.quoted} SET {sets} WHERE {self._equal(key)}"

    def _delete(self, table: TargetTable, key: Columns) -> str:
        """Return the statement that deletes the row with a key."""
        return f"DELETE FROM {table.quoted} WHERE {self._equal(key)}"

    def _differing(self, table: TargetTable, key: Columns, fixed: Columns, rows: int) -> str:
        """Return the query for rows with given keys whose fixed columns have other values.

        Parameters are those of the key and of the fixed columns, for each row.
        """
        others = " OR ".join(f"{column.quoted} <> {self._mark}" for column in fixed)
        each = f"({self._equal(key)} AND ({others}))"
        return f"SELECT 1 FROM {table.quoted} WHERE {' OR '.join([each] * rows)} LIMIT 1"

    def find(self, table: TargetTable, key: Columns) -> str:
        """Return the query for the row with a key."""
        return f"SELECT * FROM {table.quoted} WHERE {self._equal(key)}"

    def another(self, table: TargetTable, key: Columns) -> str:
        """Return the query for a row with one key, and not with another: parameters of both."""
        return f"SELECT 1 FROM {table.quoted} WHERE {self._equal(key)} AND NOT ({self._equal(key)})"

    def empty(self, table: TargetTable, columns: Columns) -> str:
        """Return the statement that sets columns of all rows to NULL."""
        sets = ", ".join(f"{column.quoted} = NULL" for column in columns)
        return f"UPDATE {table.quoted} SET {sets}"

    def truncate(self, table: TargetTable) -> str:
        """Return the statement that deletes all rows.

        TRUNCATE would end the transaction in MySQL, and fail in PostgreSQL for a table that a
        foreign key references.
        """
        return f"DELETE FROM {table.quoted}"

    def delete_one(self, table: TargetTable, image: Columns) -> str:
        """Return the statement that deletes one of the rows with these values."""
        return f"DELETE FROM {table.quoted} WHERE {self._one(table, image)}"

    def update_one(self, table: TargetTable, columns: Columns, image: Columns) -> str:
        """Return the statement that updates one matching row; the image's parameters come last."""
        sets = ", ".join(f"{column.quoted} = {self._mark}" for column in columns)
        return f"UPDATE {table.quoted} SET {sets} WHERE {self._one(table, image)}"

    def _equal(self, key: Sequence[TargetColumn]) -> str:
        return " AND ".join(f"{column.quoted} = {self._mark}" for column in key)

    def _one(self, table: TargetTable, image: Columns) -> str:
        """Return the condition for one row with the values of an image."""
        same = " AND ".join(map(self._same, image))
        if self._backend == "mysql":
            return f"{same} LIMIT 1"
        # Their values are read once, before the change: a second look could find another row.
        names, lock = ", ".join(table.row_id), " FOR UPDATE" * (self._backend == "postgresql")
        return f"({names}) = (SELECT {names} FROM {table.quoted} WHERE {same} LIMIT 1{lock})"

    def _same(self, column: TargetColumn) -> str:
        """Return the condition that a column has a value, where NULL equals NULL.

        The comparison ignores the collation, in which A may equal a.
        """
        match self._backend:
            case "sqlite":
                collation = " COLLATE BINARY" if column.family == "text" else ""
                return f"{column.quoted}{collation} IS {self._mark}"
            case "mysql":
                return self._same_in_mysql(column)
        return self._same_in_postgresql(column)

    def _same_in_mysql(self, column: TargetColumn) -> str:
        name, mark = column.quoted, self._mark
        if column.family == "text":
            # In a fixed character set, independently of the column's.
            return f"CAST(CONVERT({name} USING utf8mb4) AS BINARY) <=> CAST({mark} AS BINARY)"
        if column.family == "json":
            return f"{name} <=> CAST({mark} AS JSON)"
        if column.type_.__visit_name__ == "FLOAT":
            # Single-precision numbers differ from all literals.
            return f"{name} <=> CAST({mark} AS FLOAT)"
        if column.type_.__visit_name__ == "large_binary":
            # A VECTOR supports no comparison.
            return f"HEX({name}) <=> HEX({mark})"
        return f"{name} <=> {mark}"

    def _same_in_postgresql(self, column: TargetColumn) -> str:
        name, mark, kind = column.quoted, self._mark, column.type_
        if column.family == "json":
            return f"CAST({name} AS jsonb) IS NOT DISTINCT FROM CAST({mark} AS jsonb)"
        if kind.__visit_name__ in ("FLOAT", "REAL"):
            return f"{name} IS NOT DISTINCT FROM CAST({mark} AS {self._real(column)})"
        if kind.__visit_name__ in ("TEXT", "VARCHAR", "CITEXT"):
            return f'CAST({name} AS text) COLLATE "C" IS NOT DISTINCT FROM CAST({mark} AS text)'
        if column.family == "decimal" and getattr(kind, "precision", None) is None:
            # 1.0 and 1.00 are equal, but different values.
            return (
                f"CAST({name} AS text) IS NOT DISTINCT FROM CAST(CAST({mark} AS numeric) AS text)"
            )
        if column.family in ("interval", "array", "other"):
            # Some types have no equality: points. For others, 24 hours equal a day.
            given = "text" if isinstance(kind, NullType) else kind.compile(dialect=_POSTGRESQL)
            return (
                f"CAST({name} AS text) IS NOT DISTINCT FROM CAST(CAST({mark} AS {given}) AS text)"
            )
        return f"{name} IS NOT DISTINCT FROM {mark}"

    @staticmethod
    def _real(column: TargetColumn) -> str:
        """Return the type of a floating-point column of PostgreSQL."""
        digits = getattr(column.type_, "precision", None)
        is_single = column.type_.__visit_name__ == "REAL" or (digits or 53) <= 24
        return "real" if is_single else "double precision"


def _can_be_set(column: TargetColumn) -> bool:
    """Return True if an update can set values of a column."""
    return not (column.is_fixed or column.is_generated)
