"""Tables that Hypothesis draws, in databases of each kind: their contents, and the copies."""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack, closing
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st

from stompkit.replication.model.events import RowChange, Source, decode, encode, make_changeset
from stompkit.replication.model.tables import Tables
from stompkit.replication.sinks.sql import SqlSink
from tests.replication.sources.mysql import reading as my
from tests.replication.sources.postgres import postgres_made as pg
from tests.servers import MariaDb, SqlServer

__all__ = ["MySide", "PostgreSqlSide", "Side", "SourceSide", "SqliteSide", "apply", "draw_rows"]

_NUMBERS: Final = count(1)
#: The type of a column, and strategies for its values as expressions of SQL.
Types = Sequence[tuple[str, st.SearchStrategy[str]]]

_TEXT: Final = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6)


def _quoted(text: object) -> str:
    return "'" + str(text).replace("'", "''").replace("\\", "\\\\") + "'"


def _one(*texts: str) -> st.SearchStrategy[str]:
    return st.sampled_from(texts)


def _json_texts() -> st.SearchStrategy[str]:
    inner = st.recursive(
        _one("null", "true", "1", "1.50", "0.1", '"a"', '"{}"', "1e3", "18446744073709551616")
        | st.integers(-(10**25), 10**25).map(str),
        lambda each: (
            st.lists(each, max_size=3).map(lambda items: f"[{','.join(items)}]")
            | st.dictionaries(_one("a", "b", "ü"), each, max_size=2).map(
                lambda items: (
                    "{" + ",".join(f'"{name}":{value}' for name, value in items.items()) + "}"
                )
            )
        ),
        max_leaves=4,
    )
    return inner.map(lambda text: f"'{text}'")


# PostgreSQL.

_DECIMALS: Final = st.builds(
    lambda digits, scale: f"{digits}e-{scale}", st.integers(-(10**30), 10**30), st.integers(0, 40)
)
_DATES: Final = st.integers(-2451507, 2145031948).map(lambda days: f"(date '2000-01-01' + {days})")
#: Range of a timestamp, in seconds.
_SECONDS: Final = st.integers(-211_000_000_000, 9_223_000_000_000)
_LAPSES: Final = st.builds(
    "(make_interval(months => {}, days => {}) + {} * interval '1 microsecond')".format,
    st.integers(-(2**31) + 1, 2**31 - 1) | st.integers(-30, 30),
    st.integers(-(2**31) + 1, 2**31 - 1) | st.integers(-3, 3),
    st.integers(-(10**12), 10**12) | _one("86400000000", "-500000"),
)
_CLOCKS: Final = st.integers(0, 86_399_999_999).map(
    lambda part: f"(time '00:00' + {part} * interval '1 microsecond')"
) | _one("'24:00'")
_POSTGRESQL: Final[Types] = [
    ("bool", _one("true", "false")),
    ("int2", st.integers(-(2**15), 2**15 - 1).map(str)),
    ("int8", st.integers(-(2**63) + 1, 2**63 - 1).map("'{}'".format)),
    ("float4", st.floats(width=32).map("'{}'".format)),
    ("float8", st.floats().map("'{}'".format)),
    ("numeric", _DECIMALS | _one("'NaN'", "1.00", "1.0", "1", "0.000", "1e100")),
    ("numeric(9,3)", st.integers(-999_999, 999_999).map(lambda n: f"{n}/1000.0")),
    ("text", _TEXT.map(_quoted) | _one("''", "'A'", "'a'", "'infinity'", "'{}'", "'null'")),
    ("varchar(9)", _TEXT.map(_quoted)),
    ("char(9)", _TEXT.map(_quoted)),
    ("bytea", st.binary(max_size=6).map(lambda octets: f"decode('{octets.hex()}', 'hex')")),
    ("date", _DATES | _one("'infinity'", "'-infinity'", "'0044-03-15 BC'")),
    ("timestamp", _SECONDS.map("(timestamp '2000-01-01' + {} * interval '1 s')".format)),
    ("timestamp", _one("'infinity'", "'0001-12-31 23:59:59.5 BC'", "'10000-01-01'")),
    ("timestamptz", _SECONDS.map("(timestamptz '2000-01-01Z' + {} * interval '1 s')".format)),
    ("timestamptz", _one("'-infinity'", "'0001-01-01 BC'", "'2026-03-29 02:30+02'")),
    ("time", _CLOCKS),
    ("timetz", _one("'24:00+05:45'", "'12:00:00.25-08'", "'00:00Z'")),
    ("interval", _LAPSES | _one("'1 day'", "'24:00:00'", "'-00:00:00.5'", "'1 mon -1 day'")),
    ("span", _one("'1 day'", "'24:00:00'", "'1 month'")),
    ("uuid", st.uuids().map(_quoted)),
    ("json", _json_texts()),
    ("jsonb", _json_texts()),
    ("inet", _one("'10.0.0.1'", "'10.0.0.1/8'", "'fe80::1/64'")),
    ("cidr", _one("'10.0.0.0/8'")),
    ("macaddr", _one("'08:00:2b:01:02:03'")),
    ("bit(4)", _one("'1010'")),
    ("varbit", _one("'10101'", "''")),
    ("int4range", _one("'[1,5)'", "'empty'", "'(,3)'")),
    ("tstzrange", _one("'[2026-01-01Z,infinity)'", "'empty'")),
    ("int4[]", _one("'{}'", "'{1,NULL,3}'", "'{{1,2},{3,4}}'", "'[0:1]={1,2}'")),
    ("text[]", _one("""'{a,"b,c",NULL,"NULL"}'""")),
    ("interval[]", _one("""'{24:00:00,"1 day"}'""")),
    ("numeric[]", _one("'{1.0,1.00}'")),
    ("tsvector", _one("'a:1 cat:3'")),
]

# MariaDB and MySQL.

_BOTH: Final[Types] = [
    ("TINYINT", st.integers(-128, 127).map(str)),
    ("BIGINT", st.integers(-(2**63), 2**63 - 1).map(str)),
    ("BIGINT UNSIGNED", st.integers(0, 2**64 - 1).map(str) | _one(str(2**64 - 1))),
    ("BIT(1)", _one("b'0'", "b'1'")),
    ("BIT(64)", st.integers(0, 2**64 - 1).map(str) | _one(str(2**64 - 1))),
    ("FLOAT", st.floats(-(2.0**99), 2.0**99, width=32).map(repr)),
    ("DOUBLE", st.floats(-1e300, 1e300).map(repr)),
    ("DECIMAL(65,30)", st.integers(-(10**60), 10**60).map(lambda n: f"{n}e-26")),
    ("DECIMAL(20,0) UNSIGNED", st.integers(0, 10**20 - 1).map(str)),
    ("YEAR", st.integers(1901, 2155).map(str)),
    ("VARCHAR(9) CHARACTER SET utf8mb4", _TEXT.map(_quoted) | _one("'A'", "'a'", "'a '")),
    ("VARCHAR(9) CHARACTER SET latin1", _one("'é'", "'A'", "'a'")),
    ("CHAR(9) CHARACTER SET sjis", _one("'日本'", "'ｱ'", "'\\\\\\\\'")),
    ("TEXT CHARACTER SET dec8", _one("'a'", "_dec8 X'DB'")),
    ("VARBINARY(9)", st.binary(max_size=9).map(lambda octets: f"X'{octets.hex()}'")),
    ("BINARY(4)", st.binary(max_size=4).map(lambda octets: f"X'{octets.hex()}'")),
    ("ENUM('b','a')", _one("'a'", "'b'")),
    ("SET('b','a','c')", _one("''", "'a'", "'a,b'", "'b,c'")),
    ("DATE", st.dates().map(_quoted) | _one("'0000-00-00'", "'2026-00-11'", "'2026-02-31'")),
    ("DATETIME(6)", st.datetimes().map(_quoted) | _one("'0000-00-00 00:00:00'")),
    ("DATETIME NOT NULL", _one("'0000-00-00 00:00:00'", "'2026-02-31 01:02:03'")),
    (
        "TIMESTAMP(3) NULL",
        _one("'0000-00-00 00:00:00'", "'2026-10-25 02:30:00.125'"),
    ),
    ("TIME(6)", _one("'838:59:59'", "'-838:59:58.999999'", "'24:00:00'", "'-00:00:00.5'")),
    ("JSON", _json_texts()),
    ("MEDIUMINT UNSIGNED", st.integers(0, 2**24 - 1).map(str)),
    ("DECIMAL(9,3)", st.integers(-999_999, 999_999).map("{}e-3".format)),
    ("MEDIUMTEXT", _TEXT.map(_quoted)),
    ("POINT", st.integers(-9, 9).map("ST_GeomFromText('POINT({} 1.5)')".format)),
]
_MARIADB: Final[Types] = [
    *_BOTH,
    # The server refuses UUIDs of undefined versions.
    ("UUID", st.uuids(version=4).map(_quoted)),
    ("INET6", _one("'2001:db8::'", "'::ffff:192.0.2.1'")),
]
_FLOATS: Final = st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=False).map(repr)
_MYSQL: Final[Types] = [
    *_BOTH,
    ("VECTOR(3)", st.tuples(*[_FLOATS] * 3).map(lambda each: f"TO_VECTOR('[{', '.join(each)}]')")),
    ("JSON", _one("CAST(1.50 AS JSON)", "CAST(CAST(-1 AS UNSIGNED) AS JSON)", "JSON_ARRAY()")),
]


def draw_rows(data: st.DataObject, types: Types) -> tuple[list[str], list[str]]:
    """Draw definitions of columns, and rows as lists of expressions."""
    drawn = data.draw(st.lists(st.sampled_from(types), min_size=1, max_size=5))
    columns = [f"c{place} {kind}" for place, (kind, _) in enumerate(drawn)]
    values = [
        strategy if "NOT NULL" in kind else st.just("NULL") | strategy for kind, strategy in drawn
    ]
    rows = data.draw(st.lists(st.tuples(*values), min_size=1, max_size=4))
    return columns, [f"({number}, {', '.join(row)})" for number, row in enumerate(rows, 1)]


def apply(url: str, changes: Sequence[RowChange], *, create: bool) -> None:
    """Apply changes to a database, after encoding and decoding them."""
    changeset = make_changeset("origin", 1, changes, Source(kind="test"))
    sink = SqlSink(url, create=create, offsets_table=f"offsets_{next(_NUMBERS)}")
    try:
        sink.apply([decode(encode(changeset))])
    finally:
        sink.close()


class Side(ABC):
    """A database into which tables are copied."""

    url: str

    @abstractmethod
    def read(self, name: str) -> list[RowChange]:
        """Return the table, including the publisher's description of its columns."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Drop a table, if it exists."""


class SourceSide(Side):
    """A database from which tables are copied."""

    types: Types

    @abstractmethod
    def run(self, statement: str) -> None:
        """Run an SQL statement."""

    def drop(self, name: str) -> None:
        """Drop a table, if it exists."""
        self.run(f"DROP TABLE IF EXISTS {name}")

    def make(self, name: str, columns: Sequence[str]) -> None:
        """Create a table with a key, ``id``, and these columns."""
        self.run(f"CREATE TABLE {name} (id int PRIMARY KEY, {', '.join(columns)})")

    def insert(self, name: str, rows: Sequence[str]) -> None:
        """Insert rows."""
        self.run(f"INSERT INTO {name} VALUES {', '.join(rows)}")

    @abstractmethod
    def shown(self, name: str, columns: Sequence[str]) -> list[list[Any]]:
        """Return all rows as the server shows them: equal values have equal texts."""


class PostgreSqlSide(SourceSide):
    """A PostgreSQL database."""

    types = _POSTGRESQL

    def __init__(self, database: pg.Database) -> None:
        """Create the domain that is among the types."""
        self._database = database
        self.url = database.url
        database.execute("CREATE DOMAIN span AS interval")

    def read(self, name: str) -> list[RowChange]:
        """Return a snapshot."""
        return self._database.changes(Tables([f"public.{name}"]), snapshot="only", announce=True)

    def run(self, statement: str) -> None:
        """Run a statement."""
        self._database.execute(statement)

    def shown(self, name: str, columns: Sequence[str]) -> list[list[Any]]:
        """Return all rows as text, and documents as such."""
        # Trailing blanks of a char are insignificant, but a created column keeps them.
        names = ", ".join(
            f"rtrim(c{place}::text)" if " char(" in column else f"c{place}::text"
            for place, column in enumerate(columns)
        )
        return [
            [
                None if value is None else _read_text(column, value)
                for column, value in zip(columns, values, strict=True)
            ]
            for _, *values in self._database.execute(f"SELECT id, {names} FROM {name} ORDER BY id")
        ]


def _read_text(column: str, text: str) -> object:
    """Return a normal form of a PostgreSQL text, which a created column may write differently."""
    if " json" in column:
        return _read_document(text)
    if " float4" in column:
        return repr(float(text))
    return text


def _read_document(text: str) -> object:
    """Return a normal form of a JSON document: without blanks, order and zeros of numbers."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def _plain(column: str, value: Any) -> Any:
    """Return a normal form of a value."""
    if column.endswith(" JSON"):
        return _read_document(value)
    # Members of a set have no order, but the text of a created column has one.
    return sorted(value.split(",")) if " SET(" in column else value


class MySide(SourceSide):
    """A MariaDB or MySQL database."""

    def __init__(self, database: my.Database) -> None:
        """Make the server accept invalid dates."""
        self._database = database
        self.types = _MARIADB if database.server.kind == "mariadb" else _MYSQL
        self.url = database.url
        database.run("SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'")

    def read(self, name: str) -> list[RowChange]:
        """Return a snapshot."""
        tables = Tables(include=[f"{self._database.name}.{name}"])
        reading = my.Reading(self._database, tables=tables)
        return reading.changes(snapshot="only", announce=True)

    def run(self, statement: str) -> None:
        """Run a statement."""
        self._database.run(statement)

    def shown(self, name: str, columns: Sequence[str]) -> list[list[Any]]:
        """Return all rows as the driver reads them."""
        names = ", ".join(self._expression(*column.split(None, 1)) for column in columns)
        return [
            [
                None if value is None else _plain(column, value)
                for column, value in zip(columns, row, strict=True)
            ]
            for row in self._database.ask(f"SELECT {names} FROM {name} ORDER BY id")
        ]

    def _expression(self, column: str, type_: str) -> str:
        """Return an expression whose values are equal if those of the column are."""
        if type_.startswith("BIT"):
            return f"{column} + 0"
        if type_ == "FLOAT":
            # The server shows six digits.
            return f"{column} * 1e0"
        if type_.startswith("VECTOR"):
            return f"HEX({column})"
        # A created column has microseconds.
        is_moment = type_.startswith(("DATETIME", "TIMEST"))
        return f"CAST({column} AS DATETIME(6))" if is_moment else column


def opened(server: SqlServer, stack: ExitStack) -> SourceSide:
    """Return a new database of a server, which is closed with the stack."""
    if not isinstance(server, MariaDb):
        return PostgreSqlSide(pg.Database(server, server.new_database()))
    database = my.Database(server)
    stack.callback(database.close)
    return MySide(database)


class SqliteSide(Side):
    """An SQLite database."""

    def __init__(self, path: Path) -> None:
        """Create it in a file."""
        self._path = path
        self.url = f"sqlite:///{path}"

    def read(self, name: str) -> list[RowChange]:
        """Return the rows as they are stored."""
        with closing(sqlite3.connect(self._path)) as connection:
            cursor = connection.execute(f"SELECT * FROM {name}")
            names = [each[0] for each in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor]
        return [
            RowChange(table=name, action="read", key={"id": row["id"]}, after=row) for row in rows
        ]

    def drop(self, name: str) -> None:
        """Drop a table, if it exists."""
        with closing(sqlite3.connect(self._path)) as connection:
            connection.execute(f"DROP TABLE IF EXISTS {name}")
