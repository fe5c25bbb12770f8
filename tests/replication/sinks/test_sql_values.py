"""The sink for SQL: values in the columns of each kind of database."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from stompkit.replication.model.values import Interval, Json, NoDate
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.sql import SqlSink
from tests.replication.sinks.sql_targets import Target, change, changeset, database_url, target
from tests.servers import mariadb, postgresql

__all__ = ["database_url", "mariadb", "postgresql", "target"]

ALL = ("sqlite", "postgresql", "mariadb")
INDIA = timezone(timedelta(hours=5, minutes=30))
NOON = datetime(2026, 11, 21, 12, 0, 0, 250_000)
IN_INDIA = NOON.replace(tzinfo=UTC).astimezone(INDIA)
ID = UUID("0f8fad5b-d9cb-469f-a165-70867728950e")
LONG = Decimal("12345678901234567890.123456789")

P, M, S = "postgresql", "mariadb", "sqlite"

#: The database, the column's type, the stored value, and the value that the driver returns.
STORED: list[tuple[str, str, object, object]] = [
    (P, "BOOLEAN", True, True),
    (P, "BOOLEAN", 0, False),
    (M, "BOOLEAN", True, 1),
    (S, "BOOLEAN", False, 0),
    (M, "BIT(1)", True, b"\1"),
    (P, "SMALLINT", -1, -1),
    (P, "BIGINT", 2**63 - 1, 2**63 - 1),
    (M, "BIGINT UNSIGNED", 2**64 - 1, 2**64 - 1),
    (S, "INTEGER", -(2**63), -(2**63)),
    (P, "NUMERIC", 2**64, Decimal(2**64)),
    (S, "TEXT", 2**64, str(2**64)),
    (P, "INTEGER", Decimal("5.00"), 5),
    (P, "INTEGER", True, 1),
    (P, "INTEGER", "12", 12),
    (M, "YEAR", 2026, 2026),
    (M, "YEAR", 0, 0),
    (P, "REAL", 0.1, 0.1),
    (M, "FLOAT(7, 2)", 1.25, 1.25),
    (M, "FLOAT(12, 2)", 1048575.12, 1048575.12),
    (M, "BINARY(2)", b"ab", b"ab"),
    (M, "ENUM('it''s', 'a\\\\b', '1')", "a\\b", "a\\b"),
    (M, "ENUM('it''s', 'a\\\\b', '1')", "it's", "it's"),
    (M, "ENUM('it''s', 'a\\\\b', '1')", "1", "1"),
    (P, "MONEY AS TEXT", Decimal("1.50"), "$1.50"),
    (P, "MONEY AS TEXT", "$1.50", "$1.50"),
    (P, "INTERVAL(1)", timedelta(seconds=1.5), timedelta(seconds=1.5)),
    (P, "INTERVAL HOUR TO MINUTE", timedelta(minutes=61), timedelta(minutes=61)),
    (P, "INTERVAL YEAR AS TEXT", Interval(24), "2 years"),
    (P, "INTERVAL DAY AS TEXT", Interval(1, 2), "1 mon 2 days"),
    (P, "REAL[]", [0.1, None, math.inf], [0.1, None, math.inf]),
    (P, "NUMERIC(5, 2)[] AS TEXT", "[0:1]={1.50,NULL}", "[0:1]={1.50,NULL}"),
    (P, "NUMERIC(30, 9)", LONG, LONG),
    (M, "DECIMAL(30, 9)", LONG, LONG),
    (S, "TEXT", LONG, str(LONG)),
    (S, "DECIMAL(30, 9)", Decimal("10.50"), 10.5),
    (S, "NUMERIC", Decimal("9007199254740993"), 9007199254740993),
    (P, "NUMERIC(5, 1)", Decimal("1.500"), Decimal("1.5")),
    (P, "NUMERIC(5, 2)", Decimal("0.000"), Decimal("0.00")),
    (P, "NUMERIC(40, 9)", Decimal(f"{LONG}00"), LONG),
    (P, "NUMERIC", Decimal("NaN"), "nan"),
    # The text of a column of MariaDB that got it from PostgreSQL.
    (P, "NUMERIC", "NaN", "nan"),
    (P, "NUMERIC", "-Infinity", Decimal("-Infinity")),
    (P, "DOUBLE PRECISION", 0.1, 0.1),
    (P, "DOUBLE PRECISION", math.inf, math.inf),
    (P, "DOUBLE PRECISION", Decimal("0.5"), 0.5),
    (M, "DOUBLE", 1e300, 1e300),
    (S, "REAL", -math.inf, -math.inf),
    *[(kind, "VARCHAR(60)", "ü\U0001f600 ' \\ % %s ? \n", None) for kind in ALL],
    *[(kind, "VARCHAR(60)", "", None) for kind in ALL],
    (S, "TEXT", "a\0b", "a\0b"),
    (M, "TEXT", "a\0b", "a\0b"),
    *[(kind, "CHAR(36)", ID, str(ID)) for kind in ALL],
    *[(kind, "CHAR(32)", ID, ID.hex) for kind in ALL],
    *[(kind, "VARCHAR(60)", timedelta(seconds=-1), "PT-1S") for kind in ALL],
    *[(kind, "VARCHAR(60)", frozenset(["b", "a"]), "a,b") for kind in ALL],
    *[(kind, "VARCHAR(60)", {"a": [1, "ü"]}, '{"a":[1,"ü"]}') for kind in ALL],
    *[(kind, "VARCHAR(60)", IN_INDIA, "2026-11-21T17:30:00.250000+05:30") for kind in ALL],
    *[(kind, "VARCHAR(60)", True, "true") for kind in ALL],
    *[(kind, "VARCHAR(60)", 0.1, "0.1") for kind in ALL],
    (M, "SET('b', 'a')", frozenset(["a", "b"]), {"a", "b"}),
    (M, "ENUM('b', 'a')", "a", "a"),
    (P, "mood", "sad", "sad"),
    (P, "INET", "10.0.0.1", "10.0.0.1"),
    (P, "INTEGER[]", [1, None, 3], [1, None, 3]),
    (P, "BYTEA", b"\0\xff", b"\0\xff"),
    (M, "BLOB", b"\0\xff'\\", b"\0\xff'\\"),
    (S, "BLOB", b"\0\xff", b"\0\xff"),
    (M, "BINARY(16)", ID, ID.bytes),
    (P, "BYTEA", "ü", "ü".encode()),
    (P, "DATE", date(2026, 11, 21), date(2026, 11, 21)),
    (M, "DATE", datetime(2026, 11, 21), date(2026, 11, 21)),
    (S, "DATE", date(2026, 11, 21), "2026-11-21"),
    (P, "DATE", "2026-11-21", date(2026, 11, 21)),
    (P, "TIMESTAMP", NOON, NOON),
    (P, "TIMESTAMP", IN_INDIA, NOON),
    (P, "TIMESTAMPTZ", IN_INDIA, NOON.replace(tzinfo=UTC)),
    (P, "TIMESTAMPTZ", NOON, NOON.replace(tzinfo=UTC)),
    (P, "TIMESTAMP", date(2026, 11, 21), datetime(2026, 11, 21)),
    (M, "DATETIME(6)", IN_INDIA, NOON),
    (M, "DATETIME", NOON.replace(microsecond=0), NOON.replace(microsecond=0)),
    (M, "TIMESTAMP(6)", IN_INDIA, "utc"),
    (S, "DATETIME", IN_INDIA, "2026-11-21 12:00:00.250000"),
    (P, "TIME", NOON.time(), NOON.time()),
    (P, "TIME", timedelta(hours=12, microseconds=250_000), NOON.time()),
    (P, "TIMETZ", NOON.time(), NOON.time().replace(tzinfo=UTC)),
    (M, "TIME(6)", NOON.time(), timedelta(hours=12, microseconds=250_000)),
    (M, "TIME(6)", timedelta(hours=-100, microseconds=-1), timedelta(hours=-100, microseconds=-1)),
    (M, "TIME(6)", timedelta(seconds=-1), timedelta(seconds=-1)),
    (S, "TIME", NOON.time().replace(tzinfo=INDIA), "06:30:00.250000"),
    (P, "INTERVAL", timedelta(days=-3, microseconds=1), timedelta(days=-3, microseconds=1)),
    (P, "INTERVAL", 5, timedelta(microseconds=5)),
    (P, "INTERVAL", time(1), timedelta(hours=1)),
    *[(kind, "BIGINT", timedelta(days=-1, microseconds=1), -86_399_999_999) for kind in ALL],
    # Text of the server: two equal intervals or documents may have different texts.
    (P, "INTERVAL AS TEXT", timedelta(hours=24), "24:00:00"),
    (P, "INTERVAL AS TEXT", timedelta(microseconds=-500_000), "-00:00:00.5"),
    (P, "INTERVAL AS TEXT", Interval(0, 1), "1 day"),
    (P, "INTERVAL AS TEXT", Interval(-13, 3, -1), "-1 years -1 mons +3 days -00:00:00.000001"),
    (P, "INTERVAL AS TEXT", "P1Y2M3DT1H", "1 year 2 mons 3 days 01:00:00"),
    (P, "span AS TEXT", timedelta(hours=24), "24:00:00"),
    (P, "DATE AS TEXT", "infinity", "infinity"),
    (P, "DATE AS TEXT", "0044-03-15 BC", "0044-03-15 BC"),
    (P, "DATE AS TEXT", "12026-11-21", "12026-11-21"),
    (P, "TIMESTAMP AS TEXT", "-infinity", "-infinity"),
    (P, "TIMESTAMP AS TEXT", "0001-01-01 00:00:00.5 BC", "0001-01-01 00:00:00.5 BC"),
    (P, "TIMESTAMP AS TEXT", "0044-03-15 BC", "0044-03-15 00:00:00 BC"),
    (P, "TIMESTAMP AS TEXT", "10000-01-01 00:00:00+00", "10000-01-01 00:00:00"),
    (P, "TIMESTAMPTZ AS UTC", "10000-01-01 00:00:00", "10000-01-01 00:00:00"),
    (P, "TIMESTAMPTZ AS UTC", "0001-01-01 00:00:00 BC", "0001-01-01 00:00:00 BC"),
    (P, "TIME AS TEXT", "24:00:00", "24:00:00"),
    (P, "TIME AS TEXT", timedelta(hours=24), "24:00:00"),
    (P, "TIMETZ AS TEXT", "24:00:00+05:45", "24:00:00+05:45"),
    (P, "TIMETZ AS TEXT", "24:00:00", "24:00:00+00"),
    (M, "TIME", "24:00:00", timedelta(hours=24)),
    *[(M, "DATE AS CHAR", text, text) for text in ("0000-00-00", "2026-00-11", "2026-02-31")],
    (M, "DATETIME AS CHAR", "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
    (M, "DATETIME(1) AS CHAR", "2026-02-31 01:02:03.5", "2026-02-31 01:02:03.5"),
    (M, "DATE AS CHAR", NoDate("0000-00-00"), "0000-00-00"),
    *[(kind, "VARCHAR(60)", NoDate("2026-02-31"), "2026-02-31") for kind in ALL],
    *[(kind, "VARCHAR(60)", timedelta(hours=24), "PT24H") for kind in ALL],
    *[(kind, "VARCHAR(60)", Interval(0, 1), "P1D") for kind in ALL],
    # The former values of a text column.
    (P, "INTERVAL AS TEXT", "PT24H", "24:00:00"),
    (P, "INTERVAL AS TEXT", "P1DT-0.5S", "1 day -00:00:00.5"),
    (P, "INTERVAL AS TEXT", "-86400000000", "-24:00:00"),
    *[(kind, "VARCHAR(60)", Interval(1, 0, 1), "P1MT0.000001S") for kind in ALL],
    (S, "DATETIME", timedelta(days=3), "1970-01-04 00:00:00.000000"),
    (M, "DATETIME", timedelta(days=3), datetime(1970, 1, 4)),
    (P, "TIMESTAMP", timedelta(days=-3), datetime(1969, 12, 29)),
    *[(kind, "VARCHAR(60)", Decimal("1E-7"), "0.0000001") for kind in ALL],
    *[
        (kind, as_text, given, text)
        for kind, as_text in ((P, "JSONB AS TEXT"), (P, "JSON AS TEXT"), (M, "JSON"), (S, "JSON"))
        for given, text in (
            (Json("null"), "null"),
            (Json("true"), "true"),
            (Json('"text"'), '"text"'),
            (Json('"{}"'), '"{}"'),
        )
    ],
    *[
        (kind, as_text, given, text)
        for kind, as_text in ((P, "JSONB AS TEXT"), (P, "JSON AS TEXT"), (S, "JSON"))
        for given, text in (
            (Json("1.50"), 1.5 if kind == S else "1.50"),
            (Json("[0.10000000000000000001]"), "[0.10000000000000000001]"),
        )
    ],
    *[(kind, "VARCHAR(60)", Json('"{}"'), '"{}"') for kind in ALL],
    *[(kind, "INTEGER", Json("5"), 5) for kind in ALL],
    (P, "NUMERIC", Json("1.50"), Decimal("1.50")),
    (P, "UUID", ID, ID),
    (P, "UUID", str(ID), ID),
    (P, "JSONB", {"a": [1.5, None, "ü"]}, {"a": [1.5, None, "ü"]}),
    (P, "JSON", [], []),
    (P, "JSONB", '{"a": 1}', {"a": 1}),
    (P, "JSONB", "text", "text"),
    (P, "JSONB", "[text", "[text"),
    (S, "JSON", {"a": 1}, '{"a":1}'),
]


#: Types that MySQL lacks, or does not store as text.
STORED_IN_MARIADB: list[tuple[str, str, object, object]] = [
    (M, "UUID", ID, str(ID)),
    (M, "JSON", {"a": 1}, '{"a":1}'),
    (M, "JSON", Json("1.50"), "1.50"),
    (M, "JSON", Json("[0.10000000000000000001]"), "[0.10000000000000000001]"),
]


def store(target: Target, kind: str, *values: object, **settings: Any) -> list[Any]:
    kind, _, shown = kind.partition(" AS ")
    target.execute(f"CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v {kind})")
    sink = SqlSink(target.url, **settings)
    rows = [change("write", {"id": at}, after={"id": at, "v": v}) for at, v in enumerate(values)]
    try:
        sink.apply([changeset(1, *rows)])
    finally:
        sink.close()
    if not shown:
        return [row[1] for row in target.table()]
    found = "v AT TIME ZONE 'UTC'" if shown == "UTC" else "v"
    shown = "CHAR" if shown == "CHAR" else "TEXT"
    return [row[0] for row in target.rows(f"SELECT CAST({found} AS {shown}) FROM t ORDER BY id")]


@pytest.mark.parametrize(
    ("target", "kind", "value", "found"),
    [
        *STORED,
        *(pytest.param(*each, marks=pytest.mark.mariadb_only) for each in STORED_IN_MARIADB),
    ],
    indirect=["target"],
)
def test_what_is_stored(target: Target, kind: str, value: object, found: object) -> None:
    if kind == "mood":
        target.execute("CREATE TYPE mood AS ENUM ('happy', 'sad')")
    if kind.startswith("span"):
        target.execute("CREATE DOMAIN lapse AS INTERVAL", "CREATE DOMAIN span AS lapse")
    given, nothing = store(target, kind, value, None)
    assert nothing is None
    if kind == "INET":
        given = str(given)
    elif kind.startswith("SET"):
        given = set(given.split(","))
    elif found == "utc":
        ((given,),) = target.rows(
            "SELECT CONVERT_TZ(v, @@session.time_zone, '+00:00') FROM t WHERE id = 0"
        )
        found = NOON
    elif found == "nan":
        assert given.is_nan()
        return
    elif isinstance(given, str) and kind.startswith("CHAR"):
        given = given.rstrip()
    assert given == (value if found is None else found)
    # Equal numbers may have different texts; a set is written in any order.
    if not isinstance(given, set):
        assert str(given) == str(given if found is None else found)


#: The database, the column's type, the refused value, and the message about it.
REFUSED: list[tuple[str, str, object, str]] = [
    (P, "TEXT", "a\0b", "NUL"),
    (P, "JSONB", {"a": "\0"}, "Unicode"),
    *[(kind, "TEXT", "a\ud800", "'v'.*lone surrogate") for kind in ALL],
    *[(kind, "JSON", {"a": "\ud800"}, "'v'.*lone surrogate") for kind in ALL],
    (P, "TEXT[]", ["a", "\ud800"], "'v'.*lone surrogate"),
    (P, "VARCHAR(3)", "abc ", "4 characters"),
    (M, "VARCHAR(3)", "abc ", "4 characters"),
    (M, "TINYTEXT", "x" * 256, "Data too long"),
    *[(kind, "VARCHAR(9)", "\ud800", "surrogates|surrogate") for kind in ALL],
    *[(kind, "VARCHAR(9)", b"x", "not text") for kind in ALL],
    *[(kind, "VARCHAR(9)", frozenset(["a,b"]), "comma") for kind in ALL],
    *[(kind, "INTEGER", "x", "not a whole number") for kind in ALL],
    *[(kind, "INTEGER", 1.5, "not a whole number") for kind in ALL],
    *[(kind, "INTEGER", Decimal("1E+999999999"), "not a whole number") for kind in ALL],
    *[(kind, "INTEGER", Decimal("NaN"), "not a whole number") for kind in ALL],
    (P, "INTEGER", 2**31, "out of range"),
    (M, "INTEGER", 2**31, "Out of range"),
    (M, "INTEGER UNSIGNED", -1, "Out of range"),
    (S, "INTEGER", 2**63, "64 bits"),
    *[(kind, "BOOLEAN", 2, "truth value") for kind in (P, S)],
    (P, "NUMERIC(5, 2)", Decimal("1.234"), "2 digits"),
    (M, "DECIMAL(5, 2)", Decimal("1.234"), "2 digits"),
    (M, "DECIMAL(5, 2)", Decimal("1000"), "Out of range"),
    (M, "DECIMAL(5, 2)", Decimal("NaN"), "not a number"),
    (M, "DECIMAL(5, 2)", "Infinity", "not a number"),
    *[(kind, "INTEGER", "NaN", "not a whole number") for kind in ALL],
    (S, "DECIMAL(30, 9)", LONG, "as text"),
    *[(kind, "NUMERIC(5, 2)", "x", "not a number") for kind in ALL],
    (M, "DOUBLE", math.nan, "not a number"),
    (M, "DOUBLE", math.inf, "not a number"),
    (S, "REAL", math.nan, "not a number"),
    (P, "DOUBLE PRECISION", Decimal("0.12345678901234567890"), "more digits"),
    (P, "DOUBLE PRECISION", Decimal("1E+400"), "too large"),
    (P, "DOUBLE PRECISION", 10**400, "too large"),
    (M, "DATETIME", NOON, "0 digits of a second"),
    (M, "TIME", NOON.time(), "0 digits of a second"),
    (P, "TIMESTAMP(1)", NOON, "1 digits of a second"),
    (M, "TIMESTAMP", datetime(1900, 1, 1), "Incorrect datetime"),
    *[(kind, "DATE", NOON, "more than a date") for kind in ALL],
    *[(kind, "DATE", "yesterday", "not a date") for kind in ALL],
    *[(kind, "TIMESTAMP", datetime.min.replace(tzinfo=INDIA), "range in UTC") for kind in (P, S)],
    (P, "TIME", timedelta(hours=25), "no time of a day"),
    (M, "TIME", timedelta(hours=900), "Incorrect time"),
    (P, "UUID", "x", "not a UUID"),
    (P, "mood", "angry", "mood"),
    # Text that databases take for another value.
    *[(M, "ENUM('b', 'a')", text, "none of the column's values") for text in ("c", "A", "a ", "1")],
    *[(M, "SET('b', 'a')", text, "none of the column's values") for text in ("c", "A,b", "1")],
    *[
        (kind, "INTEGER", text, "not a whole")
        for text in ("007", " 5", "1_0", "+1")
        for kind in ALL
    ],
    *[(kind, "NUMERIC(9, 2)", text, "not a number") for text in ("007", "\uff11") for kind in ALL],
    *[(M, "YEAR", year, "not a year") for year in (7, 70, 1900, 2156)],
    (M, "BINARY(4)", b"abc", "pads them to 4"),
    # Numbers that databases round.
    *[(M, "FLOAT", number, "more digits") for number in (0.1234567891, 1e-300, 2.0**24 + 1)],
    (M, "FLOAT", 1e300, "too large"),
    (P, "REAL", 0.1234567891, "more digits"),
    (P, "FLOAT(24)", 0.1234567891, "more digits"),
    *[(M, "FLOAT(12, 4)", number, "more digits") for number in (1.23456, 12345678.1234, 1e-99)],
    (M, "DOUBLE(7, 2)", 1.234, "more digits"),
    *[(P, "MONEY", number, "2 digits") for number in (1.239, Decimal("1.239"), "1.239")],
    (P, "INTERVAL(1)", timedelta(seconds=1.25), "1 digits of a second"),
    (P, "INTERVAL HOUR TO MINUTE", timedelta(seconds=61), "smaller units than HOUR TO MINUTE"),
    (P, "INTERVAL DAY", timedelta(hours=5), "smaller units than DAY"),
    (P, "INTERVAL YEAR", Interval(13), "smaller units than YEAR"),
    (P, "REAL[]", [[0.5], [0.1234567891]], "more digits"),
    (P, "INTEGER[]", [1.5], "not a whole number"),
    *[(P, "NUMERIC(5, 2)[]", array, "2 digits") for array in ("{1.5,1.239}", [1.239], ["1.239"])],
    (P, "INTERVAL", "x", "not an interval"),
    *[(P, "DATE", text, "not a date") for text in ("now", "epoch", "2026-11-21 12:00 BC")],
    *[(P, "TIMESTAMPTZ", text, "not a time") for text in ("now", "today", "Infinity")],
    (P, "TIMESTAMP", "10000-01-01 00:00:00+01", "has a zone"),
    (P, "TIMESTAMP(1)", "10000-01-01 00:00:00.25", "1 digits of a second"),
    (P, "TIME", "24:00:00+05:45", "not a time of a day"),
    (S, "TIME", "24:00:00", "not a time of a day"),
    *[(kind, "DATETIME", "infinity", "not a time") for kind in (M, S)],
    *[(kind, "DATE", "0044-03-15 BC", "not a date") for kind in (M, S)],
    *[(kind, "DATE", "0000-00-00", "not a date|out of range") for kind in (P, S)],
    *[(kind, "BIGINT", Interval(1), "P1M has months") for kind in ALL],
    (M, "TIME", Interval(1), "P1M has months"),
    *[(kind, "BIGINT", Interval(0, 1), "P1D has days, which are not 24 hours") for kind in ALL],
    *[(kind, "DATETIME", Interval(0, -1), "P-1D has days") for kind in (M, S)],
    (P, "TIMESTAMP", Interval(0, -1), "P-1D has days"),
    (M, "TIME(6)", Interval(0, 1, -1), "P1DT-0.000001S has days"),
    (P, "TIME", Interval(0, 1, -1), "P1DT-0.000001S has days"),
    (P, "MONEY", timedelta(days=1), "not a value of its type"),
    (S, "JSON", Json("0.10000000000000000001"), "as text"),
    *[(kind, "INTEGER", Json('"x"'), "not a whole number") for kind in ALL],
    *[(kind, "INTEGER", Json("null"), "not what the column holds") for kind in ALL],
    *[(kind, "INTEGER CHECK (v > 5)", 5, "(?i:check|constraint)") for kind in ALL],
    *[(kind, "INTEGER NOT NULL", None, "(?i:null)") for kind in ALL],
]


@pytest.mark.parametrize(("target", "kind", "value", "reason"), REFUSED, indirect=["target"])
def test_what_can_not_be_stored_is_told(
    target: Target, kind: str, value: object, reason: str
) -> None:
    if kind == "mood":
        target.execute("CREATE TYPE mood AS ENUM ('happy', 'sad')")
    # Surrounding changes, so that it is one of a batch.
    fine: object = 6 if "CHECK" in kind or "NOT NULL" in kind else None
    with pytest.raises(ApplyError, match=rf"the table 't', key \{{'id': 1\}}: .*{reason}"):
        store(target, kind, fine, value, fine)
    assert target.table() == []


@pytest.mark.parametrize(
    ("target", "kind", "value", "found"),
    [
        (P, "NUMERIC(5, 2)", Decimal("1.234"), Decimal("1.23")),
        (M, "DECIMAL(5, 2)", Decimal("1.236"), Decimal("1.24")),
        (P, "DOUBLE PRECISION", 2**53 + 1, float(2**53)),
        (M, "DOUBLE(7, 2)", 1.236, 1.24),
        (M, "ENUM('b', 'a')", "A", "a"),
        (M, "YEAR", 7, 2007),
        (P, "REAL[]", [2.0**24 + 1], [2.0**24]),
        (P, "INTERVAL(1)", timedelta(seconds=1.26), timedelta(seconds=1.3)),
        (M, "BINARY(4)", b"abc", b"abc\0"),
        (M, "DATETIME", NOON, NOON.replace(microsecond=0)),
        (M, "BIGINT", Interval(0, 1, 1), 86_400_000_001),
        (M, "TIME", Interval(0, 1), timedelta(hours=24)),
        (P, "TIMESTAMP", Interval(0, -3), datetime(1969, 12, 29)),
    ],
    indirect=["target"],
)
def test_digits_and_days_are_lost_where_that_is_wanted(
    target: Target, kind: str, value: object, found: object
) -> None:
    assert store(target, kind, value, lossy=True) == [found]


@pytest.mark.parametrize("target", [M], indirect=True)
def test_the_sql_mode_of_the_target_cuts_nothing_off(target: Target) -> None:
    ((before,),) = target.rows("SELECT @@global.sql_mode")
    target.execute("SET GLOBAL sql_mode = ''")
    try:
        with pytest.raises(ApplyError, match="Data too long"):
            store(target, "TINYTEXT", "x" * 256)
    finally:
        target.execute(f"SET GLOBAL sql_mode = '{before}'")


@pytest.mark.parametrize("target", [M], indirect=True)
def test_the_session_of_an_engine_stays_as_it_was(target: Target) -> None:
    target.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    isolation = "transaction_isolation" if target.is_mysql else "tx_isolation"
    query = f"SELECT @@sql_mode, @@time_zone, @@foreign_key_checks, @@{isolation}, CONNECTION_ID()"
    with target.engine.begin() as connection:
        connection.exec_driver_sql("SET SESSION sql_mode = 'ANSI_QUOTES', time_zone = '+03:00'")
    before = target.rows(query)
    SqlSink(target.engine, foreign_keys="off").apply([changeset(1, change("write", {"id": 1}))])
    assert target.rows(query) == before
    assert target.table() == [(1,)]


def test_documents_stay_what_they_are(target: Target) -> None:
    kind = target.pick(sqlite="TEXT", postgresql="JSON", mariadb="JSON")
    documents = [{"b": 1, "a": [True, None, 0.1, "ü\n\"'\\"]}, [], {}, [[1], "x"]]
    stored = store(target, kind, *documents)
    read = [json.loads(each) if isinstance(each, str) else each for each in stored]
    assert read == documents
