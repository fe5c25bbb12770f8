"""The sink for SQL: rows that refer to each other in a cycle, with and without deferral."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from stompkit.replication.model.events import Action, Changeset, RowChange, Source, make_changeset
from stompkit.replication.sinks import ApplyError, Refused
from stompkit.replication.sinks.sql import SqlSink
from tests.effort import drawn
from tests.replication.sinks.sql_targets import Target, change, changeset, database_url, target
from tests.servers import mariadb, postgresql

__all__ = ["database_url", "mariadb", "postgresql", "target"]

#: A row that does not exist.
LOST = 99

EMPLOYEES = (
    "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, name VARCHAR(9) NOT NULL, chief INT,"
    " CHECK (name <> 'bad'), FOREIGN KEY (chief) REFERENCES t (id))"
)


def _enforce(connection: sqlite3.Connection, _: object) -> None:
    connection.execute("PRAGMA foreign_keys = ON")


@pytest.fixture(autouse=True)
def _enforcing(target: Target) -> None:
    """Make SQLite enforce foreign keys, too."""
    if target.kind == "sqlite":
        event.listen(target.engine, "connect", _enforce)


@contextmanager
def opened(target: Target, **settings: Any) -> Iterator[SqlSink]:
    sink = SqlSink(target.engine, **settings)
    try:
        yield sink
    finally:
        sink.close()


def applied(sink: SqlSink, each: Changeset) -> list[Refused]:
    """Apply a changeset as a consumer with a destination for refused changes does."""
    refused: list[Refused] = []
    try:
        sink.apply([each])
    except ApplyError:
        sink.apply_rows(each, refused.extend)
    return refused


def chunk(sequence: int, *changes: RowChange, origin: str = "origin") -> Changeset:
    source = Source(kind="test", is_snapshot=True)
    return make_changeset(origin, sequence, changes, source, id=f"{origin}:{sequence}")


def employee(number: int, chief: int | None, name: str = "x", action: Action = "read") -> RowChange:
    after = {"id": number, "name": name, "chief": chief}
    return change(action, {"id": number}, after=after)


@pytest.mark.parametrize("foreign_keys", ["deferred", "enforced"])
def test_a_circle_of_a_snapshot(target: Target, foreign_keys: str) -> None:
    target.execute(EMPLOYEES)
    chunks = [chunk(1, employee(1, 2), employee(5, 1)), chunk(2, employee(2, 3))]
    chunks += [chunk(3, employee(3, 1)), changeset(4, employee(4, 3))]
    settings: dict[str, Any] = {"foreign_keys": foreign_keys}
    for each in chunks:
        with opened(target, **settings) as sink:
            sink.apply([each])
    rows = [(1, "x", 2), (2, "x", 3), (3, "x", 1), (4, "x", 3), (5, "x", 1)]
    assert target.table() == rows


def test_a_circle_of_a_transaction_comes_and_goes(target: Target) -> None:
    target.execute(EMPLOYEES)
    with opened(target, foreign_keys="enforced") as sink:
        sink.apply([changeset(1, employee(1, 2, "old"), employee(2, 1))])
        assert target.table() == [(1, "old", 2), (2, "x", 1)]
        # Merge several changes of a row, of which some contain a part of the columns.
        named = change("update", {"id": 3}, after={"name": "new"})
        moved = change("update", {"id": 1}, after={"chief": 3})
        sink.apply([changeset(2, employee(3, 4, action="write"), named, moved, employee(4, 3))])
        assert target.table() == [(1, "old", 3), (2, "x", 1), (3, "new", 4), (4, "x", 3)]
        gone = [change("delete", {"id": number}) for number in (3, 4, 1, 2)]
        sink.apply([changeset(3, *gone)])
    assert target.table() == []


def test_a_circle_with_a_row_that_is_refused_leaves_nothing(target: Target) -> None:
    target.execute(EMPLOYEES, "INSERT INTO t VALUES (7, 'old', NULL)")
    rows = [employee(1, 2), employee(2, 3), employee(3, 1, "bad"), employee(6, LOST)]
    rows += [employee(4, 5), employee(5, 4), employee(7, 1, "new")]
    with opened(target) as sink:
        refused = applied(sink, changeset(1, *rows))
        assert sink.last("origin") == 1
    assert {each.change.key["id"] for each in refused} == {1, 2, 3, 6, 7}
    assert target.table() == [(4, "x", 5), (5, "x", 4), (7, "old", None)]


@pytest.mark.parametrize("target", ["postgresql", "mariadb"], indirect=True)
def test_a_circle_without_a_column_that_may_be_null(target: Target) -> None:
    target.execute(EMPLOYEES.replace("chief INT", "chief INT NOT NULL"))
    chunks = [chunk(1, employee(1, 2), employee(3, 3)), chunk(2, employee(2, 1))]
    with opened(target) as sink:
        assert [applied(sink, each) for each in chunks] == [[], []]
        refused = applied(sink, changeset(3, employee(4, 3), employee(5, 4)))
    assert [each.change.key["id"] for each in refused] == [1, 2]
    assert target.table() == [(3, "x", 3), (4, "x", 3), (5, "x", 4)]


@dataclass(frozen=True)
class Reference:
    """A column that refers to a table."""

    parent: int
    is_nullable: bool
    is_deferrable: bool


@dataclass(frozen=True)
class Drawn:
    """Tables, and rows by their tables and numbers, in the order of arrival."""

    tables: Sequence[Sequence[Reference]]
    rows: Mapping[tuple[int, int], Sequence[int | None]]
    #: Number of rows of a changeset.
    size: int
    is_snapshot: bool

    def parents(self, row: tuple[int, int]) -> Iterator[tuple[Reference, tuple[int, int]]]:
        for reference, number in zip(self.tables[row[0]], self.rows[row], strict=True):
            if number is not None:
                yield reference, (reference.parent, number)

    def storable(self, *, defers: bool) -> set[tuple[int, int]]:
        """Return the rows that the tables can have at the end."""
        left = set(self.rows)
        while True:
            lost = {row for row in left if any(each not in left for _, each in self.parents(row))}
            every: dict[tuple[int, int], set[tuple[int, int]]] = {}
            hard: dict[tuple[int, int], set[tuple[int, int]]] = {}
            for row in left - lost:
                every[row] = {each for _, each in self.parents(row)} - {row}
                hard[row] = {
                    each
                    for reference, each in self.parents(row)
                    if not reference.is_nullable and not (defers and reference.is_deferrable)
                } - {row}
            stuck = {row for row in hard if row in _reached(hard, row)}
            # Members of a cycle with non-deferrable references are stored together, or not at all.
            lost |= {
                row
                for row in every
                for each in stuck
                if row in _reached(every, each) and each in {row, *_reached(every, row)}
            }
            if not lost:
                return left
            left -= lost


def _reached(
    references: Mapping[tuple[int, int], set[tuple[int, int]]], start: tuple[int, int]
) -> set[tuple[int, int]]:
    """Return the rows that one row reaches, by one reference or more."""
    found: set[tuple[int, int]] = set()
    ends = [start]
    while ends:
        for each in references.get(ends.pop(), set()) - found:
            found.add(each)
            ends.append(each)
    return found


@st.composite
def _drawn(draw: st.DrawFn, *, always_nullable: bool) -> Drawn:
    numbers = range(draw(st.integers(1, 3)))
    nullable = st.just(True) if always_nullable else st.booleans()
    reference = st.builds(Reference, st.sampled_from(numbers), nullable, st.booleans())
    tables = [draw(st.lists(reference, min_size=1, max_size=2)) for _ in numbers]
    rows = [(table, number) for table in numbers for number in range(1, draw(st.integers(2, 5)))]
    found = {}
    for row in draw(st.permutations(rows)):
        values = []
        for each in tables[row[0]]:
            known = [number for table, number in rows if table == each.parent]
            choices = [*known, *known, LOST, *([None] if each.is_nullable else [])]
            values.append(draw(st.sampled_from(choices)))
        found[row] = values
    return Drawn(tables, found, draw(st.integers(1, len(rows))), draw(st.booleans()))


def _make(target: Target, drawn: Drawn, prefix: str) -> None:
    """Create the tables."""
    late = []
    for table, references in enumerate(drawn.tables):
        columns = ["id INT NOT NULL PRIMARY KEY"]
        for at, each in enumerate(references):
            null = "" if each.is_nullable else " NOT NULL"
            columns.append(f"c{at} INT{null}")
        for at, each in enumerate(references):
            put_off = " DEFERRABLE" if each.is_deferrable and target.kind == "postgresql" else ""
            key = f"FOREIGN KEY (c{at}) REFERENCES {prefix}{each.parent} (id){put_off}"
            if target.kind == "sqlite":
                columns.append(key)
            else:
                late.append(f"ALTER TABLE {prefix}{table} ADD {key}")
        target.execute(f"CREATE TABLE {prefix}{table} ({', '.join(columns)})")
    target.execute(*late)


def test_rows_that_can_be_stored_are_and_all_others_are_refused(target: Target) -> None:
    numbers = count()

    @settings(
        max_examples=drawn(60 if target.kind == "sqlite" else 15),
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(_drawn(always_nullable=target.kind == "sqlite"))
    def check(drawn: Drawn) -> None:
        prefix = f"t{next(numbers)}_"
        _make(target, drawn, prefix)
        changes = []
        for (table, number), values in drawn.rows.items():
            after = {"id": number, **{f"c{at}": value for at, value in enumerate(values)}}
            changes.append(change("read", {"id": number}, f"{prefix}{table}", after=after))
        size = drawn.size if drawn.is_snapshot else len(changes)
        make = chunk if drawn.is_snapshot else changeset
        sets = [
            make(at + 1, *changes[at : at + size], origin=prefix)
            for at in range(0, len(changes), size)
        ]
        end = change("read", {"id": LOST + 1}, "ends", after={"id": LOST + 1})
        sets.append(changeset(len(changes) + 1, end, end, origin=prefix))
        refused: set[tuple[int, int]] = set()
        with opened(target) as sink:
            left_out = [one.change for each in sets for one in applied(sink, each)]
        for one in left_out:
            number = one.key["id"]
            assert isinstance(number, int)
            refused.add((int(one.table.removeprefix(prefix)), number))
        storable = drawn.storable(defers=target.kind == "postgresql")
        for table in range(len(drawn.tables)):
            assert target.table(f"{prefix}{table}") == [
                (number, *drawn.rows[table, number])
                for at, number in sorted(storable)
                if at == table
            ]
        assert refused == set(drawn.rows) - storable

    target.execute("CREATE TABLE ends (id INT NOT NULL PRIMARY KEY)")
    check()
