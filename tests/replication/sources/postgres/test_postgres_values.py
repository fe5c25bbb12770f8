"""Values of a real PostgreSQL: their Python types, and the types that stay text."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

from stompkit.replication.model.events import decode, encode
from stompkit.replication.model.values import Interval, Json
from tests.replication.sources.postgres.postgres_made import Database

_TYPES: list[tuple[str, str, Any]] = [
    ("smallint", "'-32768'", -32768),
    ("integer", "'2147483647'", 2**31 - 1),
    ("bigint", "'-9223372036854775808'", -(2**63)),
    ("oid", "'4294967295'", 2**32 - 1),
    ("boolean", "'t'", True),
    ("boolean", "'f'", False),
    ("real", "'0.1'", 0.1),
    ("double precision", "'1e-308'", 1e-308),
    ("double precision", "'-Infinity'", float("-inf")),
    (
        "numeric",
        "'123456789012345678901234567890.10'",
        Decimal("123456789012345678901234567890.10"),
    ),
    ("numeric(5,2)", "'1.5'", Decimal("1.50")),
    ("numeric(5,-2)", "'12345'", Decimal("12300")),
    ("text", "''", ""),
    ("text", "E'a\\n\\'\\\\%s {} \\u2603'", "a\n'\\%s {} ☃"),
    ("varchar(10)", "'ä'", "ä"),
    ("char(4)", "'ab'", "ab  "),
    ("name", "'n'", "n"),
    ('"char"', "'c'", "c"),
    ("bytea", "'\\x00ff5c'", b"\x00\xff\\"),
    ("bytea", "''", b""),
    ("date", "'2026-11-21'", date(2026, 11, 21)),
    ("date", "'infinity'", "infinity"),
    ("date", "'0044-03-15 BC'", "0044-03-15 BC"),
    ("date", "'12026-11-21'", "12026-11-21"),
    ("time", "'23:59:59.000001'", time(23, 59, 59, 1)),
    ("time", "'24:00'", "24:00:00"),
    ("timetz", "'12:00+05:45'", time(12, tzinfo=timezone(timedelta(hours=5, minutes=45)))),
    ("timestamp", "'2026-11-21 12:00:00.25'", datetime(2026, 11, 21, 12, 0, 0, 250_000)),
    ("timestamp", "'-infinity'", "-infinity"),
    ("timestamp", "'0001-01-01 00:00 BC'", "0001-01-01 00:00:00 BC"),
    ("timestamptz", "'2026-11-21 12:00+03'", datetime(2026, 11, 21, 9, tzinfo=UTC)),
    ("timestamptz", "'infinity'", "infinity"),
    ("timestamptz", "'294276-01-01Z'", "294276-01-01 00:00:00+00"),
    ("interval", "'0'", timedelta()),
    ("interval", "'-1 day +02:03:04.5'", Interval(0, -1, 7_384_500_000)),
    ("interval", "'-00:00:00.000001'", timedelta(microseconds=-1)),
    ("interval", "'100 hours'", timedelta(hours=100)),
    ("interval", "'-00:00:00.5'", timedelta(microseconds=-500_000)),
    ("interval", "'24:00:00'", timedelta(hours=24)),
    ("interval", "'1 day'", Interval(days=1)),
    ("interval", "'1 year 2 mons 3 days'", Interval(14, 3)),
    ("interval", "'-1 mons 3 days -00:00:00.5'", Interval(-1, 3, -500_000)),
    ("interval", "'178000000 years'", Interval(12 * 178_000_000)),
    ("span", "'1 month'", Interval(1)),
    ("uuid", "'0f8fad5b-d9cb-469f-a165-70867728950e'", UUID("0f8fad5bd9cb469fa16570867728950e")),
    ("json", '\' {"a": [1, null, 0.5, "x"]}\'', {"a": [1, None, 0.5, "x"]}),
    ("json", '\'{"a": "\\ud83d\\ude00"}\'', {"a": "\U0001f600"}),
    ("json", '\'{"a": "\\ud83d"}\'', Json('{"a": "\\ud83d"}')),
    ("json", '\'{"a": 1, "a": 2}\'', Json('{"a": 1, "a": 2}')),
    ("json", "' 1.50 '", Json("1.50")),
    ("json", "'true'", Json("true")),
    ("jsonb", "'[]'", []),
    ("jsonb", "'null'", Json("null")),
    ("jsonb", "'\"text\"'", Json('"text"')),
    ("jsonb", "'[1e400]'", Json(f"[1{'0' * 400}]")),
    ("jsonb", "'[0.12345678901234567890]'", Json("[0.12345678901234567890]")),
    ("jsonb", "'[18446744073709551616]'", Json("[18446744073709551616]")),
    ("jsonb", "(repeat('[', 500) || repeat(']', 500))::jsonb", Json("[" * 500 + "]" * 500)),
    ("int[]", "'{1,NULL,3}'", "{1,NULL,3}"),
    ("text[]", "ARRAY['a,b', 'c']", '{"a,b",c}'),
    ("int4range", "'[1,5)'", "[1,5)"),
    ("inet", "'10.0.0.1'", "10.0.0.1"),
    ("money", "'1.50'", "$1.50"),
    ("xml", "'<a/>'", "<a/>"),
    ("mood", "'happy'", "happy"),
    ("positive", "'5'", 5),
    ("price", "'5'", Decimal("5.00")),
]


def test_values_of_all_types_are_what_they_were(database: Database) -> None:
    database.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
        "CREATE DOMAIN amount AS numeric(8,2)",
        "CREATE DOMAIN price AS amount",
        "CREATE DOMAIN span AS interval",
        f"CREATE TABLE t (id int PRIMARY KEY, {_columns()})",
    )
    database.begin()
    literals = ", ".join(literal for _, literal, _ in _TYPES)
    nulls = ", ".join("NULL" for _ in _TYPES)
    database.execute(f"INSERT INTO t VALUES (1, {literals}), (2, {nulls})")
    (changeset,) = database.read()
    full, empty = (change.after for change in changeset.changes)
    assert full is not None
    assert empty is not None
    for number, (kind, literal, value) in enumerate(_TYPES):
        found = full[f"c{number}"]
        assert (found, type(found)) == (value, type(value)), f"{kind} {literal}"
        assert empty[f"c{number}"] is None
    assert decode(encode(changeset)) == changeset
    # A snapshot gives the same.
    snapshot = database.changes(snapshot="only")
    assert [change.after for change in snapshot] == [full, empty]


def _columns() -> str:
    return ", ".join(f"c{number} {kind}" for number, (kind, _, _) in enumerate(_TYPES))


def test_values_do_not_depend_on_how_the_database_is_set(database: Database) -> None:
    database.execute(
        f"ALTER DATABASE {database.name} SET datestyle = 'SQL, DMY'",
        f"ALTER DATABASE {database.name} SET timezone = 'Asia/Kathmandu'",
        f"ALTER DATABASE {database.name} SET intervalstyle = 'postgres_verbose'",
        f"ALTER DATABASE {database.name} SET bytea_output = 'escape'",
        f"ALTER DATABASE {database.name} SET extra_float_digits = -4",
        "CREATE TABLE t (id int PRIMARY KEY, a date, b timestamptz, c interval, d bytea, e float8)",
    )
    database.begin()
    database.execute(
        "INSERT INTO t VALUES (1, '21/11/2026', '21/11/2026 12:00Z', '1 day', '\\xff', '0.1')"
    )
    (change,) = database.changes()
    assert change.after == {
        "id": 1,
        "a": date(2026, 11, 21),
        "b": datetime(2026, 11, 21, 12, tzinfo=UTC),
        "c": Interval(days=1),
        "d": b"\xff",
        "e": 0.1,
    }


def test_nan_is_not_lost(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, a float8, b numeric)")
    database.begin()
    database.execute("INSERT INTO t VALUES (1, 'NaN', 'NaN')")
    (change,) = database.changes()
    assert change.after is not None
    assert str(change.after["a"]) == "nan"
    assert str(change.after["b"]) == "NaN"


def test_names_can_be_any(database: Database) -> None:
    database.execute(
        'CREATE SCHEMA "S.1"', 'CREATE TABLE "S.1"."Tä""b" ("I d" int PRIMARY KEY, "%s" text)'
    )
    database.begin()
    database.execute("""INSERT INTO "S.1"."Tä""b" VALUES (1, 'x')""")
    (change,) = database.changes()
    assert (change.schema, change.table) == ("S.1", 'Tä"b')
    assert change.after == {"I d": 1, "%s": "x"}
    (again,) = database.changes(snapshot="only")
    assert again.after == change.after
