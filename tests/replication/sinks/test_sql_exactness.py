"""A target stores a value unchanged, or refuses it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from datetime import datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import REAL, types
from sqlalchemy.dialects import mysql

from stompkit.replication.model.values import Interval
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.sql import SqlSink
from stompkit.replication.sql import UnstorableValueError, adapter
from tests.effort import drawn
from tests.replication.sinks.sql_targets import Target, change, changeset, database_url, target
from tests.servers import mariadb, postgresql

__all__ = ["database_url", "mariadb", "postgresql", "target"]

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
EDGES = st.sampled_from(
    [
        sign * (2**bits + more)
        for bits in (7, 8, 15, 16, 24, 31, 32, 53, 63, 64)
        for more in (-1, 0, 1)
        for sign in (1, -1)
    ]
)
NUMBERS = (
    EDGES
    | st.integers(-300, 3_000)
    | FINITE
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(-(10**6), 10**6, places=2)
    | st.decimals(-(10**4), 10**4, places=4)
    | st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**25), max_value=10**25)
)
TEXTS = st.sampled_from(
    ["a", "A", "b", "a,b", "b,a", "a ", " a", "", "1", "007", "+1", "1.50", "1e3", "ä"]
) | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(2037, 12, 31)) | st.datetimes()
INTERVALS = st.timedeltas(timedelta(-30), timedelta(30)) | st.builds(
    Interval, st.integers(-11, 11), st.integers(-40, 40), st.integers(-(10**11), 10**11)
)

#: Columns of each database, and the values for them.
COLUMNS: dict[str, dict[str, st.SearchStrategy[object]]] = {
    "sqlite": {
        **dict.fromkeys(["INTEGER", "REAL", "NUMERIC", "DECIMAL(9, 2)"], NUMBERS),
        **dict.fromkeys(["TEXT", "VARCHAR(3)"], TEXTS),
        "BLOB": st.binary(max_size=6),
        "DATETIME": MOMENTS,
        "TIME": st.times(),
    },
    "postgresql": {
        **dict.fromkeys(["SMALLINT", "INTEGER", "BIGINT", "NUMERIC", "NUMERIC(9, 2)"], NUMBERS),
        **dict.fromkeys(["REAL", "DOUBLE PRECISION", "MONEY"], NUMBERS),
        **dict.fromkeys(["REAL[]", "NUMERIC(9, 2)[]", "INTEGER[]"], st.lists(NUMBERS, max_size=2)),
        **dict.fromkeys(["TEXT", "VARCHAR(3)"], TEXTS),
        "BYTEA": st.binary(max_size=6),
        **dict.fromkeys(["TIMESTAMP", "TIMESTAMP(2)"], MOMENTS),
        "TIME(2)": st.times(),
        **dict.fromkeys(
            ["INTERVAL", "INTERVAL(2)", "INTERVAL DAY", "INTERVAL DAY TO HOUR"], INTERVALS
        ),
    },
    "mariadb": {
        **dict.fromkeys(["TINYINT", "SMALLINT UNSIGNED", "INTEGER", "BIGINT"], NUMBERS),
        **dict.fromkeys(["BIGINT UNSIGNED", "BIT(9)", "YEAR", "DECIMAL(9, 2)"], NUMBERS),
        **dict.fromkeys(["FLOAT", "FLOAT(7, 2)", "DOUBLE", "DOUBLE(20, 4)"], NUMBERS),
        **dict.fromkeys(["TEXT", "VARCHAR(3)", "ENUM('a', 'b', '1')", "SET('a', 'b')"], TEXTS),
        **dict.fromkeys(["BINARY(3)", "VARBINARY(3)"], st.binary(max_size=4)),
        **dict.fromkeys(["DATETIME", "DATETIME(2)", "TIMESTAMP(2)"], MOMENTS),
        "TIME(2)": st.times() | st.timedeltas(timedelta(-30), timedelta(30)),
    },
}


def packed(value: float) -> bytes:
    """Return a single-precision number; empty if it is too large."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return b""


def shortest(value: float) -> float:
    """Return the number that a database writes for a single-precision one."""
    texts = (f"{value:.{digits}g}" for digits in range(1, 10))
    return next(float(text) for text in texts if packed(float(text)) == packed(value))


def exact(value: Any) -> Decimal:
    """Return a number by the digits that a program sees."""
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def is_same(kind: str, value: Any, found: Any) -> bool:
    """Return True if a program that reads the column has the value that was written."""
    if isinstance(value, list):
        return len(value) == len(found) and all(map(is_same, [kind] * len(value), value, found))
    if isinstance(found, bytes) and kind.startswith("BIT"):
        found = int.from_bytes(found)
    if kind == "MONEY":
        found = Decimal(found.replace("$", "").replace(",", ""))
    if isinstance(found, (int, float, Decimal)):
        if kind.startswith(("FLOAT", "REAL")) and kind != "REAL on sqlite":
            (stored,) = struct.unpack("<f", packed(float(found)))
            forms = [exact(stored), exact(shortest(stored))]
            if kind == "FLOAT(7, 2)":
                forms = [exact(stored), Decimal(f"{stored:.2f}")]
            return bool(value == stored) or exact(value) in forms
        return bool(value == found) or exact(value) == exact(found)
    if isinstance(value, Interval) and isinstance(found, timedelta):
        # The driver returns months as 30 days, and years as 365.
        days = 30 * value.months + value.days
        return timedelta(days, 0, value.microseconds) == found
    if isinstance(value, datetime) and isinstance(found, str):
        return datetime.fromisoformat(found) == value
    if isinstance(value, time) and not isinstance(found, time):
        length = datetime.combine(datetime.min, value) - datetime.min
        return time.fromisoformat(found) == value if isinstance(found, str) else found == length
    if kind.startswith("SET"):
        return set(value.split(",")) == set(found.split(","))
    return bool(value == found)


@pytest.fixture
def write(target: Target) -> Iterator[Callable[[str, object], list[Any]]]:
    """A function that writes a value to a column; it returns what is read, or raises ApplyError."""
    kinds = list(COLUMNS[target.kind])
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(kinds))
    target.execute(f"CREATE TABLE t (id INT NOT NULL PRIMARY KEY, {columns})")
    sink = SqlSink(target.url)
    written = 0

    def give(kind: str, value: object) -> list[Any]:
        nonlocal written
        column = f"c{kinds.index(kind)}"
        sink.apply(
            [
                changeset(
                    written + 1,
                    change("write", {"id": written}, after={"id": written, column: value}),
                )
            ]
        )
        written += 1
        # MySQL writes few digits of a single-precision number.
        shown = f"{column} + 0e0" if kind.startswith("FLOAT") else column
        return [row[0] for row in target.rows(f"SELECT {shown} FROM t WHERE id = {written - 1}")]

    yield give
    sink.close()


@settings(
    max_examples=drawn(300),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(data=st.data())
def test_a_value_is_read_as_it_was_written_or_is_refused(
    target: Target, write: Callable[[str, object], list[Any]], data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from(sorted(COLUMNS[target.kind])))
    value = data.draw(COLUMNS[target.kind][kind])
    try:
        [found] = write(kind, value)
    except ApplyError:
        return
    name = "REAL on sqlite" if (kind, target.kind) == ("REAL", "sqlite") else kind
    assert is_same(name, value, found), f"{kind} has {found!r}"


@given(FINITE)
def test_single_precision_is_held_exactly_and_in_its_shortest_form(value: float) -> None:
    kinds: list[tuple[types.TypeEngine[Any], str]] = [
        (mysql.FLOAT(), "mysql"),
        (REAL(), "postgresql"),
    ]
    for kind, backend in kinds:
        adapt = adapter(kind, backend, lossy=False)
        assert adapt(value) == value
        assert adapt(shortest(value)) == shortest(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_other_numbers_are_refused(value: float) -> None:
    adapt = adapter(REAL(), "postgresql", lossy=False)
    nearest = struct.unpack("<f", packed(value))[0] if packed(value) else None
    if nearest is not None and value in (nearest, shortest(nearest)):
        assert adapt(value) == value
    else:
        with pytest.raises(UnstorableValueError):
            adapt(value)


@given(FINITE.filter(lambda value: abs(value) < 2**20), st.integers(0, 4))
def test_numbers_of_a_column_with_digits_are_held_there(value: float, scale: int) -> None:
    """A source with the same column has either the stored number or the rounded one."""
    rounded = round(value, scale)
    (stored,) = struct.unpack("<f", struct.pack("<f", rounded))
    single = adapter(mysql.FLOAT(12, scale), "mysql", lossy=False)
    assert (single(rounded), single(stored)) == (rounded, stored)
    assert adapter(mysql.DOUBLE(20, scale), "mysql", lossy=False)(rounded) == rounded
