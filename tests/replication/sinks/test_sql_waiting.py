"""The sink for SQL: rows of a snapshot that refer to rows which come later."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stompkit.replication.events import Changeset, RowChange, Source, make_changeset
from stompkit.replication.sinks import ApplyProblem, Refused
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

pytestmark = pytest.mark.parametrize("target", KINDS[1:], indirect=True)


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


def test_rows_of_a_chunk_wait_for_those_of_later_chunks(target: Target) -> None:
    """Whatever the order is, and with the sink made anew between any two chunks."""
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


def test_what_refers_to_nothing_is_refused_when_the_snapshot_has_ended(target: Target) -> None:
    target.execute(NODES)
    lost = node(1, 99)
    with opened(target) as sink:
        sink.apply([chunk(1, lost, node(2, 2))])
        later = changeset(2, node(3, 2))
        with pytest.raises(ApplyProblem, match=re.escape("key {'id': 1}")):
            sink.apply([later])
        assert sink.last("origin") == 1
    refused: list[Refused] = []
    with opened(target) as sink:
        sink.apply_rows(later, refused.extend)
        assert [each.change for each in refused] == [lost]
        sink.apply([changeset(3, node(4, 3))])
    assert target.table() == [(2, 2), (3, 2), (4, 3)]


def test_a_change_behind_the_snapshot_is_no_row_that_waits(target: Target) -> None:
    target.execute(NODES)
    with opened(target) as sink, pytest.raises(ApplyProblem, match=re.escape("key {'id': 1}")):
        sink.apply([changeset(1, node(1, 99))])
