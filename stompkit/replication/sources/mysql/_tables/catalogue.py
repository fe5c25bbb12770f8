"""The server's catalogue: details of tables that the log does not contain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final

import pymysql
from pymysql.connections import Connection
from pymysqlreplication.constants import FIELD_TYPE

from stompkit.replication.sources.mysql._binlog.charsets import decoder, is_told_by_server
from stompkit.replication.sources.mysql._binlog.tablemap import (
    BINARY_COLLATION,
    TableMap,
    is_hidden,
)
from stompkit.replication.sources.mysql._server import text_of

__all__ = ["Catalogue", "described", "type_of"]

_SPECIAL: Final = ("uuid", "inet4", "inet6")
#: Schemas of the server itself.
_OF_SERVER: Final = ("information_schema", "mysql", "performance_schema", "sys")
_CHOICES: Final = ("enum", "set")
_TYPES: Final = {
    "tinyint": "int",
    "smallint": "int",
    "mediumint": "int",
    "int": "int",
    "bigint": "int",
    "year": "int",
    "year(2)": "int",
    "bit": "int",
    "decimal": "decimal",
    "float": "float",
    "double": "float",
    "date": "date",
    "datetime": "datetime",
    "timestamp": "datetimez",
    "time": "interval",
    "char": "text",
    "varchar": "text",
    "tinytext": "text",
    "text": "text",
    "mediumtext": "text",
    "longtext": "text",
    "enum": "text",
    "set": "set",
    "json": "json",
    "uuid": "uuid",
    "inet4": "text",
    "inet6": "text",
}
_LOG_TYPES: Final = {
    FIELD_TYPE.TINY: "int",
    FIELD_TYPE.SHORT: "int",
    FIELD_TYPE.INT24: "int",
    FIELD_TYPE.LONG: "int",
    FIELD_TYPE.LONGLONG: "int",
    FIELD_TYPE.YEAR: "int",
    FIELD_TYPE.BIT: "int",
    FIELD_TYPE.NEWDECIMAL: "decimal",
    FIELD_TYPE.FLOAT: "float",
    FIELD_TYPE.DOUBLE: "float",
    FIELD_TYPE.DATE: "date",
    FIELD_TYPE.DATETIME2: "datetime",
    FIELD_TYPE.TIMESTAMP2: "datetimez",
    FIELD_TYPE.TIME2: "interval",
    FIELD_TYPE.ENUM: "text",
    FIELD_TYPE.SET: "set",
    FIELD_TYPE.JSON: "json",
}

#: Hidden columns with the period of a row, if system versioning is declared without columns.
_PERIOD: Final = ("row_start", "row_end")
#: Precision that the catalogue gives for unsigned 64-bit numbers: digits, or bits.
_UNSIGNED: Final = {False: 20, True: 64}
#: Marks a column as unsigned 64-bit.
_WIDE: Final[Mapping[str, Any]] = {"precision": 20, "unsigned": True}
#: Details of types beyond intervals and documents, for any database.
_NATIVE: Final[Mapping[str, Mapping[str, Any]]] = {
    "interval": {"native": "time"},
    "json": {"native": "json"},
}

#: Character set of a column. MySQL has none for binary ENUM and SET.
_CHARSET: Final = (
    "IF(DATA_TYPE IN ('enum', 'set'), IFNULL(CHARACTER_SET_NAME, 'binary'), CHARACTER_SET_NAME)"
)
#: A column in the form of the action ``schema``.
Described = dict[str, Any]


class Catalogue:
    """Queries INFORMATION_SCHEMA, over its own connection, which is opened on first use."""

    def __init__(
        self,
        connect: Callable[[], Connection[Any]],
        *,
        is_mariadb: bool,
        folds_names: bool = False,
    ) -> None:
        """Query over connections from ``connect``.

        ``folds_names``: True if the server's names of tables are case-insensitive.
        """
        #: True if names in statements may differ in case from the server's names.
        self.folds_names = folds_names
        self._connect = connect
        self._is_mariadb = is_mariadb
        self._connection: Connection[Any] | None = None
        #: Returns the decoder of a character set.
        self.decoder: Final = cache(partial(decoder, ask=self.converted))

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None and self._connection.open:
            self._connection.close()
        self._connection = None

    def specials(self, schema: str, table: str) -> dict[str, str]:
        """Return the columns whose types the log does not contain completely, by their names.

        Empty if the user may not see the table. The types are the current ones.
        """
        found = self._specials("{0}_SCHEMA = %s AND TABLE_NAME = %s", (schema, table))
        return found.get((schema, table), {})

    def all_specials(self) -> dict[tuple[str, str], dict[str, str]]:
        """Return the columns that :meth:`specials` finds in any visible table, by table."""
        found: dict[tuple[str, str], dict[str, str]] = {}
        if self._is_mariadb:
            # A query of all schemas would open the views of the server's own ones.
            query = "SELECT SCHEMA_NAME FROM INFORMATION_SCHEMA.SCHEMATA"
            for (schema,) in self._ask(query, ()):
                if schema not in _OF_SERVER:
                    found |= self._specials("{0}_SCHEMA = %s", (schema,))
        return found

    @property
    def lacks_types(self) -> bool:
        """True if the log of this kind of server lacks some types."""
        return self._is_mariadb

    def _specials(
        self, condition: str, values: tuple[Any, ...]
    ) -> dict[tuple[str, str], dict[str, str]]:
        """Return special types by table and column; *condition* is one for schema and table."""
        found: dict[tuple[str, str], dict[str, str]] = {}
        if not self._is_mariadb:
            return found
        of_columns, of_checks = condition.format("TABLE"), condition.format("CONSTRAINT")
        for schema, table, name, kind in self._ask(
            "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, "
            # Application columns with the same names as hidden ones are not special.
            "CASE WHEN DATA_TYPE = 'year' THEN COLUMN_TYPE "
            "WHEN DATA_TYPE IN %s THEN DATA_TYPE ELSE '' END "
            f"FROM INFORMATION_SCHEMA.COLUMNS WHERE {of_columns} "
            "AND (DATA_TYPE IN %s OR COLUMN_TYPE = 'year(2)' "
            "OR COLUMN_NAME LIKE 'DB\\_ROW\\_HASH\\_%%')",
            (_SPECIAL, *values, _SPECIAL),
        ):
            found.setdefault((schema, table), {})[name] = kind
        for schema, table, name in self._ask(
            "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME "
            f"FROM INFORMATION_SCHEMA.CHECK_CONSTRAINTS WHERE {of_checks} AND LEVEL = 'Column' "
            "AND CHECK_CLAUSE = CONCAT('json_valid(`', CONSTRAINT_NAME, '`)')",
            values,
        ):
            found.setdefault((schema, table), {})[name] = "json"
        return found

    def converted(self, octets: bytes, charset: str) -> str:
        """Return bytes of a character set, converted to Unicode by the server."""
        if not charset.isidentifier():
            raise ValueError(f"the character set {charset!r} is none")
        ((found,),) = self._ask(
            f"SELECT CONVERT(CONVERT(%s USING {charset}) USING utf8mb4)", (octets,)
        )
        return str(found)

    def key(self, schema: str, table: str) -> tuple[str, ...]:
        """Return the key columns in order: the primary key, or the first suitable unique one.

        With the hidden end of a row's period, which the server appends to all of these.
        """
        # Sorting by numbers alone is not stable. MariaDB lists indexes in their order, columns too.
        order = "" if self._is_mariadb else " ORDER BY INDEX_NAME, SEQ_IN_INDEX"
        indexes: dict[str, list[tuple[str, bool]]] = {}
        for index, column, is_nullable in self._ask(
            "SELECT INDEX_NAME, COLUMN_NAME, NULLABLE FROM INFORMATION_SCHEMA.STATISTICS "
            f"WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0{order}",
            (schema, table),
        ):
            indexes.setdefault(index, []).append((column, is_nullable == "YES"))
        for _, columns in sorted(indexes.items(), key=lambda each: each[0] != "PRIMARY"):
            if not any(is_nullable for _, is_nullable in columns):
                end = [_PERIOD[1]] if self._has_hidden_period(schema, table) else []
                return (*(name for name, _ in columns), *end)
        return ()

    def _has_hidden_period(self, schema: str, table: str) -> bool:
        """Return True for system versioning without declared columns for the period of a row.

        The log has these columns, and INFORMATION_SCHEMA shows them neither as columns nor in keys.
        """
        return self._is_mariadb and bool(
            self._ask(
                "SELECT 1 FROM INFORMATION_SCHEMA.TABLES t WHERE TABLE_TYPE = 'SYSTEM VERSIONED' "
                "AND TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NOT EXISTS ("
                "SELECT 1 FROM INFORMATION_SCHEMA.COLUMNS c WHERE c.TABLE_SCHEMA = t.TABLE_SCHEMA "
                "AND c.TABLE_NAME = t.TABLE_NAME AND c.GENERATION_EXPRESSION = 'ROW END')",
                (schema, table),
            )
        )

    def columns(self, schema: str, table: str) -> list[Described]:
        """Return the current columns; empty if the table does not exist or is not visible."""
        specials = self.specials(schema, table)
        key = self.key(schema, table)
        found = []
        for name, kind, precision, scale, length, nullable, charset in self._ask(
            "SELECT COLUMN_NAME, DATA_TYPE, NUMERIC_PRECISION, NUMERIC_SCALE, "
            f"CHARACTER_MAXIMUM_LENGTH, IS_NULLABLE, {_CHARSET} "
            "FROM INFORMATION_SCHEMA.COLUMNS "
            "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
            (schema, table),
        ):
            made = type_of(
                specials.get(name) or kind,
                precision=int(precision or 0),
                scale=int(scale or 0),
                length=int(length or 0),
                charset=charset or "",
            )
            column: Described = {"name": name, "type": made["type"], "key": name in key}
            found.append({**column, "nullable": nullable == "YES", **made})
        if found and self._has_hidden_period(schema, table):
            period = {"type": _TYPES["timestamp"], "nullable": False}
            found += [{"name": name, "key": name in key, **period} for name in _PERIOD]
        return found

    def kinds(self, schema: str, table: str) -> dict[str, str]:
        """Return the current types of the columns, in order: MySQL's names, or special ones.

        BIT(1) is ``bool``, binary ENUM and SET are ``binary``. Text in a character set that the
        server decodes is ``text:`` with its name.
        """
        specials = self.specials(schema, table)
        kinds = {
            name: _kind(kind, precision, specials.get(name, ""), charset or "")
            for name, kind, precision, charset in self._ask(
                f"SELECT COLUMN_NAME, DATA_TYPE, NUMERIC_PRECISION, {_CHARSET} "
                "FROM INFORMATION_SCHEMA.COLUMNS "
                "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
                (schema, table),
            )
        }
        hidden = _PERIOD if kinds and self._has_hidden_period(schema, table) else ()
        return {**kinds, **dict.fromkeys(hidden, "timestamp")}

    def nulls(self, schema: str, table: str) -> frozenset[str]:
        """Return the columns that are NULL in a new row if a statement does not name them."""
        # MariaDB has the expression NULL for columns without a default, and texts in quotes.
        none = "COLUMN_DEFAULT IS NULL" + " OR COLUMN_DEFAULT = 'NULL'" * self._is_mariadb
        return frozenset(
            name
            for (name,) in self._ask(
                "SELECT COLUMN_NAME FROM INFORMATION_SCHEMA.COLUMNS "
                "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND IS_NULLABLE = 'YES' "
                f"AND ({none}) AND IFNULL(GENERATION_EXPRESSION, '') = ''",
                (schema, table),
            )
        )

    def tables(self) -> list[tuple[str, str, int]]:
        """Return all visible tables, without views; ordered by name.

        Each comes with the server's estimate of its number of rows.
        """
        return [
            (schema, table, int(rows or 0))
            for schema, table, rows in self._ask(
                "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_ROWS FROM INFORMATION_SCHEMA.TABLES "
                "WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY 1, 2",
                (),
            )
        ]

    def spelled(self, name: tuple[str, str]) -> tuple[str, str]:
        """Return a table's schema and name in the server's spelling; lower case if dropped."""
        found = self._ask(
            "SELECT TABLE_SCHEMA, TABLE_NAME FROM INFORMATION_SCHEMA.TABLES "
            "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
            name,
        )
        for schema, table in found:
            return schema, table
        return self.lowered(name[0]), self.lowered(name[1])

    def lowered(self, name: str) -> str:
        """Return a name in lower case, by the server's rules."""
        query = "SELECT LOWER(CONVERT(%s USING utf8mb3) COLLATE utf8mb3_general_ci)"
        return str(self._ask(query, (name,))[0][0])

    def references(self) -> list[tuple[tuple[str, str], tuple[str, str]]]:
        """Return the foreign keys: a table and the table it references, each with its schema."""
        return [
            ((schema, table), (other_schema, other))
            for schema, table, other_schema, other in self._ask(
                "SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME, REFERENCED_TABLE_SCHEMA, "
                "REFERENCED_TABLE_NAME FROM INFORMATION_SCHEMA.KEY_COLUMN_USAGE "
                "WHERE REFERENCED_TABLE_NAME IS NOT NULL",
                (),
            )
        ]

    def _ask(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Return the rows as text; reconnects once if the idle connection was lost."""
        for is_again in (False, True):
            if self._connection is None:
                self._connection = self._connect()
            try:
                with self._connection.cursor() as cursor:
                    cursor.execute(query, values)
                    rows = cursor.fetchall()
            except (pymysql.OperationalError, pymysql.InterfaceError, OSError):
                self.close()
                if is_again:
                    raise
            else:
                return [
                    tuple(None if value is None else text_of(value) for value in row)
                    for row in rows
                ]
        raise AssertionError


def type_of(
    kind: str, *, precision: int = 0, scale: int = 0, length: int = 0, charset: str = ""
) -> dict[str, Any]:
    """Return the type of a column for a change ``schema``, from the catalogue's type."""
    known = _TYPES.get(kind, "bytes")
    if kind in _CHOICES and charset == "binary":
        known = "bytes"
    made: dict[str, Any] = {"type": "bool" if (kind, precision) == ("bit", 1) else known}
    if known == "decimal":
        made |= {"precision": precision, "scale": scale}
    elif known == "int" and precision >= _UNSIGNED[kind == "bit"]:
        made |= _WIDE
    elif kind in ("char", "varchar", "binary", "varbinary"):
        made["length"] = length
    return {**made, **_NATIVE.get(known, {})}


def _kind(kind: str, precision: str | None, special: str, charset: str) -> str:
    if (kind, precision) == ("bit", "1"):
        return "bool"
    if kind in _CHOICES:
        return "binary" if charset == "binary" else kind
    if not special and is_told_by_server(charset):
        return f"text:{charset}"
    return special or kind


def described(mapped: TableMap, specials: Mapping[str, str]) -> list[Described]:
    """Return the columns of a table, as the log has them."""
    found = []
    for index, column in enumerate(mapped.columns):
        if is_hidden(column, specials):
            continue
        kind = _LOG_TYPES.get(column.type, "bytes")
        if column.type == FIELD_TYPE.BIT and column.size == 1:
            kind = "bool"
        elif kind == "bytes" and column.collation != BINARY_COLLATION:
            kind = "text"
        elif column.type in (FIELD_TYPE.ENUM, FIELD_TYPE.SET):
            kind = "bytes" if column.collation == BINARY_COLLATION else kind
        if specials.get(column.name):
            kind = _TYPES[specials[column.name]]
        one: Described = {
            "name": column.name,
            "type": kind,
            "key": index in mapped.key,
            "nullable": column.is_nullable,
        }
        if kind == "decimal":
            one |= {"precision": column.precision, "scale": column.scale}
        elif (column.type == FIELD_TYPE.LONGLONG and column.is_unsigned) or (
            column.type == FIELD_TYPE.BIT and column.size >= _UNSIGNED[True]
        ):
            one |= _WIDE
        one |= _NATIVE.get(kind, {})
        found.append(one)
    return found
