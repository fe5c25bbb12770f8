"""Refused rows are reported, and do not affect others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError

from tests.replica.data.data_made import as_it_is, checked, gone, row, written
from tests.replication.sinks.sql_targets import Target, database_url, target

__all__ = ["database_url", "target"]

SECRET = "hush"
USERS = (
    "CREATE TABLE users (id INT NOT NULL PRIMARY KEY, email VARCHAR(40) NOT NULL, age INT,"
    " CONSTRAINT one_email UNIQUE (email), CONSTRAINT grown_up CHECK (age >= 18))"
)
PLAIN = "CREATE TABLE users (id INT NOT NULL PRIMARY KEY, email VARCHAR(40) UNIQUE, age INT)"


def user(key: int, **wrong: Any) -> Any:
    return row("users", key, **{"email": f"m{key}", "age": 30, **wrong})


# Reasons.


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"email": SECRET}, "UNIQUE constraint (users.email|one_email)"),
        ({"email": None}, "NOT NULL constraint: column (users.)?email"),
        ({"age": 3}, "CHECK constraint grown_up"),
        ({"age": SECRET}, "a value does not fit its column age"),
        ({"age": [SECRET]}, "a value does not fit its column age"),
    ],
)
def test_a_reason_names_what_it_is_due_to_and_not_what_the_row_holds(
    target: Target, wrong: dict[str, object], reason: str
) -> None:
    target.execute(USERS, f"INSERT INTO users VALUES (1, '{SECRET}', 20)")
    rows = [user(key) for key in range(10, 20)]
    rows[5] = user(5, **wrong)
    reasons = written(target, rows)
    assert list(reasons) == ["users 5"]
    assert re.fullmatch(reason, reasons["users 5"])
    assert len(target.table("users")) == 10


def test_text_that_is_no_unicode_is_refused(target: Target) -> None:
    target.execute(USERS)
    reasons = written(target, [user(1), user(2, email="\ud800"), user(3)])
    assert reasons == {"users 2": "a value does not fit its column email"}
    assert [found[0] for found in target.table("users")] == [1, 3]


@pytest.mark.parametrize("target", ["postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize("wrong", [{"email": SECRET * 11}, {"age": 2**40}])
def test_a_value_that_is_too_large_is_refused(target: Target, wrong: dict[str, object]) -> None:
    target.execute(USERS)
    reasons = written(target, [user(1), user(2, **wrong), user(3)])
    assert list(reasons) == ["users 2"]
    assert re.fullmatch("a value does not fit its column( email| age)?", reasons["users 2"])
    assert [found[0] for found in target.table("users")] == [1, 3]


def test_a_trigger_that_refuses_is_told_without_its_words(target: Target) -> None:
    target.execute(USERS)
    if target.kind == "postgresql":
        target.execute(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'not %%', NEW.email; END $$"
        )
    target.execute(
        target.pick(
            sqlite="CREATE TRIGGER refuse BEFORE INSERT ON users WHEN NEW.age = 66"
            f" BEGIN SELECT RAISE(ABORT, 'not {SECRET}'); END",
            postgresql="CREATE TRIGGER refuse BEFORE INSERT ON users FOR EACH ROW"
            " WHEN (NEW.age = 66) EXECUTE FUNCTION refuse()",
            mariadb="CREATE TRIGGER refuse BEFORE INSERT ON users FOR EACH ROW"
            " IF NEW.age = 66 THEN SIGNAL SQLSTATE '45000'"
            f" SET MESSAGE_TEXT = 'not {SECRET}'; END IF",
        )
    )
    reasons = written(target, [user(1), user(2, email=SECRET, age=66), user(3)])
    assert reasons == {"users 2": "a trigger refuses it"}
    assert len(target.table("users")) == 2


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
def test_a_check_that_can_not_be_made_refuses_every_row(target: Target) -> None:
    target.execute(PLAIN)
    with target.engine.connect() as connection:
        driver: Any = connection.connection.dbapi_connection
        driver.create_function("mine", 1, bool)
        connection.exec_driver_sql(
            "CREATE TABLE odd (id INT NOT NULL PRIMARY KEY, a INT CHECK (mine(a)))"
        )
        connection.commit()
        driver.create_function("mine", 1, None)
        reasons = as_it_is(target).write(connection, [row("odd", 1, a=1), user(1)])
    assert reasons == {b"odd 1": "SQLite refuses it"}


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_what_a_user_may_not_write_is_refused(target: Target) -> None:
    target.execute(USERS, "CREATE TABLE open (id INT NOT NULL PRIMARY KEY)")
    data = as_it_is(target)
    with target.engine.connect() as connection:
        # All of it is rolled back at the end.
        connection.exec_driver_sql("CREATE ROLE limited")
        connection.exec_driver_sql("GRANT USAGE ON SCHEMA public TO limited")
        connection.exec_driver_sql("GRANT SELECT ON users TO limited")
        connection.exec_driver_sql("GRANT ALL ON open TO limited")
        connection.exec_driver_sql("SET LOCAL ROLE limited")
        reasons = data.write(connection, [user(1), row("open", 1)])
        assert connection.exec_driver_sql("SELECT id FROM open").all() == [(1,)]
    assert reasons == {b"users 1": "this user may not write to the table"}


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_an_exclusion_constraint_is_named(target: Target) -> None:
    target.execute(
        "CREATE TABLE stays (id INT NOT NULL PRIMARY KEY, room INT,"
        " CONSTRAINT one_guest EXCLUDE USING btree (room WITH =))"
    )
    assert written(target, [row("stays", 1, room=1), row("stays", 2, room=1)]) == {
        "stays 2": "EXCLUDE constraint one_guest"
    }


def test_a_null_in_the_key_is_refused(target: Target) -> None:
    target.execute(USERS)
    assert written(target, [user(1), row("users", None, email="a")]) == {
        "users None": "its key is NULL"
    }


def test_a_key_that_is_another_than_the_tables_is_refused(target: Target) -> None:
    target.execute(USERS)
    reasons = written(target, [user(1), row("users", {"number": 1}), gone("users", {})])
    assert set(reasons.values()) == {"the table lacks a column of its key"}
    assert len(target.table("users")) == 1


@pytest.mark.parametrize("target", ["mariadb"], indirect=True)
def test_a_table_without_transactions_is_not_written(target: Target) -> None:
    target.execute("CREATE TABLE old (id INT NOT NULL PRIMARY KEY) ENGINE=MyISAM")
    assert written(target, [row("old", 1)]) == {
        "old 1": "the table's engine MyISAM has no transactions"
    }


# Temporary errors.


def test_a_refused_row_is_written_when_the_cause_has_gone(target: Target) -> None:
    target.execute(USERS, f"INSERT INTO users VALUES (1, '{SECRET}', 20)")
    data = as_it_is(target)
    wanted = user(2, email=SECRET)
    assert list(written(target, [wanted], data)) == ["users 2"]
    assert list(written(target, [wanted], data)) == ["users 2"]
    # The row itself need not change.
    assert written(target, [user(1)], data) == {}
    assert written(target, [wanted], data) == {}
    assert target.table("users") == [(1, "m1", 30), (2, SECRET, 30)]


def test_a_refused_change_leaves_the_row_as_it_was(target: Target) -> None:
    target.execute(USERS, "INSERT INTO users VALUES (1, 'a', 20), (2, 'b', 20)")
    assert list(written(target, [user(1, email="b", age=50)])) == ["users 1"]
    assert target.table("users") == [(1, "a", 20), (2, "b", 20)]


def test_of_two_rows_that_want_one_name_one_gets_it(target: Target) -> None:
    target.execute(USERS)
    reasons = written(target, [user(key, email="same") for key in range(20)])
    assert len(reasons) == 19
    assert len(target.table("users")) == 1


def test_of_many_rows_only_those_are_refused_that_are_wrong(target: Target) -> None:
    target.execute(USERS)
    rows = [user(key, age=1 if key % 100 == 7 else 30) for key in range(1000)]
    assert sorted(written(target, rows)) == sorted(f"users {key}" for key in range(7, 1000, 100))
    assert len(target.table("users")) == 990


@contextmanager
def held(target: Target) -> Iterator[None]:
    """Lock the row 1 of users by an open transaction."""
    with target.engine.connect() as connection, connection.begin() as transaction:
        connection.exec_driver_sql("UPDATE users SET age = 99 WHERE id = 1")
        yield
        transaction.rollback()


def test_a_lock_that_somebody_else_has_is_raised_and_no_reason(target: Target) -> None:
    target.execute(USERS, "INSERT INTO users VALUES (1, 'a', 20)")
    data = as_it_is(target)
    with held(target), impatient(target) as connection, pytest.raises(DBAPIError):
        data.write(connection, [user(0), user(1), user(2)])
    assert target.table("users") == [(1, "a", 20)]
    assert written(target, [user(0), user(1), user(2)], data) == {}


@contextmanager
def impatient(target: Target) -> Iterator[Connection]:
    """Return a connection with a short lock timeout, which commits nothing."""
    engine = create_engine(
        target.url, connect_args={"timeout": 0} if target.kind == "sqlite" else {}
    )
    with engine.connect() as connection:
        if target.kind == "postgresql":
            connection.exec_driver_sql("SET LOCAL lock_timeout = 10")
        elif target.kind == "mariadb":
            connection.exec_driver_sql("SET innodb_lock_wait_timeout = 0")
        yield connection
    engine.dispose()


@pytest.mark.parametrize("target", ["mariadb"], indirect=True)
def test_the_session_is_afterwards_as_it_was(target: Target) -> None:
    target.execute(USERS)
    data = as_it_is(target)
    with target.engine.connect() as connection:
        connection.exec_driver_sql("SET sql_mode = 'NO_ENGINE_SUBSTITUTION'")
        assert list(data.write(connection, [user(1), user(2, email="a" * 50)])) == [b"users 2"]
        mode = connection.exec_driver_sql("SELECT @@sql_mode").scalar()
    assert mode == "NO_ENGINE_SUBSTITUTION"


# Keys that look equal.


@pytest.mark.parametrize("alike", ["A", "a "])
def test_rows_whose_keys_the_collation_takes_for_the_same_are_told_apart(
    target: Target, alike: str
) -> None:
    if target.kind == "postgresql":
        target.execute(
            "CREATE COLLATION alike (provider = icu, locale = 'und-u-ka-shifted-ks-level2',"
            " deterministic = false)"
        )
    collation = target.pick(
        sqlite="NOCASE" if alike == "A" else "RTRIM",
        postgresql="alike",
        mariadb="utf8mb4_general_ci",
    )
    target.execute(f"CREATE TABLE words (word VARCHAR(9) COLLATE {collation} PRIMARY KEY, n INT)")
    data = as_it_is(target)
    first, second = ({"word": word} for word in ("a", alike))
    # Both at once, and one after the other.
    assert len(written(target, [row("words", first, n=1), row("words", second, n=2)], data)) == 1
    assert len(target.table("words")) == 1
    target.execute("DELETE FROM words")
    assert written(target, [row("words", first, n=1)], data) == {}
    reasons = written(target, [row("words", second, n=2)], data)
    assert list(reasons.values()) == ["another row has a key that its collation takes for the same"]
    # The missing one is removed, and not the other.
    assert written(target, [gone("words", second)], data) == {}
    assert target.table("words") == [("a", 1)]
    assert written(target, [gone("words", first), row("words", second, n=2)], data) == {}
    assert target.table("words") == [(alike, 2)]


# Names that are swapped in a cycle.


def test_two_rows_that_swap_unique_values_are_both_written(target: Target) -> None:
    target.execute(PLAIN, "INSERT INTO users VALUES (1, 'a', 1), (2, 'b', 2)")
    assert written(target, [user(1, email="b"), user(2, email="a")]) == {}
    assert target.table("users") == [(1, "b", 30), (2, "a", 30)]


def test_names_go_round_that_can_not_be_null(target: Target) -> None:
    target.execute(USERS)
    data = as_it_is(target)
    assert written(target, [user(key, email=f"e{key}") for key in range(10)], data) == {}
    assert written(target, [user(key, email=f"e{(key + 1) % 10}") for key in range(10)], data) == {}
    assert target.table("users") == [(key, f"e{(key + 1) % 10}", 30) for key in range(10)]


@pytest.mark.parametrize(
    ("column", "one", "other"),
    [("INT NOT NULL", 1, 2), ("VARCHAR(3) NOT NULL", "a", "b"), ("DATE", None, "2026-01-02")],
)
def test_values_of_any_type_can_be_swapped_where_something_can_stand_in(
    target: Target, column: str, one: object, other: object
) -> None:
    target.execute(f"CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a {column} UNIQUE)")
    data = as_it_is(target)
    assert written(target, [row("t", 1, a=one), row("t", 2, a=other)], data) == {}
    assert written(target, [row("t", 1, a=other), row("t", 2, a=one)], data) == {}
    with target.engine.connect() as connection:
        found = [values["a"] for _, values in data.read(connection, "t")]
    assert [None if each is None else str(each) for each in found] == [
        None if each is None else str(each) for each in (other, one)
    ]


def test_a_swap_is_not_kept_up_by_a_row_that_is_wrong_for_itself(target: Target) -> None:
    target.execute(USERS)
    data = as_it_is(target)
    assert written(target, [user(key, email=f"e{key}") for key in range(5)], data) == {}
    rows = [user(1, email="e2"), user(2, email="e1"), user(3, email="e0"), user(4, age=1)]
    assert sorted(written(target, rows, data)) == ["users 3", "users 4"]
    assert [found[1] for found in target.table("users")] == ["e0", "e2", "e1", "e3", "e4"]


def test_a_name_that_others_refer_to_does_not_go_round(target: Target) -> None:
    checked(target).execute(
        "CREATE TABLE codes (id INT NOT NULL PRIMARY KEY, code VARCHAR(5) UNIQUE)",
        "CREATE TABLE uses (id INT NOT NULL PRIMARY KEY, code VARCHAR(5),"
        " FOREIGN KEY (code) REFERENCES codes (code) ON UPDATE SET NULL)",
        "INSERT INTO codes VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO uses VALUES (1, 'a')",
    )
    # Moving it aside would make the database change the other row, too.
    reasons = written(target, [row("codes", 1, code="b"), row("codes", 2, code="a")])
    assert sorted(reasons) == ["codes 1", "codes 2"]
    assert target.table("uses") == [(1, "a")]
