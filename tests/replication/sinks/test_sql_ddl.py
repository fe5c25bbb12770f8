"""The sink for SQL: rows before and after columns are renamed or get another type."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.replication.sinks import ApplyError, Refused
from stompkit.replication.sinks.sql import SqlSink
from tests.effort import drawn
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

ID = {"name": "id", "type": "int", "key": True, "nullable": False}
NAMES = ("a", "b", "c")
_VALUES = {
    "text": st.sampled_from(["abc", "7", ""]) | st.none(),
    "int": st.integers(0, 9) | st.none(),
}


def described(columns: dict[str, str], **more: object) -> RowChange:
    """Return a ``schema`` change of the table."""
    told = [ID, *({"name": name, "type": kind} for name, kind in columns.items())]
    return change("schema", {}, after={"columns": told, **more})


class Table:
    """A table of a source, whose statements are recorded as changes."""

    def __init__(self) -> None:
        """Create the table."""
        self.columns = {"a": "text"}
        self.rows: dict[int, dict[str, Any]] = {}
        #: Names that columns had before, which the target may still have.
        self.former: set[str] = set()
        self.copies = False
        self.changes = [described(self.columns)]

    def taken(self) -> list[RowChange]:
        """Return the changes since the last call."""
        changes, self.changes = self.changes, []
        return changes

    def write(self, data: st.DrawFn, key: int) -> None:
        """Write a row."""
        row = {name: data(_VALUES[kind]) for name, kind in self.columns.items()}
        self.rows[key] = row
        self.changes.append(change("write", {"id": key}, after={"id": key, **row}))

    def delete(self, key: int) -> None:
        """Delete a row."""
        if (row := self.rows.pop(key, None)) is not None:
            self.changes.append(change("delete", {"id": key}, before={"id": key, **row}))

    def alter(self, renamed: dict[str, str], columns: dict[str, str], values: Any) -> None:
        """Rename columns, then give the table these ones; *values* returns new values of a type."""
        kept = {renamed.get(name, name): kind for name, kind in self.columns.items()}
        again = (self.former | self.columns.keys()) - (kept.keys() - renamed.values())
        retyped = [
            name
            for name, kind in columns.items()
            if kept.get(name, kind) != kind
            or (name in again and (name not in kept or name in renamed.values()))
        ]
        for key, row in self.rows.items():
            row = {renamed.get(name, name): value for name, value in row.items()}
            for name, kind in columns.items():
                if kept.get(name) != kind:
                    row[name] = values(_VALUES[kind]) if name in kept else None
            self.rows[key] = {name: row[name] for name in columns}
        self.former |= {*self.columns, *kept} - columns.keys()
        self.copies = self.copies or bool(retyped)
        self.columns = columns
        more: dict[str, object] = {"renamed": renamed} if renamed else {}
        self.changes.append(described(columns, **more, **({"retyped": retyped} if retyped else {})))

    def copy(self) -> None:
        """Publish all rows again, if values of existing rows have changed."""
        if self.copies:
            self.changes += [
                change("read", {"id": key}, after={"id": key, **row})
                for key, row in self.rows.items()
            ]
        self.copies = False


def _alter(draw: st.DrawFn, table: Table) -> None:
    columns = table.columns
    free = [name for name in NAMES if name not in columns]
    kind = draw(st.sampled_from(["rename", "retype", "add", "drop", "exchange"]))
    name = draw(st.sampled_from(sorted(columns)))
    other = draw(st.sampled_from(free)) if free else ""
    new_type = draw(st.sampled_from(["text", "int"]))
    if kind == "rename" and other:
        named = {other if each == name else each: type_ for each, type_ in columns.items()}
        table.alter({name: other}, named, draw)
    elif kind == "retype":
        table.alter({}, {**columns, name: new_type}, draw)
    elif kind == "add" and other:
        table.alter({}, {**columns, other: new_type}, draw)
    elif kind == "drop" and len(columns) > 1:
        table.alter({}, {each: columns[each] for each in columns if each != name}, draw)
    elif kind == "exchange" and len(columns) > 1:
        one, another = sorted(columns)[:2]
        exchanged = {**columns, one: columns[another], another: columns[one]}
        table.alter({one: another, another: one}, exchanged, draw)


@st.composite
def _histories(draw: st.DrawFn) -> tuple[list[Changeset], Table]:
    """Return changesets, and the table that they have made."""
    table = Table()
    changesets: list[Changeset] = []
    for _ in range(draw(st.integers(1, 8))):
        for _ in range(draw(st.integers(0, 5))):
            action = draw(st.sampled_from(["write", "write", "write", "delete", "alter"]))
            if action == "write":
                table.write(draw, draw(st.integers(1, 3)))
            elif action == "delete":
                table.delete(draw(st.integers(1, 3)))
            else:
                _alter(draw, table)
        changesets.append(changeset(len(changesets) + 1, *table.taken()))
        table.copy()
        changesets.append(changeset(len(changesets) + 1, *table.taken()))
    return changesets, table


def test_rows_in_batches_end_as_in_a_source_whose_columns_change(target: Target) -> None:
    @settings(
        max_examples=drawn(80 if target.kind == "sqlite" else 25),
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(_histories(), st.data())
    def check(history: tuple[list[Changeset], Table], data: st.DataObject) -> None:
        changesets, table = history
        target.execute("DROP TABLE IF EXISTS t", "DROP TABLE IF EXISTS stompkit_offsets")
        with ExitStack() as sinks:
            at = 0
            while at < len(changesets):
                sink = SqlSink(target.url, create=True)
                sinks.callback(sink.close)
                begin = data.draw(st.integers(0, at), label="begin")
                at = data.draw(st.integers(at + 1, len(changesets)), label="end")
                sink.apply(changesets[begin:at])
        columns = sorted(table.columns)
        found = target.rows(f"SELECT {', '.join(('id', *columns))} FROM t")
        rows: dict[int, dict[str, Any]] = {
            row[0]: dict(zip(columns, row[1:], strict=True)) for row in found
        }
        assert rows == table.rows

    check()


HISTORY = (
    changeset(1, described({"a": "text"}), change("write", {"id": 1}, after={"id": 1, "a": "x"})),
    changeset(2, change("write", {"id": 2}, after={"id": 2, "a": "y"})),
    changeset(3, change("delete", {"id": 2})),
)


def test_rows_before_a_rename_keep_the_earlier_name(target: Target) -> None:
    renamed = described({"b": "text"}, renamed={"a": "b"})
    last = changeset(4, renamed, change("write", {"id": 3}, after={"id": 3, "b": "z"}))
    sink = SqlSink(target.url, create=True)
    sink.apply([*HISTORY, last])
    sink.close()
    assert target.table() == [(1, "x"), (3, "z")]


def test_rows_before_another_type_keep_the_earlier_type(target: Target) -> None:
    retyped = described({"a": "int"}, retyped=["a"])
    copy = changeset(5, change("read", {"id": 1}, after={"id": 1, "a": 0}))
    sink = SqlSink(target.url, create=True)
    sink.apply([*HISTORY, changeset(4, retyped), copy])
    sink.close()
    assert target.table() == [(1, 0)]


UNSIGNED = {"type": "int", "unsigned": True, "precision": 20}


@pytest.mark.parametrize(
    ("former", "now", "value"),
    [
        ({"type": "int"}, UNSIGNED, 2**64 - 1),
        (UNSIGNED, {"type": "int"}, -1),
        ({"type": "decimal", "precision": 4, "scale": 2}, {"type": "int"}, 2**63 - 1),
        ({"type": "decimal", "precision": 4, "scale": 2}, UNSIGNED, 2**64 - 1),
        ({"type": "uuid"}, {"type": "text"}, "x" * 99),
    ],
)
def test_a_value_of_a_larger_type_has_room(
    target: Target, former: dict[str, object], now: dict[str, object], value: int | str
) -> None:
    told = [
        change("schema", {}, after={"columns": [ID, {"name": "a", **column}], **more})
        for column, more in ((former, {}), (now, {"retyped": ["a"]}))
    ]
    copy = changeset(3, change("read", {"id": 1}, after={"id": 1, "a": value}))
    sink = SqlSink(target.url, create=True)
    sink.apply([changeset(1, told[0]), changeset(2, told[1]), copy])
    sink.close()
    ((_, stored),) = target.table()
    assert type(value)(stored) == value


def test_rows_of_the_same_transaction_get_the_new_name(target: Target) -> None:
    changes = (
        change("write", {"id": 4}, after={"id": 4, "a": "v"}),
        described({"b": "text"}, renamed={"a": "b"}),
        described({"c": "text"}, renamed={"b": "c"}),
        change("write", {"id": 5}, after={"id": 5, "c": "w"}),
    )
    target.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(9))")
    sink = SqlSink(target.url)
    sink.apply([changeset(1, *changes)])
    sink.close()
    assert target.table() == [(4, "v"), (5, "w")]


def test_a_changeset_whose_table_was_altered_before_a_crash_is_applied(target: Target) -> None:
    target.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, b VARCHAR(9))")
    row = change("write", {"id": 4}, after={"id": 4, "a": "v"})
    sink = SqlSink(target.url)
    sink.apply([changeset(1, row, described({"b": "text"}, renamed={"a": "b"}))])
    sink.close()
    assert target.table() == [(4, "v")]


def test_a_refused_row_from_before_a_rename_is_reported_as_it_came(target: Target) -> None:
    target.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a INT)")
    good, bad = (
        change("write", {"id": number}, after={"id": number, "a": value})
        for number, value in ((1, 1), (2, "x"))
    )
    mixed = changeset(1, good, bad, described({"b": "int"}, renamed={"a": "b"}))
    refused: list[Refused] = []
    sink = SqlSink(target.url)
    with pytest.raises(ApplyError, match="'x' is not a whole number"):
        sink.apply([mixed])
    sink.apply_rows(mixed, refused.extend)
    sink.close()
    assert [each.change for each in refused] == [bad]
    assert target.table() == [(1, 1)]


@pytest.mark.parametrize("target", KINDS[1:], indirect=True)
def test_rows_that_wait_get_the_names_of_columns_meanwhile(target: Target) -> None:
    target.execute(
        "CREATE TABLE p (id INT NOT NULL PRIMARY KEY)",
        "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES p (id))",
    )

    def snapshot(sequence: int, *changes: RowChange) -> Changeset:
        source = Source(kind="test", is_snapshot=True)
        return make_changeset("origin", sequence, changes, source, id=f"origin:{sequence}")

    sink = SqlSink(target.url, foreign_keys="enforced")
    sink.apply([snapshot(1, change("read", {"id": 1}, after={"id": 1, "a": 7}))])
    assert target.table() == []
    sink.apply([snapshot(2, described({"b": "int"}, renamed={"a": "b"}))])
    sink.apply([snapshot(3, change("read", {"id": 7}, "p", after={"id": 7}))])
    sink.close()
    assert target.table() == [(1, 7)]
