"""The sink for SQL against a model: for any changes in any batches, the tables agree."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from itertools import count
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.sinks.sql import SqlSink
from tests.effort import drawn
from tests.replication.sinks.sql_targets import Target, change, changeset, database_url, target
from tests.servers import mariadb, postgresql

__all__ = ["database_url", "mariadb", "postgresql", "target"]

#: A table for each way of writing: by one key, by one of several keys or with a required column
#: that may be missing, by a key of two columns, without a key, and with a column that only new rows
#: can set.
TABLES = {
    "plain": ("id INT NOT NULL PRIMARY KEY, a VARCHAR(20), b INT", ("id",)),
    "strict": ("id INT NOT NULL PRIMARY KEY, a VARCHAR(20) NOT NULL, b INT UNIQUE", ("id",)),
    "pairs": (
        "x INT NOT NULL, y INT NOT NULL, a VARCHAR(20), b INT, PRIMARY KEY (x, y)",
        ("x", "y"),
    ),
    "loose": ("a VARCHAR(20), b INT", ()),
    # A row keeps its number.
    "numbered": ("id INT NOT NULL PRIMARY KEY, a VARCHAR(20), b INT, n INT{identity}", ("id",)),
}

Rows = dict[tuple[object, ...], dict[str, Any]]


class Model:
    """The expected tables."""

    def __init__(self) -> None:
        """Start with empty tables."""
        self.keyed: dict[str, Rows] = {name: {} for name in TABLES}
        self.loose: list[tuple[object, object]] = []
        self._numbers = count(1)

    def apply(self, each: RowChange) -> None:
        """Apply a change."""
        if each.table == "loose":
            self._apply_loose(each)
            return
        rows = self.keyed[each.table]
        key = tuple(each.key.values())
        if each.action == "truncate":
            rows.clear()
        elif each.action == "delete":
            rows.pop(key, None)
        else:
            row: dict[str, Any] = dict.fromkeys("abn" if each.table == "numbered" else "ab")
            if each.old_key is not None and each.old_key != each.key:
                row = rows.pop(tuple(each.old_key.values()), row)
            told = {name: value for name, value in (each.after or {}).items() if name in row}
            rows[key] = {**rows.get(key, row), **told}

    def _apply_loose(self, each: RowChange) -> None:
        after = (each.after["a"], each.after["b"]) if each.after else None
        before = (each.before["a"], each.before["b"]) if each.before else None
        if each.action == "truncate":
            self.loose.clear()
        if before in self.loose:
            self.loose.remove(before)
        if after is not None:
            self.loose.append(after)

    def number(self, key: tuple[object, ...], old: tuple[object, ...] | None) -> object:
        """Return the number of a row of ``numbered`` that has or gets a key."""
        rows = self.keyed["numbered"]
        row = rows.get(key if old is None else old)
        return next(self._numbers) if row is None else row["n"]

    def rows(self, table: str) -> list[tuple[object, ...]]:
        """Return the rows of a table."""
        if table == "loose":
            return sorted(self.loose, key=repr)
        found = [(*key, *row.values()) for key, row in self.keyed[table].items()]
        return sorted(found, key=repr)


_TEXT = st.sampled_from(["x", "X", "x ", "ü", ""])
_NUMBERS = st.none() | st.integers(-3, 3)
_SMALL = st.integers(0, 4)


@st.composite
def _changes(draw: st.DrawFn, model: Model) -> RowChange:
    """Return a change that a source with the model's tables could have made."""
    table = draw(st.sampled_from(sorted(TABLES)))
    names = TABLES[table][1]
    action: Any = draw(
        st.sampled_from(["write", "read", "update", "update", "move", "move", "delete", "truncate"])
    )
    if action == "truncate":
        return change("truncate", {}, table)
    if not names:
        before = after = None
        if action in ("update", "move", "delete"):
            before = {"a": draw(_TEXT), "b": draw(_NUMBERS)}
        if action != "delete":
            after = {"a": draw(_TEXT), "b": draw(_NUMBERS)}
        kind: Any = {"move": "update"}.get(action, action)
        return change(kind, {}, table, before=before, after=after)
    key = {name: draw(_SMALL) for name in names}
    if action == "delete":
        return change("delete", key, table)
    told: dict[str, Any] = {"a": draw(_TEXT), "b": draw(_NUMBERS)}
    rows = model.keyed[table]
    old = {name: draw(_SMALL) for name in names} if action == "move" else None
    if table == "numbered":
        if old is not None and tuple(key.values()) in rows:
            # The row with the new key would get another number.
            old = None
        told["n"] = model.number(tuple(key.values()), tuple(old.values()) if old else None)
    if table == "strict":
        # No other row has the value; a source would not allow that either.
        mine = [tuple(key.values()), tuple(old.values()) if old else None]
        others = {row["b"] for each, row in rows.items() if each not in mine}
        told["b"] = None if told["b"] in others else told["b"]
    is_there = tuple(key.values()) in rows or (old and tuple(old.values()) in rows)
    if is_there or table != "strict":
        forgotten = draw(st.sets(st.sampled_from(["a", "b"])))
        if old is not None and table == "strict":
            forgotten.discard("b")
        told = {name: value for name, value in told.items() if name not in forgotten}
    whole = {**key, **told} if draw(st.booleans()) else told
    kind = "update" if action == "move" else action
    return change(kind, key, table, after=whole, old_key=old)


@st.composite
def _histories(draw: st.DrawFn) -> tuple[list[Changeset], Model]:
    """Return changesets, and their results."""
    model = Model()
    changesets = []
    for number in range(1, draw(st.integers(1, 8)) + 1):
        changes = []
        moved: set[object] = set()
        for _ in range(draw(st.integers(0, 8))):
            each = draw(_changes(model))
            # Another test swaps keys; here each move is done in turn.
            ends = {(each.table, *row.values()) for row in (each.key, each.old_key) if row}
            if each.old_key is not None and ends & moved:
                continue
            if each.old_key is not None:
                moved |= ends
            model.apply(each)
            changes.append(each)
        changesets.append(changeset(number, *changes))
    return changesets, model


def opened(sinks: ExitStack, target: Target) -> SqlSink:
    sink = SqlSink(target.url)
    sinks.callback(sink.close)
    return sink


def test_tables_end_as_the_model_says(target: Target) -> None:
    for name, (columns, _) in TABLES.items():
        exact = "utf8mb4_0900_bin" if target.is_mysql else "utf8mb4_nopad_bin"
        collate = target.pick(sqlite="", postgresql="", mariadb=f" COLLATE {exact}")
        identity = target.pick(sqlite="", postgresql=" GENERATED ALWAYS AS IDENTITY", mariadb="")
        target.execute(f"CREATE TABLE {name} ({columns.format(identity=identity)}){collate}")

    @settings(
        max_examples=drawn(60 if target.kind == "sqlite" else 30),
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(_histories(), st.data())
    def check(history: tuple[list[Changeset], Model], data: st.DataObject) -> None:
        changesets, model = history
        target.execute(*[f"DELETE FROM {name}" for name in TABLES])
        with ExitStack() as sinks:
            sink = opened(sinks, target)
            if sink.last("origin") is not None:
                target.execute("DELETE FROM stompkit_offsets")
            at = 0
            while at < len(changesets):
                # Some of it repeated, some of it new.
                begin = data.draw(st.integers(0, at), label="begin")
                end = data.draw(st.integers(at + 1, len(changesets)), label="end")
                sink.apply(changesets[begin:end])
                at = end
                if data.draw(st.booleans(), label="restart"):
                    sinks.close()
                    sink = opened(sinks, target)
        found = {name: sorted(target.table(name), key=repr) for name in TABLES}
        assert found == {name: model.rows(name) for name in TABLES}

    check()


def test_the_model_is_one_of_plain_rows() -> None:
    model = Model()
    told: Mapping[str, Any] = {"a": "x", "b": 1}
    for each in (
        change("write", {"id": 1}, "plain", after=dict(told)),
        change("update", {"id": 2}, "plain", after={"b": 2}, old_key={"id": 1}),
        change("write", {}, "loose", after=dict(told)),
    ):
        model.apply(each)
    assert model.rows("plain") == [(2, "x", 2)]
    assert model.rows("loose") == [("x", 1)]
