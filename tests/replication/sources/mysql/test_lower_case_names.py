"""A server that stores the names of tables in lower case, whatever statements use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.replication.sources.mysql.reading import Database, Reading
from tests.servers import MariaDb, MySql, mariadb_type


class FoldingMariaDb(MariaDb):
    """A MariaDB server with the setting of Windows."""

    def _options(self) -> list[str]:
        return [*super()._options(), "--lower-case-table-names=1"]


class FoldingMySql(FoldingMariaDb, MySql):
    """A MySQL server with the setting of Windows."""


@pytest.fixture(scope="module")
def server(mariadb: MariaDb) -> Iterator[MariaDb]:
    del mariadb  # If MariaDB is unavailable, so is this.
    server = FoldingMySql() if mariadb_type() is MySql else FoldingMariaDb()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def database(server: MariaDb) -> Iterator[Database]:
    database = Database(server)
    yield database
    database.close()


def test_statements_are_about_the_tables_whatever_they_call_them(database: Database) -> None:
    database.run("CREATE TABLE Ämter (id INT PRIMARY KEY)")
    reading = Reading(database)
    database.run(
        "INSERT INTO ÄMTER VALUES (1)",
        "ALTER TABLE ÄMTER ADD x INT",
        f"TRUNCATE TABLE {database.name.upper()}.ämtER",
        "INSERT INTO ämter VALUES (2, 2)",
        "RENAME TABLE ÄMTER TO Others",
        "DROP TABLE oThers",
    )
    changes = [(each.action, each.table) for each in reading.changes()]
    rows = [("write", "ämter"), ("truncate", "ämter"), ("write", "ämter")]
    assert [each for each in changes if each[0] != "schema"] == rows
    assert changes[1] == ("schema", "ämter")
    assert changes[-3:] == [("schema", "ämter"), ("schema", "others"), ("schema", "others")]


def test_a_new_name_of_a_column_is_followed(database: Database) -> None:
    database.run("CREATE TABLE Orders (id INT PRIMARY KEY, a INT)", "INSERT INTO orders SET id = 1")
    reading = Reading(database)
    database.run("ALTER TABLE ORDERS RENAME COLUMN a TO b", "UPDATE orders SET b = 3")
    changes = reading.changes()
    renamed = [each.after["renamed"] for each in changes if each.after and "renamed" in each.after]
    assert renamed == [{"a": "b"}]
    assert {each.table for each in changes} == {"orders"}


def test_a_dropped_database_in_capitals_is_told_of_its_tables(server: MariaDb) -> None:
    database = Database(server)
    database.run("CREATE TABLE T (id INT PRIMARY KEY)")
    reading = Reading(database, announce=True, url=server.url("mysql"))
    database.run("INSERT INTO t VALUES (1)", f"DROP DATABASE {database.name.upper()}")
    changes = reading.changes()
    database.close()
    assert [each.table for each in changes if each.action == "schema"][-1] == "t"
    assert "DROP DATABASE" in str((changes[-1].after or {}).get("statement"))
