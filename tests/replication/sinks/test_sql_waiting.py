"""The sink for SQL: rows of a snapshot that refer to later rows."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.replication.sinks import ApplyError, Refused
from stompkit.replication.sinks.sql import SqlSink
from tests.replication.sinks.sql_targets import (
    KINDS,
    Target,
    change,
    changeset,
    database_url,
    target,
)
from tests.servers import mariadb, postgresql

__all__ = ["database_url", "mariadb", "postgresql", "target"]

NODES = (
    "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, up INT NOT NULL,"
    " FOREIGN KEY (up) REFERENCES t (id))"
)

_both = pytest.mark.parametrize("target", KINDS[1:], indirect=True)


def node(number: int, up: int) -> RowChange:
    return change("read", {"id": number}, after={"id": number, "up": up})


def chunk(sequence: int, *changes: RowChange) -> Changeset:
    source = Source(kind="test", is_snapshot=True)
    return make_changeset("origin", sequence, changes, source, id=f"origin:{sequence}")


@contextmanager
def opened(target: Target, **settings: Any) -> Iterator[SqlSink]:
    sink = SqlSink(target.engine, **settings)
    try:
        yield sink
    finally:
        sink.close()


@_both
def test_rows_of_a_chunk_wait_for_those_of_later_chunks(target: Target) -> None:
    """The order is arbitrary, and there may be a new sink between any two chunks."""
    target.execute(NODES)
    rows = [node(0, 0), *(node(n, n - 1) for n in range(1, 30))]
    random.Random(28).shuffle(rows)
    for number in range(0, 30, 5):
        with opened(target) as sink:
            sink.apply([chunk(number // 5 + 1, *rows[number : number + 5])])
    with opened(target) as sink:
        sink.apply([changeset(7, change("update", {"id": 3}, after={"up": 0}))])
    assert target.table() == [(0, 0), (1, 0), (2, 1), (3, 0), *((n, n - 1) for n in range(4, 30))]
    assert target.rows("SELECT * FROM stompkit_waiting") == []


@_both
def test_tables_that_refer_to_each_other(target: Target) -> None:
    target.execute(
        "CREATE TABLE a (id INT NOT NULL PRIMARY KEY, b INT NOT NULL)",
        "CREATE TABLE b (id INT NOT NULL PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES a (id))",
        "ALTER TABLE a ADD FOREIGN KEY (b) REFERENCES b (id)",
    )
    a = change("read", {"id": 1}, "a", after={"id": 1, "b": 1})
    b = change("read", {"id": 1}, "b", after={"id": 1, "a": None})
    with opened(target) as sink:
        sink.apply([chunk(1, a), chunk(2, b)])
    assert target.table("a") == [(1, 1)]
    assert target.table("b") == [(1, None)]


@_both
def test_what_refers_to_nothing_is_refused_when_the_snapshot_has_ended(target: Target) -> None:
    target.execute(NODES)
    lost = node(1, 99)
    with opened(target) as sink:
        sink.apply([chunk(1, lost, node(2, 2))])
        later = changeset(2, node(3, 2))
        with pytest.raises(ApplyError, match=re.escape("key {'id': 1}")):
            sink.apply([later])
        assert sink.last("origin") == 1
    refused: list[Refused] = []
    with opened(target) as sink:
        sink.apply_rows(later, refused.extend)
        assert [each.change for each in refused] == [lost]
        sink.apply([changeset(3, node(4, 3))])
    assert target.table() == [(2, 2), (3, 2), (4, 3)]


@_both
def test_a_change_behind_the_snapshot_is_no_row_that_waits(target: Target) -> None:
    target.execute(NODES)
    with opened(target) as sink, pytest.raises(ApplyError, match=re.escape("key {'id': 1}")):
        sink.apply([changeset(1, node(1, 99))])


@_both
def test_a_table_that_a_snapshot_can_not_empty_does_not_wait(target: Target) -> None:
    """Otherwise it would be emptied of the rows that have arrived since."""
    target.execute(
        "CREATE TABLE t (id INT NOT NULL PRIMARY KEY)",
        "CREATE TABLE c (id INT NOT NULL PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id))",
        "INSERT INTO t VALUES (1), (2)",
        "INSERT INTO c VALUES (1, 1)",
    )
    emptied = change("truncate", {})
    first = chunk(1, emptied, *(change("read", {"id": n}, after={"id": n}) for n in (2, 3)))
    refused: list[Refused] = []
    with opened(target) as sink:
        with pytest.raises(ApplyError, match="truncate"):
            sink.apply([first])
        sink.apply_rows(first, refused.extend)
        sink.apply([changeset(2, change("delete", {"id": 1}, "c"))])
        sink.apply([changeset(3, change("write", {"id": 4}, after={"id": 4}))])
    assert [each.change for each in refused] == [emptied]
    assert target.table() == [(1,), (2,), (3,), (4,)]


def _cycle(deferrable: str, null: str = "") -> list[str]:
    """Create three tables that refer to each other in a cycle, by two columns each."""
    made = []
    for name in "abc":
        made.append(
            f"CREATE TABLE {name} (id INT NOT NULL, x INT NOT NULL, up INT {null},"
            " PRIMARY KEY (id, x))"
        )
    for name, parent in ("ab", "bc", "ca"):
        made.append(
            f"ALTER TABLE {name} ADD FOREIGN KEY (up, x) REFERENCES {parent} (id, x) {deferrable}"
        )
    return made


def _member(table: str, number: int, up: int | None) -> RowChange:
    row = {"id": number, "x": 7, "up": up}
    return change("read", {"id": number, "x": 7}, table, after=row)


@_both
@pytest.mark.parametrize("seed", range(3))
def test_three_tables_in_a_circle(target: Target, seed: int) -> None:
    """Chains go round several times, each table being one chunk after the other."""
    target.execute(*_cycle(""))
    chance = random.Random(seed)
    rows: dict[str, list[RowChange]] = {"a": [], "b": [], "c": []}
    for number in range(1, 13):
        # a:1 refers to b:2, that to c:3, that to a:4, and the last one is null.
        table = "abc"[(number - 1) % 3]
        rows[table].append(_member(table, number, number + 1 if number < 12 else None))
    chunks = []
    for table in "abc":
        chance.shuffle(rows[table])
        chunks += [rows[table][:2], rows[table][2:]]
    for sequence, changes in enumerate(chunks, 1):
        with opened(target) as sink:
            sink.apply([chunk(sequence, *changes)])
    with opened(target) as sink:
        sink.apply([changeset(7, change("delete", {"id": 1, "x": 7}, "a"))])
    found = sorted(number for table in "abc" for number, *_ in target.table(table))
    assert found == list(range(2, 13))
    assert target.rows("SELECT * FROM stompkit_waiting") == []


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
@pytest.mark.parametrize("deferrable", ["DEFERRABLE INITIALLY DEFERRED", "DEFERRABLE"])
@pytest.mark.parametrize("lost", [[], [_member("a", 3, 99)]], ids=["all", "one is lost"])
def test_rows_in_a_circle_that_only_exist_together(
    target: Target, deferrable: str, lost: list[RowChange]
) -> None:
    target.execute(*_cycle(deferrable))
    rows = [_member("a", 1, 1), _member("b", 1, 1), _member("c", 1, 1)]
    for sequence, each in enumerate(rows, 1):
        with opened(target) as sink:
            others = lost if sequence == 1 else []
            sink.apply([chunk(sequence, each, _member(each.table, 2, None), *others)])
    refused: list[Refused] = []
    with opened(target) as sink:
        sink.apply_rows(changeset(4, change("delete", {"id": 2, "x": 7}, "a")), refused.extend)
    assert [each.change for each in refused] == lost
    assert [target.table(each) for each in "abc"] == [
        [(1, 7, 1)],
        [(1, 7, 1), (2, 7, None)],
        [(1, 7, 1), (2, 7, None)],
    ]


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_a_transaction_with_a_circle_and_one_row_that_is_refused(target: Target) -> None:
    target.execute(*_cycle("DEFERRABLE"), "ALTER TABLE a ADD CHECK (id <> 9)")
    # 4 and 5 refer to the cycle, 6 to a row without references.
    circle = [_member("a", 1, 1), _member("b", 1, 1), _member("c", 4, 5), _member("a", 5, 1)]
    lost = [_member("a", 9, 1), _member("b", 6, 7), _member("c", 7, 8)]
    refused: list[Refused] = []
    with opened(target) as sink:
        sink.apply_rows(changeset(1, *lost, *circle, _member("c", 1, 1)), refused.extend)
    assert sorted(each.change.key["id"] for each in refused) == [6, 7, 9]
    assert [target.table(each) for each in "abc"] == [
        [(1, 7, 1), (5, 7, 1)],
        [(1, 7, 1)],
        [(1, 7, 1), (4, 7, 5)],
    ]
    gone = [change("delete", {"id": 1, "x": 7}, each) for each in "abc"]
    gone += [change("delete", {"id": 4, "x": 7}, "c"), change("delete", {"id": 5, "x": 7}, "a")]
    with opened(target) as sink:
        sink.apply_rows(changeset(2, _member("a", 9, 1), *gone), refused.extend)
    assert [target.table(each) for each in "abc"] == [[], [], []]
    assert len(refused) == 4


@_both
@pytest.mark.parametrize("foreign_keys", ["deferred", "off"])
def test_rows_in_a_circle_that_can_not_be_put_off(target: Target, foreign_keys: str) -> None:
    """Such rows exist only without foreign keys, as in the source."""
    target.execute(*_cycle("", "NOT NULL"))
    rows = [_member("a", 1, 1), _member("b", 1, 1), _member("c", 1, 1)]
    changesets = [*(chunk(n, each) for n, each in enumerate(rows, 1)), changeset(4, rows[0])]
    settings: dict[str, Any] = {"foreign_keys": foreign_keys}
    with opened(target, **settings) as sink:
        for each in changesets[:3]:
            sink.apply([each])
        if foreign_keys == "off":
            assert [target.table(each) for each in "abc"] == [[(1, 7, 1)]] * 3
            return
        with pytest.raises(ApplyError, match=r"'a', key \{'id': 1, 'x': 7\}: .*foreign"):
            sink.apply(changesets[3:])
