"""Values that only PostgreSQL has, into equal columns, by single rows and by staged rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import time, timedelta
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest
from pyspark.sql import SparkSession

from stompkit.replication.model.events import RowChange, Source, make_changeset
from stompkit.replication.model.values import Interval
from stompkit.replication.sinks import ApplyError
from stompkit.spark.jobs import Pipeline as Job
from stompkit.spark.jobs import PipelineSettings
from stompkit.spark.jobs.replicate import Replicate
from stompkit.spark.jobs.settings import parse
from stompkit.spark.targets.base import NewColumn
from stompkit.spark.targets.database.staging_tables import LEAST_ROWS
from tests.replication.sinks.sql_targets import Target, change, database_url, target
from tests.servers import mariadb, postgresql
from tests.spark.messages import BEGIN, fill, records_of
from tests.spark.targets.test_targets import MakePipeline, Pipeline, rows_of, write

__all__ = ["database_url", "mariadb", "postgresql", "target"]

POSTGRESQL = pytest.mark.parametrize("target", ["postgresql"], indirect=True)
#: The type of a column, a value as the publisher sends it, and the server's text of it.
SPECIAL: list[tuple[str, object, str]] = [
    ("date", "infinity", "infinity"),
    ("date", "-infinity", "-infinity"),
    ("date", "0044-03-15 BC", "0044-03-15 BC"),
    ("date", "12026-11-27", "12026-11-27"),
    ("timestamp", "infinity", "infinity"),
    ("timestamp", "0001-01-01 00:00:00.5 BC", "0001-01-01 00:00:00.5 BC"),
    ("timestamp(0)", "-infinity", "-infinity"),
    ("timestamptz", "infinity", "infinity"),
    ("time", "24:00:00", "24:00:00"),
    ("timetz", "24:00:00+05:45", "24:00:00+05:45"),
    ("interval", Interval(14, 3), "1 year 2 mons 3 days"),
    ("interval", Interval(-1, 3, -500_000), "-1 mons +3 days -00:00:00.5"),
    ("interval", timedelta(hours=24), "24:00:00"),
    ("span", Interval(1), "1 mon"),
    ("date[]", "{infinity,2026-11-27}", "{infinity,2026-11-27}"),
    ("interval[]", '{"1 mon"}', '{"1 mon"}'),
    ("double precision", float("inf"), "Infinity"),
]


def settings_of(folder: Path, url: str, change: RowChange) -> PipelineSettings:
    """Return a pipeline whose spool has a change."""
    source = Source(kind="postgresql", position="0/1", transaction="1")
    whole = make_changeset("shop", 1, [change], source, timestamp=BEGIN)
    return parse(
        {
            "name": "p",
            "state-dir": str(folder / "state"),
            "source": {"spool": str(fill(folder / "spool", list(records_of([whole]))))},
            "target": {"url": url},
        }
    )


@pytest.fixture
def pipeline(target: Target) -> Iterator[MakePipeline]:
    """A factory of pipelines into the target."""
    made: list[Pipeline] = []

    def make(**options: Any) -> Pipeline:
        made.append(Pipeline(target.url, **options))
        return made[-1]

    yield make
    for each in made:
        each.target.close()


@POSTGRESQL
@pytest.mark.parametrize("count", [1, LEAST_ROWS])
def test_values_that_only_postgresql_has_arrive_in_equal_columns(
    target: Target, pipeline: MakePipeline, count: int
) -> None:
    columns = ", ".join(f"c{n} {kind}" for n, (kind, _, _) in enumerate(SPECIAL))
    target.execute(
        "CREATE DOMAIN span AS interval", f"CREATE TABLE t (id int PRIMARY KEY, {columns})"
    )
    values = {f"c{n}": value for n, (_, value, _) in enumerate(SPECIAL)}
    # With others of the same types, as a mixed column is staged in another way.
    rows = rows_of(
        *(write(n, **(values if n % 2 == 0 else dict.fromkeys(values))) for n in range(count))
    )
    made = pipeline()
    (part, *_) = made.stage(rows, made.begin(), size=count)
    assert (part.problems, part.lacking) == ([], {})
    made.run(rows)
    shown = ", ".join(f"{name}::text" for name in values)
    ((found),) = target.rows(f"SELECT {shown} FROM t WHERE id = 0")
    assert tuple(found) == tuple(text for _, _, text in SPECIAL)


@POSTGRESQL
def test_job_carries_values_that_only_postgresql_has(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    columns = ", ".join(f"c{n} {kind}" for n, (kind, _, _) in enumerate(SPECIAL))
    table = f"CREATE TABLE t (id int PRIMARY KEY, {columns})"
    target.execute("CREATE DOMAIN span AS interval", table)
    values = {f"c{n}": value for n, (_, value, _) in enumerate(SPECIAL)}
    written = RowChange(table="t", action="write", key={"id": 0}, after={"id": 0, **values})
    settings = settings_of(tmp_path, target.url, written)
    Job(settings, "replicate", once=True, spark=spark).run()
    shown = ", ".join(f"{name}::text" for name in values)
    ((found),) = target.rows(f"SELECT {shown} FROM t")
    assert tuple(found) == tuple(text for _, _, text in SPECIAL)


@POSTGRESQL
@pytest.mark.parametrize("count", [1, LEAST_ROWS])
def test_keys_that_only_postgresql_has_are_found(
    target: Target, pipeline: MakePipeline, count: int
) -> None:
    target.execute("CREATE TABLE t (at date, n int, a text, PRIMARY KEY (at, n))")
    keys = [{"at": "0044-03-15 BC" if n % 2 else "infinity", "n": n} for n in range(count)]
    made = pipeline()
    made.run(rows_of(*(change("write", key, after={**key, "a": "x"}) for key in keys)))
    assert target.rows("SELECT count(*) FROM t") == [(count,)]
    made.run(rows_of(*(change("delete", key) for key in keys), first=count))
    assert target.rows("SELECT count(*) FROM t") == [(0,)]


#: The type of a column, a valid value, and a refused one; and the server's text of both after the
#: recommended change.
REFUSED: list[tuple[str, object, object, list[object]]] = [
    ("varchar(9)", "aä", "a\0b", ["aä".encode(), b"a\0b"]),
    ("text", "aä", "a\0b", ["aä".encode(), b"a\0b"]),
    ("time", time(1), Interval(1), ["01:00:00", "1 mon"]),
    ("bigint", 2_500_000, Interval(1, 2), ["00:00:02.5", "1 mon 2 days"]),
    ("date", "infinity", "now", ["infinity", "now"]),
]


@POSTGRESQL
@pytest.mark.parametrize(("kind", "held", "refused", "both"), REFUSED)
def test_what_an_error_advises_makes_a_column_take_the_value(
    target: Target,
    pipeline: MakePipeline,
    kind: str,
    held: object,
    refused: object,
    both: list[object],
) -> None:
    target.execute(f"CREATE TABLE t (id int PRIMARY KEY, c {kind})")
    made = pipeline()
    made.run(rows_of(write(1, c=held)))
    rows = rows_of(write(2, c=refused), first=1)
    with pytest.raises(ApplyError, match=r"table 't', key {\"id\":2}: column 'c': ") as at:
        made.run(rows)
    advice = str(at.value).partition("To go on, ")[2]
    assert advice.endswith("; or name it in `except_column_list`")
    target.execute(advice.partition("; or")[0])
    made.run(rows)
    shown = "c" if isinstance(both[0], bytes) else "c::text"
    assert [row[0] for row in target.rows(f"SELECT {shown} FROM t ORDER BY id")] == both


@pytest.mark.parametrize("kind", ["sqlite", "delta", "parquet"])
def test_value_that_a_target_without_other_types_refuses_is_named_with_advice(
    tmp_path: Path, kind: str
) -> None:
    place = tmp_path / ("copy.sqlite" if kind == "sqlite" else kind)
    made = Pipeline(f"{kind}:///{place}", create=True)
    columns = {
        "id": NewColumn("id", "int", key=True, is_told=True),
        "c": NewColumn("c", "date", is_told=True),
    }
    made.target.evolve({("", "t"): columns})
    advice = "To go on, recreate the table with 'c' as text; or name it in `except_column_list`"
    with closing(made.target), pytest.raises(ApplyError) as at:
        made.run(rows_of(write(2, c="infinity")))
    told = """the table 't', key {"id":2}: column 'c': str 'infinity' is not a date"""
    assert told in str(at.value)
    assert str(at.value).endswith(advice)


def test_job_advises_in_the_words_of_its_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/copy.sqlite"
    with closing(connect(tmp_path / "copy.sqlite")) as connection:
        connection.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, c DATE)")
    written = RowChange(table="t", action="write", key={"id": 2}, after={"id": 2, "c": "infinity"})
    made = Pipeline(url)
    with closing(made.target), pytest.raises(ApplyError) as at:
        made.run(rows_of(write(2, c="infinity")))
    told = Replicate(settings_of(tmp_path, url, written)).explain(at.value)
    assert "; or name it under except-column-list in [apply]. With on-problem" in told
