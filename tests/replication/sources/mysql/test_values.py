"""Values equal those in the database, from the log as from a snapshot."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from stompkit.replication.model.events import decode, encode
from stompkit.replication.model.values import Json, NoDate
from tests.replication.sources.mysql.reading import Database, Reading

ZERO_END = UUID("0f8fad5b-d9cb-469f-a165-708655000000")

#: The type of a column, a value in SQL, and the expected value.
VALUES: list[tuple[str, str, Any]] = [
    ("TINYINT", "-128", -128),
    ("TINYINT UNSIGNED", "255", 255),
    ("TINYINT(1)", "2", 2),
    ("SMALLINT", "-32768", -32768),
    ("SMALLINT UNSIGNED", "65535", 65535),
    ("MEDIUMINT", "-8388608", -8388608),
    ("MEDIUMINT UNSIGNED", "16777215", 16777215),
    ("INT", "-2147483648", -2147483648),
    ("INT UNSIGNED", "4000000000", 4000000000),
    ("BIGINT", "-9223372036854775808", -(2**63)),
    ("BIGINT UNSIGNED", "18446744073709551615", 2**64 - 1),
    ("YEAR", "2026", 2026),
    ("YEAR", "0", 0),
    ("BIT(1)", "b'1'", True),
    ("BIT(1)", "b'0'", False),
    ("BIT(20)", "b'10000000000000000101'", 0x80005),
    ("BIT(64)", "18446744073709551615", 2**64 - 1),
    ("DECIMAL(10,2)", "10.50", Decimal("10.50")),
    ("DECIMAL(10,2)", "-0.05", Decimal("-0.05")),
    ("DECIMAL(5,0)", "-99999", Decimal(-99999)),
    ("DECIMAL(9,9)", "-0.123456789", Decimal("-0.123456789")),
    ("DECIMAL(65,30)", f"-{'9' * 35}.{'9' * 30}", Decimal(f"-{'9' * 35}.{'9' * 30}")),
    ("DECIMAL(65,30)", "1.000000000000000000000000000001", Decimal("1." + "0" * 29 + "1")),
    ("FLOAT", "0.1", struct.unpack("<f", struct.pack("<f", 0.1))[0]),
    ("FLOAT", "16777217e3", 16777217024.0),
    ("DOUBLE", "-1.7976931348623157e308", -1.7976931348623157e308),
    ("DOUBLE", "0.1", 0.1),
    ("DATE", "'9999-12-31'", date(9999, 12, 31)),
    ("DATETIME", "'1000-01-01 00:00:00'", datetime(1000, 1, 1)),
    ("DATETIME(1)", "'2026-11-21 12:00:00.5'", datetime(2026, 11, 21, 12, 0, 0, 500_000)),
    ("DATETIME(3)", "'2026-11-21 12:00:00.025'", datetime(2026, 11, 21, 12, 0, 0, 25_000)),
    ("DATETIME(6)", "'2026-11-21 12:00:00.000001'", datetime(2026, 11, 21, 12, 0, 0, 1)),
    ("TIMESTAMP", "'2026-11-21 12:00:00'", datetime(2026, 11, 21, 12, tzinfo=UTC)),
    (
        "TIMESTAMP(6)",
        "'2037-12-31 23:59:59.999999'",
        datetime(2037, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ),
    ("TIME", "'838:59:59'", timedelta(hours=838, minutes=59, seconds=59)),
    ("TIME", "'-00:00:01'", timedelta(seconds=-1)),
    (
        "TIME(2)",
        "'-11:22:33.44'",
        -timedelta(hours=11, minutes=22, seconds=33, microseconds=440_000),
    ),
    ("TIME(1)", "'-00:00:00.5'", -timedelta(microseconds=500_000)),
    ("TIME(4)", "'00:00:00.0001'", timedelta(microseconds=100)),
    ("TIME(6)", "'-838:59:58.999999'", -timedelta(hours=838, minutes=59, seconds=58.999999)),
    ("CHAR(10)", "'a '", "a"),
    ("CHAR(255)", "'€'", "€"),
    ("VARCHAR(300) CHARACTER SET utf8mb4", "'größer 🐍 '", "größer 🐍 "),
    ("VARCHAR(10) CHARACTER SET latin1", "'é€'", "é€"),
    ("VARCHAR(10) CHARACTER SET latin1", "_latin1 0x8190", "\x81\x90"),
    ("VARCHAR(10) CHARACTER SET gbk", "'汉字'", "汉字"),
    ("VARCHAR(10) CHARACTER SET ucs2", "'ш'", "ш"),
    ("VARCHAR(10) CHARACTER SET koi8r", "'ш'", "ш"),
    ("VARCHAR(10) CHARACTER SET dec8", "_dec8 0x61DB", "aÛ"),
    ("VARCHAR(10) CHARACTER SET swe7", "_swe7 0x7D", "å"),
    ("VARCHAR(10) CHARACTER SET sjis", "_sjis 0x815F5CB1", "\\\\ｱ"),
    ("VARCHAR(10) CHARACTER SET eucjpms", "'①日a'", "①日a"),
    ("VARCHAR(10) CHARACTER SET ujis", "_ujis 0x8FB0A1A4A2", "\u4e02あ"),
    ("TEXT CHARACTER SET big5", "'漢字?'", "漢字?"),
    ("VARCHAR(10) CHARACTER SET cp1251", "_cp1251 0x41F8", "Aш"),
    ("ENUM('日','b') CHARACTER SET sjis", "'日'", "日"),
    ("ENUM('a','b') CHARACTER SET binary", "'b'", b"b"),
    ("SET('a','b') CHARACTER SET binary", "'a,b'", b"a,b"),
    ("TEXT", "''", ""),
    ("BINARY(4)", "0x01000000", b"\x01\0\0\0"),
    ("BINARY(4)", "0x00000000", b"\0\0\0\0"),
    ("BINARY(255)", "0x61", b"a" + b"\0" * 254),
    ("VARBINARY(400)", "0x0100", b"\x01\0"),
    ("BLOB", "0xFF00", b"\xff\0"),
    ("ENUM('a','b')", "'b'", "b"),
    ("ENUM('é','ö') CHARACTER SET latin1", "'ö'", "ö"),
    ("SET('x','y','z')", "'z,x'", frozenset("xz")),
    ("SET('x','y','z')", "''", frozenset()),
    ("SET('é','ö') CHARACTER SET latin1", "'é,ö'", frozenset("éö")),
    ("JSON", """'{"a": [1, null, "ü"]}'""", {"a": [1, None, "ü"]}),
    ("JSON", "'[]'", []),
    ("JSON", "'null'", Json("null")),
    ("JSON", "'true'", Json("true")),
    ("JSON", """'"text"'""", Json('"text"')),
    ("POINT", "POINT(1, 2)", struct.pack("<IBIdd", 0, 1, 1, 1.0, 2.0)),
    ("INT", "NULL", None),
    ("JSON", "NULL", None),
    ("TIMESTAMP NULL", "NULL", None),
]

#: Types that MySQL lacks, and documents that it does not store as text.
OF_MARIADB: list[tuple[str, str, Any]] = [
    ("YEAR(2)", "70", 70),
    ("YEAR(2)", "2000", 0),
    ("YEAR(2)", "20", 20),
    ("VARCHAR(9) CHARACTER SET utf8mb4 COLLATE uca1400_german2_ai_ci", "'ß'", "ß"),
    ("JSON", "'1.50'", Json("1.50")),
    ("JSON", """'{"a": 0.10000000000000000001}'""", Json('{"a": 0.10000000000000000001}')),
    ("UUID", f"'{ZERO_END}'", ZERO_END),
    ("UUID", "'00000000-0000-0000-0000-000000000000'", UUID(int=0)),
    ("INET6", "'2001:db8::'", "2001:db8::"),
    ("INET6", "'::ffff:192.0.2.1'", "::ffff:192.0.2.1"),
    ("INET4", "'192.0.2.0'", "192.0.2.0"),
]


def values_of(database: Database) -> list[tuple[str, str, Any]]:
    """Return the values for the types that the server has."""
    return VALUES if database.is_mysql else VALUES + OF_MARIADB


def table_of(database: Database) -> str:
    """Return the statement that creates a table with a column for each of them."""
    columns = (f"c{number} {kind}" for number, (kind, _, _) in enumerate(values_of(database)))
    return f"CREATE TABLE wide (id INT PRIMARY KEY, {', '.join(columns)})"


def row_of(database: Database) -> str:
    """Return the statement that inserts them."""
    return f"INSERT INTO wide VALUES (1, {', '.join(value for _, value, _ in values_of(database))})"


def check(database: Database, after: dict[str, Any] | None) -> None:
    """Check the value and the type of every column."""
    assert after is not None
    for number, (kind, value, wanted) in enumerate(values_of(database)):
        found = after[f"c{number}"]
        assert found == wanted, (kind, value)
        assert type(found) is type(wanted), (kind, value)
        if isinstance(wanted, Decimal):
            assert str(found) == str(wanted), (kind, value)


def test_the_error_value_of_an_enumeration_is_empty_text(database: Database) -> None:
    """The server shows it like a member without letters, in snapshots too."""
    database.run("CREATE TABLE t (id INT PRIMARY KEY, a ENUM('', 'x'), b ENUM('x'))")
    reading = Reading(database)
    database.run("SET sql_mode = ''", "INSERT INTO t VALUES (1, 'z', 'z'), (2, '', 'x')")
    rows = [each.after for each in reading.changes()]
    assert rows == [{"id": 1, "a": "", "b": ""}, {"id": 2, "a": "", "b": "x"}]
    assert [each.after for each in Reading(database).changes(snapshot="only")] == rows


def test_values_of_the_log_are_those_of_the_database(database: Database) -> None:
    database.run("SET time_zone = '+00:00'", table_of(database))
    reading = Reading(database)
    database.run(row_of(database), "DELETE FROM wide WHERE id = 1")
    written, deleted = reading.changesets()
    check(database, written.changes[0].after)
    check(database, deleted.changes[0].before)
    assert decode(encode(written)) == written


def test_values_of_a_snapshot_are_those_of_the_log(database: Database) -> None:
    database.run("SET time_zone = '+00:00'", table_of(database), row_of(database))
    (read,) = Reading(database).changes(snapshot="only")
    assert read.action == "read"
    check(database, read.after)


@pytest.mark.mariadb_only
def test_a_document_that_nobody_checked_is_text(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, j JSON)", "SET check_constraint_checks = 0")
    reading = Reading(database)
    database.run("INSERT INTO t VALUES (1, '{no'), (2, '[]')")
    rows = [each.after for each in reading.changes()]
    assert rows == [{"id": 1, "j": "{no"}, {"id": 2, "j": []}]
    assert [each.after for each in Reading(database).changes(snapshot="only")] == rows


def test_the_zone_of_a_session_does_not_matter(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP NULL, dt DATETIME)")
    reading = Reading(database)
    database.run(
        "SET time_zone = '+05:45'",
        "INSERT INTO t VALUES (1, '2026-01-01 00:00:00', '2026-01-01 00:00:00')",
        "SET GLOBAL time_zone = '-08:00'",
    )
    try:
        written = reading.changes()
        (read,) = Reading(database).changes(snapshot="only")
    finally:
        database.run("SET GLOBAL time_zone = DEFAULT")
    moment = datetime(2025, 12, 31, 18, 15, tzinfo=UTC)
    assert written[0].after == read.after
    assert read.after == {"id": 1, "ts": moment, "dt": datetime(2026, 1, 1)}


@pytest.mark.parametrize("zero_dates", ["exact", "null", "text"])
def test_dates_that_are_none_are_what_they_are_or_null_or_text(
    database: Database, zero_dates: str
) -> None:
    database.run(
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        "SET time_zone = '+00:00'",
        "CREATE TABLE t (id INT PRIMARY KEY, d DATE, p DATE, dt DATETIME(3), ts TIMESTAMP(2) NULL)",
    )
    reading = Reading(database, zero_dates=zero_dates)
    database.run("INSERT INTO t VALUES (1, '0000-00-00', '2026-02-31', '2026-00-00 00:00:00.5', 0)")
    (written,) = reading.changes()
    (read,) = Reading(database, zero_dates=zero_dates).changes(snapshot="only")
    texts = ["0000-00-00", "2026-02-31", "2026-00-00 00:00:00.500", "0000-00-00 00:00:00.00"]
    choices: dict[str, list[Any]] = {
        "text": list(texts),
        "null": [None] * 4,
        "exact": [NoDate(text) for text in texts],
    }
    wanted = choices[zero_dates]
    for change in (written, read):
        assert change.after is not None
        assert list(change.after.values()) == [1, *wanted]


def test_a_blob_may_be_larger_than_a_packet(database: Database) -> None:
    database.run(
        "SET GLOBAL max_allowed_packet = 64 * 1024 * 1024",
        "CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB)",
    )
    reading = Reading(database)
    size = 20 * 1024 * 1024 + 3
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO t VALUES (1, CONCAT(REPEAT(0x00, {size - 1}), 'x'))")
    (change,) = reading.changes()
    assert change.after is not None
    assert len(change.after["b"]) == size
    assert change.after["b"][-3:] == b"\0\0x"


def test_generated_and_invisible_columns_are_told(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT AS (id + 1) VIRTUAL, "
        "p INT AS (id + 2) STORED, i INT INVISIBLE DEFAULT 4)"
    )
    reading = Reading(database)
    database.run("INSERT INTO t (id) VALUES (1)")
    (written,) = reading.changes()
    (read,) = Reading(database).changes(snapshot="only")
    assert written.after == read.after == {"id": 1, "v": 2, "p": 3, "i": 4}
