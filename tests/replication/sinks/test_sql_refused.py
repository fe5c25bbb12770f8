"""The sink for SQL: the applicable part of a changeset that cannot be applied as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.sinks import Refused, RowSink
from stompkit.replication.sinks.sql import SqlSink
from tests.effort import drawn
from tests.replication.sinks.sql_targets import (
    KINDS,
    Target,
    change,
    changeset,
    database_url,
    schema_change,
    target,
)
from tests.servers import mariadb, postgresql

__all__ = ["database_url", "mariadb", "postgresql", "target"]

TABLE = "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(5), CHECK (a <> 'bad'))"


@contextmanager
def opened(target: Target, **settings: Any) -> Iterator[SqlSink]:
    sink = SqlSink(target.engine, **settings)
    try:
        yield sink
    finally:
        sink.close()


def refused_of(sink: SqlSink, given: Changeset) -> list[RowChange]:
    found: list[Refused] = []
    sink.apply_rows(given, found.extend)
    assert all(f"changeset {given.sequence} " in each.reason for each in found)
    return [each.change for each in found]


def write(number: int, a: str = "x", table: str = "t") -> RowChange:
    return change("write", {"id": number}, table, after={"id": number, "a": a})


def test_one_bad_row_of_a_chunk_is_refused_alone(target: Target) -> None:
    target.execute(TABLE)
    rows = [write(number, "bad" if number == 77 else "x") for number in range(300)]
    with opened(target) as sink:
        assert isinstance(sink, RowSink)
        assert refused_of(sink, changeset(1, *rows)) == [rows[77]]
        assert sink.last("origin") == 1
        # It counts as applied.
        assert refused_of(sink, changeset(1, *rows)) == []
    assert [row[0] for row in target.table()] == [n for n in range(300) if n != 77]


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_rows_that_are_refused_leave_no_locks(target: Target) -> None:
    """PostgreSQL has a limit of some thousand locks, and each remaining savepoint has one."""
    target.execute(TABLE)
    locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid'"
    found = []
    with opened(target) as sink:
        rows = [*(write(number, "bad") for number in range(50)), write(99)]
        sink.apply_rows(changeset(1, *rows), lambda _: found.append(target.rows(locks)[0][0]))
    (count,) = found
    assert count < 5


PAIR = (
    "CREATE TABLE p (id INT NOT NULL PRIMARY KEY, a VARCHAR(5))",
    "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a INT, up INT, FOREIGN KEY (a) REFERENCES p (id),"
    " FOREIGN KEY (up) REFERENCES t (id))",
    "INSERT INTO p VALUES (1, 'old'), (2, 'old')",
    "INSERT INTO t VALUES (1, 1, NULL), (2, 2, 1)",
)


@pytest.mark.parametrize("target", KINDS[1:], indirect=True)
def test_tables_that_are_emptied_together_keep_what_comes_later(target: Target) -> None:
    """A source may name them in any order."""
    target.execute(*PAIR)
    emptied = [change("truncate", {}, name) for name in ("p", "t")]
    child = change("write", {"id": 5}, after={"id": 5, "a": 1, "up": 5})
    with opened(target) as sink:
        sink.apply([changeset(1, *emptied, write(1, table="p"), write(3, table="p"), child)])
        assert target.table("p") == [(1, "x"), (3, "x")]
        assert target.table() == [(5, 1, 5)]
        assert refused_of(sink, changeset(2, *emptied, write(4, table="p"))) == []
    assert target.table("p") == [(4, "x")]
    assert target.table() == []


@pytest.mark.parametrize("target", KINDS[1:], indirect=True)
def test_a_table_that_could_be_emptied_too_late_only_is_not_emptied(target: Target) -> None:
    target.execute(*PAIR)
    emptied = change("truncate", {}, "p")
    gone = [change("delete", {"id": number}) for number in (2, 1)]
    with opened(target) as sink:
        assert refused_of(sink, changeset(1, emptied, write(3, table="p"), *gone)) == [emptied]
        assert target.table("p") == [(1, "old"), (2, "old"), (3, "x")]
        # No row has been added since.
        assert refused_of(sink, changeset(2, write(4, table="p"), emptied)) == []
    assert target.table("p") == []
    assert target.table() == []


@pytest.mark.parametrize("target", KINDS[1:], indirect=True)
def test_rows_that_each_refer_to_the_next_one(target: Target) -> None:
    """The time is proportional to their number; otherwise this test would not end."""
    target.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES t (id))")
    last = 1500
    rows = [
        change("write", {"id": n}, after={"id": n, "a": n + 1 if n < last else None})
        for n in range(1, last + 1)
    ]
    with opened(target) as sink:
        assert refused_of(sink, changeset(1, *rows)) == []
        gone = [change("delete", {"id": n}) for n in range(last, 0, -1)]
        assert refused_of(sink, changeset(2, *gone)) == []
    assert target.table() == []


def test_what_depends_on_a_change_that_is_refused_is_refused_with_it(target: Target) -> None:
    """The order of the changes of one row is kept."""
    target.execute(TABLE)
    changes = [
        write(1, "bad"),
        change("update", {"id": 1}, after={"id": 1, "a": "later"}),
        write(2),
        change("update", {"id": 3}, old_key={"id": 2}, after={"id": 3, "a": "bad"}),
        change("delete", {"id": 3}),
        write(4),
    ]
    with opened(target) as sink:
        assert refused_of(sink, changeset(1, *changes)) == [
            changes[0],
            changes[1],
            changes[3],
            changes[4],
        ]
    assert target.table() == [(2, "x"), (4, "x")]


def test_rows_that_come_before_what_they_refer_to_are_not_refused(target: Target) -> None:
    target.execute(
        "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(5), up INT,"
        " FOREIGN KEY (up) REFERENCES t (id))"
    )

    def node(number: int, up: int | None, a: str = "x") -> RowChange:
        return change("read", {"id": number}, after={"id": number, "a": a, "up": up})

    too_long = node(5, None, "x" * 9)
    rows = [node(1, 2), node(2, 3), node(3, 4), node(4, None), too_long]
    with opened(target) as sink:
        refused = refused_of(sink, changeset(1, *rows))
    assert refused == ([too_long] if target.kind != "sqlite" else refused)
    assert [row[0] for row in target.table()][:4] == [1, 2, 3, 4]


def test_a_table_that_can_not_be_made_takes_only_its_own_rows_with_it(target: Target) -> None:
    target.execute(TABLE)
    key = {"name": "id", "type": "int", "key": True, "nullable": False}
    wrong = schema_change(key, {"name": "a", "type": "no such type"}, table="u")
    lost = write(1, table="u")
    with opened(target, create=True) as sink:
        assert refused_of(sink, changeset(1, wrong, lost, write(2))) == [wrong, lost]
    assert target.table() == [(2, "x")]


def test_what_is_not_taken_undoes_everything(target: Target) -> None:
    target.execute(TABLE)

    def away(refused: Sequence[Refused]) -> None:
        raise RuntimeError("the broker is away")

    with opened(target) as sink:
        with pytest.raises(RuntimeError):
            sink.apply_rows(changeset(1, write(1), write(2, "bad")), away)
        assert sink.last("origin") is None
    assert target.table() == []


ids = st.integers(1, 4)
texts = st.sampled_from(["x", "y", "bad", "toolong"])


@st.composite
def histories(draw: st.DrawFn) -> list[RowChange]:
    """Draw changes of four rows, some of which the table refuses."""
    made: list[RowChange] = []
    for _ in range(draw(st.integers(1, 12))):
        number, action = draw(ids), draw(st.sampled_from(["write", "update", "delete", "move"]))
        a = draw(texts)
        if action == "delete":
            made.append(change("delete", {"id": number}))
        elif action == "move":
            other = draw(st.sampled_from([each for each in range(1, 5) if each != number]))
            row = {"id": number, "a": a}
            made.append(change("update", {"id": number}, after=row, old_key={"id": other}))
        else:
            made.append(change(action, {"id": number}, after={"id": number, "a": a}))  # type: ignore[arg-type]
    return made


def fits(target: Target, given: RowChange) -> bool:
    a = (given.after or {}).get("a", "x")
    return a != "bad" and (len(str(a)) <= 5 or target.kind == "sqlite")


def test_what_is_left_is_what_the_other_changes_make(target: Target) -> None:
    """A model: a dictionary of rows, to which each accepted change is applied.

    After a refused change, all later changes of the same row are refused, too.
    """
    target.execute(TABLE)
    with opened(target) as sink:
        numbers = count(1)

        @settings(max_examples=drawn(20), deadline=None)
        @given(changes=histories())
        def try_one(changes: list[RowChange]) -> None:
            target.execute("DELETE FROM t")
            refused = refused_of(sink, changeset(next(numbers), *changes))
            expected, rows = model(target, changes)
            assert refused == expected
            assert target.table() == sorted(rows.items())

        try_one()


def model(target: Target, changes: list[RowChange]) -> tuple[list[RowChange], dict[int, str]]:
    """Return the changes that are refused, and the remaining rows."""
    rows: dict[int, str] = {}
    tainted: set[int] = set()
    expected: list[RowChange] = []
    for each in changes:
        number = each.key["id"]
        old = (each.old_key or each.key)["id"]
        if not fits(target, each) or tainted & {number, old}:
            tainted |= {number, old}
            expected.append(each)
            continue
        rows.pop(old, None) if each.action == "delete" or old != number else None
        if each.action != "delete":
            rows[number] = (each.after or {})["a"]
    return expected, rows
