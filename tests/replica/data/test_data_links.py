"""Rows that refer to others are written in any order of arrival."""

from __future__ import annotations

from random import Random

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, event

from stompkit.replica.data.sql import SqlData
from tests.replica.data.data_made import as_it_is, checked, gone, row, written
from tests.replication.sinks.sql_targets import Target, database_url, target

__all__ = ["database_url", "target"]

PARENTS = "CREATE TABLE parents (id INT NOT NULL PRIMARY KEY, a INT)"
CHILDREN = (
    "CREATE TABLE children (id INT NOT NULL PRIMARY KEY, parent INT NOT NULL,"
    " CONSTRAINT of_parent FOREIGN KEY (parent) REFERENCES parents (id){more})"
)
TREE = (
    "CREATE TABLE tree (id INT NOT NULL PRIMARY KEY, parent INT,"
    " FOREIGN KEY (parent) REFERENCES tree (id))"
)
LATE = " DEFERRABLE INITIALLY DEFERRED"


@pytest.fixture
def family(target: Target) -> Target:
    """A database with parents and children."""
    checked(target).execute(PARENTS, CHILDREN.format(more=""))
    return target


def counted(target: Target) -> list[str]:
    """Collect the statements that are executed from now on."""
    found: list[str] = []

    def collect(connection: object, cursor: object, statement: str, *_: object) -> None:
        found.append(statement)

    event.listen(target.engine, "before_cursor_execute", collect)
    return found


def test_parents_come_before_their_children(family: Target) -> None:
    rows = [row("children", n, parent=n) for n in range(5)]
    rows += [row("parents", n) for n in range(5)]
    assert written(family, rows) == {}
    assert len(family.table("children")) == 5


def test_children_go_before_their_parents(family: Target) -> None:
    data = as_it_is(family)
    keys = range(5)
    rows = [each for n in keys for each in (row("parents", n), row("children", n, parent=n))]
    assert written(family, rows, data) == {}
    assert written(family, [gone(each.table, each.key["id"]) for each in rows], data) == {}
    assert family.table("parents") == family.table("children") == []


def test_a_child_goes_to_another_parent_when_its_own_goes(family: Target) -> None:
    data = as_it_is(family)
    assert written(family, [row("parents", 1), row("children", 1, parent=1)], data) == {}
    rows = [gone("parents", 1), row("children", 1, parent=2), row("parents", 2)]
    assert written(family, rows, data) == {}
    assert family.table("children") == [(1, 2)]
    assert family.table("parents") == [(2, None)]


def test_a_child_without_its_parent_is_refused_until_that_comes(family: Target) -> None:
    data = as_it_is(family)
    orphan = row("children", 1, parent=1)
    reasons = written(family, [orphan, row("parents", 2), row("children", 2, parent=2)], data)
    assert list(reasons) == ["children 1"]
    named = family.pick(sqlite="", postgresql=" of_parent", mariadb=" of_parent")
    assert reasons["children 1"] == f"FOREIGN KEY constraint{named}"
    assert family.table("children") == [(2, 2)]
    assert written(family, [row("parents", 1), orphan], data) == {}
    assert family.table("children") == [(1, 1), (2, 2)]


def test_a_parent_stays_as_long_as_it_has_children(family: Target) -> None:
    data = as_it_is(family)
    assert written(family, [row("parents", 1), row("children", 1, parent=1)], data) == {}
    assert list(written(family, [gone("parents", 1), row("parents", 2)], data)) == ["parents 1"]
    assert family.table("parents") == [(1, None), (2, None)]
    assert written(family, [gone("parents", 1), gone("children", 1)], data) == {}
    assert family.table("parents") == [(2, None)]


def test_a_tree_is_written_and_removed_whatever_the_order(target: Target) -> None:
    checked(target).execute(TREE)
    data = as_it_is(target)
    random = Random(7)
    rows = [row("tree", n, parent=random.randrange(n) if n else None) for n in range(300)]
    random.shuffle(rows)
    assert written(target, rows, data) == {}
    assert len(target.table("tree")) == 300
    random.shuffle(rows)
    assert written(target, [gone("tree", each.key["id"]) for each in rows], data) == {}
    assert target.table("tree") == []


def test_a_long_line_of_rows_takes_no_more_statements_than_rows(target: Target) -> None:
    checked(target).execute(TREE)
    data = as_it_is(target)
    rows = [row("tree", n, parent=n + 1 if n < 199 else None) for n in range(200)]
    assert written(target, [row("tree", 1000)], data) == {}
    statements = counted(target)
    assert written(target, rows, data) == {}
    assert len(statements) < 20
    statements.clear()
    assert written(target, [gone("tree", each.key["id"]) for each in reversed(rows)], data) == {}
    assert len(statements) < 450


def test_rows_that_refer_to_each_other_are_written_where_one_can_wait(target: Target) -> None:
    checked(target).execute(
        "CREATE TABLE teams (id INT NOT NULL PRIMARY KEY, captain INT)",
        "CREATE TABLE players (id INT NOT NULL PRIMARY KEY, team INT NOT NULL,"
        " FOREIGN KEY (team) REFERENCES teams (id))",
    )
    if target.kind != "sqlite":
        target.execute(
            "ALTER TABLE teams ADD CONSTRAINT led FOREIGN KEY (captain) REFERENCES players (id)"
        )
    else:
        target.execute(
            "DROP TABLE teams",
            "CREATE TABLE teams (id INT NOT NULL PRIMARY KEY, captain INT REFERENCES players (id))",
        )
    data = as_it_is(target)
    rows = [row("players", 1, team=1), row("teams", 1, captain=1), row("players", 2, team=1)]
    wrong = row("players", 3, team=9)
    assert list(written(target, [*rows, wrong], data)) == ["players 3"]
    assert target.table("teams") == [(1, 1)]
    assert target.table("players") == [(1, 1), (2, 1)]


def test_what_goes_with_its_parent_and_is_to_stay_is_refused(target: Target) -> None:
    checked(target).execute(PARENTS, CHILDREN.format(more=" ON DELETE CASCADE"))
    data = as_it_is(target)
    assert written(target, [row("parents", 1), row("children", 1, parent=1)], data) == {}
    # The database has removed it with its parent, without another notice.
    rows = [gone("parents", 1), row("children", 1, parent=1), row("children", 2, parent=1)]
    assert sorted(written(target, rows, data)) == ["children 1", "children 2"]
    assert target.table("children") == target.table("parents") == []
    assert written(target, [row("parents", 1), *rows[1:]], data) == {}
    assert target.table("children") == [(1, 1), (2, 1)]


def test_a_foreign_key_to_a_table_that_is_not_replicated_counts(family: Target) -> None:
    family.execute("INSERT INTO parents VALUES (1, 1)")
    children = Table("children", MetaData(), Column("id", Integer, primary_key=True))
    data = SqlData(family.engine, [children])
    rows = [row("children", 1, parent=1), row("children", 2, parent=2)]
    assert list(written(family, rows, data)) == ["children 2"]


# Deferred foreign keys.

for_late = pytest.mark.parametrize("target", ["sqlite", "postgresql"], indirect=True)


@for_late
def test_a_late_foreign_key_does_not_end_the_transaction(target: Target) -> None:
    checked(target).execute(PARENTS, CHILDREN.format(more=LATE))
    data = as_it_is(target)
    rows = [row("children", 1, parent=1), row("parents", 2), row("children", 2, parent=2)]
    assert list(written(target, rows, data)) == ["children 1"]
    assert target.table("children") == [(2, 2)]
    assert list(written(target, [gone("parents", 2), row("parents", 3)], data)) == ["parents 2"]
    assert target.table("parents") == [(2, None), (3, None)]
    assert written(target, [gone("parents", 2), gone("children", 2)], data) == {}


@for_late
def test_rows_that_refer_to_each_other_late_are_written(target: Target) -> None:
    checked(target).execute(
        "CREATE TABLE pairs (id INT NOT NULL PRIMARY KEY, other INT NOT NULL,"
        f" FOREIGN KEY (other) REFERENCES pairs (id){LATE})"
    )
    rows = [row("pairs", 1, other=2), row("pairs", 2, other=1), row("pairs", 3, other=9)]
    assert list(written(target, rows)) == ["pairs 3"]
    assert target.table("pairs") == [(1, 2), (2, 1)]


@for_late
def test_a_late_foreign_key_to_other_columns_than_the_key_counts(target: Target) -> None:
    checked(target).execute(
        "CREATE TABLE codes (id INT NOT NULL PRIMARY KEY, code VARCHAR(5) UNIQUE)",
        "CREATE TABLE uses (id INT NOT NULL PRIMARY KEY, code VARCHAR(5),"
        f" FOREIGN KEY (code) REFERENCES codes (code){LATE})",
    )
    data = as_it_is(target)
    rows = [row("codes", 1, code="a"), row("uses", 1, code="a"), row("uses", 2, code=None)]
    assert written(target, rows, data) == {}
    assert list(written(target, [row("codes", 1, code="b")], data)) == ["codes 1"]
    assert list(written(target, [gone("codes", 1)], data)) == ["codes 1"]
    assert written(target, [row("codes", 1, code="b"), row("uses", 1, code="b")], data) == {}
    # Another row may take over the value.
    assert written(target, [row("codes", 1, code="c"), row("codes", 2, code="b")], data) == {}
    assert target.table("uses") == [(1, "b"), (2, None)]


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_a_name_that_is_looked_at_late_does_not_end_the_transaction(target: Target) -> None:
    target.execute(
        "CREATE TABLE users (id INT NOT NULL PRIMARY KEY,"
        f" email VARCHAR(9) UNIQUE{LATE}, boss INT REFERENCES users{LATE})"
    )
    data = as_it_is(target)
    rows = [row("users", 1, email="a"), row("users", 2, email="a"), row("users", 3, email="b")]
    assert list(written(target, [*rows, row("users", 4, boss=9)], data)) == ["users 2", "users 4"]
    assert [found[:2] for found in target.table("users")] == [(1, "a"), (3, "b")]
    assert written(target, [row("users", 1, email="b"), row("users", 3, email="a")], data) == {}


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
@pytest.mark.parametrize("more", ["", LATE])
def test_foreign_keys_that_sqlite_was_not_told_to_look_at_refuse_nothing(
    target: Target, more: str
) -> None:
    target.execute(PARENTS, CHILDREN.format(more=more))
    assert written(target, [row("children", 1, parent=1)]) == {}
    assert target.table("children") == [(1, 1)]
