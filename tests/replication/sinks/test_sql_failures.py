"""The sink for SQL: permanent errors end it, and temporary ones are retried."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url

from stompkit.replication.consumer.retry_policy import RetryPolicy, Stopping
from stompkit.replication.model.events import RowChange
from stompkit.replication.sinks import ApplyError, SinkMisconfiguredError
from stompkit.replication.sinks.sql import SinkDeniedError, SinkUnavailableError, SqlSink
from stompkit.replication.sql.failures import failure_of
from tests.replication.sinks.sql_targets import (
    KINDS,
    Target,
    change,
    changeset,
    database_url,
    schema_change,
    target,
)
from tests.servers import mariadb, postgresql

__all__ = ["database_url", "mariadb", "postgresql", "target"]

ID = {"name": "id", "type": "int", "key": True, "nullable": False}
WRITE = change("write", {"id": 1}, after={"id": 1, "a": "x"})
#: Columns and rows that some database never accepts, each with the statements before.
REFUSED: dict[str, tuple[list[str], list[RowChange]]] = {
    "columns that differ by case": ([], [schema_change(ID, {"name": "ID", "type": "int"})]),
    "more digits behind the point than in all": (
        [],
        [schema_change(ID, {"name": "a", "type": "decimal", "precision": 3, "scale": 5})],
    ),
    "too many columns": (
        [],
        [schema_change(ID, *({"name": f"c{n}", "type": "int"} for n in range(5000)))],
    ),
    "a trigger that names a table that is gone": (
        [
            "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(5))",
            "CREATE TABLE log (id INT)",
            "TRIGGER",
            "DROP TABLE log",
        ],
        [WRITE],
    ),
    "a trigger that raises": (
        ["CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(5))", "RAISING"],
        [WRITE],
    ),
    "a constraint": (
        ["CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(5), CHECK (a <> 'x'))"],
        [WRITE],
    ),
}
BODIES = {
    "TRIGGER": "INSERT INTO log VALUES (1)",
    "sqlite": "SELECT RAISE(ABORT, 'no')",
    "postgresql": "RAISE EXCEPTION 'no'",
    "mariadb": "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'",
}


def statements(target: Target, wanted: list[str]) -> Iterator[str]:
    for each in wanted:
        if each not in ("TRIGGER", "RAISING"):
            yield each
            continue
        body = BODIES["TRIGGER"] if each == "TRIGGER" else BODIES[target.kind]
        if target.kind == "postgresql":
            yield (
                "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$BEGIN {body}; RETURN NEW; END$$"
            )
            yield "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()"
        else:
            yield f"CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW BEGIN {body}; END"


@contextmanager
def opened(url: str, *, create: bool = True) -> Iterator[SqlSink]:
    sink = SqlSink(url, create=create)
    try:
        yield sink
    finally:
        sink.close()


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_database_never_takes_is_poison(target: Target, what: str) -> None:
    """The database accepts it, or it raises ApplyError; later changes are applied."""
    made, changes = REFUSED[what]
    target.execute("CREATE TABLE other (id INT NOT NULL PRIMARY KEY)", *statements(target, made))
    with opened(target.url) as sink:
        poison = changeset(1, *changes)
        try:
            sink.apply([poison])
        except ApplyError:
            sink.skip(poison)
        sink.apply([changeset(2, change("write", {"id": 7}, "other", after={"id": 7}))])
        assert sink.last("origin") == 2
    assert target.table("other") == [(7,)]


#: Columns above that are possible in some databases; the rest are possible in none.
POSSIBLE = {
    "sqlite": {"more digits behind the point than in all"},
    "postgresql": {"columns that differ by case", "more digits behind the point than in all"},
    "mariadb": set[str](),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_said_what_is_refused(target: Target, what: str) -> None:
    if what in POSSIBLE[target.kind] or what.startswith("more digits"):
        pytest.skip("this database can do it, by its version")
    made, changes = REFUSED[what]
    target.execute(*statements(target, made))
    with opened(target.url) as sink, pytest.raises(ApplyError, match="changeset 1 of 'origin'"):
        sink.apply([changeset(1, *changes)])


def _no_folder(path: Path) -> Path:
    return path / "missing" / "copy.db"


def _a_folder(path: Path) -> Path:
    return path


def _no_database(path: Path) -> Path:
    file = path / "notes.txt"
    file.write_text("not what SQLite writes " * 100)
    return file


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (_no_folder, "there is no folder .*missing: make it"),
        (_a_folder, "is a folder"),
        (_no_database, "is no database of SQLite"),
    ],
)
def test_a_file_that_is_no_place_for_a_database_ends_the_job(
    tmp_path: Path, make: Callable[[Path], Path], told: str
) -> None:
    with opened(f"sqlite:///{make(tmp_path)}") as sink, pytest.raises(SinkDeniedError, match=told):
        sink.apply([changeset(1, WRITE)])


@pytest.mark.parametrize("target", KINDS[1:], indirect=True)
def test_a_user_that_may_not_write_ends_the_job_and_makes_no_dead_letters(target: Target) -> None:
    target.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(5))")
    with opened(target.url) as sink:
        assert sink.last("origin") is None
    where = target.pick(mariadb="'weak'@'%%'", postgresql="weak", sqlite="")
    grant = target.pick(
        mariadb=f"GRANT ALL ON stompkit_offsets TO {where}",
        postgresql=f"GRANT USAGE ON SCHEMA public TO {where}; "
        f"GRANT ALL ON stompkit_offsets TO {where}",
        sqlite="",
    )
    drop = target.pick(
        mariadb=f"DROP USER IF EXISTS {where}",
        postgresql="DROP OWNED BY weak; DROP ROLE weak",
        sqlite="",
    )
    how = target.pick(mariadb="IDENTIFIED BY 'w'", postgresql="LOGIN PASSWORD 'w'", sqlite="")
    user = target.pick(mariadb="USER", postgresql="ROLE", sqlite="")
    read = f"GRANT SELECT ON t TO {where}"
    target.execute(f"CREATE {user} {where} {how}", *grant.split("; "), read)
    try:
        weak = make_url(target.url).set(username="weak", password="w")
        with opened(weak.render_as_string(hide_password=False)) as sink:
            with pytest.raises(SinkDeniedError, match="refuses this user"):
                sink.apply([changeset(1, WRITE)])
            assert sink.last("origin") is None
    finally:
        target.execute(*drop.split("; "))


@pytest.mark.parametrize("target", KINDS[1:], indirect=True)
def test_a_database_that_is_not_there_is_an_error_and_not_waited_for(target: Target) -> None:
    url = make_url(target.url).set(database="nosuchdatabase")
    with (
        opened(url.render_as_string(hide_password=False)) as sink,
        pytest.raises(SinkMisconfiguredError, match="nosuchdatabase"),
    ):
        sink.last("origin")


def test_a_sink_that_is_not_set_up_is_not_tried_again() -> None:
    failures: list[Exception] = []
    patience = RetryPolicy(retries=None, backoff_s=1, max_backoff_s=1, on_failure=failures.append)

    def refuse() -> None:
        raise SinkMisconfiguredError("no right to write")

    with pytest.raises(SinkMisconfiguredError, match="no right"):
        patience.call(refuse, Stopping(threading.Event(), None))
    assert failures == []


@pytest.mark.parametrize("target", KINDS[1:], indirect=True)
def test_a_lock_that_another_one_has_can_pass(target: Target) -> None:
    target.execute("CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a VARCHAR(5))")
    target.execute("INSERT INTO t VALUES (1, 'y')")
    wait = target.pick(
        mariadb="SET innodb_lock_wait_timeout = 0", postgresql="SET lock_timeout = 10", sqlite=""
    )
    engine = create_engine(target.url)
    sink = SqlSink(engine)
    sink.last("origin")
    with target.engine.begin() as other, contextlib.closing(sink):
        other.exec_driver_sql("UPDATE t SET a = 'z'")
        with engine.connect() as own:
            own.exec_driver_sql(wait)
            own.commit()
        with pytest.raises(SinkUnavailableError) as caught:
            sink.apply([changeset(1, WRITE)])
        assert not isinstance(caught.value, SinkMisconfiguredError)
    engine.dispose()
    assert target.table() == [(1, "z")]


@pytest.mark.parametrize("backend", ["sqlite", "postgresql", "mysql"])
def test_what_a_driver_says_of_a_lost_connection_can_pass(backend: str) -> None:
    class OperationalError(Exception):
        pass

    assert failure_of(OperationalError("server closed the connection"), backend) == "passing"
    assert failure_of(None, backend) == "passing"


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("40P01", "passing"),
        ("53100", "passing"),
        ("57P01", "passing"),
        ("25006", "passing"),
        ("42P01", "stale"),
        ("42501", "denied"),
        ("3D000", "denied"),
        ("23505", "final"),
        ("42611", "final"),
        ("0A000", "final"),
        ("54011", "final"),
        ("99999", "final"),
    ],
)
def test_a_code_that_nobody_knows_is_final(code: str, failure: str) -> None:
    class Error(Exception):
        sqlstate = code

    assert failure_of(Error("no"), "postgresql") == failure
