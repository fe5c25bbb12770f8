"""Changes of tables at PostgreSQL: applied, or the job ends with an error; never silently wrong.

The table of the page on sources is this one.
"""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stompkit.replication.jobs.feeder import Feeder
from stompkit.replication.sinks.sql import SqlSink
from stompkit.replication.sources.postgres import PreflightError
from stompkit.replication.sources.postgres._shapes import (
    Shape,
    differences_of,
    untold_of,
    why_copied,
)
from stompkit.replication.sources.postgres._survey import TableLostError
from tests.replication.sources.postgres.postgres_made import Database, Running

TABLE = "CREATE TABLE t (id int PRIMARY KEY, a int, b varchar(20))"
ROWS = "INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y')"


class Case(NamedTuple):
    """Statements, and the table that must be equal afterwards."""

    statements: list[str]
    table: str = "t"
    columns: str = "id, a, b"


CASES = {
    "DROP, CREATE": Case(["DROP TABLE t", TABLE, "INSERT INTO t VALUES (3, 3, 'z')"]),
    "DROP, CREATE, no rows": Case(["DROP TABLE t", TABLE]),
    "RENAME of a table": Case(["ALTER TABLE t RENAME TO t2", "UPDATE t2 SET a = 5"], "t2"),
    "swap of two tables": Case(
        [
            "CREATE TABLE n (id int PRIMARY KEY, a int, b varchar(20))",
            "INSERT INTO n VALUES (5, 5, 'five')",
            "ALTER TABLE t RENAME TO old",
            "ALTER TABLE n RENAME TO t",
            "INSERT INTO t VALUES (6, 6, 'six')",
        ]
    ),
    "swap of two tables in one transaction": Case(
        [
            "CREATE TABLE n (id int PRIMARY KEY, a int, b varchar(20))",
            "INSERT INTO n VALUES (5, 5, 'five')",
            "BEGIN",
            "ALTER TABLE t RENAME TO old",
            "ALTER TABLE n RENAME TO t",
            "ALTER TABLE old RENAME TO n",
            "COMMIT",
        ]
    ),
    "DROP and ADD of a column": Case(
        ["ALTER TABLE t DROP b", "ALTER TABLE t ADD b int", "UPDATE t SET a = 9 WHERE id = 1"]
    ),
    "DROP and ADD of a column of the same type": Case(
        ["ALTER TABLE t DROP b", "ALTER TABLE t ADD b varchar(20)"]
    ),
    "ADD with DEFAULT": Case(
        ["ALTER TABLE t ADD c int DEFAULT 5", "UPDATE t SET a = 9 WHERE id = 1"],
        columns="id, a, b, c",
    ),
    "ADD with DEFAULT, no rows": Case(["ALTER TABLE t ADD c int DEFAULT 5"], columns="id, a, b, c"),
    "ADD": Case(
        ["ALTER TABLE t ADD c int", "UPDATE t SET c = 9 WHERE id = 1"], columns="id, a, b, c"
    ),
    "RENAME of a column": Case(
        ["ALTER TABLE t RENAME b TO d", "UPDATE t SET a = 9 WHERE id = 1"], columns="id, a, d"
    ),
    "RENAME of the key": Case(
        ["ALTER TABLE t RENAME id TO ident", "INSERT INTO t VALUES (3, 3, 'z')"],
        columns="ident, a, b",
    ),
    "TYPE": Case(
        [
            "ALTER TABLE t ALTER b TYPE int USING length(b)",
            "INSERT INTO t VALUES (3, 3, 77)",
        ]
    ),
    "a new table": Case(
        ["CREATE TABLE u (id int PRIMARY KEY, a int)", "INSERT INTO u VALUES (1, 2)"], "u", "id, a"
    ),
}


def copied(path: Path, case: Case) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as connection:
        query = f"SELECT {case.columns} FROM {case.table} ORDER BY 1"
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("what", CASES)
def test_a_change_of_a_table_is_followed(database: Database, tmp_path: Path, what: str) -> None:
    case = CASES[what]
    path = tmp_path / "copy.sqlite"
    database.execute(TABLE, ROWS)
    with Feeder(SqlSink(f"sqlite:///{path}", create=True)):
        publisher = database.publisher(
            database.publication(), snapshot="initial", blocking=False, announce=True
        )
        publisher.run()
        database.execute(*case.statements)
        again = database.publisher(
            database.publication(), snapshot="initial", blocking=False, announce=True
        )
        again.run()
    assert copied(path, case) == database.execute(
        f"SELECT {case.columns} FROM {case.table} ORDER BY 1"
    )


TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE TYPE pair AS (a int, b mood)",
    "CREATE DOMAIN feeling AS mood",
    "CREATE TABLE t (id int PRIMARY KEY, m mood, p pair, f feeling[])",
    "CREATE TABLE u (id int PRIMARY KEY, a int)",
    "INSERT INTO t VALUES (1, 'sad', '(1,sad)', '{sad,ok}'), (2, 'ok', '(2,ok)', NULL)",
    "INSERT INTO u VALUES (1, 1)",
)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
        "ALTER TYPE pair ADD ATTRIBUTE c int",
        "ALTER TYPE pair DROP ATTRIBUTE a",
    ],
)
def test_values_that_a_change_of_their_type_rewrites_are_copied(
    database: Database, tmp_path: Path, statement: str
) -> None:
    path = tmp_path / "copy.sqlite"
    database.execute(*TYPES)
    database.begin()
    with Feeder(SqlSink(f"sqlite:///{path}", create=True)):
        for statements in ((), (statement,)):
            database.execute(*statements)
            publication = database.publication()
            database.publisher(publication, snapshot="initial", blocking=False, announce=True).run()
    query = "SELECT id, {m}, {p}, {f} FROM t ORDER BY id"
    with sqlite3.connect(path) as connection:
        found = connection.execute(query.format(m="m", p="p", f="f")).fetchall()
    assert found == database.execute(query.format(m="m::text", p="p::text", f="f::text"))


def test_a_label_that_was_added_while_the_job_ran_can_be_renamed(database: Database) -> None:
    """Only a rename is a reason for a copy; an added label is none."""
    database.execute(*TYPES)
    with Running(database, snapshot="initial") as running:
        running.until_changes(3)
        running.until_streaming()
        before = running.publication.state["types"]
        database.execute("ALTER TYPE mood ADD VALUE 'fine'")
        running.until(lambda: bool(running.publication.state["types"] != before))
        database.execute("INSERT INTO t (id, m) VALUES (3, 'fine')")
        assert running.until_changes(4)[-1].action == "write"
        database.execute("ALTER TYPE mood RENAME VALUE 'fine' TO 'great'")
        found = running.until_changes(9)[4:]
    assert [change.action for change in found] == ["truncate", "schema", "read", "read", "read"]
    assert (found[-1].after or {})["m"] == "great"


def test_without_a_snapshot_a_renamed_label_is_reported(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(*TYPES)
    database.begin()
    assert database.changes(snapshot="never") == []
    database.execute("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'")
    assert database.changes(snapshot="never") == []
    assert "its values of the type mood are written in another way" in caplog.text


GENERATED = "CREATE TABLE g (id int PRIMARY KEY, a int, c int GENERATED ALWAYS AS (a * 2) STORED)"


def test_a_column_that_is_computed_no_longer_is_copied_with_its_values(
    database: Database,
) -> None:
    database.execute(GENERATED, "INSERT INTO g VALUES (1, 1), (2, 2)")
    with Running(database, snapshot="initial") as running:
        first = running.until_changes(2)
        running.until_streaming()
        database.execute("ALTER TABLE g ALTER c DROP EXPRESSION")
        running.until(lambda: sum("c" in (each.after or {}) for each in running.taken.changes) == 2)
        database.execute("INSERT INTO g VALUES (3, 3, 7)")
        running.until(lambda: running.taken.changes[-1].action == "write")
        changes = running.taken.changes
    assert [each.after for each in first] == [{"id": 1, "a": 1}, {"id": 2, "a": 2}]
    assert [(each.action, each.after) for each in changes[-3:]] == [
        ("read", {"id": 1, "a": 1, "c": 2}),
        ("read", {"id": 2, "a": 2, "c": 4}),
        ("write", {"id": 3, "a": 3, "c": 7}),
    ]


def test_a_column_that_is_computed_no_longer_is_found_behind_rows_that_nobody_has_read(
    database: Database,
) -> None:
    database.execute(GENERATED, "INSERT INTO g VALUES (1, 1)")
    database.read(snapshot="initial")
    database.execute("INSERT INTO g VALUES (2, 2)", "ALTER TABLE g ALTER c DROP EXPRESSION")
    changes = database.changes(snapshot="initial")
    read = [each.after for each in changes if each.action == "read"]
    assert read == [{"id": 1, "a": 1, "c": 2}, {"id": 2, "a": 2, "c": 4}]


def test_without_a_snapshot_a_column_that_is_computed_no_longer_is_told(
    database: Database,
) -> None:
    database.execute(GENERATED, "INSERT INTO g VALUES (1, 1)")
    database.begin()
    database.execute("INSERT INTO g VALUES (2, 2)")
    assert [each.action for each in database.changes()] == ["write"]
    # The catalogue has the column as plain while older rows of the log arrive.
    database.execute(
        "INSERT INTO g VALUES (3, 3)",
        "ALTER TABLE g ALTER c DROP EXPRESSION",
        "INSERT INTO g VALUES (4, 4, 4)",
    )
    before, schema, after = database.changes()
    assert (before.after, after.after) == ({"id": 3, "a": 3}, {"id": 4, "a": 4, "c": 4})
    assert schema.after is not None
    assert schema.after["untold"] == "values"


def test_a_table_is_copied_again_while_the_stream_goes_on(
    database: Database, tmp_path: Path
) -> None:
    path = tmp_path / "copy.sqlite"
    case = Case([])
    database.execute(TABLE, ROWS, "CREATE TABLE end_ (id int PRIMARY KEY)")
    with (
        Feeder(SqlSink(f"sqlite:///{path}", create=True)),
        Running(database, snapshot="initial", announce=True) as running,
    ):
        running.until_streaming()
        database.execute("DROP TABLE t", TABLE, "INSERT INTO t VALUES (3, 3, 'z')")
        running.until(lambda: copied(path, case) == [(3, 3, "z")])
        database.execute("INSERT INTO t VALUES (4, 4, 'w')", "INSERT INTO end_ VALUES (1)")
        running.until(lambda: copied(path, Case([], "end_", "id")) == [(1,)])
        assert copied(path, case) == [(3, 3, "z"), (4, 4, "w")]


def test_tables_that_exchange_their_names_are_copied_while_the_stream_goes_on(
    database: Database, tmp_path: Path
) -> None:
    path = tmp_path / "copy.sqlite"
    database.execute(TABLE, ROWS, TABLE.replace("t (", "n ("), "INSERT INTO n VALUES (5, 5, 'v')")
    with (
        Feeder(SqlSink(f"sqlite:///{path}", create=True)),
        Running(database, snapshot="initial", announce=True) as running,
    ):
        running.until_streaming()
        with database.connect() as connection, connection.transaction():
            for old, new in (("t", "old"), ("n", "t"), ("old", "n")):
                connection.execute(f"ALTER TABLE {old} RENAME TO {new}".encode())
        running.until(lambda: copied(path, Case([])) == [(5, 5, "v")])
        running.until(lambda: copied(path, Case([], "n")) == [(1, 1, "x"), (2, 2, "y")])


def test_what_others_have_to_publish_ends_the_job_with_what_to_do(database: Database) -> None:
    database.execute(TABLE, ROWS, f"CREATE PUBLICATION {database.slot} FOR TABLE t")
    database.read(snapshot="initial")
    database.execute("DROP TABLE t", TABLE, "INSERT INTO t VALUES (3, 3, 'z')")
    with pytest.raises(
        TableLostError, match=f"ALTER PUBLICATION {database.slot} ADD TABLE public.t"
    ):
        database.read(snapshot="initial")
    database.execute(f"ALTER PUBLICATION {database.slot} ADD TABLE t")
    changes = database.changes(snapshot="initial")
    assert [each.action for each in changes] == ["truncate", "schema", "read"]
    assert changes[2].after == {"id": 3, "a": 3, "b": "z"}


REPLACED = ("DROP, CREATE", "DROP, CREATE, no rows", "swap of two tables")


@pytest.mark.parametrize("what", REPLACED)
def test_without_a_snapshot_the_loss_of_a_table_ends_the_job(database: Database, what: str) -> None:
    database.execute(TABLE, ROWS)
    database.read(snapshot="initial")
    database.execute(*CASES[what].statements)
    add = f"ALTER PUBLICATION {database.slot} ADD TABLE public.t"
    with pytest.raises(TableLostError, match=f"{add}; then bring its rows"):
        database.read(snapshot="never")
    database.execute(add, "INSERT INTO t VALUES (9, 9, 'nine')")
    schema, row = database.changes(snapshot="never")
    assert (schema.action, row.after) == ("schema", {"id": 9, "a": 9, "b": "nine"})


@pytest.mark.parametrize("what", REPLACED)
def test_a_job_that_never_copied_copies_a_table_that_was_made_anew(
    database: Database, what: str
) -> None:
    database.execute(TABLE, ROWS)
    database.read(snapshot="never")
    database.execute(*CASES[what].statements)
    rows = database.execute("SELECT id FROM t ORDER BY id")
    changes = [each for each in database.changes(snapshot="never") if each.table == "t"]
    assert changes[0].action == "truncate"
    assert [(each.after["id"],) for each in changes if each.action == "read" and each.after] == rows


def test_without_a_snapshot_a_new_table_is_told_of(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(TABLE, ROWS)
    database.read(snapshot="initial")
    database.execute(*CASES["a new table"].statements)
    with caplog.at_level(logging.WARNING):
        assert database.changes(snapshot="never") == []
    assert "public.u: it is new, and not replicated" in caplog.text


def test_a_table_without_a_key_stays_one_that_anybody_can_change(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(TABLE)
    database.read(snapshot="initial")
    database.execute("CREATE TABLE log (x int)", "INSERT INTO log VALUES (1)")
    with caplog.at_level(logging.WARNING):
        assert database.changes(snapshot="initial") == []
    database.execute("UPDATE log SET x = 2", "DELETE FROM log")
    assert "public.log: it is new, and not replicated" in caplog.text
    assert "ADD TABLE public.log" not in caplog.text


def test_a_table_that_loses_its_key_stays_one_that_anybody_can_change(
    database: Database,
) -> None:
    database.execute(TABLE, ROWS)
    with (
        pytest.raises(
            TableLostError, match=r"public\.t has nothing any more that identifies its rows"
        ),
        Running(database, snapshot="initial") as running,
    ):
        running.until_changes(2)
        database.execute("ALTER TABLE t DROP CONSTRAINT t_pkey")
        running.join()
    database.execute("UPDATE t SET a = 7")
    with pytest.raises((TableLostError, PreflightError), match=r"public\.t"):
        database.read(snapshot="initial")
    database.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
    changes = database.changes(snapshot="initial")
    assert [each.action for each in changes] == ["truncate", "schema", "read", "read"]
    assert [each.after and each.after["a"] for each in changes[2:]] == [7, 7]


def test_all_tables_are_published_only_when_that_is_asked_for(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(TABLE)
    with caplog.at_level(logging.WARNING):
        database.read(all_tables=True)
    assert database.execute("SELECT puballtables FROM pg_publication") == [(True,)]
    assert "refuses UPDATE and DELETE" in caplog.text


#: Old and new columns of a table, and a part of the reason for a copy, or nothing.
OLD = Shape(
    7, (("id", 23, -1, 1), ("a", 23, -1, 2), ("b", 1043, 24, 3)), gone=("z",), generated=(5,)
)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (OLD.columns, ""),
        (OLD.columns[:2], ""),
        (tuple(reversed(OLD.columns)), ""),
        ((*OLD.columns, ("c", 23, -1, 4)), ""),
        ((*OLD.columns, ("c", 23, -1, 5)), "its column c is computed no longer"),
        ((*OLD.columns, ("d", 23, -1, 4)), "its new column d"),
        ((*OLD.columns, ("z", 23, -1, 4)), "z was dropped and added again"),
        ((*OLD.columns[:2], ("b", 1043, 24, 4)), "b was dropped and added again"),
        ((*OLD.columns[:2], ("b", 1043, 24, 0)), ""),
        ((*OLD.columns[:2], ("b", 25, -1, 3)), "b has another type"),
        ((*OLD.columns[:2], ("c", 1043, 24, 3)), "its column b is called c now"),
    ],
)
def test_why_a_table_is_copied_again(columns: Any, why: str) -> None:
    found = why_copied(OLD, Shape(7, columns), plain={"c", "z"})
    assert (why in found) if why else not found
    assert why_copied(OLD, Shape(8, columns), plain={"c"})


def test_what_became_of_columns_is_told() -> None:
    now = Shape(7, (("ident", 23, -1, 1), ("a", 20, -1, 2), ("b", 1043, 24, 3), ("z", 23, -1, 4)))
    assert differences_of(OLD, now) == {"renamed": {"id": "ident"}, "retyped": ["a", "z"]}
    assert differences_of(OLD, OLD) == {}
    unnumbered = Shape(7, tuple((*column[:3], 0) for column in OLD.columns))
    assert differences_of(OLD, unnumbered) == differences_of(unnumbered, OLD) == {}
    assert differences_of(None, now) == {}
    assert now.after(OLD).gone == ("id",)


@pytest.mark.parametrize(
    ("columns", "differences", "untold"),
    [
        # DROP a, RENAME c TO a.
        ((("a", 23, -1, 3),), {"renamed": {"c": "a"}, "retyped": ["a"]}, "names"),
        # DROP a, ADD a.
        ((("c", 23, -1, 3), ("a", 23, -1, 4)), {"retyped": ["a"]}, "values"),
        # Exchange of the names.
        (
            (("c", 23, -1, 2), ("a", 23, -1, 3)),
            {"renamed": {"a": "c", "c": "a"}, "retyped": ["c", "a"]},
            "names",
        ),
        # RENAME a TO b, ADD a.
        (
            (("b", 23, -1, 2), ("c", 23, -1, 3), ("a", 23, -1, 4)),
            {"renamed": {"a": "b"}, "retyped": ["a"]},
            "names",
        ),
    ],
)
def test_a_name_that_another_column_has_now_is_told(
    columns: Any, differences: dict[str, Any], untold: str
) -> None:
    old = Shape(7, (("id", 23, -1, 1), ("a", 23, -1, 2), ("c", 23, -1, 3)))
    now = Shape(7, (old.columns[0], *columns))
    assert differences_of(old, now) == differences
    assert untold_of(old, now, plain={"a"}) == untold
