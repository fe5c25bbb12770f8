"""Delta tables that stompkit writes are read by Spark's own Delta."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest

from stompkit.replication.model.events import RowChange
from tests.replication.sinks.sql_targets import change, schema_change
from tests.spark.targets.delta_spark import DeltaSparkMissing, delta_spark, read_tables
from tests.spark.targets.test_targets import JOB, Pipeline, rows_of

deltalake = pytest.importorskip("deltalake")
pytestmark = pytest.mark.matrix

_ZONE = dt.timezone(dt.timedelta(hours=1))
#: A column of each type that sources declare, and two values.
TYPES: list[tuple[dict[str, Any], Any, Any]] = [
    ({"type": "bool"}, True, False),
    ({"type": "int"}, -(2**63), 2**63 - 1),
    ({"type": "int", "precision": 20}, 2**64 - 1, 0),
    ({"type": "float"}, 0.1, float("inf")),
    ({"type": "decimal", "precision": 12, "scale": 2}, Decimal("-1234567890.12"), Decimal(0)),
    ({"type": "decimal"}, Decimal("0.000000000000000001"), Decimal(10**19)),
    ({"type": "text"}, "größer 🐘", ""),
    ({"type": "bytes"}, b"\0\xff", b""),
    ({"type": "date"}, dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    (
        {"type": "datetime"},
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    ),
    (
        {"type": "datetimez"},
        dt.datetime(2026, 11, 22, 10, 20, 30, 123456, _ZONE),
        dt.datetime(1600, 2, 29, tzinfo=dt.UTC),
    ),
    ({"type": "time"}, dt.time(23, 59, 59, 999999), dt.time(0)),
    ({"type": "uuid"}, UUID(int=1), UUID(int=2**128 - 1)),
]
#: Names of tables that need other names of folders.
NAMES = ["t", "a b", "50%", "größer", "x.y", "a=b", "a/b[1]"]


def made(told: RowChange, *changes: RowChange) -> list[dict[str, Any]]:
    return rows_of(told, *changes)


def key_table(name: str, column: dict[str, Any], one: Any, other: Any) -> list[dict[str, Any]]:
    """Return changes of a table whose key has the given type: rows that stay, change and go."""
    told = schema_change(
        {"name": "id", "key": True, "nullable": False, **column},
        {"name": "n", "type": "int"},
        table=name,
    )
    return made(
        told,
        *(change("write", {"id": key}, name, after={"id": key, "n": 1}) for key in (one, other)),
        change("update", {"id": one}, name, after={"n": 2}),
        change("delete", {"id": other}, name),
    )


def value_table(name: str) -> list[dict[str, Any]]:
    """Return changes of a table with a column of each type."""
    columns = [{"name": f"c{n}", **column} for n, (column, *_) in enumerate(TYPES)]
    told = schema_change({"name": "id", "type": "int", "key": True}, *columns, table=name)
    rows = [
        {f"c{n}": values[at] for n, (_, *values) in enumerate(TYPES)} | {"id": at} for at in (0, 1)
    ]
    rows.append({"id": 2, **dict.fromkeys(f"c{n}" for n in range(len(TYPES)))})
    return made(told, *(change("write", {"id": row["id"]}, name, after=row) for row in rows))


def test_tables_of_every_kind_are_read_by_delta_for_spark(tmp_path: Path) -> None:
    try:
        python = delta_spark()
    except DeltaSparkMissing as missing:
        pytest.skip(f"delta-spark can't be fetched: {missing}")
    place = tmp_path / "place"
    pipeline = Pipeline(f"delta://{place}", replace(JOB, dead_letters=True), create=True)
    batches = [key_table(f"key{n}", *each) for n, each in enumerate(TYPES)]
    batches += [value_table(name) for name in NAMES]
    # Columns that are added later; the first time without zone needs another protocol.
    when = dt.datetime(2026, 11, 22, 10)
    batches += [
        rows_of(change("write", {"id": 1}, "later", after={"id": 1})),
        rows_of(change("write", {"id": 2}, "later", after={"id": 2, "at": when, "n": 7})),
        rows_of(change("write", {"id": 2}, "later", after={"id": 2, "n": "many"})),
        # A table without rows, and one that was emptied.
        rows_of(schema_change({"name": "id", "type": "datetime", "key": True}, table="none")),
        rows_of(change("write", {"id": when}, "gone", after={"id": when})),
        rows_of(change("truncate", {}, "gone")),
    ]
    at = 0
    for rows in batches:
        rows = [{**row, "_ordinal": at + number} for number, row in enumerate(rows)]
        at += len(rows)
        pipeline.run(rows)
    pipeline.target.close()
    tables = [each for each in sorted(place.iterdir()) if not each.name.startswith("_")]
    assert len(tables) == len(TYPES) + len(NAMES) + 4, tables
    out = tmp_path / "read"
    try:
        read_tables(python, *((each, out / str(n)) for n, each in enumerate(tables)))
    except DeltaSparkMissing as missing:
        pytest.skip(f"delta-spark can't be fetched: {missing}")
    for number, table in enumerate(tables):
        found = sorted(map(str, pq.read_table(out / str(number)).to_pylist()))
        ours = deltalake.DeltaTable(str(table)).to_pyarrow_table().to_pylist()
        assert found == sorted(map(str, ours)), table.name
