"""Write the page of types, ``replication-types.rst``, from the code that tells and makes them.

Run it after a change of what a publisher tells of a type, or of what ``--create`` makes of one;
``--check`` changes nothing, and exits with 1 where the file differs from the code.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec
from sqlalchemy import Dialect
from sqlalchemy.dialects import mysql, postgresql, sqlite

from docs.generated import write_pages
from stompkit.replication.model.values import Interval, Json, NoDate, to_json
from stompkit.replication.sinks.search._documents import document
from stompkit.replication.sources.mysql._tables.catalogue import type_of
from stompkit.replication.sources.postgres._values import described
from stompkit.replication.sql.schema import SourceColumn, column_type

__all__ = ["MYSQL", "POSTGRESQL", "main"]

_NAME: Final = "replication-types.rst"
_INTRODUCTION: Final = """\
.. Made by docs/make_types.py from the code of publishers and sinks: change that instead.

Data types
==========

This page lists the data types of each source. For each type it has the form in JSON, Redis and
search, and the column that ``--create`` creates in each SQL database. An existing column may have
another type if it can hold the values: see `Sinks <replication-targets.rst>`__.

.. contents::
   :local:
   :depth: 1

"""
_FORMS: Final = """\
JSON, Redis and search
----------------------

The names in the first column are those of ``schema`` changes and of the tables below. Redis keeps
the forms of the messages. NULL is ``null`` everywhere. `Changeset format
<replication-events.rst#values>`__ describes these forms.
"""
_POSTGRESQL: Final = """\
PostgreSQL
----------

A domain has the form of its base type. All other types, such as enumerations, become text, as
PostgreSQL writes it. So do values that have no other form, such as ``infinity``. From PostgreSQL to
PostgreSQL, columns of these types keep their types.
"""
_MYSQL: Final = """\
MariaDB and MySQL
-----------------

All other types, such as ``GEOMETRY``, are bytes. ``TIMESTAMP`` is a time in UTC; ``TIME`` is an
interval.
"""
_KEYS: Final = """\
Columns of a key
----------------

MariaDB and MySQL require a length for text and bytes in a key. Such a column gets the length of
the source column, but at most 255. If the source has no length, it gets 255.
"""
_PROGRAMS: Final = """\
Outbox and sessions
-------------------

Values are Python values, and have the forms above according to their types. These sources do not
know the columns of tables, so ``--create`` creates no tables.
"""

#: Names of PostgreSQL's types, with their numbers and modifiers.
POSTGRESQL: Final[Mapping[str, tuple[int, int]]] = {
    "boolean": (16, -1),
    "smallint": (21, -1),
    "integer": (23, -1),
    "bigint": (20, -1),
    "oid": (26, -1),
    "real": (700, -1),
    "double precision": (701, -1),
    "numeric": (1700, -1),
    "numeric(10,2)": (1700, (10 << 16) + 2 + 4),
    "numeric(70,2)": (1700, (70 << 16) + 2 + 4),
    "numeric(3,-2)": (1700, (3 << 16) + (-2 & 0x7FF) + 4),
    "text": (25, -1),
    "name": (19, -1),
    '"char"': (18, -1),
    "character(10)": (1042, 14),
    "character varying(100)": (1043, 104),
    "bytea": (17, -1),
    "date": (1082, -1),
    "time without time zone": (1083, -1),
    "time with time zone": (1266, -1),
    "timestamp without time zone": (1114, -1),
    "timestamp with time zone": (1184, -1),
    "interval": (1186, -1),
    "uuid": (2950, -1),
    "json": (114, -1),
    "jsonb": (3802, -1),
    "inet": (869, -1),
    "cidr": (650, -1),
    "macaddr": (829, -1),
    "bit(8)": (1560, 8),
    "bit varying(8)": (1562, 8),
    "money": (790, -1),
    "xml": (142, -1),
    "tsvector": (3614, -1),
    "point": (600, -1),
    "int4range": (3904, -1),
    "tstzmultirange": (4534, -1),
    "integer[]": (1007, -1),
    "text[]": (1009, -1),
}
#: Types of MariaDB and MySQL, as the catalogue describes them.
MYSQL: Final[Mapping[str, Mapping[str, Any]]] = {
    "TINYINT": type_of("tinyint", precision=3),
    "SMALLINT": type_of("smallint", precision=5),
    "MEDIUMINT": type_of("mediumint", precision=7),
    "INT": type_of("int", precision=10),
    "INT UNSIGNED": type_of("int", precision=10),
    "BIGINT": type_of("bigint", precision=19),
    "BIGINT UNSIGNED": type_of("bigint", precision=20),
    "YEAR": type_of("year"),
    "BIT(1)": type_of("bit", precision=1),
    "BIT(8)": type_of("bit", precision=8),
    "BIT(64)": type_of("bit", precision=64),
    "DECIMAL(10,2)": type_of("decimal", precision=10, scale=2),
    "DECIMAL(65,30)": type_of("decimal", precision=65, scale=30),
    "FLOAT": type_of("float"),
    "DOUBLE": type_of("double"),
    "DATE": type_of("date"),
    "DATETIME": type_of("datetime"),
    "TIMESTAMP": type_of("timestamp"),
    "TIME": type_of("time"),
    "CHAR(10)": type_of("char", length=10),
    "VARCHAR(100)": type_of("varchar", length=100),
    "TINYTEXT": type_of("tinytext"),
    "TEXT": type_of("text"),
    "MEDIUMTEXT": type_of("mediumtext"),
    "LONGTEXT": type_of("longtext"),
    "BINARY(16)": type_of("binary", length=16),
    "VARBINARY(100)": type_of("varbinary", length=100),
    "BLOB": type_of("blob"),
    "LONGBLOB": type_of("longblob"),
    "ENUM": type_of("enum"),
    "ENUM CHARACTER SET binary": type_of("enum", charset="binary"),
    "SET": type_of("set"),
    "JSON": type_of("json"),
    "UUID": type_of("uuid"),
    "INET4": type_of("inet4"),
    "INET6": type_of("inet6"),
    "VECTOR(3)": type_of("vector"),
    "GEOMETRY": type_of("geometry"),
}
_NOON: Final = datetime(2026, 11, 21, 12, 0, 0, 250_000)
#: Values of each type.
_VALUES: Final[Sequence[tuple[str, object]]] = (
    ("bool", True),
    ("int", 7),
    ("int", 2**64),
    ("float", 0.5),
    ("float", float("inf")),
    ("decimal", Decimal("10.50")),
    ("text", "a"),
    ("bytes", b"\0\1"),
    ("date", date(2026, 11, 21)),
    ("date", NoDate("2026-02-00")),
    ("time", time(12)),
    ("datetime", _NOON),
    ("datetimez", _NOON.replace(tzinfo=UTC)),
    ("interval", timedelta(seconds=-42)),
    ("interval", Interval.parse("P1M2DT0.5S")),
    ("uuid", UUID("0f8fad5b-d9cb-469f-a165-70867728950e")),
    ("json", {"a": [1, None]}),
    ("json", Json("0.10000000000000000001")),
    ("set", frozenset("ba")),
)
_TARGETS: Final[Mapping[str, tuple[str, Dialect]]] = {
    "PostgreSQL": ("postgresql", postgresql.dialect()),  # type: ignore[no-untyped-call]
    "MariaDB, MySQL": ("mysql", mysql.dialect()),
    "SQLite": ("sqlite", sqlite.dialect()),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or check it; return the exit status."""
    return write_pages("make_types.py", __doc__, _pages, arguments)


def _pages() -> dict[str, str]:
    return {_NAME: _page()}


def _page() -> str:
    of_postgresql = {name: described(*number) for name, number in POSTGRESQL.items()}
    of_keys = {
        name: told
        for name, told in {**of_postgresql, **MYSQL}.items()
        if told["type"] in ("text", "bytes") and ("length" in told or name in ("text", "BLOB"))
    }
    parts = [
        _INTRODUCTION + _FORMS,
        *_table(["Type", "On the wire, and in Redis", "In search"], map(_forms, _VALUES)),
        _POSTGRESQL,
        *_columns(of_postgresql),
        _MYSQL,
        *_columns(MYSQL),
        _KEYS,
        *_columns(of_keys, is_key=True),
        _PROGRAMS.rstrip("\n"),
    ]
    return "\n".join(parts) + "\n"


def _forms(each: tuple[str, object]) -> list[str]:
    """Return the forms of a value without information about its column."""
    name, value = each
    made = to_json(value), document({"c": value})["c"]
    return [f"``{name}``", *(f"``{json.dumps(form)}``" for form in made)]


def _columns(types: Mapping[str, Mapping[str, Any]], *, is_key: bool = False) -> Iterator[str]:
    """Yield the columns that are created for types, by the sources' names for these."""
    rows = []
    for name, told in types.items():
        column = msgspec.convert({"name": "c", "key": is_key, **told}, SourceColumn)
        made = (
            column_type(column, backend).compile(dialect=dialect)
            for backend, dialect in _TARGETS.values()
        )
        rows.append([f"``{each}``" for each in (name, column.type, *made)])
    return _table(["Source", "Type", *_TARGETS], rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield ".. list-table::\n   :header-rows: 1\n"
    for first, *others in (head, *rows):
        yield "\n".join([f"   * - {first}", *(f"     - {each}" for each in others)])
    yield ""


if __name__ == "__main__":
    sys.exit(main())
