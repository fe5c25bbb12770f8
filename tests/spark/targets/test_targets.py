"""Targets in SQL databases: staged by tasks, committed once, despite all failures in between."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, event, inspect

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.values import from_json
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.sql import SinkUnavailableError, SqlSink
from stompkit.replication.sql import SchemaError, TablesClashError
from stompkit.replication.sql.schema import HOLDERS
from stompkit.spark.fence import within
from stompkit.spark.states import Choice
from stompkit.spark.targets import Committed, Job, RejectedChangeError, Staged, open_target
from stompkit.spark.targets import Target as AnyTarget
from stompkit.spark.targets.base import StagingLostError
from stompkit.spark.targets.database.staging_tables import LEAST_ROWS
from stompkit.spark.targets.planning.draft import MissingTableError
from stompkit.spark.targets.planning.evolve import lacking_of
from tests.effort import drawn
from tests.replication.sinks.sql_targets import (
    Target,
    change,
    changeset,
    database_url,
    schema_change,
    target,
)
from tests.servers import mariadb, postgresql
from tests.spark.change_rows import batch_of, changes_of, row_of

__all__ = ["database_url", "mariadb", "postgresql", "target"]

JOB = Job(pipeline="p", spool="s")
MANY = LEAST_ROWS + 10


def _reread(rows: Sequence[dict[str, Any]], part: Staged) -> list[pa.RecordBatch]:
    """Return the changes of a part once more."""
    return [within(batch_of(rows), part.ranges)]


class Pipeline:
    """Applies rows as the driver and its tasks do, with serialised tokens between them."""

    def __init__(self, url: str, job: Job = JOB, **options: Any) -> None:
        self.target = open_target(url, **options)
        self.job = job
        self.target.prepare()

    def begin(self) -> Job:
        """Return the job of a batch."""
        return replace(self.job, fence=self.target.fence(self.job.pipeline, self.job.spool))

    def stage(self, rows: Sequence[dict[str, Any]], job: Job, size: int = 3) -> list[Staged]:
        """Return the parts that a task stages for rows."""
        batches = [batch_of(rows[begin : begin + size]) for begin in range(0, len(rows), size)]
        # A task has the target in another process.
        other: AnyTarget = pickle.loads(pickle.dumps(self.target))
        return [Staged.load(each.dump()) for each in other.stage(batches, job)]

    def run(self, rows: Sequence[dict[str, Any]], tasks: int = 1) -> Committed:
        """Apply a batch."""
        for _ in range(6):
            job = self.begin()
            if not job.is_plain:
                applied = self.target.apply([batch_of(rows)], job)
                if isinstance(applied, Committed):
                    return applied
                assert applied is not None
                self.target.evolve(applied)
                continue
            cuts = [round(len(rows) * number / tasks) for number in range(tasks + 1)]
            while tasks > 1 and any(_splits(rows, cut) for cut in cuts):
                cuts = [cut - _splits(rows, cut) for cut in cuts]
            parts = [
                part for begin, end in pairwise(cuts) for part in self.stage(rows[begin:end], job)
            ]
            is_reshaped = any(part.is_reshaped for part in parts)
            lacking = lacking_of(parts)
            if lacking and not is_reshaped:
                self.target.evolve(lacking)
                continue
            problems = [each for part in parts for each in part.problems]
            if problems and not is_reshaped and not job.dead_letters:
                raise ApplyError(str(problems[0]))
            if not is_reshaped:
                again = replace(job, reread=partial(_reread, rows))
                try:
                    done = self.target.commit(parts, again)
                except RejectedChangeError:
                    self.target.discard(parts)
                    raise
                except MissingTableError as error:
                    self.target.discard(parts)
                    self.target.evolve(error.lacking)
                    continue
                except ApplyError:
                    self.target.discard(parts)
                else:
                    if done is not None:
                        return done
                    self.target.discard(parts)
                    continue
            applied = self.target.apply([batch_of(rows)], job)
            if isinstance(applied, Committed):
                return applied
            assert applied is not None
            self.target.evolve(applied)
        raise AssertionError("the target lacks something all the time")

    def fence(self) -> dict[int, int]:
        """Return the applied positions."""
        return self.target.fence(self.job.pipeline, self.job.spool)


def _splits(rows: Sequence[dict[str, Any]], cut: int) -> int:
    """Return 1 if a cut would split a message, else 0."""
    inside = 0 < cut < len(rows)
    return int(inside and rows[cut - 1]["_ordinal"] == rows[cut]["_ordinal"])


@pytest.fixture
def pipeline(target: Target) -> Iterator[Callable[..., Pipeline]]:
    """A factory of pipelines into the target."""
    made: list[Pipeline] = []

    def make(job: Job = JOB, **options: Any) -> Pipeline:
        made.append(Pipeline(target.url, job, **options))
        return made[-1]

    yield make
    for each in made:
        each.target.close()


def within_schema(schema: str, told: RowChange) -> RowChange:
    """Return a change of the same table in a schema."""
    return msgspec.structs.replace(told, schema=schema)


def rows_of(*changes: RowChange, first: int = 0) -> list[dict[str, Any]]:
    return [row_of(each, ordinal) for ordinal, each in enumerate(changes, first)]


def write(number: int, table: str = "t", /, **columns: Any) -> RowChange:
    return change("write", {"id": number}, table, after={"id": number, **columns})


def update(number: int, table: str = "t", /, **columns: Any) -> RowChange:
    return change("update", {"id": number}, table, after=columns)


def delete(number: int, table: str = "t") -> RowChange:
    return change("delete", {"id": number}, table)


MakePipeline = Callable[..., Pipeline]
SIMPLE = "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(20), b INT)"


def test_a_batch_is_applied_and_the_fence_moved(target: Target, pipeline: MakePipeline) -> None:
    target.execute(SIMPLE)
    rows = rows_of(write(1, a="x", b=1), write(2, a="y"), update(1, b=2), delete(2), write(3))
    made = pipeline()
    assert made.run(rows) == Committed(written=2, deleted=1)
    assert target.table() == [(1, "x", 2), (3, None, None)]
    assert made.fence() == {0: 4}


def test_columns_that_no_change_tells_stay(target: Target, pipeline: MakePipeline) -> None:
    target.execute(SIMPLE, "INSERT INTO t VALUES (1, 'own', 1), (2, 'old', 1)")
    pipeline().run(rows_of(update(1, b=2), delete(2), write(2, b=3)))
    assert target.table() == [(1, "own", 2), (2, None, 3)]


def test_what_is_applied_is_fenced(target: Target, pipeline: MakePipeline) -> None:
    target.execute(SIMPLE)
    made = pipeline()
    rows = rows_of(write(1, b=1), write(2, b=1), update(1, b=2))
    made.run(rows[:2])
    target.execute("DELETE FROM t WHERE id = 2")
    # A batch of another size, which begins with applied rows.
    made.run(rows)
    assert target.table() == [(1, None, 2)]
    job = made.begin()
    (staged,) = made.stage(rows, job)
    assert (staged.rows, staged.fenced, staged.changes) == (3, 3, 0)


def test_partitions_have_fences_of_their_own(target: Target, pipeline: MakePipeline) -> None:
    target.execute(SIMPLE)
    made = pipeline()
    made.run([row_of(write(1), 7, partition=1)])
    made.run([row_of(write(2), 3, partition=0), row_of(write(3), 7, partition=1)])
    assert [row[0] for row in target.table()] == [1, 2]
    assert made.fence() == {0: 3, 1: 7}


def test_pipelines_and_spools_have_fences_of_their_own(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(SIMPLE)
    pipeline().run(rows_of(write(1)))
    for job in (replace(JOB, pipeline="other"), replace(JOB, spool="other")):
        made = pipeline(job)
        assert made.fence() == {}
        made.run(rows_of(write(1, b=len(job.pipeline))))
        assert target.table()[0][2] == len(job.pipeline)


#: A table for each way of writing: by one key, with a required column that may be missing, by a key
#: of two columns, and without one.
TABLES = {
    "plain": "id INT NOT NULL PRIMARY KEY, a VARCHAR(20), b INT",
    "strict": "id INT NOT NULL PRIMARY KEY, a VARCHAR(20) NOT NULL, b INT",
    "pairs": "x INT NOT NULL, y INT NOT NULL, a VARCHAR(20), b INT, PRIMARY KEY (x, y)",
    "loose": "a VARCHAR(20), b INT",
}
_VALUES = st.fixed_dictionaries({"a": st.sampled_from(["x", "X", ""]), "b": st.integers(-1, 1)})
_SMALL = st.integers(0, 3)


def _key(table: str, number: int) -> dict[str, int]:
    return {"x": number // 2, "y": number % 2} if table == "pairs" else {"id": number}


@st.composite
def _changes(draw: st.DrawFn, known: dict[str, set[int]], *, can_move: bool) -> RowChange:
    """Draw a change of tables with rows under the known keys."""
    table = draw(st.sampled_from(sorted(TABLES)))
    action: Any = draw(
        st.sampled_from(["write", "read", "update", "update", "move", "delete", "truncate"])
    )
    values = draw(_VALUES)
    if table == "loose":
        action = "update" if action == "move" else action
        before = draw(_VALUES) if action in ("update", "delete") else None
        after = None if action in ("delete", "truncate") else values
        return change(action, {}, table, before=before, after=after)
    rows = known[table]
    if action == "truncate":
        rows.clear()
        return change("truncate", {}, table)
    number = draw(st.sampled_from(sorted(rows)) if rows and action != "write" else _SMALL)
    key = _key(table, number)
    if action == "delete":
        rows.discard(number)
        return change("delete", key, table)
    if action in ("write", "read") or number not in rows:
        rows.add(number)
        return change("write", key, table, after={**key, **values})
    told = draw(st.sets(st.sampled_from(["a", "b"])))
    after = {name: value for name, value in values.items() if name in told}
    if action == "update" or not can_move:
        return change("update", key, table, after=after)
    new = draw(_SMALL)
    rows.discard(number)
    rows.add(new)
    return change("update", _key(table, new), table, after=after, old_key=key)


@st.composite
def histories(draw: st.DrawFn) -> list[Changeset]:
    """Draw a history, transaction by transaction."""
    known: dict[str, set[int]] = {name: set() for name in TABLES}
    changesets = []
    for number in range(draw(st.integers(1, 8))):
        changes: list[RowChange] = []
        for _ in range(draw(st.integers(1, 6))):
            # At most one in a transaction, as the result of an exchange depends on its order.
            can_move = all(each.old_key is None for each in changes)
            changes.append(draw(_changes(known, can_move=can_move)))
        changesets.append(changeset(number, *changes))
    return changesets


def test_tables_end_as_the_sink_has_them(target: Target, pipeline: MakePipeline) -> None:
    collate = target.pick(sqlite="", postgresql="", mariadb=" COLLATE utf8mb4_nopad_bin")
    for name, columns in TABLES.items():
        for table in (name, f"sink_{name}"):
            target.execute(f"CREATE TABLE {table} ({columns}){collate}")
    made = pipeline()
    sink = SqlSink(target.url, table_map={name: f"sink_{name}" for name in TABLES})
    assert sink.last("origin") is None

    @settings(
        max_examples=drawn(80 if target.kind == "sqlite" else 30),
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(histories(), st.data())
    def check(changesets: list[Changeset], data: st.DataObject) -> None:
        emptied = [*TABLES, *[f"sink_{name}" for name in TABLES], "stompkit_offsets"]
        target.execute(*[f"DELETE FROM {name}" for name in (*emptied, "stompkit_pipeline_fence")])
        sink.apply(changesets)
        at = 0
        while at < len(changesets):
            # Some of it repeated, some of it new.
            begin = data.draw(st.integers(0, at), label="begin")
            end = data.draw(st.integers(at + 1, len(changesets)), label="end")
            made.run(changes_of(changesets[begin:end]), data.draw(st.integers(1, 3), label="tasks"))
            at = end
        for name in TABLES:
            found, expected = (
                sorted(target.table(each), key=repr) for each in (name, f"sink_{name}")
            )
            assert found == expected, name

    with closing(sink):
        check()


@pytest.mark.parametrize("required", ["", " NOT NULL"])
def test_many_rows_are_written_and_deleted_at_once(
    target: Target, pipeline: MakePipeline, required: str
) -> None:
    target.execute(f"CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20){required}, b INT)")
    texts = ["", "\\N", 'a "quoted, one', "two\nlines", "\\.", "tab\t", "ü"]
    made = pipeline()
    written = [write(each, a=texts[each % len(texts)], b=each) for each in range(MANY)]
    made.run(rows_of(*written), tasks=2)
    expected = [(each, texts[each % len(texts)], each) for each in range(MANY)]
    assert target.table() == expected
    changed = [update(each, b=None) for each in range(MANY)]
    made.run(rows_of(*changed, first=MANY))
    assert target.table() == [(number, text, None) for number, text, _ in expected]
    gone = [delete(each) for each in range(MANY - 1)]
    made.run(rows_of(*gone, first=2 * MANY))
    assert [row[0] for row in target.table()] == [MANY - 1]


def test_updates_of_rows_that_are_not_there_insert_them(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20) NOT NULL, b INT)",
        "INSERT INTO t VALUES (0, 'x', 0), (1, 'x', 0)",
    )
    # Each contains all columns of a new row, or is about an existing row.
    made = pipeline()
    made.run(rows_of(*[update(each, b=1) for each in range(2)]))
    made.run(rows_of(*[update(each, a="y") for each in range(MANY)], first=2))
    assert target.table()[:3] == [(0, "y", 1), (1, "y", 1), (2, "y", None)]
    assert len(target.table()) == MANY


def test_values_are_stored_as_the_sink_stores_them(target: Target, pipeline: MakePipeline) -> None:
    kinds = target.pick(
        sqlite="n NUMERIC, d DATE, w DATETIME, o BLOB, j TEXT, f REAL, y BOOLEAN, u TEXT",
        postgresql="n NUMERIC(9, 2), d DATE, w TIMESTAMP, o BYTEA, j JSONB, f FLOAT8,"
        " y BOOLEAN, u UUID",
        mariadb="n DECIMAL(9, 2), d DATE, w DATETIME(6), o BLOB, j LONGTEXT, f DOUBLE,"
        " y BOOLEAN, u VARCHAR(36)",
    )
    told = [
        {"$decimal": "10.50"},
        {"$date": "2026-11-21"},
        {"$datetime": "2026-11-21T12:00:00.250000"},
        {"$bytes": "AAH/"},
        {"$json": {"a": [1, None]}},
        0.25,
        True,
        {"$uuid": "0f8fad5b-d9cb-469f-a165-70867728950e"},
    ]
    names = "ndwojfyu"
    target.execute(*[f"CREATE TABLE {each} (id INT PRIMARY KEY, {kinds})" for each in "ts"])
    values = {name: from_json(each) for name, each in zip(names, told, strict=True)}
    with closing(SqlSink(target.url)) as sink:
        nulls = dict.fromkeys(names)
        sink.apply([changeset(0, write(0, "s", **values), write(1, "s", **nulls))])
    made = pipeline()
    made.run(rows_of(write(0, **values), write(1, **nulls)))
    assert target.table("t") == target.table("s")
    # And the same in the way for many rows.
    target.execute("DELETE FROM t")
    rows = [write(each, **(values if each % 2 == 0 else nulls)) for each in range(MANY)]
    made.run(rows_of(*rows, first=2))
    assert target.table("t")[:2] == target.table("s")
    assert len(target.table("t")) == MANY


def test_excluded_columns_stay_away_whatever_identifies_a_row(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a VARCHAR(20))")
    target.execute("CREATE TABLE loose (a VARCHAR(20), b INTEGER)")
    choice = Choice(except_columns=frozenset({"secret"}))
    rows = [{"a": "x", "b": number, "secret": f"s{number}"} for number in range(3)]
    made = pipeline(replace(JOB, choice=choice))
    made.run(rows_of(*(change("write", {}, "loose", after=row) for row in rows)))
    gone = change("delete", {}, "loose", before=rows[0])
    other = change("update", {}, "loose", before=rows[1], after={**rows[1], "a": "new"})
    made.run(rows_of(gone, other, first=3))
    assert sorted(target.rows("SELECT * FROM loose")) == [("new", 1), ("x", 2)]
    by_age = pipeline(replace(JOB, pipeline="aged", choice=choice, sequence_by="sequence"))
    row = {"id": 1, "a": "x", "secret": "TOP"}
    by_age.run(rows_of(write(1, a="x", secret="TOP")))
    moves = change("update", {"id": 7}, before=row, after={**row, "id": 7}, old_key={"id": 1})
    by_age.run(rows_of(moves, first=1))
    assert target.rows("SELECT * FROM t") == [(7, "x")]


def test_keys_change_and_what_is_not_told_goes_along(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(SIMPLE, "INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2)")
    moved = change("update", {"id": 5}, after={"b": 9}, old_key={"id": 1})
    pipeline().run(rows_of(moved, update(5, b=10), write(1, a="new")))
    assert target.table() == [(1, "new", None), (2, "two", 2), (5, "one", 10)]


def test_rows_of_linked_tables_go_in_an_order_that_works(
    target: Target, pipeline: MakePipeline
) -> None:
    engine = target.pick(sqlite="", postgresql="", mariadb=" ENGINE=InnoDB")
    target.execute(
        f"CREATE TABLE parent (id INT PRIMARY KEY){engine}",
        "CREATE TABLE child (id INT PRIMARY KEY, parent INT,"
        f" FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE){engine}",
    )
    made = pipeline()
    made.run(
        rows_of(
            write(1, "parent"),
            write(1, "child", parent=1),
            write(2, "parent"),
            write(2, "child", parent=2),
            update(1, "child", parent=2),
            delete(1, "parent"),
        )
    )
    assert target.table("child") == [(1, 2), (2, 2)]
    assert target.table("parent") == [(2,)]


# Missing tables and columns of the target.


def test_a_column_that_changes_bring_is_added(target: Target, pipeline: MakePipeline) -> None:
    target.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t (id) VALUES (9)")
    made = pipeline()
    made.run(rows_of(write(1, a="x", b=None), write(2, a="y")))
    assert target.table() == [(1, "x"), (2, "y"), (9, None)]


def test_a_column_is_added_of_the_type_that_the_source_tells(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    told = schema_change(
        {"name": "id", "type": "int", "key": True},
        {"name": "n", "type": "decimal", "precision": 9, "scale": 3},
    )
    pipeline().run(rows_of(told, write(1, n=2)))
    assert float(target.table()[0][1]) == 2.0


#: Columns of each type that sources publish, with digits and lengths.
TOLD: list[dict[str, object]] = [
    {"name": "id", "type": "int", "key": True, "nullable": False},
    {"name": "big", "type": "int", "precision": 20},
    {"name": "price", "type": "decimal", "precision": 12, "scale": 2},
    {"name": "any", "type": "decimal"},
    {"name": "short", "type": "text", "length": 20},
    *[dict[str, object](name=f"a_{each}", type=each) for each in sorted(HOLDERS)],
]


def described(target: Target, table: str) -> dict[str, str]:
    """Return the types of a table's columns, as the database spells them."""
    columns = inspect(target.engine).get_columns(table)
    return {each["name"]: str(each["type"].compile(target.engine.dialect)) for each in columns}


def test_tables_are_made_as_the_sink_makes_them(target: Target, pipeline: MakePipeline) -> None:
    told = schema_change(*TOLD)
    with closing(SqlSink(target.url, create=True, table_map={"t": "sink_t"})) as sink:
        sink.last("origin")
        sink.apply([changeset(1, told)])
    made = pipeline(create=True)
    # Without rows; and with one whose values look like another type.
    made.run(rows_of(told))
    made.run(rows_of(replaced(told, "u"), write(1, "u", price=7, a_float=1.0), first=1))
    expected = described(target, "sink_t")
    assert set(expected) == {each["name"] for each in TOLD}
    assert described(target, "t") == described(target, "u") == expected


def replaced(told: RowChange, table: str) -> RowChange:
    """Return the same for another table."""
    return msgspec.structs.replace(told, table=table)


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_columns_are_made_as_they_are_chosen(target: Target, pipeline: MakePipeline) -> None:
    choice = Choice(keys={"t": ("short",)}, except_columns=frozenset({"price", "any"}))
    pipeline(replace(JOB, choice=choice), create=True).run(rows_of(schema_change(*TOLD)))
    assert {each["name"] for each in TOLD} - set(described(target, "t")) == {"price", "any"}
    assert inspect(target.engine).get_pk_constraint("t")["constrained_columns"] == ["short"]


@pytest.mark.parametrize(
    "columns",
    [
        [{"name": "id", "type": "int"}, {"name": "n"}],
        [{"name": "id", "type": "quaternion"}],
        [["id", "int"]],
        "id int",
    ],
)
@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
def test_columns_that_cannot_be_read_are_an_error(
    target: Target, pipeline: MakePipeline, columns: object
) -> None:
    target.execute(SIMPLE)
    told = change("schema", {}, after={"columns": columns})
    made = pipeline()
    with pytest.raises(ApplyError, match=r"message 1 .*: schema of the table 't'.*: .*column"):
        made.run(rows_of(write(1), told))
    assert (target.table(), made.fence()) == ([], {})
    made = pipeline(replace(JOB, dead_letters=True))
    assert made.run(rows_of(write(1), told)).dead_letters == 1
    assert made.fence() == {0: 1}


def picked(target: Target, columns: str) -> list[tuple[Any, ...]]:
    """Return some columns of the rows."""
    return [tuple(row) for row in target.rows(f"SELECT {columns} FROM t ORDER BY 1")]


def renames(table: str = "t", untold: str = "", **renamed: str) -> RowChange:
    """Return a change of the schema that renames columns."""
    more = {"untold": untold} if untold else {}
    return RowChange(
        table=table, action="schema", key={}, after={"renamed": renamed, **more}, schema=""
    )


def test_a_column_with_another_name_keeps_its_rows(target: Target, pipeline: MakePipeline) -> None:
    """Changes before the renaming are included, whichever task has read them."""
    target.execute(SIMPLE, "INSERT INTO t VALUES (1, 'there', 1), (4, 'stays', 4)")
    rows = rows_of(
        update(1, a="old"),
        write(2, a="x", b=1),
        delete(3),
        renames(a="c", untold="names"),
        update(2, c="y"),
        write(3, c="z"),
    )
    made = pipeline()
    made.run(rows, tasks=3)
    assert picked(target, "id, c, b") == [
        (1, "old", 1),
        (2, "y", 1),
        (3, "z", None),
        (4, "stays", 4),
    ]
    # Repeated, as after a crash between the renaming and the rows.
    pipeline(replace(JOB, pipeline="q")).run(rows, tasks=2)
    assert len(picked(target, "id, c, b")) == 4
    assert "a" not in {column["name"] for column in inspect(target.engine).get_columns("t")}


def test_a_key_with_another_name_is_followed(target: Target, pipeline: MakePipeline) -> None:
    target.execute(SIMPLE, "INSERT INTO t VALUES (1, 'x', 1)")
    after = change("update", {"no": 1}, "t", after={"no": 1, "b": 5})
    pipeline().run(rows_of(update(1, b=4), write(2, b=2), renames(id="no"), after), tasks=2)
    assert picked(target, "no, a, b") == [(1, "x", 5), (2, None, 2)]


def test_a_name_that_was_given_away_and_made_anew_is_another_column(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(SIMPLE, "INSERT INTO t VALUES (1, 'x', 1)")
    again = schema_change(
        {"name": "id", "type": "int", "key": True},
        {"name": "c", "type": "text"},
        {"name": "a", "type": "int"},
    )
    rows = rows_of(renames(a="c"), again, update(1, a=7))
    made = pipeline()
    made.run(rows)
    assert picked(target, "id, c, a") == [(1, "x", 7)]
    pipeline(replace(JOB, pipeline="q")).run(rows)
    assert picked(target, "id, c, a") == [(1, "x", 7)]


@pytest.mark.parametrize(
    ("told", "job", "reason"),
    [
        (renames(untold="values"), JOB, "not told again. To go on"),
        (renames(untold="names", a="b", b="a"), JOB, "exchanged their names. To go on"),
        (
            renames(a="c", untold="names"),
            replace(JOB, choice=Choice(follows_names=False)),
            "does not follow. To go on",
        ),
        (renames(a="c"), replace(JOB, choice=Choice(columns=frozenset("ab"))), "in column_list"),
        (
            renames(a="c"),
            replace(JOB, choice=Choice(except_columns=frozenset("a"))),
            "in except_column_list",
        ),
    ],
)
def test_what_cannot_be_followed_stops_with_what_to_do(
    target: Target, pipeline: MakePipeline, told: RowChange, job: Job, reason: str
) -> None:
    target.execute(SIMPLE, "INSERT INTO t VALUES (1, 'x', 1)")
    rows = rows_of(update(1, b=2), told, update(1, b=3))
    with pytest.raises(ApplyError, match=reason):
        pipeline(job).run(rows)
    assert target.table() == [(1, "x", 1)]
    made = pipeline(replace(job, dead_letters=True))
    assert made.run(rows).dead_letters == 1
    assert target.table() == [(1, "x", 3)]


def retypes(*names: str, **types: str) -> RowChange:
    """Return a change of the schema with columns of other types; all rows follow again."""
    columns = [{"name": name, "type": kind} for name, kind in types.items()]
    told = schema_change({"name": "id", "type": "int", "key": True}, *columns)
    return msgspec.structs.replace(told, after={**(told.after or {}), "retyped": [*names]})


def test_a_column_of_another_type_is_created_again(target: Target, pipeline: MakePipeline) -> None:
    """Earlier values of the batch are those of the column that was there before."""
    target.execute(SIMPLE, "INSERT INTO t VALUES (1, 'x', 1), (4, 'stays', 4)")
    rows = rows_of(
        write(1, a="old", b=7),
        delete(4),
        retypes("a", "b", a="int", b="text"),
        change("truncate", {}),
        write(1, a=1, b="one"),
        write(2, a=2, b="two"),
    )
    for name in ("p", "q"):
        pipeline(replace(JOB, pipeline=name), create=True).run(rows, tasks=3)
        assert picked(target, "id, a, b") == [(1, 1, "one"), (2, 2, "two")]


def test_a_column_of_another_type_stops_where_none_may_be_dropped(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(SIMPLE, "INSERT INTO t VALUES (1, 'x', 1)")
    rows = rows_of(retypes("b", a="text", b="text"), change("truncate", {}), write(1, b="one"))
    with pytest.raises(ApplyError, match=r"column 'b'.*To go on"):
        pipeline().run(rows)
    assert target.table() == [(1, "x", 1)]


def test_columns_that_exchange_their_names_get_the_values_of_each_other(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(SIMPLE, "INSERT INTO t VALUES (1, 'x', 1)")
    again = [change("truncate", {}), write(1, a="1", b=2)]
    pipeline().run(rows_of(update(1, a="y"), renames(a="b", b="a"), *again))
    assert target.table() == [(1, "1", 2)]


def test_a_key_is_renamed_beside_columns_that_exchange_their_names(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(SIMPLE, "INSERT INTO t VALUES (1, 'x', 1)")
    after = change("write", {"no": 1}, "t", after={"no": 1, "a": "1", "b": 2})
    rows = rows_of(update(1, a="y"), renames(id="no", a="b", b="a"), change("truncate", {}), after)
    pipeline().run(rows, tasks=2)
    assert picked(target, "no, a, b") == [(1, "1", 2)]


def test_a_name_that_a_column_has_again_is_no_new_name(
    target: Target, pipeline: MakePipeline
) -> None:
    """The log was read after both statements, and its columns are those of today."""
    target.execute(SIMPLE, "INSERT INTO t VALUES (1, 'x', 1)")
    told = schema_change(
        {"name": "id", "type": "int", "key": True},
        {"name": "a", "type": "text"},
        {"name": "b", "type": "int"},
    )
    there = msgspec.structs.replace(told, after={**(told.after or {}), "renamed": {"id": "no"}})
    back = msgspec.structs.replace(told, after={**(told.after or {}), "renamed": {"no": "id"}})
    rows = rows_of(there, update(1, b=2), back, write(2, a="z", b=3))
    made = pipeline()
    made.run(rows[:2])
    made.run(rows[2:])
    assert target.table() == [(1, "x", 2), (2, "z", 3)]


def test_a_table_with_two_keys_is_not_created(target: Target, pipeline: MakePipeline) -> None:
    told = schema_change({"name": "no", "type": "int", "key": True}, {"name": "a", "type": "text"})
    with pytest.raises(SchemaError, match=r"'t' is no by its schema, .* has id\. To go on"):
        pipeline(create=True).run(rows_of(write(1, a="x"), told))
    assert not inspect(target.engine).has_table("t")


def test_a_name_that_may_not_be_changed_stops_with_the_statement(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(SIMPLE)
    with pytest.raises(SchemaError, match=r"To go on, ALTER TABLE .* RENAME COLUMN a TO c"):
        pipeline(evolve=False).run(rows_of(renames(a="c"), write(1, c="x")))
    target.execute("ALTER TABLE t ADD COLUMN c VARCHAR(20)")
    told = renames(a="c", untold="names")
    with pytest.raises(SchemaError, match="has both"):
        pipeline().run(rows_of(told, write(1, c="x")))
    # Where rows are sent again, they have all values of the column.
    again = [change("truncate", {}), write(1, c="x")]
    pipeline().run(rows_of(write(1, a="x", c="old"), renames(a="c"), *again))
    assert target.rows("SELECT id, c FROM t") == [(1, "x")]


def test_a_column_that_may_not_be_added_stops_with_what_to_do(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    made = pipeline(evolve=False)
    with pytest.raises(SchemaError, match=r"lacks a \(text\)\. To go on, ALTER TABLE"):
        made.run(rows_of(write(1, a="x")))
    assert target.table() == []
    assert made.fence() == {}


def test_a_table_that_is_missing_is_made_on_demand_only(
    target: Target, pipeline: MakePipeline
) -> None:
    rows = rows_of(write(1, a="x", n=2), write(2, a=None, n=3))
    with pytest.raises(SchemaError, match=r"no table 't'\. To go on"):
        pipeline().run(rows)
    pipeline(create=True).run(rows)
    assert target.rows("SELECT id, a, n FROM t ORDER BY id") == [(1, "x", 2), (2, None, 3)]


def test_a_table_that_is_mapped_to_another_one_keeps_its_rows(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute("CREATE TABLE old (id INT NOT NULL PRIMARY KEY, a VARCHAR(20))")
    pipeline(table_map={"t": "old"}).run(rows_of(write(1, a="x")))
    later = rows_of(write(2, a="y"), first=1)
    made = pipeline(create=True, table_map={"t": "new"})
    with pytest.raises(SchemaError, match=r"of 't' have gone to the target's table 'old' so far"):
        made.run(later)
    target.execute("ALTER TABLE old RENAME TO new")
    pipeline(create=True, table_map={"t": "new"}).run(later)
    assert target.rows("SELECT id, a FROM new ORDER BY id") == [(1, "x"), (2, "y")]
    # Another table of the source, and another pipeline, are no matter of it.
    pipeline(create=True).run(rows_of(write(1, "other"), first=2))
    pipeline(replace(JOB, pipeline="q"), create=True).run(rows_of(write(1)))


def test_a_table_that_is_gone_is_made_again_for_all_of_its_rows_only(
    target: Target, pipeline: MakePipeline
) -> None:
    pipeline(create=True).run(rows_of(write(1, a="x"), write(1, "other")))
    target.execute("DROP TABLE t")
    later = rows_of(write(2, "other"), write(2, a="y"), first=2)
    for create in (True, False):
        with pytest.raises(SchemaError, match=r"has lost the table 't'.* make an empty table"):
            pipeline(create=create).run(later)
    assert target.rows("SELECT id FROM other") == [(1,)]
    pipeline(replace(JOB, pipeline="from the start"), create=True).run(rows_of(write(3)))
    target.execute("DROP TABLE t")
    pipeline(replace(JOB, spool="another"), create=True).run(rows_of(write(4)))
    target.execute("DROP TABLE t")
    again = rows_of(change("truncate", {}), write(2, a="y"), first=2)
    pipeline(create=True).run(again, tasks=2)
    assert target.rows("SELECT id, a FROM t") == [(2, "y")]


# Changes that cannot be applied.


def test_a_second_table_of_a_name_is_refused_in_a_later_run(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(SIMPLE)
    one, other = (within_schema(name, write(1, a=name)) for name in ("crm", "shop"))
    pipeline().run(rows_of(one))
    clash = "the tables crm.t and shop.t would both be"
    for job in (JOB, replace(JOB, spool="another"), replace(JOB, dead_letters=True)):
        first = pipeline(job)
        with pytest.raises(TablesClashError, match=clash):
            first.run(rows_of(other, first=1))
    # The tasks of other pipelines are in the same processes.
    pipeline(replace(JOB, pipeline="other")).run(rows_of(other))
    pipeline().run(rows_of(within_schema("crm", update(1, b=5)), first=1))
    assert target.table() == [(1, "shop", 5)]
    mapped = pipeline(table_map={"shop.t": "t"})
    mapped.run(rows_of(within_schema("shop", update(1, b=6)), first=2))
    assert target.table() == [(1, "shop", 6)]


def test_tables_that_are_not_chosen_own_nothing(target: Target, pipeline: MakePipeline) -> None:
    target.execute(SIMPLE)
    job = replace(JOB, choice=Choice(tables=frozenset({"shop.t"})))
    pipeline(job).run(rows_of(within_schema("crm", write(1)), within_schema("shop", write(2))))
    refused = within_schema("other", change("write", {"id": None}))
    pipeline(replace(JOB, pipeline="q", dead_letters=True)).run(rows_of(refused))
    pipeline(replace(JOB, pipeline="q")).run(rows_of(within_schema("shop", write(3)), first=1))
    assert [row[0] for row in target.table()] == [2, 3]


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
def test_names_that_differ_by_case_are_refused_in_a_later_run(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(SIMPLE)
    pipeline().run(rows_of(write(1)))
    again = pipeline()
    with pytest.raises(TablesClashError, match="the tables t and T would both be"):
        again.run(rows_of(write(1, "T"), first=1))


def letters(target: Target) -> list[tuple[Any, ...]]:
    names = "ordinal, change_no, table_name, row_key, problem"
    query = f"SELECT {names} FROM stompkit_pipeline_dead_letters ORDER BY ordinal"
    return [tuple(row) for row in target.rows(query)]


def test_a_change_that_can_not_be_applied_stops_the_batch(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(SIMPLE)
    made = pipeline()
    with pytest.raises(ApplyError, match=r"change 0 of message 1 .*'t', key .*column 'b'"):
        made.run(rows_of(write(1, b=1), write(2, b="many"), write(3, b=3)))
    assert target.table() == []
    assert made.fence() == {}


def test_dead_letters_are_written_down_and_the_rest_is_applied(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(SIMPLE, "CREATE TABLE strict (id INT PRIMARY KEY, a VARCHAR(20) NOT NULL)")
    made = pipeline(replace(JOB, dead_letters=True))
    unreadable = {**row_of(write(9), 4), "operation": "unreadable", "table": None, "problem": "?"}
    rows = rows_of(write(1, b=1), write(2, b="many"), update(1, b=2), write(7, "strict", a=None))
    done = made.run([*rows, unreadable])
    assert target.table() == [(1, None, 2)]
    assert target.table("strict") == []
    assert done.dead_letters == 3
    found = letters(target)
    assert [row[0] for row in found] == [1, 3, 4]
    assert found[0][2:4] == ("t", '{"id":2}')
    assert "column 'b'" in found[0][4]
    assert found[2][4] == "?"
    assert made.fence() == {0: 4}


@pytest.mark.parametrize("target", ["sqlite", "postgresql"], indirect=True)
def test_refused_truncates_have_their_places_and_are_buried_once(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(SIMPLE)
    if target.kind == "sqlite":
        target.execute(
            "CREATE TRIGGER stays BEFORE DELETE ON t BEGIN SELECT RAISE(ABORT, 'stays'); END"
        )
    else:
        target.execute("CREATE TABLE child (id INTEGER REFERENCES t (id))")
    target.execute("INSERT INTO t (id) VALUES (9)")
    if target.kind == "postgresql":
        target.execute("INSERT INTO child VALUES (9)")
    gone = change("truncate", {})
    made = pipeline(replace(JOB, dead_letters=True))
    made.run(rows_of(write(1), gone, gone, write(2)))
    made.run(rows_of(gone, write(3), first=4))
    places = [(0, 1, 0, "truncate"), (0, 2, 0, "truncate"), (0, 4, 0, "truncate")]
    query = (
        "SELECT partition_no, ordinal, change_no, operation FROM stompkit_pipeline_dead_letters"
        " ORDER BY ordinal"
    )
    assert target.rows(query) == places
    target.execute("DELETE FROM stompkit_pipeline_fence")
    pipeline(replace(JOB, dead_letters=True)).run(rows_of(write(1), gone, gone, write(2)))
    assert target.rows(query) == places
    with pytest.raises(ApplyError, match="change 0 of message 7 in partition 0"):
        pipeline().run(rows_of(write(4), gone, first=6))


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_rows_that_are_refused_leave_no_locks(target: Target, pipeline: MakePipeline) -> None:
    """PostgreSQL has a limit of some thousand locks, and each remaining savepoint has one."""
    target.execute("CREATE TABLE t (id INT PRIMARY KEY, b INT CHECK (b < 5))")
    made = pipeline(replace(JOB, dead_letters=True))
    counts: list[int] = []

    def count(connection: Connection) -> None:
        if connection.dialect.name == "postgresql":
            locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid'"
            counts.append(connection.exec_driver_sql(locks).scalar_one())

    event.listen(Engine, "commit", count)
    try:
        done = made.run(rows_of(*(write(number, b=number) for number in range(60))))
    finally:
        event.remove(Engine, "commit", count)
    assert done.dead_letters == 55
    assert counts
    assert max(counts) < 10


def test_unique_values_that_change_hands_do_so(target: Target, pipeline: MakePipeline) -> None:
    target.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT UNIQUE)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
    )
    pipeline().run(rows_of(update(1, a=None), update(2, a=1), update(1, a=2)))
    assert target.table() == [(1, 2), (2, 1)]


# Orders that differ from the spool's.


def versions(target: Target) -> list[tuple[Any, ...]]:
    names = "version, deleted_at IS NULL"
    query = f"SELECT {names} FROM stompkit_pipeline_tombstones ORDER BY version"
    found = [tuple(row) for row in target.rows(query)]
    return [(version, bool(is_there)) for version, is_there in found]


def test_a_change_that_comes_late_has_no_effect(target: Target, pipeline: MakePipeline) -> None:
    target.execute(SIMPLE)
    made = pipeline(replace(JOB, sequence_by="sequence"))

    def at(sequence: int, each: RowChange, ordinal: int) -> dict[str, Any]:
        return row_of(each, ordinal, sequence=sequence)

    # Within a batch, and from one to the next.
    made.run([at(5, write(1, b=5), 0), at(3, write(1, a="old", b=3), 1), at(7, delete(2), 2)])
    assert target.table() == [(1, "old", 5)]
    done = made.run([at(6, write(2, b=6), 3), at(4, update(1, b=4), 4), at(6, update(1, b=6), 5)])
    assert (done.conflicts, done.written) == (2, 1)
    assert target.table() == [(1, "old", 6)]
    assert versions(target) == [("6", True), ("7", False)]
    assert made.run([at(8, write(2, b=8), 6)]) == Committed(written=1)
    assert target.table() == [(1, "old", 6), (2, None, 8)]
    assert made.fence() == {0: 6}


def test_rows_themselves_can_tell_how_new_they_are(target: Target, pipeline: MakePipeline) -> None:
    target.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(20), w TIMESTAMP NULL)")
    made = pipeline(replace(JOB, sequence_by="w", dead_letters=True))
    noon, later = (datetime(2026, 11, 22, hour) for hour in (12, 13))
    made.run(rows_of(write(1, a="new", w=later)))
    done = made.run(rows_of(write(1, a="old", w=noon), write(2, a="?"), first=1))
    assert (done.conflicts, done.dead_letters) == (1, 1)
    assert target.rows("SELECT id, a FROM t") == [(1, "new")]
    assert "'w' is not told" in letters(target)[0][4]


def test_a_key_that_changed_is_as_new_as_its_change(target: Target, pipeline: MakePipeline) -> None:
    target.execute(SIMPLE)
    made = pipeline(replace(JOB, sequence_by="sequence"))
    row = {"a": "x", "b": 1}
    moved = change("update", {"id": 2}, before={"id": 1, **row}, after={"b": 2}, old_key={"id": 1})
    made.run([row_of(write(1, **row), 0, sequence=1), row_of(moved, 1, sequence=5)])
    late = [row_of(update(1, b=9), 2, sequence=4), row_of(update(2, b=9), 3, sequence=4)]
    assert made.run(late).conflicts == 2
    assert target.table() == [(2, "x", 2)]


def test_it_is_forgotten_after_a_while_that_rows_are_gone(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(SIMPLE)
    job = replace(JOB, sequence_by="sequence")
    pipeline(job).run([row_of(write(1), 0, sequence=1), row_of(delete(2), 1, sequence=2)])
    pipeline(replace(job, tombstones_s=-60.0)).run([row_of(write(3), 2, sequence=3)])
    assert versions(target) == [("1", True), ("3", True)]


# Versions.

HISTORY = (
    "CREATE TABLE t (id INT, a VARCHAR(20), b INT, valid_from_ordinal BIGINT,"
    " valid_from TIMESTAMP NULL, valid_to TIMESTAMP NULL, is_current BOOLEAN,"
    " PRIMARY KEY (id, valid_from_ordinal))"
)
HISTORIC = replace(JOB, scd_type=2)


def kept(target: Target) -> list[tuple[Any, ...]]:
    names = "id, a, b, valid_from_ordinal, valid_to IS NULL, is_current"
    query = f"SELECT {names} FROM t ORDER BY id, valid_from_ordinal"
    found = [tuple(row) for row in target.rows(query)]
    return [(*row[:4], bool(row[4]), bool(row[5])) for row in found]


def test_versions_of_rows_are_kept(target: Target, pipeline: MakePipeline) -> None:
    target.execute(HISTORY)
    made = pipeline(HISTORIC)
    made.run(rows_of(write(1, a="x", b=1), update(1, b=2), write(2, a="y")))
    made.run(rows_of(delete(2), update(1, a="z"), first=3))
    expected = [
        (1, "x", 1, 0, False, False),
        (1, "x", 2, 1, False, False),
        (1, "z", 2, 4, True, True),
        (2, "y", None, 2, False, False),
    ]
    assert kept(target) == expected
    made.run(rows_of(delete(2), update(1, a="z"), first=3))
    assert kept(target) == expected


def test_changes_of_one_message_make_one_version(target: Target, pipeline: MakePipeline) -> None:
    target.execute(HISTORY)
    rows = [row_of(write(1, a="x"), 0, 0), row_of(update(1, b=1), 0, 1), row_of(update(1, b=2), 5)]
    pipeline(HISTORIC).run(rows)
    assert kept(target) == [(1, "x", 1, 0, False, False), (1, "x", 2, 5, True, True)]


def test_a_key_that_changes_begins_a_version_with_what_the_row_was(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(HISTORY)
    moved = change("update", {"id": 5}, after={"b": 2}, old_key={"id": 1})
    pipeline(HISTORIC).run(rows_of(write(1, a="x", b=1), moved, write(1, b=7)))
    assert kept(target) == [
        (1, "x", 1, 0, False, False),
        (1, None, 7, 2, True, True),
        (5, "x", 2, 1, True, True),
    ]


@settings(
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    batches=st.lists(
        st.tuples(
            st.sampled_from(["s", "another"]),
            st.integers(0, 1),
            st.sampled_from(["_ordinal", "sequence"]),
            st.lists(st.sampled_from([1, 2]), min_size=1, max_size=3),
        ),
        max_size=4,
    )
)
@pytest.mark.parametrize("target", ["sqlite", "postgresql"], indirect=True)
def test_versions_are_numbered_upwards_wherever_changes_come_from(
    target: Target,
    pipeline: MakePipeline,
    batches: list[tuple[str, int, str, list[int]]],
) -> None:
    target.execute("DROP TABLE IF EXISTS t", HISTORY)
    ends: dict[tuple[str, int], int] = {}
    told: dict[int, list[str]] = {1: [], 2: []}
    name = uuid4().hex
    for spool, partition, sequence_by, numbers in batches:
        first = ends.get((spool, partition), 0)
        ends[spool, partition] = first + len(numbers)
        rows = []
        for at, number in enumerate(numbers):
            value = f"v{sum(map(len, told.values()))}"
            told[number].append(value)
            # The last message is the first one by its sequence.
            ordinal = first + (len(numbers) - 1 - at if sequence_by == "sequence" else at)
            sequence = 100 * len(ends) + sum(map(len, told.values()))
            change = write(number, a=value)
            rows.append(row_of(change, ordinal, partition=partition, sequence=sequence))
        job = replace(HISTORIC, pipeline=name, spool=spool, sequence_by=sequence_by)
        pipeline(job).run(sorted(rows, key=lambda row: row["_ordinal"]))
    for number, values in told.items():
        own = [row for row in kept(target) if row[0] == number]
        assert [row[1] for row in own] == values
        assert [row[4:] for row in own[:-1]] == [(False, False)] * (len(own) - 1)
        assert [row[4:] for row in own[-1:]] == [(True, True)] * bool(own)


def test_rows_get_keys_and_versions_again_from_another_spool(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(HISTORY)
    pipeline(HISTORIC).run(rows_of(write(1, a="x"), write(2, a="y"), first=5))
    made = pipeline(replace(HISTORIC, spool="another"))
    made.run(_moved((1, 2, {}), (2, 1, {}), ordinal=0))
    made.run(rows_of(delete(1), write(1, a="z"), first=1))
    assert [row[:4] for row in kept(target)] == [
        (1, "x", None, 5),
        (1, "y", None, 6),
        (1, "z", None, 7),
        (2, "y", None, 6),
        (2, "x", None, 7),
    ]
    assert [row[:2] for row in kept(target) if row[5]] == [(1, "z"), (2, "x")]


def _moved(*moves: tuple[int, int, dict[str, Any]], ordinal: int = 6) -> list[dict[str, Any]]:
    """Return rows that get other keys in one message: old key, new key, and columns."""
    return [
        row_of(change("update", {"id": new}, after=told, old_key={"id": old}), ordinal, at)
        for at, (old, new, told) in enumerate(moves)
    ]


@pytest.mark.parametrize("is_alone", [False, True])
def test_rows_that_exchange_keys_are_all_there_whatever_they_tell(
    target: Target, pipeline: MakePipeline, *, is_alone: bool
) -> None:
    target.execute(SIMPLE, "INSERT INTO t VALUES (2, 'two', 2), (3, 'three', 3), (7, 'x', 7)")
    rows = _moved((2, 3, {"a": "two", "b": 2}), (3, 2, {"a": "three"}), (7, 8, {"b": 9}))
    made = pipeline(replace(JOB, dead_letters=True))
    if is_alone:
        # An inapplicable change makes the driver apply all changes one by one.
        rows.append(row_of(write(9, b=datetime(2026, 11, 22)), 7))
    assert made.run(rows).dead_letters == int(is_alone)
    assert target.table() == [(2, "three", 2), (3, "two", 2), (8, "x", 9)]


def test_rows_that_get_other_keys_at_once_are_dead_letters_at_once(
    target: Target, pipeline: MakePipeline
) -> None:
    before = [(2, "two", 2), (3, "three", 3)]
    target.execute(SIMPLE, "INSERT INTO t VALUES (2, 'two', 2), (3, 'three', 3)")
    rows = _moved((2, 3, {"a": "two"}), (3, 2, {"b": datetime(2026, 11, 22)}))
    assert pipeline(replace(JOB, dead_letters=True)).run(rows).dead_letters == 2
    assert target.table() == before
    found = target.rows("SELECT change_no, row_key FROM stompkit_pipeline_dead_letters")
    assert sorted(map(tuple, found)) == [(0, '{"id":3}'), (1, '{"id":2}')]


def test_rows_exchange_keys_by_way_of_another_one(target: Target, pipeline: MakePipeline) -> None:
    before = [(2, "two", 2), (3, "three", 3)]
    target.execute(SIMPLE, "INSERT INTO t VALUES (2, 'two', 2), (3, 'three', 3)")
    made = pipeline(replace(JOB, dead_letters=True))
    more = {"a": "?"}
    # The row with the earlier key may not exist, so a partial update of it is refused.
    assert made.run(_moved((2, -1, more), (3, 2, {}), (-1, 3, {}))).dead_letters == 3
    assert target.table() == before
    assert made.run(_moved((2, -1, {}), (3, 2, {}), (-1, 3, more), ordinal=7)).dead_letters == 0
    assert target.table() == [(2, "three", 3), (3, "?", 2)]


def test_rows_that_exchange_keys_have_their_versions(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(HISTORY)
    made = pipeline(HISTORIC)
    made.run(rows_of(write(2, a="two", b=2), write(3, a="three", b=3)))
    made.run(_moved((2, 3, {"a": "2"}), (3, 2, {"b": 0})))
    old = [(2, "two", 2, 0, False, False), (3, "three", 3, 1, False, False)]
    expected = [old[0], (2, "three", 0, 6, True, True), old[1], (3, "2", 2, 6, True, True)]
    assert kept(target) == expected
    # By way of an unused key.
    made.run(_moved((2, -1, {}), (3, 2, {}), (-1, 3, {}), ordinal=8))
    assert [row[:4] for row in kept(target) if row[5]] == [(2, "2", 2, 8), (3, "three", 0, 8)]


def test_a_table_without_room_for_versions_is_refused(
    target: Target, pipeline: MakePipeline
) -> None:
    with pytest.raises(SchemaError, match="To go on, make it"):
        pipeline(HISTORIC).run(rows_of(write(1, a="x")))
    pipeline(HISTORIC, create=True).run(rows_of(write(1, a="x", b=1), update(1, b=2)))
    assert [row[4:] for row in kept(target)] == [(False, False), (True, True)]
    target.execute("DROP TABLE t", SIMPLE)
    with pytest.raises(SchemaError, match="lacks valid_from_ordinal"):
        pipeline(HISTORIC).run(rows_of(write(1, a="x"), first=2))


# Crashes.


def test_what_is_staged_is_seen_by_nobody_and_committed_once(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(SIMPLE)
    rows = rows_of(*[write(each, b=each) for each in range(MANY)])
    crashed = pipeline()
    crashed.stage(rows, crashed.begin())
    assert target.table() == []
    # The next driver has no state, and starts again.
    made = pipeline()
    job = made.begin()
    parts = made.stage(rows, job)
    assert made.target.commit(parts, job) == Committed(written=MANY)
    target.execute("UPDATE t SET b = -1")
    # One that did not see its commit, and one that is too late.
    assert made.target.commit(parts, job) is None
    assert made.run(rows) == Committed()
    assert {row[2] for row in target.table()} == {-1}


def test_two_drivers_commit_once(target: Target, pipeline: MakePipeline) -> None:
    target.execute(SIMPLE)
    rows = rows_of(write(1, b=1))
    one, other = pipeline(), pipeline()
    jobs = [one.begin(), other.begin()]
    parts = [one.stage(rows, jobs[0]), other.stage(rows, jobs[1])]
    assert one.target.commit(parts[0], jobs[0]) is not None
    assert other.target.commit(parts[1], jobs[1]) is None
    assert one.target.apply([batch_of(rows)], jobs[0]) is None


@pytest.mark.parametrize("target", ["postgresql", "mariadb"], indirect=True)
def test_a_connection_that_is_killed_while_committing_leaves_nothing(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute(SIMPLE)
    made = pipeline()
    rows = rows_of(*[write(each, b=each) for each in range(MANY)])
    job = made.begin()
    parts = made.stage(rows, job)
    kill = target.pick(
        sqlite="",
        postgresql="SELECT pg_terminate_backend(pg_backend_pid())",
        mariadb="",
    )
    if kill:
        target.execute(
            "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN PERFORM {kill.removeprefix('SELECT ')}; RETURN NEW; END $$",
            "CREATE TRIGGER die BEFORE INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION die()",
        )
    else:
        target.execute(
            "CREATE TRIGGER die BEFORE INSERT ON t FOR EACH ROW KILL CONNECTION CONNECTION_ID()"
        )
    with pytest.raises(SinkUnavailableError):
        made.target.commit(parts, job)
    assert target.table() == []
    assert made.fence() == {}
    target.execute(
        target.pick(sqlite="", postgresql="DROP TRIGGER die ON t", mariadb="DROP TRIGGER die")
    )
    assert made.run(rows) == Committed(written=MANY)
    assert made.run(rows) == Committed()
    assert len(target.table()) == MANY


@pytest.mark.parametrize("target", ["postgresql", "mariadb"], indirect=True)
def test_tables_that_a_crash_has_left_are_swept(
    target: Target, pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = target.pick(sqlite="", postgresql="current_schema()", mariadb="DATABASE()")
    query = (
        "SELECT table_name FROM information_schema.tables"
        f" WHERE table_schema = {schema} AND LEFT(table_name, 15) = 'stompkit_stage_'"
    )
    target.execute(SIMPLE)
    made = pipeline()
    rows = rows_of(*[write(each) for each in range(MANY)])
    left = made.stage(rows, made.begin())
    assert len(target.rows(query)) == 1
    made.target.prepare()
    assert len(target.rows(query)) == 1, "another driver may be about to commit it"
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 86_400)
    made.target.prepare()
    assert target.rows(query) == []
    monkeypatch.undo()
    with pytest.raises(StagingLostError):
        made.target.commit(left, made.begin())
    made.run(rows)
    assert target.rows(query) == []


# Invalid configurations.


def test_other_urls_are_refused() -> None:
    with pytest.raises(ValueError, match=r"not to oracle|not known|not installed"):
        open_target("oracle://somewhere/x")
    with pytest.raises(ValueError, match="has to be like"):
        open_target("what is this")
