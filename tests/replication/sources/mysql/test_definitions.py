"""Changes of tables at MariaDB and MySQL: applied, and never silently wrong.

The table of the page on sources is this one.
"""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from stompkit.replication.jobs.feeder import Feeder
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.model.tables import Tables
from stompkit.replication.sinks.sql import SqlSink
from stompkit.replication.sources.mysql._tables.definitions import Definitions
from stompkit.replication.sources.mysql._tables.statements import Effect, parse_statement
from tests.effort import drawn
from tests.replication.sources.mysql.reading import Database, Reading, received

Types = dict[str, st.SearchStrategy[str]]

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20))"
ROWS = "INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y')"


class Case(NamedTuple):
    """Statements, and the table that must be equal afterwards."""

    statements: list[str]
    table: str = "t"
    columns: str = "id, a, b"


CASES = {
    "DROP, CREATE": Case(["DROP TABLE t", TABLE, "INSERT INTO t VALUES (3, 3, 'z')"]),
    "DROP, CREATE, no rows": Case(["DROP TABLE t", TABLE]),
    "CREATE OR REPLACE": Case(
        [TABLE.replace("CREATE", "CREATE OR REPLACE"), "INSERT INTO t VALUES (3, 3, 'z')"]
    ),
    "CREATE IF NOT EXISTS of what exists": Case(
        [TABLE.replace("TABLE", "TABLE IF NOT EXISTS"), "INSERT INTO t VALUES (3, 3, 'z')"]
    ),
    "RENAME of a table": Case(["RENAME TABLE t TO t2", "UPDATE t2 SET a = 5"], "t2"),
    "ALTER ... RENAME": Case(["ALTER TABLE t RENAME t2", "DELETE FROM t2 WHERE id = 1"], "t2"),
    "swap of two tables": Case(
        [
            "CREATE TABLE n (id INT PRIMARY KEY, a INT, b VARCHAR(20))",
            "INSERT INTO n VALUES (5, 5, 'five')",
            "RENAME TABLE t TO old, n TO t",
            "INSERT INTO t VALUES (6, 6, 'six')",
        ]
    ),
    "exchange with a table of other types": Case(
        [
            "CREATE TABLE n (id INT PRIMARY KEY, a VARCHAR(9), b INT)",
            "INSERT INTO n VALUES (5, 'five', 5)",
            "RENAME TABLE t TO old, n TO t",
            "INSERT INTO t VALUES (6, 'six', 6)",
        ]
    ),
    "ALTER ... RENAME to the name of a table with other types": Case(
        [
            "CREATE TABLE n (id INT PRIMARY KEY, a VARCHAR(9), b INT)",
            "INSERT INTO n VALUES (5, 'five', 5)",
            "DROP TABLE t",
            "ALTER TABLE n RENAME t, COMMENT 'new'",
        ]
    ),
    "DROP and ADD of a column in one statement": Case(
        ["ALTER TABLE t DROP a, ADD a VARCHAR(9)", "UPDATE t SET a = 'zz' WHERE id = 1"]
    ),
    "DROP of a column, RENAME of another to its name": Case(
        ["ALTER TABLE t DROP a", "ALTER TABLE t RENAME COLUMN b TO a"], columns="id, a"
    ),
    "both in one statement": Case(
        ["ALTER TABLE t DROP a, RENAME COLUMN b TO a", "INSERT INTO t VALUES (3, 'z')"],
        columns="id, a",
    ),
    "ADD of a column whose name is a word of SQL": Case(
        ["ALTER TABLE t ADD vector INT DEFAULT 5"], columns="id, vector"
    ),
    "DROP and ADD of such a column": Case(
        [
            "ALTER TABLE t ADD vector INT DEFAULT 5",
            "ALTER TABLE t DROP vector",
            "ALTER TABLE t ADD vector INT",
        ],
        columns="id, vector",
    ),
    "DROP and ADD of a column": Case(
        ["ALTER TABLE t DROP b", "ALTER TABLE t ADD b INT", "UPDATE t SET a = 9 WHERE id = 1"]
    ),
    "ADD with DEFAULT": Case(["ALTER TABLE t ADD c INT DEFAULT 5"], columns="id, a, b, c"),
    "ADD": Case(
        ["ALTER TABLE t ADD c INT", "UPDATE t SET c = 9 WHERE id = 1"], columns="id, a, b, c"
    ),
    "CHANGE of the key": Case(
        ["ALTER TABLE t CHANGE id ident INT", "INSERT INTO t VALUES (3, 3, 'z')"],
        columns="ident, a, b",
    ),
    "MODIFY": Case(
        [
            "UPDATE t SET b = '7'",
            "ALTER TABLE t MODIFY b INT",
            "INSERT INTO t VALUES (3, 3, 77)",
        ]
    ),
    "without a key": Case(
        [
            "CREATE TABLE u (a INT)",
            "INSERT INTO u VALUES (1), (1)",
            "ALTER TABLE u ADD b INT DEFAULT 2",
            "INSERT INTO u VALUES (3, 4)",
            "DELETE FROM u WHERE a = 1 LIMIT 1",
        ],
        "u",
        "a, b",
    ),
    "ALTER IGNORE": Case(
        ["INSERT INTO t VALUES (3, 1, 'z')", "ALTER IGNORE TABLE t ADD UNIQUE (a)"]
    ),
    "a table becomes a partition": Case(
        [
            "CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY RANGE (id) "
            "(PARTITION x VALUES LESS THAN (10))",
            "CREATE TABLE u (id INT PRIMARY KEY)",
            "INSERT INTO u VALUES (12), (13)",
            "ALTER TABLE p CONVERT TABLE u TO PARTITION y VALUES LESS THAN (20)",
        ],
        "p",
        "id",
    ),
    "a partition becomes a table": Case(
        [
            "CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY RANGE (id) "
            "(PARTITION x VALUES LESS THAN (10), PARTITION y VALUES LESS THAN (20))",
            "INSERT INTO p VALUES (1), (12)",
            "ALTER TABLE p CONVERT PARTITION y TO TABLE u",
            "INSERT INTO u VALUES (14)",
        ],
        "u",
        "id",
    ),
    "a partition becomes a table, after one of other types": Case(
        [
            "CREATE TABLE p (id INT PRIMARY KEY, a VARCHAR(9), b INT) PARTITION BY RANGE (id) "
            "(PARTITION x VALUES LESS THAN (10), PARTITION y VALUES LESS THAN (20))",
            "INSERT INTO p VALUES (12, 'x', 1)",
            "DROP TABLE t",
            "ALTER TABLE p CONVERT PARTITION y TO TABLE t",
        ],
    ),
    "TRUNCATE PARTITION": Case(
        [
            "CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY LIST (id) "
            "(PARTITION x VALUES IN (1), PARTITION y VALUES IN (2))",
            "INSERT INTO p VALUES (1), (2)",
            "ALTER TABLE p TRUNCATE PARTITION x",
        ],
        "p",
        "id",
    ),
}


def copied(path: Path, case: Case) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as connection:
        query = f"SELECT {case.columns} FROM {case.table}"
        return connection.execute(query).fetchall()


#: Statements that MySQL does not have.
OF_MARIADB = (
    "CREATE OR REPLACE",
    "ALTER IGNORE",
    "a table becomes a partition",
    "a partition becomes a table",
    "a partition becomes a table, after one of other types",
)


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(name, marks=pytest.mark.mariadb_only) if name in OF_MARIADB else name
        for name in CASES
    ],
)
def test_a_change_of_a_table_is_followed(database: Database, tmp_path: Path, what: str) -> None:
    case = CASES[what]
    path = tmp_path / "copy.sqlite"
    database.run(TABLE, ROWS)
    reading = Reading(database, snapshot="initial", announce=True)
    with Feeder(SqlSink(f"sqlite:///{path}", create=True)):
        reading.publisher().run()
        database.run(*case.statements)
        reading.publisher().run()
    query = f"SELECT {case.columns} FROM {case.table}"
    assert sorted(copied(path, case)) == sorted(database.ask(query))


def test_a_column_is_renamed_in_a_target_that_requires_it(
    database: Database, tmp_path: Path
) -> None:
    """Earlier statements are published without the name that the column has today."""
    path = tmp_path / "copy.sqlite"
    database.run("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(9) NOT NULL)")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (id INT PRIMARY KEY, a TEXT NOT NULL)")
    reading = Reading(database, snapshot="initial")
    with Feeder(SqlSink(f"sqlite:///{path}")):
        reading.publisher().run()
        database.run(
            "ALTER TABLE t ADD c INT",
            "ALTER TABLE t CHANGE a b VARCHAR(9) NOT NULL",
            "ALTER TABLE t CHANGE b d VARCHAR(9) NOT NULL",
            "INSERT INTO t VALUES (1, 'x', 5)",
        )
        reading.publisher().run()
    assert copied(path, Case([], columns="*")) == [(1, "x", 5)]


_TYPES = {
    "VARCHAR(9)": st.sampled_from(["'abc'", "'7'", "''", "NULL"]),
    "INT": st.sampled_from(["0", "7", "NULL"]),
    "JSON": st.sampled_from(["NULL", """'{"a":1}'"""]),
}
_OF_MARIADB = {
    "UUID": st.sampled_from(["'0f8fad5b-d9cb-469f-a165-70867728950e'"]),
    "INET6": st.sampled_from(["'2001:db8::1'"]),
}


@st.composite
def _statements(draw: st.DrawFn, types: Types) -> tuple[list[str], dict[str, list[str]]]:
    """Return statements, and the tables with their columns afterwards.

    The empty statement is a run of the job.
    """
    first = draw(st.sampled_from(sorted(types)))
    columns = {"a": first}
    statements = [f"CREATE TABLE t (id INT PRIMARY KEY, a {first})"]
    others: dict[str, list[str]] = {}
    for _ in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from(sorted(columns)))
        free = draw(st.sampled_from("abc"))
        kind = draw(st.sampled_from(sorted(types)))
        match draw(st.sampled_from("ROW ROW ROW ADD CHANGE MODIFY DROP TABLE RENAME".split())):
            case "ROW":
                values = ", ".join(draw(types[each]) for each in columns.values())
                statements.append(f"REPLACE INTO t VALUES ({draw(st.integers(1, 3))}, {values})")
            case "ADD" if free not in columns:
                default = draw(st.sampled_from(["", " DEFAULT 5"])) if kind == "INT" else ""
                statements.append(f"ALTER TABLE t ADD {free} {kind}{default}")
                columns[free] = kind
            case "CHANGE" if free not in columns:
                statements.append(f"ALTER TABLE t CHANGE {name} {free} {columns[name]}")
                columns = {free if each == name else each: columns[each] for each in columns}
            case "MODIFY" if _OF_MARIADB.keys().isdisjoint((kind, columns[name])) or (
                "VARCHAR(9)" in (kind, columns[name])
            ):
                statements.append(f"UPDATE t SET {name} = NULL")
                statements.append(f"ALTER TABLE t MODIFY {name} {kind}")
                columns[name] = kind
            case "DROP" if len(columns) > 1:
                statements.append(f"ALTER TABLE t DROP {name}")
                del columns[name]
            case "TABLE" | "RENAME" as action:
                other = f"t{len(others)}"
                if action == "RENAME":
                    others[other] = ["id", *columns]
                statements.append(
                    f"RENAME TABLE t TO {other}" if action == "RENAME" else "DROP TABLE t"
                )
                statements.append(f"CREATE TABLE t (id INT PRIMARY KEY, a {kind})")
                columns = {"a": kind}
        statements += [""] if draw(st.booleans()) else []
    return statements, {**others, "t": ["id", *columns]}


def test_a_job_that_is_behind_follows_any_statements(database: Database, tmp_path: Path) -> None:
    number = itertools.count()
    types = _TYPES if database.is_mysql else {**_TYPES, **_OF_MARIADB}

    @settings(max_examples=drawn(20), deadline=None, derandomize=True, phases=[Phase.generate])
    @given(_statements(types))
    def check(drawn: tuple[list[str], dict[str, list[str]]]) -> None:
        statements, tables = drawn
        path = tmp_path / f"{next(number)}.sqlite"
        for (name,) in database.ask("SHOW TABLES"):
            database.run(f"DROP TABLE {name}")
        reading = Reading(database, snapshot="initial", announce=True)
        failed: list[BaseException] = []
        with Feeder(SqlSink(f"sqlite:///{path}", create=True), on_end=failed.append):
            reading.publisher().run()
            for statement in [*statements, ""]:
                if statement:
                    database.run(statement)
                else:
                    reading.publisher().run()
        assert failed == []
        for table, columns in tables.items():
            case = Case([], table, ", ".join(columns))
            rows = database.ask(f"SELECT {case.columns} FROM {table}")
            assert sorted(copied(path, case), key=repr) == sorted(rows, key=repr), statements

    check()


def test_tables_of_a_database_that_was_dropped_are_emptied_when_they_are_made_again(
    database: Database, tmp_path: Path
) -> None:
    path = tmp_path / "copy.sqlite"
    database.run(TABLE, ROWS)
    reading = Reading(database, snapshot="initial", announce=True)
    with Feeder(SqlSink(f"sqlite:///{path}", create=True)):
        reading.publisher().run()
        database.run(
            f"DROP DATABASE {database.name}",
            f"CREATE DATABASE {database.name}",
            f"USE {database.name}",
            TABLE,
        )
        reading.publisher().run()
        assert copied(path, Case([])) == []
        database.run(ROWS, TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
        reading.publisher().run()
    assert copied(path, Case([])) == [(1, 1, "x"), (2, 2, "y")]


def test_a_copy_that_is_interrupted_begins_anew(database: Database) -> None:
    """The second copy empties the table first, whatever the first one has published."""
    database.run(TABLE, ROWS)
    reading = Reading(database, snapshot="initial", chunk_rows=1)
    reading.changesets()
    database.run("ALTER TABLE t ADD c INT DEFAULT 5", "DELETE FROM t WHERE id = 1")
    first = reading.publisher()

    def stop(changeset: Any) -> None:
        if changeset.source.is_snapshot:
            first.stop()

    with CHANGESET.connected_to(stop):
        first.run()
    actions = [change.action for change in reading.changes()]
    assert actions == ["schema", "truncate", "read"]
    assert reading.changes() == []


def test_an_excluded_column_is_not_copied_under_another_name(database: Database) -> None:
    database.run(TABLE, ROWS)
    tables = Tables(include=[f"{database.name}.*"], columns_exclude=["t.b"])
    reading = Reading(database, snapshot="initial", tables=tables)
    reading.changes()
    database.run("ALTER TABLE t RENAME COLUMN b TO c", "INSERT INTO t VALUES (3, 3, 'z')")
    for _ in range(2):
        with received() as found, pytest.raises(ValueError, match=r"b of .*t is called c now"):
            reading.publisher().run()
        assert [change for each in found for change in each.changes] == []


def test_without_a_snapshot_it_is_said_that_rows_are_others(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.run(TABLE, ROWS)
    reading = Reading(database)
    database.run("ALTER TABLE t ADD c INT DEFAULT 5")
    (change,) = reading.changes()
    assert change.action == "schema"
    assert (change.after or {})["untold"] == "values"
    assert "no snapshot is taken" in caplog.text
    database.run("ALTER TABLE t RENAME COLUMN c TO d")
    (change,) = reading.changes()
    assert (change.after or {})["renamed"] == {"c": "d"}
    assert (change.after or {})["untold"] == "names"


T = ("s", "t")


@pytest.mark.parametrize(
    ("statement", "effects"),
    [
        ("CREATE TABLE t (a INT)", [Effect(T, "made")]),
        ("CREATE TABLE IF NOT EXISTS t (a INT)", [Effect(T, "made", is_if_missing=True)]),
        ("CREATE OR REPLACE TABLE t (a INT)", [Effect(T, "replaced")]),
        ("CREATE TEMPORARY TABLE t (a INT)", []),
        ("DROP TABLE IF EXISTS t, `x``y`.u", [Effect(T, "gone"), Effect(("x`y", "u"), "gone")]),
        (
            "RENAME TABLE t TO o, n TO t",
            [Effect(("s", "o"), "copy"), Effect(("s", "n"), "gone"), Effect(T, "copy")],
        ),
        ("ALTER TABLE t RENAME TO u", [Effect(T, "gone"), Effect(("s", "u"), "copy")]),
        ("ALTER TABLE t ADD c INT COMMENT 'DEFAULT'", [Effect(T, "same", added=("c",))]),
        ("ALTER TABLE t WAIT 5 ADD c INT NOT NULL", [Effect(T, "copy", added=("c",))]),
        ("ALTER TABLE t ADD (a INT, b INT)", [Effect(T, "copy")]),
        ("ALTER TABLE t ADD c TIMESTAMP", [Effect(T, "copy", added=("c",))]),
        ("ALTER TABLE t DROP COLUMN IF EXISTS c", [Effect(T, "same", dropped=("c",))]),
        (
            "ALTER TABLE t CHANGE a b INT",
            [Effect(T, "copy", renamed=(("a", "b"),), retyped=("b",))],
        ),
        (
            "ALTER TABLE t RENAME COLUMN a TO b",
            [Effect(T, "copy", renamed=(("a", "b"),), only_names=True)],
        ),
        (
            "ALTER TABLE t RENAME COLUMN a TO b, CONVERT TO CHARACTER SET utf8mb4",
            [Effect(T, "copy", renamed=(("a", "b"),))],
        ),
        ("ALTER TABLE t MODIFY a INT", [Effect(T, "copy", retyped=("a",))]),
        ("ALTER TABLE t ADD INDEX (a), ADD UNIQUE (b), ENGINE=InnoDB", [Effect(T, "same")]),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b)", [Effect(T, "same")]),
        ("ALTER TABLE t ALTER a SET DEFAULT 3, COMMENT 'x, DROP y'", [Effect(T, "same")]),
        ("ALTER TABLE t CONVERT TO CHARACTER SET latin1", [Effect(T, "copy")]),
        ("ALTER TABLE t DROP PARTITION p", [Effect(T, "copy")]),
        ("ALTER TABLE t ADD PARTITION (PARTITION p VALUES IN (1))", [Effect(T, "same")]),
        (
            "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u",
            [Effect(T, "copy"), Effect(("s", "u"), "copy")],
        ),
        (
            "ALTER TABLE t CONVERT TABLE u TO PARTITION p VALUES IN (1)",
            [Effect(T, "copy"), Effect(("s", "u"), "gone")],
        ),
        (
            "ALTER TABLE t CONVERT PARTITION p TO TABLE x.u",
            [Effect(T, "copy"), Effect(("x", "u"), "copy")],
        ),
        ("ALTER IGNORE TABLE t ADD UNIQUE (a)", [Effect(T, "copy")]),
        ("ALTER ONLINE TABLE t ADD UNIQUE (a)", [Effect(T, "same")]),
        ("ALTER TABLE t ADD period INT DEFAULT 5", [Effect(T, "copy", added=("period",))]),
        ("ALTER TABLE t ADD PERIOD FOR p (a, b)", [Effect(T, "same")]),
        ("ALTER TABLE t DROP PERIOD FOR p", [Effect(T, "same")]),
        ("ALTER TABLE t DROP period", [Effect(T, "same", dropped=("period",))]),
        ("ALTER TABLE t ADD VECTOR INDEX (a), ADD VECTOR KEY i (a)", [Effect(T, "same")]),
        ("ALTER TABLE t ADD SYSTEM VERSIONING", [Effect(T, "same")]),
        (
            "ALTER TABLE t DROP a, ADD a TEXT",
            [Effect(T, "copy", retyped=("a",), dropped=("a",), added=("a",))],
        ),
        (
            "ALTER TABLE t DROP a, RENAME COLUMN b TO a",
            [Effect(T, "copy", renamed=(("b", "a"),), retyped=("a",), dropped=("a",))],
        ),
        (
            "ALTER TABLE t RENAME COLUMN a TO b, ADD a INT",
            [Effect(T, "copy", renamed=(("a", "b"),), retyped=("a",), added=("a",))],
        ),
        ("ALTER TABLE t IMPORT TABLESPACE", [Effect(T, "copy")]),
        ("ALTER TABLE t SOMETHING NEW", [Effect(T, "copy")]),
        ("ALTER TABLE t", [Effect(T, "same")]),
    ],
)
def test_what_a_statement_does_to_rows(statement: str, effects: list[Effect]) -> None:
    assert list(parse_statement(statement, "s").effects) == effects


def test_what_was_dropped_is_remembered_in_the_checkpoint() -> None:
    before = Definitions(None)
    assert before.follow(Effect(T, "made")) == "nothing"
    assert before.follow(Effect(T, "same", dropped=("c",))) == "nothing"
    assert before.follow(Effect(("s", "u"), "gone")) == "nothing"
    after = Definitions(before.state())
    assert after.follow(Effect(T, "same", added=("d",))) == "nothing"
    assert after.follow(Effect(T, "same", added=("c",))) == "copy"
    assert after.follow(Effect(T, "same", added=("c",))) == "nothing"
    assert after.follow(Effect(("s", "u"), "made", is_if_missing=True)) == "empty"
    assert after.follow(Effect(("s", "u"), "made", is_if_missing=True)) == "nothing"
    assert after.state() == Definitions(None).state()


def test_a_name_that_is_used_again_is_of_another_type() -> None:
    definitions = Definitions(None)
    definitions.follow(Effect(T, "same", dropped=("c", "d")))
    added = definitions.recall(Effect(T, "same", added=("c", "e")))
    assert added == Effect(T, "copy", added=("c", "e"), retyped=("c",))
    renamed = definitions.recall(Effect(T, "copy", renamed=(("a", "d"),), only_names=True))
    assert renamed == Effect(T, "copy", renamed=(("a", "d"),), retyped=("d",))
    other = Effect(("s", "u"), "same", added=("c",))
    assert definitions.recall(other) is other


def test_dropped_databases_are_remembered_in_the_checkpoint() -> None:
    before = Definitions(None)
    before.follow(Effect(("s", "u"), "gone"))
    before.drop_database("s")
    assert before.follow(Effect(T, "made")) == "empty"
    after = Definitions(before.state())
    assert after.follow(Effect(T, "made", is_if_missing=True)) == "nothing"
    assert after.follow(Effect(("s", "u"), "made")) == "empty"
    assert after.follow(Effect(("other", "u"), "made")) == "nothing"
    for number in range(200):
        after.drop_database(f"d{number}")
    assert len(after.state()["databases"]) == 100
