"""The sink for SQL: the changes of rows."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import create_engine

from stompkit.replication.model.events import RowChange
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.sql import SqlSink
from tests.replication.sinks.sql_targets import (
    Target,
    change,
    changeset,
    database_url,
    schema_change,
    target,
)
from tests.servers import mariadb, postgresql

__all__ = ["database_url", "mariadb", "postgresql", "target"]

PLAIN = "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(20), b INT)"
STRICT = "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(20) NOT NULL, b INT NOT NULL)"
UNIQUE = "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(20) UNIQUE, b INT)"
NO_KEY = "CREATE TABLE t (a VARCHAR(20), b INT)"


def applied(target: Target, *changes: RowChange, **settings: Any) -> list[tuple[Any, ...]]:
    """Apply changes as one changeset; return the rows of the table then."""
    sink = SqlSink(target.url, **settings)
    last = sink.last("origin") or 0
    try:
        sink.apply([changeset(last + 1, *changes)])
    finally:
        sink.close()
    return target.table()


def write(number: int, a: str | None = "x", b: int | None = 0) -> RowChange:
    return change("write", {"id": number}, after={"id": number, "a": a, "b": b})


def move(old: int, new: int, **after: object) -> RowChange:
    return change("update", {"id": new}, after={"id": new, **after}, old_key={"id": old})


def test_rows_are_written_updated_read_and_deleted(target: Target) -> None:
    target.execute(PLAIN)
    assert applied(target, write(0), write(1), write(2)) == [(0, "x", 0), (1, "x", 0), (2, "x", 0)]
    changes = [
        change("update", {"id": 1}, after={"id": 1, "a": None}),
        change("delete", {"id": 2}, before={"id": 2, "a": "x", "b": 0}),
        change("read", {"id": 3}, after={"id": 3, "a": "r", "b": None}),
        change("delete", {"id": 77}),
    ]
    assert applied(target, *changes) == [(0, "x", 0), (1, None, 0), (3, "r", None)]


def test_only_the_columns_are_written_that_are_told(target: Target) -> None:
    target.execute(PLAIN, "INSERT INTO t VALUES (1, 'kept', 5)")
    for action in ("write", "update", "read"):
        changed = change(action, {"id": 1}, after={"b": 6})
        assert applied(target, changed) == [(1, "kept", 6)]
    assert applied(target, change("update", {"id": 1})) == [(1, "kept", 6)]


def test_a_row_of_which_a_part_is_told_is_updated_where_new_rows_need_more(target: Target) -> None:
    target.execute(STRICT, "INSERT INTO t VALUES (1, 'kept', 5), (2, 'too', 5)")
    changes = [change("update", {"id": number}, after={"b": 6}) for number in (1, 2)]
    assert applied(target, *changes) == [(1, "kept", 6), (2, "too", 6)]
    with pytest.raises(ApplyError, match=r"update of the table 't', key \{'id': 3\}"):
        applied(target, change("update", {"id": 3}, after={"b": 6}))


def test_changes_of_the_same_row_keep_their_order(target: Target) -> None:
    target.execute(PLAIN)
    changes = [
        write(1, "first"),
        write(2, "first"),
        change("update", {"id": 1}, after={"a": "second"}),
        write(1, "third", 3),
        write(2, "second"),
        change("delete", {"id": 2}),
        write(3),
        change("delete", {"id": 3}),
        write(3, "again"),
    ]
    assert applied(target, *changes) == [(1, "third", 3), (3, "again", 0)]


def test_truncate_empties_a_table_between_other_changes(target: Target) -> None:
    target.execute(PLAIN, "CREATE TABLE other (id INT PRIMARY KEY)", "INSERT INTO other VALUES (1)")
    assert applied(target, write(1), change("truncate", {}), write(2)) == [(2, "x", 0)]
    assert target.table("other") == [(1,)]


def test_many_rows_of_several_tables(target: Target) -> None:
    target.execute(PLAIN, "CREATE TABLE u (id INT NOT NULL PRIMARY KEY, a VARCHAR(20), b INT)")
    changes = []
    for number in range(2_500):
        changes.append(write(number, f"row {number}", number))
        changes.append(change("write", {"id": number}, "u", after={"id": number, "b": -number}))
    assert applied(target, *changes) == [
        (number, f"row {number}", number) for number in range(2500)
    ]
    assert target.table("u") == [(number, None, -number) for number in range(2_500)]


# Keys that change.


def test_an_update_of_the_key_moves_the_row_with_what_is_not_told(target: Target) -> None:
    target.execute(PLAIN, "INSERT INTO t VALUES (1, 'kept', 5)")
    assert applied(target, move(1, 9, b=6)) == [(9, "kept", 6)]


def test_a_move_of_a_row_that_is_not_there_writes_it(target: Target) -> None:
    target.execute(PLAIN)
    assert applied(target, move(1, 9, a="new", b=6)) == [(9, "new", 6)]


def test_a_move_to_where_a_row_is_already_leaves_one(target: Target) -> None:
    target.execute(PLAIN, "INSERT INTO t VALUES (1, 'old', 1), (9, 'there', 2)")
    assert applied(target, move(1, 9, a="new")) == [(9, "new", 2)]


def test_the_old_key_is_seen_in_the_row_before(target: Target) -> None:
    target.execute(PLAIN, "INSERT INTO t VALUES (1, 'kept', 5)")
    moved = change("update", {"id": 2}, before={"id": 1}, after={"id": 2})
    assert applied(target, moved) == [(2, "kept", 5)]


@pytest.mark.parametrize("through", [None, 99])
def test_rows_change_places(target: Target, through: int | None) -> None:
    target.execute(PLAIN, "INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2)")
    one, two = {"a": "one", "b": 1}, {"a": "two", "b": 2}
    changes = [move(1, 2, **one), move(2, 1, **two)]
    if through is not None:
        changes = [move(1, through, **one), move(2, 1, **two), move(through, 2, **one)]
    assert applied(target, *changes) == [(1, "two", 2), (2, "one", 1)]


@pytest.mark.parametrize("numbers", [range(1, 50), range(49, 0, -1)])
def test_all_keys_move_by_one(target: Target, numbers: range) -> None:
    target.execute(PLAIN)
    applied(target, *[write(number, str(number)) for number in numbers])
    moved = applied(target, *[move(number, number + 1) for number in numbers])
    assert moved == [(number + 1, str(number), 0) for number in sorted(numbers)]


def test_a_key_of_several_columns_moves(target: Target) -> None:
    target.execute(
        "CREATE TABLE t (a VARCHAR(9) NOT NULL, b INT NOT NULL, c INT, PRIMARY KEY (a, b))"
    )
    first = change("write", {"b": 1, "a": "x"}, after={"a": "x", "b": 1, "c": 1})
    second = change("write", {"b": 2, "a": "x"}, after={"a": "x", "b": 2, "c": 2})
    assert applied(target, first, second) == [("x", 1, 1), ("x", 2, 2)]
    moved = change("update", {"b": 3, "a": "x"}, after={"c": 3}, old_key={"b": 1, "a": "x"})
    deleted = change("delete", {"b": 2, "a": "x"})
    assert applied(target, moved, deleted) == [("x", 3, 3)]


def test_a_key_of_zero_is_a_key(target: Target) -> None:
    number = target.pick(
        sqlite="INTEGER PRIMARY KEY",
        postgresql="INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        mariadb="INT PRIMARY KEY AUTO_INCREMENT",
    )
    target.execute(f"CREATE TABLE t (id {number}, a VARCHAR(20), b INT)")
    assert applied(target, write(0), write(5)) == [(0, "x", 0), (5, "x", 0)]


# Other keys.


def test_a_clash_in_another_key_is_a_problem_and_changes_no_other_row(target: Target) -> None:
    target.execute(UNIQUE, "INSERT INTO t VALUES (1, 'x', 1)")
    changes = [write(2, "y"), write(3, "x"), write(4, "z")]
    with pytest.raises(ApplyError, match=r"changeset 1 of 'origin': .*key \{'id': 3\}"):
        applied(target, *changes)
    assert target.table() == [(1, "x", 1)]


def test_values_of_another_key_go_from_row_to_row(target: Target) -> None:
    target.execute(UNIQUE, "INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 1)")
    changes = [write(1, "z"), write(3, "x"), write(2, None), write(4, "y"), write(2, "w")]
    assert applied(target, *changes) == [(1, "z", 0), (2, "w", 0), (3, "x", 0), (4, "y", 0)]


def test_a_key_that_the_target_does_not_know_as_one(target: Target) -> None:
    target.execute(NO_KEY)
    settings = {"key_columns": {"t": ["b"]}}
    rows = [change("write", {}, after={"a": "x", "b": number}) for number in (1, 2)]
    assert applied(target, *rows, **settings) == [("x", 1), ("x", 2)]
    changes = [
        change("write", {}, after={"a": "y", "b": 1}),
        change("update", {}, before={"a": "x", "b": 2}, after={"a": "x", "b": 3}),
        change("write", {}, after={"a": "z", "b": 4}),
        change("delete", {}, before={"b": 4}),
    ]
    assert applied(target, *changes, **settings) == [("x", 3), ("y", 1)]
    with pytest.raises(ApplyError, match="column 'b' of its key is not told"):
        applied(target, change("write", {}, after={"a": "x"}), **settings)
    with pytest.raises(ApplyError, match="NULL in the key"):
        applied(target, change("write", {}, after={"a": "x", "b": None}), **settings)


def test_rows_that_only_the_targets_key_takes_for_one_are_never_merged(target: Target) -> None:
    target.execute(PLAIN)
    first, other = ({"id": 1, "a": text, "b": 1} for text in "xy")
    assert applied(target, change("write", {}, after=first)) == [(1, "x", 1)]
    with pytest.raises(ApplyError, match=r"(?i)duplicate|unique"):
        applied(target, change("write", {}, after=other))
    # A row that was not stored cannot be deleted, and no other row is in its place.
    assert applied(target, change("delete", {}, before=other)) == [(1, "x", 1)]
    changed = change("update", {}, before=first, after={"id": 2, "a": "y"})
    assert applied(target, changed) == [(2, "y", 1)]


def test_a_key_that_is_told_to_the_sink_merges_rows_of_a_source_without_one(
    target: Target,
) -> None:
    target.execute(PLAIN)
    rows = [change("write", {}, after={"id": 1, "a": text, "b": 1}) for text in "xy"]
    assert applied(target, *rows, key_columns={"t": ["id"]}) == [(1, "y", 1)]


def test_a_key_that_can_be_deferred_is_no_less_of_a_key(target: Target) -> None:
    late = target.pick(sqlite="", postgresql="DEFERRABLE", mariadb="")
    target.execute(f"CREATE TABLE t (id INT NOT NULL PRIMARY KEY {late}, a VARCHAR(20), b INT)")
    assert applied(target, write(1, "x"), write(2), write(1, "y")) == [(1, "y", 0), (2, "x", 0)]


# Tables without a key.


def test_of_equal_rows_without_a_key_one_goes_or_changes(target: Target) -> None:
    target.execute(NO_KEY)
    row = change("write", {}, after={"a": "x", "b": None})
    assert applied(target, row, row, row) == [("x", None)] * 3
    deleted = change("delete", {}, before={"a": "x", "b": None})
    assert applied(target, deleted) == [("x", None)] * 2
    updated = change("update", {}, before={"a": "x", "b": None}, after={"a": "y", "b": 1})
    assert applied(target, updated) == [("x", None), ("y", 1)]


def test_rows_without_a_key_are_told_apart_by_case(target: Target) -> None:
    target.execute(NO_KEY)
    rows = [change("write", {}, after={"a": text, "b": 1}) for text in ("X", "x", "x ")]
    applied(target, *rows)
    deleted = change("delete", {}, before={"a": "x", "b": 1})
    assert sorted(applied(target, deleted)) == [("X", 1), ("x ", 1)]


#: Tables of parts, in which rows of different parts can have the same place.
PARTS = {
    "postgresql": [
        "CREATE TABLE t (b INT, a TEXT) PARTITION BY LIST (b)",
        "CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1)",
        "CREATE TABLE t_2 PARTITION OF t FOR VALUES IN (2)",
    ],
    "mariadb": [
        "CREATE TABLE t (b INT, a TEXT) PARTITION BY LIST (b)"
        " (PARTITION t_1 VALUES IN (1), PARTITION t_2 VALUES IN (2))",
    ],
    "sqlite": ["CREATE TABLE t (b INT, a TEXT)"],
}


@pytest.mark.parametrize("part", [1, 2])
def test_a_row_without_a_key_is_changed_in_its_part_alone(target: Target, part: int) -> None:
    target.execute(*PARTS[target.kind])
    rows = [{"b": 1, "a": "x"}, {"b": 2, "a": "y"}, {"b": 1, "a": "z"}, {"b": 2, "a": "w"}]
    applied(target, *(change("write", {}, after=row) for row in rows))
    first, second = (row for row in rows if row["b"] == part)
    changes = [
        change("delete", {}, before=first),
        change("update", {}, before=second, after={"b": 3 - part, "a": "moved"}),
    ]
    others = [(row["b"], row["a"]) for row in rows if row["b"] != part]
    assert sorted(applied(target, *changes)) == sorted([*others, (3 - part, "moved")])


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_a_row_without_a_key_is_none_of_a_table_that_inherits(target: Target) -> None:
    target.execute("CREATE TABLE t (b INT, a TEXT)", "CREATE TABLE u () INHERITS (t)")
    target.execute("INSERT INTO u VALUES (9, 'x')")
    applied(target, change("write", {}, after={"b": 1, "a": "x"}))
    assert applied(target, change("delete", {}, before={"b": 1, "a": "x"})) == [(9, "x")]


def test_a_row_without_a_key_that_is_not_there(target: Target) -> None:
    target.execute(NO_KEY)
    deleted = change("delete", {}, before={"a": "x", "b": 1})
    updated = change("update", {}, before={"a": "x", "b": 1}, after={"a": "y", "b": 1})
    assert applied(target, deleted, updated) == [("y", 1)]


def test_a_row_without_a_key_of_which_nothing_is_told_before(target: Target) -> None:
    target.execute(NO_KEY)
    for action in ("update", "delete"):
        with pytest.raises(ApplyError, match="neither a key nor the row before"):
            applied(target, change(action, {}, after={"b": 1}))


def test_all_kinds_of_columns_identify_a_row_without_a_key(target: Target) -> None:
    real = target.pick(sqlite="REAL", postgresql="REAL", mariadb="FLOAT")
    document = target.pick(sqlite="TEXT", postgresql="JSON", mariadb="JSON")
    octets = target.pick(sqlite="BLOB", postgresql="BYTEA", mariadb="BLOB")
    target.execute(f"CREATE TABLE t (a {real}, b {document}, c {octets}, d INT)")
    row = {"a": 0.1, "b": {"x": [1, None]}, "c": b"\0\xff", "d": 1}
    assert len(applied(target, change("write", {}, after=row))) == 1
    assert applied(target, change("delete", {}, before=row)) == []


# Foreign keys.

PARENTS = "CREATE TABLE parents (id INT NOT NULL PRIMARY KEY)"
CHILDREN = (
    "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, parent INT,"
    " FOREIGN KEY (parent) REFERENCES parents (id){})"
)


def parent(action: Any, number: int) -> RowChange:
    return change(action, {"id": number}, "parents")


def child(number: int, of: int | None) -> RowChange:
    return change("write", {"id": number}, after={"id": number, "parent": of})


@pytest.fixture
def strict(target: Target) -> Target:
    """A target that enforces foreign keys, which SQLite does only on request in each session."""
    if target.kind == "sqlite":
        from sqlalchemy import event

        def look(connection: Any, _: object) -> None:
            connection.execute("PRAGMA foreign_keys = ON")

        event.listen(target.engine, "connect", look)
    return target


def related(target: Target, changes: list[RowChange], **settings: Any) -> list[tuple[Any, ...]]:
    sink = SqlSink(target.engine, **settings)
    sink.apply([changeset((sink.last("origin") or 0) + 1, *changes)])
    return target.table()


@pytest.mark.parametrize("setting", ["enforced", "deferred", "off"])
def test_related_tables_change_in_the_sources_order(strict: Target, setting: str) -> None:
    strict.execute(PARENTS, CHILDREN.format(""))
    changes = [parent("write", 1), child(1, 1), parent("write", 2), child(1, 2)]
    changes += [parent("delete", 1), child(2, 2)]
    assert related(strict, changes, foreign_keys=setting) == [(1, 2), (2, 2)]
    assert strict.table("parents") == [(2,)]


def test_what_a_foreign_key_deletes_at_once_is_deleted_in_order(strict: Target) -> None:
    strict.execute(PARENTS, CHILDREN.format(" ON DELETE CASCADE"))
    first = [parent("write", 1), child(1, 1), parent("write", 2), child(2, 2)]
    related(strict, first)
    again = [parent("delete", 1), parent("write", 1), child(3, 1), parent("delete", 2)]
    assert related(strict, again) == [(3, 1)]


def test_children_can_come_before_their_parents(strict: Target) -> None:
    late = strict.pick(sqlite="", postgresql=" DEFERRABLE", mariadb="")
    strict.execute(PARENTS, CHILDREN.format(late))
    setting = strict.pick(sqlite="deferred", postgresql="deferred", mariadb="off")
    changes = [child(1, 1), parent("write", 1)]
    assert related(strict, changes, foreign_keys=setting) == [(1, 1)]
    if setting == "deferred":
        with pytest.raises(ApplyError, match=r"changeset 2 of 'origin': .*(?i:foreign key)"):
            related(strict, [child(2, 7)], foreign_keys=setting)
    assert strict.table() == [(1, 1)]


def test_foreign_keys_can_be_off_for_the_sink_only(strict: Target) -> None:
    strict.execute(PARENTS, CHILDREN.format(""))
    assert related(strict, [child(1, 7)], foreign_keys="off") == [(1, 7)]
    with pytest.raises(ApplyError, match=r"key \{'id': 2\}|(?i:foreign key)"):
        related(strict, [child(2, 7)], foreign_keys="enforced")


# Generated columns.


def test_columns_that_the_target_generates_are_left_to_it(target: Target) -> None:
    target.execute(
        "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a INT,"
        " b INT GENERATED ALWAYS AS (a + 1) STORED)"
    )
    row = change("write", {"id": 1}, after={"id": 1, "a": 1, "b": 77})
    assert applied(target, row) == [(1, 1, 2)]


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_a_number_that_only_new_rows_can_have_stays_or_the_change_is_refused(
    target: Target,
) -> None:
    target.execute(
        "CREATE TABLE t (id INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a INT,"
        " n INT GENERATED ALWAYS AS IDENTITY)",
        "CREATE TABLE u (a INT, n INT GENERATED ALWAYS AS IDENTITY)",
    )
    rows = [change("read", {"id": id}, after={"id": id, "a": 1, "n": 7}) for id in range(1, 9)]
    again = [change("update", {"id": 1}, after={"id": 1, "a": 2, "n": 7})]
    some = [change("update", {"id": 2}, after={"n": 7}), change("update", {"id": 3}, after={})]
    found = applied(target, *rows, *again, *some)
    assert found == [(1, 2, 7), *((id, 1, 7) for id in range(2, 9))]
    loose = [
        change("write", {}, "u", after={"a": 1, "n": 5}),
        change("update", {}, "u", before={"a": 1, "n": 5}, after={"a": 2, "n": 5}),
    ]
    assert applied(target, *loose) == found
    assert target.table("u") == [(2, 5)]
    for refused, name in (
        (change("update", {"id": 1}, after={"id": 1, "a": 2, "n": 8}), "n"),
        (change("update", {"id": 1}, after={"n": 8}), "n"),
        (change("update", {"id": 10}, after={"n": 7}, old_key={"id": 1}), "id"),
        (change("update", {}, "u", before={"a": 2, "n": 5}, after={"a": 2, "n": 6}), "n"),
    ):
        remedy = rf"""'{name}' has changed.*: ALTER TABLE "?[tu]"? ALTER "?{name}"? SET GENERATED"""
        with pytest.raises(ApplyError, match=remedy):
            applied(target, refused)
    assert target.table() == found


@pytest.mark.parametrize("target", ["mariadb"], indirect=True)
@pytest.mark.parametrize(
    "settings",
    [
        "sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
        "sql_mode = ''",
        "completion_type = 'CHAIN'",
    ],
)
def test_settings_of_a_server_do_not_matter(target: Target, settings: str) -> None:
    engine = create_engine(target.url, connect_args={"init_command": f"SET SESSION {settings}"})
    name = {"name": "a b", "type": "text"}
    key = {"name": "id", "type": "int", "key": True}
    row = {"id": 0, "a b": "c\\'\"%"}
    sink = SqlSink(engine, create=True)
    sink.apply([changeset(1, schema_change(key, name), change("write", {"id": 0}, after=row))])
    sink.apply([changeset(2, change("write", {"id": 1}, after={**row, "id": 1}))])
    sink.close()
    engine.dispose()
    assert target.table() == [(0, "c\\'\"%"), (1, "c\\'\"%")]
