"""Values are written as an application's own types store them, and read as in changes."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Date,
    DateTime,
    Dialect,
    Enum,
    Float,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    Numeric,
    String,
    Table,
    Text,
    Time,
    TypeDecorator,
    Uuid,
    insert,
    select,
)
from sqlalchemy.dialects import mysql, postgresql

from stompkit.replica.data.sql import SqlData
from stompkit.replication.model.values import Interval as Lapse
from stompkit.replication.model.values import Json
from tests.replica.data.data_made import as_it_is, row, written
from tests.replication.sinks.sql_targets import Target, database_url, target

__all__ = ["database_url", "target"]


class Colour(enum.Enum):
    """A custom type of an application."""

    RED = 1
    BLUE = 2


class Backwards(TypeDecorator[str]):
    """Text that is stored backwards."""

    impl = String(20)
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Reverse it."""
        return None if value is None else value[::-1]

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Reverse it back."""
        return None if value is None else value[::-1]


#: Types, the values of a program, and the values in a change.
TYPES: dict[str, tuple[Any, Any, Any]] = {
    "text": (Text(), "grün\n", "grün\n"),
    "flag": (Boolean(), True, True),
    "number": (Integer(), -7, -7),
    "price": (Numeric(10, 2), Decimal("12.50"), Decimal("12.50")),
    "ratio": (Float(), 0.25, 0.25),
    "octets": (LargeBinary(), b"\0\xff", b"\0\xff"),
    "day": (Date(), date(2026, 11, 22), date(2026, 11, 22)),
    "moment": (
        DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb"),
        datetime(2026, 11, 22, 10, 20, 30, 123456),
        datetime(2026, 11, 22, 10, 20, 30, 123456),
    ),
    "hour": (Time(), time(10, 20, 30), time(10, 20, 30)),
    "span": (
        Interval().with_variant(Interval(second_precision=6, native=False), "mysql", "mariadb"),
        timedelta(days=3, seconds=5),
        timedelta(days=3, seconds=5),
    ),
    "number_of_all": (
        Uuid(),
        uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e"),
        uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e"),
    ),
    "colour": (Enum(Colour), Colour.BLUE, "BLUE"),
    "backwards": (Backwards(), "abc", "cba"),
    "document": (JSON(), {"a": [1, None, "x"]}, {"a": [1, None, "x"]}),
}


@pytest.fixture
def table(target: Target) -> Iterator[Table]:
    """A table with a column of each type."""
    metadata = MetaData()
    columns = [Column(name, kind) for name, (kind, _, _) in TYPES.items()]
    made = Table("things", metadata, Column("id", Integer, primary_key=True), *columns)
    metadata.create_all(target.engine)
    yield made
    # Types of PostgreSQL would remain otherwise.
    metadata.drop_all(target.engine)


def test_a_program_finds_what_was_written(target: Target, table: Table) -> None:
    values = {name: told for name, (_, _, told) in TYPES.items()}
    rows = [row("things", 1, **values), row("things", 2, **dict.fromkeys(TYPES))]
    assert written(target, rows, SqlData(target.engine, [table])) == {}
    with target.engine.connect() as connection:
        first, second = connection.execute(select(table).order_by(table.c.id)).mappings()
    assert dict(first) == {"id": 1} | {name: own for name, (_, own, _) in TYPES.items()}
    assert dict(second) == {"id": 2} | dict.fromkeys(TYPES)


def test_what_a_program_has_written_is_read_as_changes_have_it(
    target: Target, table: Table
) -> None:
    own = {name: own for name, (_, own, _) in TYPES.items()}
    with target.engine.begin() as connection:
        connection.execute(insert(table), [{"id": 1, **own}, {"id": 2, **dict.fromkeys(TYPES)}])
        data = SqlData(target.engine, [table])
        ((key, values), (_, empty)) = data.read(connection, "things")
        again = data.read_one(connection, "things", {"id": 1})
    assert key == {"id": 1}
    assert values == again == {name: told for name, (_, _, told) in TYPES.items()}
    assert {name: type(value) for name, value in values.items()} == {
        name: type(told) for name, (_, _, told) in TYPES.items()
    }
    # The program reads None, and the column has JSON's null.
    assert empty == dict.fromkeys(TYPES) | {"document": Json("null")}


def test_nothing_is_a_document_where_there_has_to_be_one(target: Target) -> None:
    table = Table(
        "notes",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("content", JSON, nullable=False),
    )
    table.create(target.engine)
    rows = [row("notes", 1, content=None), row("notes", 2, content=[])]
    assert written(target, rows, SqlData(target.engine, [table])) == {}
    with target.engine.connect() as connection:
        found = connection.execute(select(table).order_by(table.c.id)).all()
    assert [tuple(each) for each in found] == [(1, None), (2, [])]


@pytest.mark.parametrize("target", ["sqlite", "mariadb"], indirect=True)
def test_an_interval_that_is_too_long_is_refused(target: Target, table: Table) -> None:
    rows = [row("things", 1, span=timedelta.max), row("things", 2, span=timedelta(1))]
    assert written(target, rows, SqlData(target.engine, [table])) == {
        "things 1": "a value does not fit its column span"
    }


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
@pytest.mark.parametrize("is_described", [True, False])
def test_intervals_of_postgresql_stay_what_they_are(target: Target, *, is_described: bool) -> None:
    target.execute("CREATE TABLE spans (id interval PRIMARY KEY, v interval)")
    own = Column("id", postgresql.INTERVAL(), primary_key=True)
    table = Table("spans", MetaData(), own, Column("v", postgresql.INTERVAL()))
    data = SqlData(target.engine, [table]) if is_described else as_it_is(target)
    spans = [
        timedelta(hours=-1),
        timedelta(hours=24),
        Lapse(0, 2),
        Lapse(0, 3, 90_000_000_000),
        Lapse(1, -1, -1),
    ]
    rows = [row("spans", {"id": span}, v=span) for span in spans]
    assert written(target, rows, data) == {}
    shown = [
        "-01:00:00",
        "24:00:00",
        "2 days",
        "3 days 25:00:00",
        "1 mon -1 days -00:00:00.000001",
    ]
    found = target.rows("SELECT CAST(id AS text), CAST(v AS text) FROM spans ORDER BY spans.id")
    assert found == [(each, each) for each in shown]
    read: list[Any] = []
    with target.engine.begin() as connection:
        while page := data.read(connection, "spans", read[-1][0] if read else None, limit=2):
            read += page
        assert read == [({"id": span}, {"v": span}) for span in spans]
        for span in spans:
            assert data.read_one(connection, "spans", {"id": span}) == {"v": span}


def test_an_interval_of_sqlalchemy_takes_days_for_24_hours(target: Target, table: Table) -> None:
    rows = [row("things", 1, span=Lapse(0, 3, 5_000_000))]
    data = SqlData(target.engine, [table])
    assert written(target, rows, data) == {}
    with target.engine.connect() as connection:
        assert connection.scalar(select(table.c.span)) == timedelta(days=3, seconds=5)
        found = data.read_one(connection, "things", {"id": 1})
    assert found is not None
    assert found["span"] == timedelta(days=3, seconds=5)


# Reading.


def test_tables_that_nobody_has_described_are_read_as_the_database_has_them(
    target: Target, table: Table
) -> None:
    names = ("text", "price", "octets", "day", "moment", "backwards", "colour")
    values = {name: TYPES[name][2] for name in names}
    assert written(target, [row("things", 1, **values)]) == {}
    with target.engine.connect() as connection:
        found = as_it_is(target).read_one(connection, "things", {"id": 1})
    assert found is not None
    assert {name: found[name] for name in names} == values
    assert [type(found[name]) for name in names] == [type(values[name]) for name in names]


def test_rows_are_read_page_by_page_in_the_order_of_their_keys(target: Target) -> None:
    target.execute(
        "CREATE TABLE parts (x INT NOT NULL, y VARCHAR(5) NOT NULL, a INT, PRIMARY KEY (x, y))"
    )
    data = as_it_is(target)
    keys = [{"x": x, "y": y} for x in range(5) for y in "abc"]
    assert written(target, [row("parts", key, a=0) for key in reversed(keys)], data) == {}
    found: list[Any] = []
    with target.engine.connect() as connection:
        while page := data.read(connection, "parts", found[-1] if found else None, limit=4):
            assert len(page) <= 4
            found += [key for key, _ in page]
    assert found == keys


def test_a_row_that_is_not_there_is_none(target: Target) -> None:
    target.execute("CREATE TABLE parts (id INT NOT NULL PRIMARY KEY)")
    data = as_it_is(target)
    with target.engine.connect() as connection:
        assert data.read_one(connection, "parts", {"id": 1}) is None
        assert data.read(connection, "parts") == []


def test_a_table_that_is_not_here_can_not_be_read(target: Target) -> None:
    data = as_it_is(target)
    with target.engine.connect() as connection:
        with pytest.raises(KeyError, match="parts"):
            data.read(connection, "parts")
        with pytest.raises(KeyError, match="parts"):
            data.read_one(connection, "parts", {"id": 1})
