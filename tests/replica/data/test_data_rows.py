"""Merged rows become rows of the application's tables."""

from __future__ import annotations

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table

from stompkit.replica.data.sql import SqlData
from stompkit.replication.model.tables import Tables
from tests.replica.data.data_made import as_it_is, gone, row, written
from tests.replication.sinks.sql_targets import Target, database_url, target

__all__ = ["database_url", "target"]

USERS = "CREATE TABLE users (id INT NOT NULL PRIMARY KEY, email VARCHAR(40) UNIQUE, age INT)"
PAIRS = "CREATE TABLE pairs (x INT NOT NULL, y INT NOT NULL, a INT, PRIMARY KEY (x, y))"


def test_rows_are_written_changed_and_deleted(target: Target) -> None:
    target.execute(USERS)
    assert written(target, [row("users", 1, email="a", age=1), row("users", 2, email="b")]) == {}
    assert target.table("users") == [(1, "a", 1), (2, "b", None)]
    assert written(target, [row("users", 1, age=5), gone("users", 2), gone("users", 3)]) == {}
    assert target.table("users") == [(1, "a", 5)]


def test_a_row_is_found_by_all_columns_of_its_key(target: Target) -> None:
    target.execute(PAIRS)
    rows = [row("pairs", {"y": n, "x": 1}, a=n) for n in range(3)]
    assert written(target, rows) == {}
    again = [row("pairs", {"x": 1, "y": 1}, a=9), gone("pairs", {"x": 1, "y": 2})]
    assert written(target, [*again, row("pairs", {"x": 2, "y": 1})]) == {}
    assert target.table("pairs", "1, 2") == [(1, 0, 0), (1, 1, 9), (2, 1, None)]


def test_writing_the_same_again_changes_nothing(target: Target) -> None:
    target.execute(USERS)
    rows = [row("users", n, email=f"m{n}", age=n) for n in range(5)] + [gone("users", 7)]
    data = as_it_is(target)
    assert written(target, rows, data) == {}
    before = target.table("users")
    assert written(target, rows, data) == {}
    assert target.table("users") == before


def test_of_several_rows_with_one_id_the_last_one_counts(target: Target) -> None:
    target.execute(USERS)
    assert written(target, [row("users", 1, age=1), row("users", 1, age=2)]) == {}
    assert written(target, [row("users", 2, age=1), gone("users", 2)]) == {}
    assert target.table("users") == [(1, None, 2)]


def test_a_row_can_change_its_key_and_keep_what_is_unique(target: Target) -> None:
    target.execute(USERS)
    assert written(target, [row("users", 1, email="a")]) == {}
    assert written(target, [row("users", 2, email="a"), gone("users", 1)]) == {}
    assert target.table("users") == [(2, "a", None)]


def test_a_row_that_is_nothing_but_its_key_is_written(target: Target) -> None:
    target.execute("CREATE TABLE tags (word VARCHAR(20) NOT NULL PRIMARY KEY)")
    rows = [row("tags", {"word": word}) for word in ("a", "b")]
    assert written(target, rows) == {}
    assert written(target, [*rows, gone("tags", {"word": "b"})]) == {}
    assert target.table("tags") == [("a",)]


def test_nothing_is_nothing(target: Target) -> None:
    target.execute(USERS)
    assert written(target, []) == {}


def test_what_the_transaction_has_done_before_is_kept_and_committed_with_it(target: Target) -> None:
    target.execute(USERS)
    data = as_it_is(target)
    rows = [row("users", 2, email="a"), row("users", 3, email="b")]
    with target.engine.connect() as connection:
        connection.exec_driver_sql("INSERT INTO users VALUES (1, 'a', 1)")
        assert list(data.write(connection, rows)) == [rows[0].id]
        connection.exec_driver_sql("INSERT INTO users VALUES (4, 'c', 1)")
        connection.rollback()
        assert target.table("users") == []
        connection.exec_driver_sql("INSERT INTO users VALUES (1, 'a', 1)")
        assert list(data.write(connection, rows)) == [rows[0].id]
        connection.commit()
    assert target.table("users") == [(1, "a", 1), (3, "b", None)]


def test_a_write_that_begins_a_transaction_leaves_it_open(target: Target) -> None:
    target.execute(USERS)
    data = as_it_is(target)
    with target.engine.connect() as connection:
        assert data.write(connection, [row("users", 1, age=1)]) == {}
        connection.rollback()
    assert target.table("users") == []


# Tables and columns.


def test_columns_that_the_table_lacks_are_left_out_and_told(target: Target) -> None:
    target.execute(USERS)
    data = as_it_is(target)
    rows = [row("users", 1, email="a", colour="red", size=1), row("users", 2, email="b")]
    assert written(target, rows, data) == {}
    assert target.table("users") == [(1, "a", None), (2, "b", None)]
    assert {name: sorted(columns) for name, columns in data.unknown.items()} == {
        "users": ["colour", "size"]
    }


def test_a_column_that_is_added_is_written_when_the_tables_are_looked_at_again(
    target: Target,
) -> None:
    target.execute(USERS)
    data = as_it_is(target)
    rows = [row("users", 1, colour="red")]
    assert written(target, rows, data) == {}
    target.execute("ALTER TABLE users ADD COLUMN colour VARCHAR(10)")
    data.forget()
    assert written(target, rows, data) == {}
    assert target.table("users") == [(1, None, None, "red")]
    assert data.unknown == {}


def test_a_column_that_is_dropped_meanwhile_is_one_that_the_table_lacks(target: Target) -> None:
    target.execute(USERS)
    data = as_it_is(target)
    assert written(target, [row("users", 1, age=1)], data) == {}
    target.execute("ALTER TABLE users DROP COLUMN age")
    assert written(target, [row("users", 1, email="a", age=2)], data) == {}
    assert target.table("users") == [(1, "a")]
    assert dict(data.unknown) == {"users": {"age"}}


def test_columns_are_found_whose_names_differ_by_case(target: Target) -> None:
    target.execute(USERS)
    assert written(target, [row("users", {"ID": 1}, Email="a", AGE=3)]) == {}
    assert target.table("users") == [(1, "a", 3)]


def test_one_column_that_is_told_twice_refuses_its_row(target: Target) -> None:
    target.execute(USERS)
    assert written(target, [row("users", 1, age=1, AGE=2), row("users", 2, age=3)]) == {
        "users 1": "two of its columns are the same in the table"
    }
    assert target.table("users") == [(2, None, 3)]


def test_columns_that_only_the_application_has_are_ones_that_the_table_lacks(
    target: Target,
) -> None:
    target.execute(USERS)
    described = Table(
        "users", MetaData(), Column("id", Integer, primary_key=True), Column("size", Integer)
    )
    data = SqlData(target.engine, [described])
    assert written(target, [row("users", 1, age=1, size=2)], data) == {}
    assert target.table("users") == [(1, None, 1)]
    assert dict(data.unknown) == {"users": {"size"}}


def test_names_of_tables_and_columns_may_be_anything(target: Target) -> None:
    quote = target.engine.dialect.identifier_preparer.quote_identifier
    table = Table(
        "odd % name",
        MetaData(),
        Column("my id", Integer, primary_key=True),
        Column('a "b" %s', String(20)),
        Column("select", String(20)),
    )
    table.create(target.engine)
    data = SqlData(target.engine, [table])
    values = {'a "b" %s': "%s", "select": "?"}
    for key in (1, 2):
        rows = [row("odd % name", {"my id": n}, **values) for n in range(key)]
        assert written(target, rows, data) == {}
    assert target.rows(f"SELECT * FROM {quote('odd % name')}") == [(0, "%s", "?"), (1, "%s", "?")]
    with target.engine.connect() as connection:
        found = data.read(connection, "odd % name", limit=1)
    assert found == [({"my id": 0}, values)]


def test_a_table_that_is_not_there_refuses_its_rows_until_it_is(target: Target) -> None:
    table = Table("users", MetaData(), Column("id", Integer, primary_key=True))
    data = SqlData(target.engine, [table])
    rows = [row("users", 1, age=1)]
    assert written(target, rows, data) == {"users 1": "there is no such table here"}
    target.execute(USERS)
    assert written(target, rows, data) == {}
    assert target.table("users") == [(1, None, 1)]


def test_a_table_that_is_dropped_meanwhile_is_not_there(target: Target) -> None:
    target.execute(USERS, PAIRS)
    data = as_it_is(target)
    assert written(target, [row("users", 1)], data) == {}
    target.execute("DROP TABLE users")
    rows = [row("users", 1), row("pairs", {"x": 1, "y": 1})]
    assert written(target, rows, data) == {"users 1": "there is no such table here"}
    assert target.table("pairs") == [(1, 1, None)]


def test_only_the_tables_that_were_chosen_are_written(target: Target) -> None:
    target.execute(USERS, PAIRS, "CREATE TABLE stompkit_own (id INT NOT NULL PRIMARY KEY)")
    assert as_it_is(target).names == {"users", "pairs"}
    data = SqlData(target.engine, None, Tables(exclude=["pairs"]))
    assert data.names == {"users"}
    rows = [row("pairs", {"x": 1, "y": 1}), row("users", 1)]
    assert list(written(target, rows, data)) == [rows[0].id.decode()]
    with target.engine.connect() as connection:
        assert data.tables(connection) == ["users"]


def test_columns_that_were_left_out_are_neither_written_nor_read(target: Target) -> None:
    target.execute(USERS)
    data = SqlData(target.engine, None, Tables(columns_exclude=["users.age"]))
    target.execute("INSERT INTO users VALUES (1, 'a', 7)")
    assert written(target, [row("users", 1, email="b", age=9)], data) == {}
    assert target.table("users") == [(1, "b", 7)]
    with target.engine.connect() as connection:
        assert data.read_one(connection, "users", {"id": 1}) == {"email": "b"}
        assert data.read(connection, "users") == [({"id": 1}, {"email": "b"})]
    assert data.unknown == {}


def test_a_column_that_the_database_computes_is_left_to_it(target: Target) -> None:
    target.execute(
        "CREATE TABLE sums (id INT NOT NULL PRIMARY KEY, a INT,"
        " b INT GENERATED ALWAYS AS (a * 2) STORED)"
    )
    assert written(target, [row("sums", 1, a=2, b=99)]) == {}
    assert target.table("sums") == [(1, 2, 4)]


def test_a_number_that_the_database_would_give_is_the_one_that_is_told(target: Target) -> None:
    number = target.pick(
        sqlite="INTEGER PRIMARY KEY AUTOINCREMENT",
        postgresql="INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        mariadb="INT AUTO_INCREMENT PRIMARY KEY",
    )
    target.execute(f"CREATE TABLE counted (id {number}, a INT)")
    assert written(target, [row("counted", n, a=n) for n in (0, 5)]) == {}
    assert target.table("counted") == [(0, 0), (5, 5)]


def test_a_row_is_updated_though_it_lacks_what_new_ones_need(target: Target) -> None:
    target.execute("CREATE TABLE needy (id INT NOT NULL PRIMARY KEY, a INT NOT NULL, b INT)")
    target.execute("INSERT INTO needy VALUES (1, 1, 1)")
    rows = [row("needy", 1, b=5), row("needy", 2, b=5)]
    assert list(written(target, rows)) == ["needy 2"]
    assert target.table("needy") == [(1, 1, 5)]


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_tables_of_schemas_are_named_with_them(target: Target) -> None:
    target.execute("DROP SCHEMA IF EXISTS shop CASCADE", "CREATE SCHEMA shop")
    target.execute("CREATE TABLE shop.users (id INT NOT NULL PRIMARY KEY, a INT)")
    metadata = MetaData()
    Table("users", metadata, Column("id", Integer, primary_key=True), schema="shop")
    data = SqlData(target.engine, metadata)
    assert data.names == {"shop.users"}
    assert written(target, [row("shop.users", 1, a=2)], data) == {}
    assert target.table("shop.users") == [(1, 2)]


# Filters of rows.


def test_a_row_that_a_filter_fails_is_not_there(target: Target) -> None:
    target.execute(USERS)
    adults = SqlData(target.engine, None, rows={"users": lambda row: row["age"] >= 18})
    assert written(target, [row("users", 1, age=20), row("users", 2, age=3)], adults) == {}
    assert target.table("users") == [(1, None, 20)]
    assert written(target, [row("users", 1, age=17), row("users", 2, age=18)], adults) == {}
    assert target.table("users") == [(2, None, 18)]


def test_a_filter_sees_the_key_and_is_not_asked_for_rows_that_are_gone(target: Target) -> None:
    target.execute(USERS)
    seen = []

    def keeps(row: object) -> bool:
        seen.append(row)
        return True

    data = SqlData(target.engine, None, rows={"users": keeps})
    assert written(target, [row("users", 1, age=20), gone("users", 2)], data) == {}
    assert seen == [{"id": 1, "age": 20}]


def test_a_filter_that_fails_leaves_its_row_as_it_was(target: Target) -> None:
    target.execute(USERS, "INSERT INTO users VALUES (1, 'a', 1)")
    data = SqlData(target.engine, None, rows={"users": lambda row: row["age"] > 18})
    rows = [row("users", 1, age="secret"), row("users", 2, age=20)]
    reasons = written(target, rows, data)
    assert reasons == {"users 1": "the filter of its table has failed: TypeError"}
    assert target.table("users") == [(1, "a", 1), (2, None, 20)]


# Tables that cannot be described.


def test_a_table_without_a_primary_key_is_refused(target: Target) -> None:
    table = Table("loose", MetaData(), Column("a", Integer))
    with pytest.raises(ValueError, match="loose has no primary key"):
        SqlData(target.engine, [table])
    target.execute("CREATE TABLE loose (a INT)")
    assert as_it_is(target).names == frozenset()


def test_a_filter_of_no_table_is_refused(target: Target) -> None:
    target.execute(USERS)
    with pytest.raises(ValueError, match="there is a filter for userz"):
        SqlData(target.engine, None, rows={"userz": bool})
