"""Statements that change tables, in any form."""

from __future__ import annotations

from typing import Any

import pytest

from tests.replication.sources.mysql.reading import Database, Reading, numbers
from tests.replication.sources.mysql.test_values import table_of


def schemas(reading: Reading) -> list[tuple[str, list[str] | None]]:
    """Return the tables of the schema changes, each with its columns."""
    changes = [change for change in reading.changes() if change.action == "schema"]
    return [(change.table, names(change.after)) for change in changes]


def names(after: dict[str, Any] | None) -> list[str] | None:
    assert after is not None
    columns = after.get("columns")
    return None if columns is None else [column["name"] for column in columns]


def test_a_change_of_a_table_is_told_with_its_statement_and_columns(database: Database) -> None:
    reading = Reading(database)
    statement = "CREATE TABLE t (b DECIMAL(10,2) NULL, a VARCHAR(20), PRIMARY KEY (a))"
    database.run(statement)
    (change,) = reading.changes()
    assert (change.action, change.name, change.key) == ("schema", f"{database.name}.t", {})
    assert change.after == {
        "statement": statement,
        "columns": [
            {
                "name": "b",
                "type": "decimal",
                "key": False,
                "nullable": True,
                "precision": 10,
                "scale": 2,
            },
            {"name": "a", "type": "text", "key": True, "nullable": False, "length": 20},
        ],
    }


def test_columns_of_the_catalogue_are_those_of_the_log(database: Database) -> None:
    """Otherwise they would be published again with the first row."""
    reading = Reading(database)
    database.run(table_of(database), "INSERT INTO wide (id) VALUES (1)")
    assert [change.action for change in reading.changes()] == ["schema", "write"]


def test_rows_are_read_as_their_table_was_when_they_were_written(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    reading = Reading(database)
    database.run(
        "INSERT INTO t VALUES (1, 2)",
        "ALTER TABLE t ADD COLUMN b VARCHAR(5) DEFAULT 'b' FIRST",
        "INSERT INTO t VALUES ('x', 2, 3)",
        "ALTER TABLE t CHANGE COLUMN a c BIGINT UNSIGNED",
        "UPDATE t SET c = 18446744073709551615 WHERE id = 2",
        "ALTER TABLE t DROP COLUMN b",
        "DELETE FROM t WHERE id = 2",
    )
    found = [change for change in reading.changes() if change.action != "schema"]
    assert [change.after for change in found] == [
        {"id": 1, "a": 2},
        {"b": "x", "id": 2, "a": 3},
        {"b": "x", "id": 2, "c": 2**64 - 1},
        None,
    ]
    assert found[2].before == {"b": "x", "id": 2, "c": 3}
    assert found[3].before == {"id": 2, "c": 2**64 - 1}


def test_columns_that_later_statements_have_changed_come_with_the_rows(database: Database) -> None:
    """The catalogue has the columns after the last statement."""
    reading = Reading(database)
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "ALTER TABLE t ADD COLUMN a INT",
        "INSERT INTO t VALUES (2, 2)",
    )
    changes = reading.changes()
    assert [change.action for change in changes] == [
        "schema",
        "schema",
        "write",
        "schema",
        "write",
    ]
    told = [names(change.after) for change in changes if change.action == "schema"]
    assert told == [None, ["id"], ["id", "a"]]


def test_a_table_whose_columns_are_not_published_is_not_emptied(database: Database) -> None:
    """The target does not have it yet."""
    create = "CREATE TABLE t (id INT PRIMARY KEY, a INT)"
    reading = Reading(database)
    database.run(create, "TRUNCATE TABLE t", "DROP TABLE t", create, "ALTER TABLE t ADD b INT")
    assert [change.action for change in reading.changes()] == ["schema"] * 4
    database.run("TRUNCATE TABLE t")
    assert [change.action for change in reading.changes()] == ["truncate"]


def test_columns_are_not_those_of_another_table_that_has_the_name_since(
    database: Database,
) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    reading = Reading(database)
    database.run(
        "ALTER TABLE t ADD a INT",
        f"DROP DATABASE {database.name}",
        f"CREATE DATABASE {database.name}",
        f"USE {database.name}",
        "CREATE TABLE t (other INT PRIMARY KEY)",
    )
    assert schemas(reading) == [("t", None), ("t", None), ("t", ["other"])]


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("ALTER TABLE t ADD COLUMN n INT", [("t", ["id", "n"])]),
        ("/* a */ alter -- b\n table # c\n `t` add n int", [("t", ["id", "n"])]),
        pytest.param(
            "ALTER ONLINE IGNORE TABLE IF EXISTS {db}.t ADD n INT",
            [("t", ["id", "n"])],
            marks=pytest.mark.mariadb_only,
        ),
        ("/*!50000 ALTER */ TABLE `{db}` . `t` ADD n INT", [("t", ["id", "n"])]),
        pytest.param(
            "/*M!100000 ALTER TABLE t ADD n INT */",
            [("t", ["id", "n"])],
            marks=pytest.mark.mariadb_only,
        ),
        pytest.param(
            "SET STATEMENT lock_wait_timeout=5 FOR ALTER TABLE t ADD n INT",
            [("t", ["id", "n"])],
            marks=pytest.mark.mariadb_only,
        ),
        ("ALTER TABLE t RENAME TO `r``s`", [("t", None), ("r`s", ["id"])]),
        ("ALTER TABLE t RENAME r", [("t", None), ("r", ["id"])]),
        ("ALTER TABLE t ADD n INT, RENAME AS r", [("t", None), ("r", ["id", "n"])]),
        ("ALTER TABLE t RENAME COLUMN id TO rename_to", [("t", ["rename_to"])]),
        ("ALTER TABLE t COMMENT 'RENAME TO r'", [("t", ["id"])]),
        ("RENAME TABLE t TO r", [("t", None), ("r", ["id"])]),
        (
            "RENAME TABLE t TO x, {db}.u TO t",
            [("x", ["id"]), ("u", None), ("t", ["id"])],
        ),
        ("DROP TABLE t", [("t", None)]),
        ("DROP TABLE IF EXISTS t, `u` /* both */", [("t", None), ("u", None)]),
        ("CREATE TABLE IF NOT EXISTS n (id INT)", [("n", ["id"])]),
        pytest.param(
            "CREATE OR REPLACE TABLE t LIKE u", [("t", ["id"])], marks=pytest.mark.mariadb_only
        ),
        ("CREATE UNIQUE INDEX i ON t (id)", [("t", ["id"])]),
        ("CREATE INDEX i USING BTREE ON `t` (id)", [("t", ["id"])]),
        pytest.param(
            "CREATE INDEX IF NOT EXISTS i USING BTREE ON `t` (id)",
            [("t", ["id"])],
            marks=pytest.mark.mariadb_only,
        ),
        ("CREATE TEMPORARY TABLE n (id INT)", []),
        ("CREATE VIEW n AS SELECT * FROM t", []),
        ("CREATE PROCEDURE n () ALTER TABLE t ADD n INT", []),
        ("CREATE TRIGGER n AFTER INSERT ON t FOR EACH ROW DELETE FROM u", []),
        ("ANALYZE TABLE t", []),
        pytest.param("COMMENT: ALTER TABLE t", [], marks=pytest.mark.mariadb_only),
    ],
)
def test_statements_are_understood(
    database: Database, statement: str, wanted: list[tuple[str, list[str] | None]]
) -> None:
    database.run("CREATE TABLE t (id INT)", "CREATE TABLE u (id INT)")
    reading = Reading(database)
    if statement.startswith("COMMENT"):
        statement = "CREATE DATABASE IF NOT EXISTS {db} COMMENT 'ALTER TABLE t'"
    database.run(statement.format(db=database.name))
    assert schemas(reading) == wanted


def test_quotes_of_ansi_are_names(database: Database) -> None:
    database.run('CREATE TABLE `a "b" c` (id INT)')
    reading = Reading(database)
    database.run("SET sql_mode = 'ANSI_QUOTES'", 'ALTER TABLE "a ""b"" c" ADD n INT')
    assert schemas(reading) == [('a "b" c', ["id", "n"])]


def test_a_table_in_another_database_than_the_present_one_is_found(database: Database) -> None:
    other = Database(database.server)
    reading = Reading(database)
    other.run(f"CREATE TABLE {database.name}.t (id INT)", "CREATE TABLE u (id INT)")
    other.close()
    assert schemas(reading) == [("t", ["id"])]


@pytest.mark.parametrize("statement", ["TRUNCATE TABLE t", "truncate `t`", "/* x */TRUNCATE t"])
def test_a_table_that_is_emptied_is_told(database: Database, statement: str) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    reading = Reading(database)
    database.run(statement, "INSERT INTO t VALUES (2)")
    truncate, write = reading.changes()
    assert (truncate.action, truncate.name, truncate.key) == ("truncate", f"{database.name}.t", {})
    assert write.key == {"id": 2}


def test_a_table_that_is_made_of_a_query_comes_with_its_rows(database: Database) -> None:
    reading = Reading(database)
    database.run(f"CREATE TABLE t (id INT PRIMARY KEY) SELECT seq AS id FROM {numbers(3)}")
    (changeset,) = reading.changesets()
    actions = [change.action for change in changeset.changes]
    assert actions == ["schema", "write", "write", "write"]


def test_tables_of_a_database_that_is_dropped_are_told_as_far_as_they_are_known(
    database: Database,
) -> None:
    reading = Reading(database)
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        f"DROP DATABASE {database.name}",
        f"CREATE DATABASE {database.name}",
    )
    created, dropped = reading.changes()
    assert created.after is not None
    assert dropped.after == {"statement": f"DROP DATABASE {database.name}"}
    assert dropped.name == f"{database.name}.t"


def test_tables_that_are_not_wanted_are_not_told(database: Database) -> None:
    reading = Reading(database)
    other = Database(database.server)
    other.run("CREATE TABLE t (id INT)", "TRUNCATE TABLE t", "DROP TABLE t")
    other.close()
    assert reading.changes() == []
