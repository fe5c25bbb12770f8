"""Batches larger than what Spark may bring to the driver."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stompkit.replication.model.events import RowChange, Source, make_changeset
from tests.spark.messages import BEGIN, fill, records_of

ROWS = 60
#: Size of a row in bytes: together several times as much as Spark may bring to the driver.
SIZE = 60_000
#: A program that applies what is in a spool; each result of Spark has at most 1 MiB.
PROGRAM = """
import sys
from stompkit.spark import StompDataSource, spark_session
from stompkit.spark.apply import apply_changes

config = {"spark.driver.maxResultSize": "1m", "spark.sql.execution.arrow.pyspark.enabled": "true"}
spark = spark_session("large", master="local[2]", config=config, profile="test")
spark.dataSource.register(StompDataSource)
spool, url, on_problem = sys.argv[1:]
ranges = spark.read.format("stomp").options(spool=spool, payload="ranges", minPartitions="2").load()
from stompkit.spark.targets import open_target
target = open_target(url, create=True)
done = apply_changes(ranges, target, pipeline="p", on_problem=on_problem)
print(done.written, done.dead_letters)
spark.stop()
"""


def row(number: int, **more: Any) -> RowChange:
    after = {"id": number, "a": str(number % 10) * SIZE, "b": number, **more}
    return RowChange(table="t", action="write", key={"id": number}, after=after)


def run(folder: Path, url: str, rows: list[RowChange], on_problem: str = "stop") -> str:
    """Apply rows, each in a changeset of its own; return what is written and the dead letters."""
    source = Source(kind="test")
    sets = [
        make_changeset("shop", number, [each], source, id=f"c-{number}", timestamp=BEGIN)
        for number, each in enumerate(rows, 1)
    ]
    spool = fill(folder / "spool", list(records_of(sets)))
    command = [sys.executable, "-c", PROGRAM, str(spool), url, on_problem]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["sqlite", "parquet"])
def test_rows_are_applied_without_passing_through_spark(tmp_path: Path, kind: str) -> None:
    urls = {"sqlite": f"sqlite:///{tmp_path}/t.sqlite", "parquet": f"parquet://{tmp_path}/tables"}
    assert run(tmp_path, urls[kind], [row(number) for number in range(ROWS)]) == f"{ROWS} 0"


def test_bad_value_in_a_large_batch_is_a_dead_letter(tmp_path: Path) -> None:
    file = tmp_path / "t.sqlite"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b INTEGER)")
    connection.close()
    rows = [row(number) for number in range(ROWS)]
    rows[ROWS // 2] = row(ROWS // 2, b="many")
    assert run(tmp_path, f"sqlite:///{file}", rows, "dead-letter") == f"{ROWS - 1} 1"
