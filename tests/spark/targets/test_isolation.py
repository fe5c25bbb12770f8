"""Changes that a target rejects are found among many, and all others are applied in bulk."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.replication.model.events import RowChange
from stompkit.replication.sinks import ApplyError
from stompkit.spark.states import Place
from stompkit.spark.targets import RejectedChangeError
from stompkit.spark.targets.planning import draft
from stompkit.spark.targets.planning.collapse import Collapse
from stompkit.spark.targets.planning.isolate import isolate
from tests.replication.sinks.sql_targets import Target, change, database_url, target
from tests.servers import mariadb, postgresql
from tests.spark.change_rows import batch_of, row_of
from tests.spark.targets.test_targets import (
    JOB,
    MakePipeline,
    Pipeline,
    pipeline,
    rows_of,
    update,
    write,
)

__all__ = ["database_url", "mariadb", "pipeline", "postgresql", "target"]

#: More than PostgreSQL needs for a staging table.
MANY = 3000
LENIENT = replace(JOB, dead_letters=True)


def places_of(batches: Sequence[pa.RecordBatch]) -> list[Place]:
    names = ("_partition", "_ordinal", "change")
    return [
        place
        for batch in batches
        for place in zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    ]


@given(data=st.data())
def test_each_change_is_processed_once_in_order_and_few_are_alone(data: st.DataObject) -> None:
    rows: list[dict[str, Any]] = []
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=30), "sizes")
    moves = data.draw(st.sets(st.integers(0, len(sizes) - 1)), "messages with moves")
    for ordinal, size in enumerate(sizes):
        old = {"id": 0} if ordinal in moves else None
        rows += [
            row_of(change("update", {"id": 10 * ordinal + n}, old_key=old), ordinal, n)
            for n in range(size)
        ]
    everything = places_of([batch_of(rows)])
    bad = data.draw(st.sets(st.sampled_from(everything)), "bad")
    names_them = data.draw(st.booleans(), "names them")
    done: list[Place] = []
    alone: list[Place] = []
    work = 0

    def attempt(batches: Sequence[pa.RecordBatch]) -> Collection[Place] | None:
        nonlocal work
        found = places_of(batches)
        work += len(found)
        if bad.isdisjoint(found):
            done.extend(found)
            return None
        return bad if names_them else ()

    def one_by_one(batches: Sequence[pa.RecordBatch]) -> None:
        found = places_of(batches)
        assert not bad.isdisjoint(found)
        # Keys that change within a message change together.
        assert len(found) == 1 or found[0][1] in moves
        assert len({place[1] for place in found}) == 1
        done.extend(found)
        alone.extend(found)

    isolate([batch_of(rows)], attempt, one_by_one)
    assert done == everything
    assert bad <= set(alone)
    if names_them and len(bad) <= 64:
        assert work <= 2 * len(everything)


class Rejecting:
    """A target that rejects changes, and names the last change of each row that they change."""

    def __init__(self, rows: Sequence[dict[str, Any]], bad: Collection[int]) -> None:
        """Set the rejected changes, by number."""
        self.batch = batch_of(rows)
        self.places = places_of([self.batch])
        self._bad = {self.places[number] for number in bad}
        self.done: list[Place] = []
        #: Numbers of changes that were processed one by one.
        self.alone: list[int] = []
        #: Number of changes that were processed together, or rejected.
        self.work = 0

    def run(self) -> None:
        """Process all changes."""
        isolate([self.batch], self._attempt, self._one_by_one)
        assert self.done == self.places

    def _attempt(self, batches: Sequence[pa.RecordBatch]) -> Collection[Place] | None:
        found = places_of(batches)
        self.work += len(found)
        keys = [key for batch in batches for key in batch.column("key").to_pylist()]
        lasts = dict(zip(keys, found, strict=True))
        suspects = {
            lasts[key] for key, place in zip(keys, found, strict=True) if place in self._bad
        }
        if not suspects:
            self.done += found
        return suspects or None

    def _one_by_one(self, batches: Sequence[pa.RecordBatch]) -> None:
        found = places_of(batches)
        self.done += found
        self.alone += map(self.places.index, found)


@pytest.mark.parametrize("more", [1, 20, 1500])
def test_rejected_change_is_found_before_any_number_of_changes_of_its_row(more: int) -> None:
    bad, step = 800, 2000 // more
    changes = [write(number, a="x") for number in range(MANY)]
    for number in range(bad, bad + more * step + 1, step):
        changes[number] = update(7, a="x")
    made = Rejecting(rows_of(*changes), [bad])
    made.run()
    assert bad in made.alone
    assert len(made.alone) <= 64
    assert made.work <= 3 * MANY


def test_changes_of_keys_are_together_in_their_message_but_not_with_all_others() -> None:
    def move(key: int, old: int, table: str = "t") -> RowChange:
        return change("update", {"id": key}, table, after={"a": "x"}, old_key={"id": old})

    changes = [write(number, a="x") for number in range(MANY)]
    changes[100:104] = [move(-1, -2), write(-1, "u", a="x"), move(-2, -3), move(-3, -1)]
    changes[200:202] = [move(-5, -6), move(-5, -6, "u")]
    rows = [row_of(each, 0, number) for number, each in enumerate(changes)]
    for bad, alone in (
        (50, [50]),
        (103, [100, 101, 102, 103]),
        (201, [201]),
        (MANY - 1, [MANY - 1]),
    ):
        made = Rejecting(rows, [bad])
        made.run()
        assert made.alone == alone
        assert made.work <= 2 * MANY


def bad_rows() -> list[dict[str, Any]]:
    """Return a batch of which two changes can never be applied."""
    changes = [write(number, a="x", b=number) for number in range(MANY)]
    changes[700] = write(700, a="x", b="many")
    changes[2900] = write(2900, a="x", b="more")
    return rows_of(*changes, update(5, a="y"))


def test_values_that_do_not_fit_are_found_by_tasks(
    target: Target, pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.execute("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20), b INT)")
    seen = 0

    class Counting(Collapse):
        def add(self, batch: pa.RecordBatch) -> None:
            nonlocal seen
            seen += batch.num_rows
            super().add(batch)

    monkeypatch.setattr(draft, "Collapse", Counting)
    made = pipeline(LENIENT, evolve=False)
    rows = bad_rows()
    job = made.begin()
    parts = made.stage(rows, job, size=MANY)
    assert [each.place[1] for part in parts for each in part.problems] == [700, 2900]
    # Before it divides changes, a task reads the tables of the target again.
    assert seen <= 3 * len(rows)
    monkeypatch.undo()
    done = made.target.commit(parts, job)
    assert done is not None
    assert (done.dead_letters, done.written) == (2, MANY - 2 + 1)
    assert target.rows("SELECT count(*), max(b) FROM t") == [(MANY - 2, MANY - 1)]
    assert target.rows("SELECT a FROM t WHERE id = 5") == [("y",)]


@pytest.mark.parametrize("constraint", ["UNIQUE (b)", "CHECK (b < 100000)"])
def test_changes_that_the_database_refuses_are_found_by_the_commit(
    target: Target, pipeline: MakePipeline, constraint: str
) -> None:
    columns = f"id INT PRIMARY KEY, a VARCHAR(20) NOT NULL, b INT, {constraint}"
    target.execute(f"CREATE TABLE t ({columns})")
    target.execute("INSERT INTO t VALUES (-1, 'there', 90000)")
    is_unique = constraint.startswith("UNIQUE")
    value = 90_000 if is_unique else 100_000
    changes = [write(number, a="x", b=number) for number in range(MANY)]
    changes[700] = write(700, a="x", b=value)
    changes[2000] = write(2000, a=None, b=2000)
    # The row stays as an earlier change of the batch has left it.
    changes += [update(5, a="y"), update(5, b=value), update(6, a="z")]
    rows = rows_of(*changes)
    made = pipeline(LENIENT, evolve=False)
    done = made.run(rows, tasks=3)
    assert done.dead_letters == 3
    letters = "SELECT ordinal FROM stompkit_pipeline_dead_letters ORDER BY ordinal"
    assert [row[0] for row in target.rows(letters)] == [700, 2000, MANY + 1]
    assert target.rows("SELECT count(*) FROM t") == [(MANY - 1,)]
    assert target.rows("SELECT a, b FROM t WHERE id IN (5, 6) ORDER BY id") == [("y", 5), ("z", 6)]
    assert made.fence() == {0: len(rows) - 1}


def test_first_change_that_the_database_refuses_is_named(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20), b INT, UNIQUE (b))")
    changes = [write(number, a="x", b=number) for number in range(MANY)]
    changes[1234] = write(1234, a="x", b=1)
    changes[2000] = write(2000, a="x", b=2)
    made = pipeline(evolve=False)
    with pytest.raises(RejectedChangeError, match=r"message 1234 .*key \{\"id\":1234\}"):
        made.run(rows_of(*changes), tasks=2)
    assert target.rows("SELECT count(*) FROM t") == [(0,)]


def test_changes_of_one_large_message_are_divided_too(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20), b INT, UNIQUE (b))")
    changes = [write(number, a="x", b=number) for number in range(MANY)]
    changes[50] = write(50, b="many")
    changes[2500] = write(2500, a="x", b=1)
    made = pipeline(LENIENT, evolve=False)
    done = made.run([row_of(each, 0, number) for number, each in enumerate(changes)])
    assert done.dead_letters == 2
    assert target.rows("SELECT count(*) FROM t") == [(MANY - 2,)]


def test_narrow_columns_are_widened_for_a_value_among_many(
    target: Target, pipeline: MakePipeline
) -> None:
    target.execute("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20), b INT)")
    changes = [write(number, a="x", b=number) for number in range(MANY)]
    changes[700] = write(700, a="x" * 30, b=2**40)
    made = pipeline()
    made.run(rows_of(*changes))
    assert target.rows("SELECT a, b FROM t WHERE id = 700") == [("x" * 30, 2**40)]


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_values_that_do_not_fit_into_files_are_found_by_tasks(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("deltalake")
    made = Pipeline(f"{kind}://{tmp_path}/place", LENIENT, create=True)
    made.run(rows_of(write(-1, a="x", b=1)))
    rows = [row_of(write(n, a="x", b="many" if n == 700 else n), n + 1) for n in range(MANY)]
    loose = row_of(change("delete", {}, before={"a": "x"}), MANY + 1)
    job = made.begin()
    parts = made.stage([*rows, loose], job, size=MANY)
    found = [each.place[1] for part in parts for each in part.problems]
    assert found == [701, MANY + 1]
    done = made.target.commit(parts, job)
    assert done is not None
    assert (done.written, done.dead_letters) == (MANY - 1, 2)
    strict = Pipeline(f"{kind}://{tmp_path}/place", replace(JOB, pipeline="strict"))
    with pytest.raises(ApplyError, match=r"message 701 .*column 'b'"):
        strict.run(rows)
    for each in (made, strict):
        each.target.close()
