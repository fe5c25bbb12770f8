"""What a database writes, the same kind of database takes back: tables that Hypothesis draws.

A table of some types and its rows come from a snapshot of a real server, go through the form on the
wire, and into another database of the server, whose table is made the same way or by ``create``.
The server's own text of all values has to be equal; and each row of a table without a key has to be
found again by what it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import count
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stompkit.replication.events import RowChange, Source, decode, encode, make_changeset
from stompkit.replication.sinks.sql import SqlSink
from stompkit.replication.tables import Tables
from tests.replication.mysql import reading as my
from tests.replication.postgres import postgres_made as pg
from tests.servers import MariaDb, SqlServer, mariadb, postgresql

__all__ = ["mariadb", "postgresql"]

_NUMBERS: Final = count(1)
_SETTINGS: Final = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
#: The type of a column, and strategies for its values as expressions of SQL.
_Types = Sequence[tuple[str, st.SearchStrategy[str]]]

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
#: Seconds from the first to the last that a timestamp holds.
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
_POSTGRESQL: Final[_Types] = [
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

# MariaDB.

_MARIADB: Final[_Types] = [
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
    # It refuses UUIDs of versions that there are not.
    ("UUID", st.uuids(version=4).map(_quoted)),
    ("INET6", _one("'2001:db8::'", "'::ffff:192.0.2.1'")),
]


def _draw_rows(data: st.DataObject, types: _Types) -> tuple[list[str], list[str]]:
    """The definitions of columns, and rows as lists of expressions."""
    drawn = data.draw(st.lists(st.sampled_from(types), min_size=1, max_size=5))
    columns = [f"c{place} {kind}" for place, (kind, _) in enumerate(drawn)]
    values = [
        strategy if "NOT NULL" in kind else st.just("NULL") | strategy for kind, strategy in drawn
    ]
    rows = data.draw(st.lists(st.tuples(*values), min_size=1, max_size=4))
    return columns, [f"({number}, {', '.join(row)})" for number, row in enumerate(rows, 1)]


def _apply(url: str, changes: Sequence[RowChange], *, create: bool) -> None:
    changeset = make_changeset("origin", 1, changes, Source(kind="test"))
    sink = SqlSink(url, create=create, offsets_table=f"offsets_{next(_NUMBERS)}")
    try:
        sink.apply([decode(encode(changeset))])
    finally:
        sink.close()


def _without_key(change: RowChange) -> RowChange:
    """A row as one of a table without a key goes."""
    before = {**change.key, **(change.after or {})}
    return msgspec.structs.replace(change, action="delete", key={}, before=before, after=None)


def _check(
    name: str,
    data: st.DataObject,
    *,
    changes: list[RowChange],
    make: Callable[[], None],
    url: str,
    shown: Callable[[str], list[Any]],
    drop: Callable[[], None],
) -> None:
    is_made = data.draw(st.booleans())
    try:
        if not is_made:
            make()
        _apply(url, changes, create=is_made)
        assert shown("target") == shown("source")
        # The rows go in another order than they have come.
        rows = [change for change in changes if change.action == "read"]
        _apply(url, [_without_key(change) for change in reversed(rows)], create=False)
        assert shown("target") == []
    finally:
        drop()


def _postgresql(database: pg.Database, target: pg.Database, data: st.DataObject) -> None:
    name = f"t{next(_NUMBERS)}"
    columns, rows = _draw_rows(data, _POSTGRESQL)
    made = f"CREATE TABLE {name} (id int PRIMARY KEY, {', '.join(columns)})"
    domain = "CREATE DOMAIN span AS interval"
    database.execute("SELECT 1" if _has_domain(database) else domain, made)
    database.execute(f"INSERT INTO {name} VALUES {', '.join(rows)}")
    # Blanks at the end of a char say nothing, and a column that is made for it keeps them.
    names = ", ".join(
        f"rtrim(c{place}::text)" if " char(" in column else f"c{place}::text"
        for place, column in enumerate(columns)
    )

    def shown(where: str) -> list[Any]:
        at = database if where == "source" else target
        return [
            [
                _read_document(value) if " json" in column and value is not None else value
                for column, value in zip(columns, values, strict=True)
            ]
            for _, *values in at.execute(f"SELECT id, {names} FROM {name} ORDER BY id")
        ]

    def make() -> None:
        target.execute("SELECT 1" if _has_domain(target) else domain, made)

    def drop() -> None:
        for each in (database, target):
            each.execute(f"DROP TABLE IF EXISTS {name}")

    changes = database.changes(Tables([f"public.{name}"]), snapshot="only", announce=True)
    _check(name, data, changes=changes, make=make, url=target.url, shown=shown, drop=drop)


def _read_document(text: str) -> object:
    """A JSON document whose numbers are equal where they are; PostgreSQL keeps zeros at the end."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal, object_pairs_hook=tuple)


def _has_domain(database: pg.Database) -> bool:
    return bool(database.execute("SELECT 1 FROM pg_type WHERE typname = 'span'"))


@pytest.fixture
def postgresql_pair(postgresql: SqlServer) -> tuple[pg.Database, pg.Database]:
    """Two databases of PostgreSQL."""
    source, target = (pg.Database(postgresql, postgresql.new_database()) for _ in range(2))
    return source, target


@given(data=st.data())
@settings(_SETTINGS, max_examples=6)
def test_postgresql_takes_back_what_it_writes(
    postgresql_pair: tuple[pg.Database, pg.Database], data: st.DataObject
) -> None:
    _postgresql(*postgresql_pair, data)


@pytest.mark.matrix
@given(data=st.data())
@settings(_SETTINGS, max_examples=1000)
def test_postgresql_takes_back_what_it_writes_in_many_tables(
    postgresql_pair: tuple[pg.Database, pg.Database], data: st.DataObject
) -> None:
    _postgresql(*postgresql_pair, data)


def _mariadb(database: my.Database, target: my.Database, data: st.DataObject) -> None:
    name = f"t{next(_NUMBERS)}"
    columns, rows = _draw_rows(data, _MARIADB)
    made = f"CREATE TABLE {name} (id INT PRIMARY KEY, {', '.join(columns)})"
    database.run("SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'", made)
    database.run(f"INSERT INTO {name} VALUES {', '.join(rows)}")
    names = ", ".join(_as_mariadb_shows(*column.split(None, 1)) for column in columns)

    def shown(where: str) -> list[Any]:
        at = database if where == "source" else target
        return [tuple(row) for row in at.ask(f"SELECT id, {names} FROM {name} ORDER BY id")]

    def drop() -> None:
        for each in (database, target):
            each.run(f"DROP TABLE IF EXISTS {name}")

    tables = Tables(include=[f"{database.name}.{name}"])
    changes = my.Reading(database, tables=tables).changes(snapshot="only", announce=True)
    _check(
        name,
        data,
        changes=changes,
        make=lambda: target.run(made),
        url=target.url,
        shown=shown,
        drop=drop,
    )


def _as_mariadb_shows(column: str, type_: str) -> str:
    """An expression whose values are equal where those of the column are."""
    if type_ == "JSON":
        # It is text there, and documents are equal whatever blanks they have.
        return f"JSON_COMPACT({column})"
    if type_.startswith("BIT"):
        return f"{column} + 0"
    if type_ == "FLOAT":
        # It is shown with six digits.
        return f"{column} * 1e0"
    # One that is made holds microseconds.
    return f"CAST({column} AS DATETIME(6))" if type_.startswith(("DATETIME", "TIMEST")) else column


@pytest.fixture
def mariadb_pair(mariadb: MariaDb) -> Iterator[tuple[my.Database, my.Database]]:
    """Two databases of MariaDB."""
    source, target = my.Database(mariadb), my.Database(mariadb)
    yield source, target
    source.close()
    target.close()


@given(data=st.data())
@settings(_SETTINGS, max_examples=6)
def test_mariadb_takes_back_what_it_writes(
    mariadb_pair: tuple[my.Database, my.Database], data: st.DataObject
) -> None:
    _mariadb(*mariadb_pair, data)


@pytest.mark.matrix
@given(data=st.data())
@settings(_SETTINGS, max_examples=1000)
def test_mariadb_takes_back_what_it_writes_in_many_tables(
    mariadb_pair: tuple[my.Database, my.Database], data: st.DataObject
) -> None:
    _mariadb(*mariadb_pair, data)
