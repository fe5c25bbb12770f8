"""Keys of tables: the catalogue has the same columns and keys as the log."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stompkit.replication.jobs.feeder import Feeder
from stompkit.replication.model.tables import Tables
from stompkit.replication.sinks.sql import SqlSink
from tests.effort import drawn
from tests.replication.sources.mysql.reading import Database, Reading

_NUMBERS: Final = count(1)
_PERIOD: Final = (
    "b TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END,"
    " PERIOD FOR SYSTEM_TIME(b, e)"
)
_KEYS: Final = (
    "PRIMARY KEY (x)",
    "PRIMARY KEY (y, x)",
    "UNIQUE (y)",
    "UNIQUE (x, y)",
    "UNIQUE (z)",
)


@given(
    keys=st.lists(st.sampled_from(_KEYS), max_size=2, unique=True),
    period=st.sampled_from(["", _PERIOD]),
    versioned=st.sampled_from(["", " WITH SYSTEM VERSIONING"]),
)
@settings(
    deadline=None,
    max_examples=drawn(10),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@pytest.mark.mariadb_only
def test_the_catalogue_has_the_columns_and_keys_of_the_log(
    database: Database, keys: list[str], period: str, versioned: str
) -> None:
    keys = [key for at, key in enumerate(keys) if not at or "PRIMARY" not in key]
    name = f"t{next(_NUMBERS)}"
    columns = ["x INT NOT NULL", "y INT NOT NULL", "z LONGTEXT", *keys]
    if period and versioned:
        columns.append(period)
    reading = Reading(database, tables=Tables(include=[f"{database.name}.{name}"]))
    database.run(
        f"CREATE TABLE {name} ({', '.join(columns)}){versioned}",
        f"INSERT INTO {name} (x, y, z) VALUES (1, 2, 'z')",
    )
    schema, written = reading.changes()
    snapshot = Reading(database, tables=reading.tables).changes(snapshot="only", announce=True)
    assert snapshot[0].after is not None
    assert schema.after is not None
    assert snapshot[0].after["columns"] == schema.after["columns"]
    (read,) = snapshot[1:]
    assert read.after == written.after
    if any("PRIMARY" in key for key in keys):
        # The log has the columns of the primary key only.
        assert list(read.key.items()) == list(written.key.items())
        assert {each["name"] for each in schema.after["columns"] if each["key"]} == set(read.key)


@pytest.mark.mariadb_only
def test_a_table_without_a_primary_key_has_the_first_unique_key(database: Database) -> None:
    """In the order of the definition of the table."""
    columns = "x INT NOT NULL, y INT NOT NULL, z LONGTEXT"
    keys = "UNIQUE (y), UNIQUE (x, y)"
    period = f"{_PERIOD}) WITH SYSTEM VERSIONING"
    database.run(f"CREATE TABLE t ({columns}, {keys}, {period}")
    (schema,) = Reading(database).changes(snapshot="only", announce=True)
    assert schema.after is not None
    assert [each["name"] for each in schema.after["columns"] if each["key"]] == ["y", "e"]


@pytest.mark.mariadb_only
@pytest.mark.parametrize("period", ["", f", {_PERIOD}"])
def test_a_table_with_system_versioning_arrives_with_its_history(
    database: Database, tmp_path: Path, period: str
) -> None:
    path = tmp_path / "copy.sqlite"
    database.run(
        f"CREATE TABLE t (id INT PRIMARY KEY, v INT{period}) WITH SYSTEM VERSIONING",
        "INSERT INTO t (id, v) VALUES (1, 1), (2, 2)",
    )
    reading = Reading(database, snapshot="initial", announce=True)
    ended: list[object] = []
    with Feeder(SqlSink(f"sqlite:///{path}", create=True), on_end=ended.append):
        reading.changes()
        database.run(
            "UPDATE t SET v = 5 WHERE id = 1",
            "UPDATE t SET v = 6 WHERE id = 1",
            "DELETE FROM t WHERE id = 2",
            "INSERT INTO t (id, v) VALUES (3, 3)",
        )
        reading.changes()
    query = "SELECT id, v FROM t{} ORDER BY id, v"
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(query.format("")).fetchall()
    expected = database.ask(query.format(" FOR SYSTEM_TIME ALL"))
    assert found == [tuple(map(int, row)) for row in expected]
    assert len(found) == 5
