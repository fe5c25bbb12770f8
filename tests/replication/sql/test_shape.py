"""Tests of the columns and statements that sinks, replicas and Spark targets share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine

from stompkit.replication.model.events import RowChange, Source, make_changeset
from stompkit.replication.sql import (
    Batch,
    Catalog,
    ClashingColumnsError,
    RejectedRowError,
    Shape,
    Statements,
    TargetTable,
    UnfitValueError,
    adapted,
    apply_batch,
    shape_of,
)

COLUMNS = ("a", "b", "c", "d")
CHANGE = RowChange(table="t", action="write", key={})
CAUSE = make_changeset("o", 1, [CHANGE], Source(kind="test")), CHANGE


def table_of(*statements: str) -> TargetTable:
    """Return the table t that the statements create in SQLite."""
    with create_engine("sqlite://").connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
        catalog = Catalog(
            schema_map={},
            table_map={},
            reserved="",
            backend="sqlite",
            is_lossy=False,
            checks_foreign_keys=False,
            defers_foreign_keys=False,
        )
        table = catalog.find(connection, "", "t")
    assert table is not None
    return table


def names_of(shape: Shape) -> tuple[list[str], list[str]]:
    return [column.name for column in shape.key], [column.name for column in shape.others]


def test_key_columns_keep_their_order_and_are_no_other_columns() -> None:
    table = table_of("CREATE TABLE t (a, b, c, PRIMARY KEY (a, b))")
    shape = shape_of(table, ("b", "a"), ("a", "c", "b"), "sqlite")
    assert names_of(shape) == (["b", "a"], ["c"])
    assert (shape.kind, shape.missing) == ("upsert", ())


def test_generated_columns_are_not_written() -> None:
    table = table_of("CREATE TABLE t (a PRIMARY KEY, b, c AS (b + 1))")
    assert names_of(shape_of(table, ("a",), ("a", "b", "c"), "sqlite")) == (["a"], ["b"])


def test_missing_columns_are_listed_with_those_of_the_key_first() -> None:
    shape = shape_of(table_of("CREATE TABLE t (a PRIMARY KEY)"), ("a", "k"), ("x", "a"), "sqlite")
    assert shape.missing == ("k", "x")
    assert shape.missing_key() == "k"


@pytest.mark.parametrize("names", [("a", "b", "B"), ("a", "A")])
def test_names_of_one_column_clash(names: Sequence[str]) -> None:
    table = table_of("CREATE TABLE t (a PRIMARY KEY, b)")
    with pytest.raises(ClashingColumnsError, match="two of its columns are the same"):
        shape_of(table, ("a",), names, "sqlite")


def test_mysql_merges_if_another_key_can_clash() -> None:
    table = replace(table_of("CREATE TABLE t (a PRIMARY KEY, b)"), has_more_keys=True)
    kinds = [shape_of(table, ("a",), ("a", "b"), each).kind for each in ("sqlite", "mysql")]
    assert kinds == ["upsert", "merge"]


def test_an_invalid_value_is_reported_with_its_column() -> None:
    table = table_of("CREATE TABLE t (a INTEGER PRIMARY KEY, Number INTEGER)")
    shape = shape_of(table, ("a",), ("a", "number"), "sqlite")
    with pytest.raises(UnfitValueError) as caught:
        adapted(shape.others, shape.other_names, {"a": 1, "number": "many"})
    assert (caught.value.name, caught.value.column.name) == ("number", "Number")


@given(
    key=st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=2, unique=True),
    required=st.sets(st.sampled_from(COLUMNS)),
    unique=st.sets(st.sampled_from(COLUMNS), min_size=1),
    names=st.sets(st.sampled_from(COLUMNS)),
)
def test_rows_are_written_whether_or_not_they_exist(
    key: list[str], required: set[str], unique: set[str], names: set[str]
) -> None:
    """The chosen statements change an existing row, even if they could not insert it."""
    definitions = [f"{name} INTEGER {'NOT NULL' * (name in required)}" for name in COLUMNS]
    create = f"CREATE TABLE t ({', '.join(definitions)}, UNIQUE ({', '.join(sorted(unique))}))"
    shape = shape_of(table_of(create), key, sorted({*names, *key}), "sqlite")
    batch = Batch(shape.kind, table_of(create), shape.key, shape.others, CAUSE)
    new = (*[1] * len(shape.key), *[2] * len(shape.others))
    batch.rows.append(new)
    with create_engine("sqlite://").begin() as connection:
        connection.exec_driver_sql(create)
        connection.exec_driver_sql("INSERT INTO t VALUES (1, 1, 1, 1)")
        apply_batch(connection, Statements("sqlite", "qmark"), batch)
        expected = tuple(2 if name in names and name not in key else 1 for name in COLUMNS)
        assert connection.exec_driver_sql("SELECT * FROM t").all() == [expected]
        connection.exec_driver_sql("DELETE FROM t")
        written = {*names, *key}
        if required <= written:
            apply_batch(connection, Statements("sqlite", "qmark"), batch)
            made = tuple((1 if name in key else 2) if name in written else None for name in COLUMNS)
            assert connection.exec_driver_sql("SELECT * FROM t").all() == [made]


#: Keys of a table in SQLite, in which ``a`` is the first column.
LAYOUTS = ["", ", PRIMARY KEY (a)) WITHOUT ROWID", ", PRIMARY KEY (a, v)) WITHOUT ROWID"]


@given(
    hidden=st.lists(st.sampled_from(["rowid", "_rowid_", "OID", "Rowid"]), unique_by=str.lower),
    layout=st.sampled_from(LAYOUTS),
    kind=st.sampled_from(["delete_one", "update_one"]),
    chosen=st.integers(0, 2),
)
def test_one_row_without_a_key_is_changed_whatever_its_columns_are_called(
    hidden: list[str], layout: str, kind: Literal["delete_one", "update_one"], chosen: int
) -> None:
    """Only a table without any way to tell equal rows apart is refused, unchanged."""
    definitions = ["a INTEGER NOT NULL", "v INTEGER NOT NULL", *(f"{name} INT" for name in hidden)]
    create = f"CREATE TABLE t ({', '.join(definitions)}{layout or ')'}"
    table = table_of(create)
    columns = tuple(table.columns.values())
    rows = [(number, 0, *[1] * len(hidden)) for number in range(3)]
    new = (7, 7, *[7] * len(hidden))
    is_update = kind == "update_one"
    batch = Batch(kind, table, columns, columns if is_update else (), CAUSE)
    batch.rows.append(rows[chosen] + (new if is_update else ()))
    with create_engine("sqlite://").begin() as connection:
        connection.exec_driver_sql(create)
        marks = ", ".join("?" * len(columns))
        connection.exec_driver_sql(f"INSERT INTO t VALUES ({marks})", rows)
        expected = [row for row in rows if row != rows[chosen]] + [new] * is_update
        if len(hidden) == 3 and not layout:
            expected = rows
            with pytest.raises(RejectedRowError, match="Rename one of these columns"):
                apply_batch(connection, Statements("sqlite", "qmark"), batch)
        else:
            apply_batch(connection, Statements("sqlite", "qmark"), batch)
        assert sorted(connection.exec_driver_sql("SELECT * FROM t").all()) == sorted(expected)
