"""Columns that are too narrow for values are widened, without losing data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from stompkit.replication.sinks import ApplyError
from stompkit.replication.sql import SchemaError
from stompkit.spark.targets import Job
from stompkit.spark.targets.base import NewColumn
from stompkit.spark.targets.planning.evolve import merged
from tests.replication.sinks.sql_targets import Target, database_url, target
from tests.servers import mariadb, postgresql
from tests.spark.targets.test_targets import JOB, MakePipeline, Pipeline, rows_of, write

__all__ = ["database_url", "mariadb", "postgresql", "target"]

SERVERS = pytest.mark.parametrize("target", ["postgresql", "mariadb"], indirect=True)


@pytest.fixture
def pipeline(target: Target) -> Iterator[MakePipeline]:
    """A factory of pipelines into the target."""
    made: list[Pipeline] = []

    def make(job: Job = JOB, **options: Any) -> Pipeline:
        made.append(Pipeline(target.url, job, **options))
        return made[-1]

    yield make
    for each in made:
        each.target.close()


def types_of(target: Target) -> dict[str, str]:
    """Return the current types of the table's columns."""
    query = (
        "SELECT column_name, concat(data_type, ' ', numeric_precision, ' ', numeric_scale)"
        " FROM information_schema.columns WHERE table_name = 't'"
    )
    if target.kind == "mariadb":
        query = (
            "SELECT column_name, column_type FROM information_schema.columns"
            " WHERE table_name = 't' AND table_schema = DATABASE()"
        )
    rows = [tuple(row) for row in target.rows(query)]
    return {name: str(kind).strip() for name, kind in rows}


@SERVERS
def test_columns_are_made_wider_for_values_that_they_are_too_narrow_for(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(
        "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, i SMALLINT NOT NULL DEFAULT 7, j INT,"
        " k BIGINT, n NUMERIC(5, 2), a VARCHAR(5) NOT NULL DEFAULT 'it''s', r REAL)",
        "INSERT INTO t VALUES (1, 1, 1, 1, 1.25, 'one', 0.5)",
    )
    made = pipeline()
    large: dict[str, Any] = {
        "i": 40_000,
        "j": 2**40,
        "k": 2**70,
        "n": Decimal("123456.789"),
        "a": "more than five",
    }
    made.run(rows_of(write(2, **large)))
    # A key, too.
    made.run(rows_of(write(2**31, i=3), first=1))
    names = "id, i, j, k, n, a"
    found = target.rows(f"SELECT {names} FROM t ORDER BY id")
    assert [tuple(row) for row in found] == [
        (1, 1, 1, 1, Decimal("1.25"), "one"),
        (2, *large.values()),
        # The other attributes of a column stay.
        (2**31, 3, None, None, None, "it's"),
    ]
    types = types_of(target)
    expected = target.pick(
        sqlite="",
        postgresql="bigint 64 0,bigint 64 0,bigint 64 0,numeric,numeric,text",
        mariadb="bigint(20),bigint(20),bigint(20),decimal(22,0),decimal(9,3),varchar(14)",
    )
    told = ",".join(types[name] for name in ("id", "i", "j", "k", "n", "a"))
    # They are as wide as needed, and of the same kind.
    assert told.replace("),", ")\0").split("\0") == expected.replace("),", ")\0").split("\0")
    assert made.fence() == {0: 1}


@SERVERS
def test_a_column_that_the_database_fills_hides_no_narrow_one(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(
        "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, g INT GENERATED ALWAYS AS (id + 1) STORED,"
        " i SMALLINT)"
    )
    pipeline().run(rows_of(write(1, g=2, i=40_000)))
    assert [tuple(row) for row in target.rows("SELECT id, g, i FROM t")] == [(1, 2, 40_000)]


@pytest.mark.parametrize("target", ["mariadb"], indirect=True)
def test_a_value_that_no_type_is_wide_enough_for_is_refused(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, n NUMERIC(5, 2), i SMALLINT)")
    row = write(1, n=Decimal("0." + 31 * "3"), i=40_000)
    with pytest.raises(ApplyError, match=r"column 'n'") as at:
        pipeline().run(rows_of(row))
    assert "evolve=True" not in str(at.value)
    assert pipeline(replace(JOB, dead_letters=True)).run(rows_of(row)).dead_letters == 1


def test_what_the_source_says_of_a_column_is_more_than_a_guess() -> None:
    table = ("", "t")
    told = {"n": NewColumn("n", "decimal", True, 38, 2), "a": NewColumn("a", "text", length=50)}
    guess = {"n": NewColumn("n", "int"), "a": NewColumn("a", "text")}
    assert merged([{table: told}, {table: guess}])[table] == told
    assert merged([{table: guess}, {table: told}])[table] == told
    # Both fit into text of any length.
    other = {"n": NewColumn("n", "date")}
    assert merged([{table: told}, {table: other}])[table]["n"] == NewColumn("n", "text", True)


@SERVERS
def test_a_column_of_another_kind_is_left_alone(target: Target, pipeline: MakePipeline) -> None:
    target.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, b INT, d DATE)")
    before = types_of(target)
    rows = rows_of(write(1, b="many"), write(2, d=datetime(2026, 11, 22, 10)))
    for row in rows:
        with pytest.raises(ApplyError, match=r"column '[bd]'.*To go on, ALTER TABLE .*; or") as at:
            pipeline().run([row])
        assert types_of(target) == before
        # The result would be of another kind, so the user has to decide.
        statement = str(at.value).partition("To go on, ")[2].partition("; or")[0]
        target.execute(statement.replace("%", "%%"))
        pipeline(replace(JOB, pipeline=f"p{row['_ordinal']}")).run([row])
        before = types_of(target)
    assert target.table() == [(1, "many", None), (2, None, datetime(2026, 11, 22, 10))]


@SERVERS
def test_what_may_not_be_made_wider_is_told_with_what_to_do(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(5))")
    rows = rows_of(write(1, a="more than five"))
    with pytest.raises(ApplyError, match=r"To go on, ALTER TABLE .*; or open .*evolve=True") as at:
        pipeline(evolve=False).run(rows)
    # The user can run that statement.
    statement = str(at.value).partition("To go on, ")[2].partition("; or")[0]
    done = pipeline(replace(JOB, dead_letters=True), evolve=False).run(rows)
    assert done.dead_letters == 1
    target.execute(statement)
    pipeline(replace(JOB, pipeline="other"), evolve=False).run(rows)
    assert target.table() == [(1, "more than five")]


@pytest.mark.matrix
@SERVERS
def test_what_the_database_does_not_let_be_wider_stops_with_what_to_do(
    target: Target, pipeline: MakePipeline
) -> None:
    engine = target.pick(sqlite="", postgresql="", mariadb=" ENGINE=InnoDB")
    target.execute(f"CREATE TABLE t (id INT NOT NULL PRIMARY KEY, b INT){engine}")
    if target.kind == "postgresql":
        target.execute("CREATE VIEW v AS SELECT b FROM t")
        column = "b"
    else:
        target.execute(
            "CREATE TABLE child (id INT PRIMARY KEY, t INT,"
            f" FOREIGN KEY (t) REFERENCES t (id)){engine}"
        )
        column = "id"
    made = pipeline()
    row = write(2**40) if column == "id" else write(1, b=2**40)
    with pytest.raises(SchemaError, match=r"cannot be made wider.*To go on, .*: ALTER TABLE"):
        made.run(rows_of(row))
    assert target.table() == []
    assert made.fence() == {}
