"""Batches of changes in Spark, applied to a target: each once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from stompkit.replication.model.events import Source, encode, make_changeset
from stompkit.replication.sinks import ApplyError
from stompkit.spark.apply import Applied, applier, apply_changes
from stompkit.spool import Record, SpoolWriter
from tests.replication.sinks.sql_targets import Target, change, database_url, target
from tests.servers import mariadb, postgresql
from tests.spark.change_rows import batch_of, row_of

__all__ = ["database_url", "mariadb", "postgresql", "target"]

SIMPLE = "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(20), b INT)"
MANY = 5000


def history() -> list[dict[str, Any]]:
    """Return changes of few rows, each changed very often."""
    draw = random.Random(8)
    changes = []
    for number in range(MANY):
        key = {"id": draw.randrange(MANY // 5)}
        match draw.randrange(6):
            case 0:
                changes.append(change("delete", key))
            case 1 | 2:
                changes.append(change("write", key, after={**key, "a": f"a{number}", "b": number}))
            case _:
                changes.append(change("update", key, after={"b": number}))
    return [row_of(each, ordinal) for ordinal, each in enumerate(changes)]


def outcome(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the expected table, computed by a simple loop."""
    import json

    table: dict[int, dict[str, Any]] = {}
    for row in rows:
        key = json.loads(row["key"])["id"]
        if row["operation"] == "delete":
            table.pop(key, None)
        else:
            table.setdefault(key, {"a": None, "b": None}).update(json.loads(row["after"]))
    return sorted((key, row["a"], row["b"]) for key, row in table.items())


def frame(spark: SparkSession, rows: list[dict[str, Any]], parts: int = 2) -> DataFrame:
    """Return rows as a source does: each partition is a range of ordinals."""
    made = spark.createDataFrame(pa.Table.from_batches([batch_of(rows)]))
    return made.repartitionByRange(parts, "_ordinal").sortWithinPartitions("_ordinal", "change")


@pytest.mark.parametrize("target", ["sqlite", "postgresql"], indirect=True)
def test_batches_are_applied_once_whatever_their_size(spark: SparkSession, target: Target) -> None:
    target.execute(SIMPLE)
    rows = history()
    first = apply_changes(frame(spark, rows[:3000]), target.url, pipeline="p")
    assert (first.rows, first.changes, first.fenced) == (3000, 3000, 0)
    # As after a crash with a lost checkpoint: another batch, with all of it.
    second = apply_changes(frame(spark, rows, 3), target.url, pipeline="p")
    assert (second.rows, second.changes, second.fenced) == (MANY, MANY - 3000, 3000)
    assert target.table() == outcome(rows)
    third = apply_changes(frame(spark, rows), target.url, pipeline="p")
    assert third == Applied(rows=MANY, fenced=MANY)


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
def test_changes_that_lost_their_order_are_sorted_first(
    spark: SparkSession, target: Target
) -> None:
    target.execute(SIMPLE)
    rows = history()[:1000]
    mixed = list(rows)
    random.Random(1).shuffle(mixed)
    made = spark.createDataFrame(pa.Table.from_batches([batch_of(mixed)])).repartition(3)
    apply_changes(made, target.url, pipeline="p")
    assert target.table() == outcome(rows)


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_columns_that_get_other_names_do_so_between_changes(
    spark: SparkSession, target: Target
) -> None:
    """Any task may have read any of the changes."""
    target.execute(SIMPLE)
    rows = history()[:1000]
    told = change("schema", {}, after={"renamed": {"a": "c"}, "untold": "names"})
    later = change("update", {"id": 1}, after={"c": "later"})
    rows += [row_of(told, 1000), row_of(later, 1001)]
    apply_changes(frame(spark, rows, 3), target.url, pipeline="p")
    names = [(key, "later" if key == 1 else a, b) for key, a, b in outcome(rows[:1000])]
    assert target.rows("SELECT id, c, b FROM t ORDER BY id") == names


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_what_a_batch_needs_is_made_or_told(spark: SparkSession, target: Target) -> None:
    target.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(20))")
    rows = history()[:50]
    rows.append({**rows[-1], "_ordinal": 50, "operation": "write", "after": '{"id":1,"b":"x"}'})
    # The column is added wide enough for most values, but one of them cannot be stored.
    with pytest.raises(ApplyError, match="message 50 in partition 0"):
        apply_changes(frame(spark, rows[:50]), target.url, pipeline="p")
        apply_changes(frame(spark, rows), target.url, pipeline="p")
    done = apply_changes(frame(spark, rows), target.url, pipeline="p", on_problem="dead-letter")
    assert (done.dead_letters, done.fenced) == (1, 50)
    assert target.rows("SELECT id, a, b FROM t ORDER BY id") == outcome(rows[:50])


@pytest.mark.parametrize("target", ["postgresql", "mariadb"], indirect=True)
def test_columns_are_widened_as_far_as_any_value_of_a_batch_needs(
    spark: SparkSession, target: Target
) -> None:
    """More values than are looked at one by one, and each needs more than the one before."""
    target.execute(SIMPLE)
    lengths = [25 + 15 * number for number in range(100)]
    rows = [
        row_of(change("write", {"id": id}, after={"id": id, "a": "x" * length, "b": 1}), id)
        for id, length in enumerate(lengths)
    ]
    large = (2**40, 2**70)
    rows += [
        row_of(change("write", {"id": id}, after={"id": id, "a": "x", "b": value}), id)
        for id, value in enumerate(large, 100)
    ]
    apply_changes(frame(spark, rows), target.url, pipeline="p")
    assert target.rows("SELECT length(a) FROM t ORDER BY id") == [(n,) for n in (*lengths, 1, 1)]
    assert target.rows("SELECT b FROM t WHERE id >= 100 ORDER BY id") == [(n,) for n in large]


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
def test_a_stream_is_applied_batch_by_batch(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    target.execute(SIMPLE)
    rows = history()[:600]
    source = tmp_path / "source"
    done: list[Applied] = []
    apply = applier(
        target.url,
        on_applied=lambda _, applied: done.append(applied),
        pipeline="p",
        apply_as_deletes="operation = 'delete' OR b_is_gone",
        tables=["t"],
    )
    for begin in (0, 300):
        frame(spark, rows[begin : begin + 300], 1).write.mode("append").parquet(str(source))
        stream = spark.readStream.schema(frame(spark, rows[:1]).schema).parquet(str(source))
        stream = stream.selectExpr("*", "get_json_object(after, '$.b') IS NULL AS b_is_gone")
        query = (
            stream.writeStream.foreachBatch(apply)
            # Its checkpoint is not kept: the fence is enough.
            .option("checkpointLocation", str(tmp_path / f"checkpoint-{begin}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert target.table() == outcome(rows)
    assert [each.fenced for each in done] == [0, 300]


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
def test_tasks_read_the_spool_themselves_where_they_are_told_ranges_of_it(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    target.execute(SIMPLE)
    changes = [
        change("write", {"id": number % 20}, after={"id": number % 20, "a": "a", "b": number})
        for number in range(60)
    ]
    changes += [change("delete", {"id": 3}), change("update", {"id": 4}, after={"b": None})]
    records = []
    for number, each in enumerate(changes):
        made = make_changeset("o", number + 1, [each], Source(kind="test"), id=f"{number}")
        records.append(Record(0, "/queue/q", "", made.id, "", (), encode(made)))
    with SpoolWriter(tmp_path / "spool") as writer:
        writer.append(records)
    ranges = spark.read.format("stomp").options(
        spool=str(tmp_path / "spool"), payload="ranges", minPartitions="2"
    )
    wanted: list[tuple[int, str, int | None]] = [(id, "a", id + 40) for id in range(20) if id != 3]
    wanted[3] = (4, "a", None)
    first = apply_changes(ranges.load(), target.url, pipeline="p")
    assert (first.rows, first.changes, first.fenced) == (62, 62, 0)
    assert target.table() == wanted
    again = apply_changes(ranges.load(), target.url, pipeline="p")
    assert again == Applied(rows=62, fenced=62)
    # The driver applies the changes in the ranges that tasks leave to it.
    gone = "operation = 'delete' OR get_json_object(after, '$.b') IS NULL"
    apply_changes(ranges.load(), target.url, pipeline="other", apply_as_deletes=gone)
    assert target.table() == [row for row in wanted if row[0] != 4]


@pytest.mark.parametrize("is_read_by_tasks", [True, False])
@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
def test_changes_that_the_database_refuses_are_read_once_more(
    spark: SparkSession, target: Target, tmp_path: Path, *, is_read_by_tasks: bool
) -> None:
    target.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, b INT UNIQUE)")
    changes = [change("write", {"id": n}, after={"id": n, "b": n}) for n in range(600)]
    changes[450] = change("write", {"id": 450}, after={"id": 450, "b": 7})
    if is_read_by_tasks:
        records = []
        for number, each in enumerate(changes):
            made = make_changeset("o", number + 1, [each], Source(kind="test"), id=f"{number}")
            records.append(Record(0, "/queue/q", "", made.id, "", (), encode(made)))
        with SpoolWriter(tmp_path / "spool") as writer:
            writer.append(records[:300])
            writer.append(records[300:])
        source = spark.read.format("stomp").options(spool=str(tmp_path / "spool"))
        df = source.options(payload="ranges", minPartitions="2").load()
    else:
        df = frame(spark, [row_of(each, ordinal) for ordinal, each in enumerate(changes)])
    with pytest.raises(ApplyError, match=r"message 450 .*\{\"id\":450\}.*UNIQUE"):
        apply_changes(df, target.url, pipeline="p")
    done = apply_changes(df, target.url, pipeline="p", on_problem="dead-letter")
    assert (done.written, done.dead_letters) == (599, 1)
    assert target.rows("SELECT count(*), count(DISTINCT b) FROM t") == [(599, 599)]
