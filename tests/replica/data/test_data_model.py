"""Conflicting rows: refused ones stay unchanged, all others get the wanted state."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stompkit.replica.data import Wanted
from stompkit.replica.data.sql import SqlData
from tests.effort import drawn
from tests.replica.data.data_made import as_it_is, checked, gone, row, text_of, written
from tests.replication.sinks.sql_targets import Target, database_url, target

__all__ = ["database_url", "target"]

TABLES: Final = {
    "rooms": (
        "id INT NOT NULL PRIMARY KEY, code VARCHAR(10) NOT NULL UNIQUE, floor INT,"
        " CHECK (floor >= 0)"
    ),
    "guests": (
        "id INT NOT NULL PRIMARY KEY, room INT NOT NULL, friend INT, name VARCHAR(10) UNIQUE,"
        " FOREIGN KEY (room) REFERENCES rooms (id){late},"
        " FOREIGN KEY (friend) REFERENCES guests (id){late}"
    ),
}
COLUMNS: Final = {"rooms": ("code", "floor"), "guests": ("room", "friend", "name")}
IDS: Final = st.integers(1, 4)
NAMES: Final = st.sampled_from("abcd")

State = dict[str, dict[int, tuple[Any, ...]]]


@st.composite
def _rows(draw: st.DrawFn) -> list[Wanted]:
    """Return some of the rows, in any order."""
    keys = draw(st.lists(st.tuples(st.sampled_from(sorted(TABLES)), IDS), unique=True, min_size=1))
    found = []
    for table, key in keys:
        if draw(st.integers(0, 3)) == 0:
            found.append(gone(table, key))
        elif table == "rooms":
            floor = draw(st.none() | st.integers(-1, 5))
            found.append(row(table, key, code=draw(NAMES), floor=floor))
        else:
            friend, name = draw(st.none() | IDS), draw(st.none() | NAMES)
            found.append(row(table, key, room=draw(IDS), friend=friend, name=name))
    return found


def state(target: Target) -> State:
    return {
        table: {
            found[0]: tuple(found[1:])
            for found in target.rows(f"SELECT id, {', '.join(columns)} FROM {table}")
        }
        for table, columns in COLUMNS.items()
    }


def test_what_is_refused_stays_and_all_else_is_written(target: Target) -> None:
    write_and_look_often(target, "")


@pytest.mark.parametrize("target", ["sqlite", "postgresql"], indirect=True)
def test_what_the_end_of_a_transaction_would_be_refused_for_is_refused(target: Target) -> None:
    write_and_look_often(target, " DEFERRABLE INITIALLY DEFERRED")


def write_and_look_often(target: Target, when: str) -> None:
    checked(target)
    for name, columns in TABLES.items():
        target.execute(f"CREATE TABLE {name} ({columns.format(late=when)})")
    data = as_it_is(target)

    @settings(
        max_examples=drawn(60 if target.kind == "sqlite" else 20),
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(st.lists(_rows(), min_size=1, max_size=5))
    def check(writes: list[list[Wanted]]) -> None:
        clear(target)
        for rows in writes:
            write_and_look(target, data, rows)

    check()


def clear(target: Target) -> None:
    target.execute("UPDATE guests SET friend = NULL", "DELETE FROM guests", "DELETE FROM rooms")


def write_and_look(target: Target, data: SqlData, rows: list[Wanted]) -> None:
    before = state(target)
    reasons = written(target, rows, data)
    expected = {table: dict(found) for table, found in before.items()}
    for each in rows:
        key = each.key["id"]
        if text_of(each.table, key) in reasons:
            continue
        if each.values is None:
            expected[each.table].pop(key, None)
        else:
            expected[each.table][key] = tuple(each.values[name] for name in COLUMNS[each.table])
    assert state(target) == expected
    # None of the remaining rows can be written separately.
    refused = [each for each in rows if text_of(each.table, each.key["id"]) in reasons]
    for each in refused:
        assert list(written(target, [each], data)) == [text_of(each.table, each.key["id"])]
