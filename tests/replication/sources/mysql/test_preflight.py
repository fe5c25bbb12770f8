"""Faulty settings of a server are reported at once, with the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.mysql import MysqlPublisher, PreflightError, StreamError
from tests.replication.sources.mysql.reading import Database, Reading


@contextmanager
def settings(database: Database, **wanted: str) -> Iterator[None]:
    """Change global settings in the block."""
    before = {name: database.ask(f"SELECT @@GLOBAL.{name}")[0][0] for name in wanted}
    database.run(*(f"SET GLOBAL {name} = {value}" for name, value in wanted.items()))
    try:
        yield
    finally:
        for name, value in before.items():
            database.run(f"SET GLOBAL {name} = {value!r}")


#: Without names of columns; MySQL always logs the signedness of numbers.
WITHOUT_NAMES = [pytest.param("NO_LOG", marks=pytest.mark.mariadb_only), "MINIMAL"]


@pytest.mark.parametrize("metadata", WITHOUT_NAMES)
def test_a_log_without_names_of_columns_is_refused(database: Database, metadata: str) -> None:
    with (
        settings(database, binlog_row_metadata=metadata),
        pytest.raises(PreflightError, match="binlog_row_metadata = FULL"),
    ):
        MysqlPublisher(database.url).run()


@pytest.mark.parametrize("metadata", WITHOUT_NAMES)
def test_a_log_that_was_written_without_names_of_columns_is_not_misread(
    database: Database, metadata: str
) -> None:
    """Unsigned numbers would be read as signed ones, and no table would have a key."""
    database.run("CREATE TABLE t (id INT UNSIGNED PRIMARY KEY)")
    reading = Reading(database)
    with settings(database, binlog_row_metadata=metadata):
        database.run("INSERT INTO t VALUES (4000000000)")
    with pytest.raises(StreamError, match="binlog_row_metadata"):
        reading.changes()


def test_all_that_is_wrong_is_said_at_once(database: Database) -> None:
    database.add_user("nothing", grants="USAGE")
    url = database.login("nothing").replace(f"/{database.name}", "/")
    wrong = {"binlog_row_metadata": "MINIMAL", "binlog_format": "MIXED"}
    if database.is_mysql:
        parts = ["GRANT RELOAD"]
    else:
        wrong["log_bin_compress"] = "1"
        parts = ["log_bin_compress is ON"]
    with settings(database, **wrong):
        problems = MysqlPublisher(url, server_id=1, snapshot="initial").preflight().problems
    parts += [
        "binlog_format is MIXED",
        "binlog_row_metadata is MINIMAL",
        "GRANT REPLICATION SLAVE",
        "GRANT BINLOG MONITOR",
        "GRANT SELECT",
        "server_id 1 is the server's own",
    ]
    for part in parts:
        assert any(part in problem for problem in problems), part
    assert len(problems) == len(parts)


def reader(database: Database) -> Reading:
    """Return a reader whose user may read the log but no table."""
    status = "REPLICATION CLIENT" if database.is_mysql else "BINLOG MONITOR"
    database.add_user("reader", grants=f"REPLICATION SLAVE, {status}")
    return Reading(database, url=database.login("reader").replace(f"/{database.name}", "/"))


def test_no_more_is_needed_than_is_said(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(9))")
    reading = reader(database)
    database.run("INSERT INTO t VALUES (1, 'ä')")
    (change,) = reading.changes()
    assert (change.key, change.after) == ({"id": 1}, {"id": 1, "a": "ä"})


@pytest.mark.mariadb_only
def test_a_uuid_is_octets_where_its_type_can_not_be_seen(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, u UUID)")
    reading = reader(database)
    database.run("INSERT INTO t VALUES (1, '0f8fad5b-d9cb-469f-a165-708677289500')")
    (change,) = reading.changes()
    # Without the privilege SELECT the type UUID of these bytes is unknown.
    assert change.after == {"id": 1, "u": bytes.fromhex("0f8fad5bd9cb469fa165708677289500")}


def test_a_number_that_another_reader_has_is_refused(database: Database) -> None:
    reading = Reading(database)
    database.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with reading.running(server_id=4711) as running:
        running.wait_for_changes(2)
        with pytest.raises(PreflightError, match="server_id 4711 is another reader's"):
            reading.publisher(server_id=4711).run()
        # The first reader continues.
        database.run("INSERT INTO t VALUES (2)")
        running.wait_for_changes(3)


def test_numbers_are_random_unless_they_are_given() -> None:
    given = {MysqlPublisher("mysql://localhost/").server_id for _ in range(5)}
    assert len(given) == 5
    assert min(given) >= 1_000_000_000
    assert MysqlPublisher("mysql://localhost/", server_id=1024).server_id == 1024


def test_what_is_not_in_the_log_is_warned_of(database: Database) -> None:
    database.run(
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, parent INT, "
        "FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE)",
    )
    with settings(database, binlog_row_image="MINIMAL"):
        warnings = MysqlPublisher(database.url).preflight().warnings
    for part in (f"{database.name}.child", "binlog_row_image is MINIMAL"):
        assert any(part in warning for warning in warnings), part
    others = MysqlPublisher(database.url, Tables(include=["none.*"])).preflight()
    assert others.warnings == ("no table matches the pattern 'none.*' of --tables",)
    masks = {"child.no": "null", "child.id": "hash:x"}
    warnings = MysqlPublisher(database.url, Tables(["*.*"], masks=masks)).preflight().warnings
    (hides,) = (warning for warning in warnings if "--mask" in warning)
    assert "'child.no' of --mask, so that it hides nothing" in hides


@pytest.mark.mariadb_only
def test_tables_with_system_versioning_are_warned_of(database: Database) -> None:
    database.run("CREATE TABLE past (id INT PRIMARY KEY) WITH SYSTEM VERSIONING")
    (warning,) = MysqlPublisher(database.url, [f"{database.name}.*"]).preflight().warnings
    assert warning.startswith(f"{database.name}.past: ")


@pytest.mark.mariadb_only
def test_columns_that_are_compressed_are_refused_where_they_are_wanted(
    database: Database,
) -> None:
    database.run("CREATE TABLE small (id INT PRIMARY KEY, t TEXT COMPRESSED)")
    wanted = Tables(include=[f"{database.name}.*"])
    (problem,) = MysqlPublisher(database.url, wanted).preflight().problems
    assert f"{database.name}.small" in problem
    reading = Reading(database, tables=Tables(include=[f"{database.name}.other"]))
    database.run(
        f"INSERT INTO small VALUES (1, '{'x' * 200}')",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO other VALUES (1)",
    )
    assert [change.action for change in reading.changes()] == ["schema", "write"]
    # Later tests on the server replicate all databases.
    database.run("DROP TABLE small")


def test_a_first_run_needs_what_it_was_asked_for(database: Database) -> None:
    """Later runs do not, since tables may have been dropped."""
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    missing = MysqlPublisher(database.url, needs_database="nosuchdb")
    with pytest.raises(PreflightError, match="no database nosuchdb"):
        missing.run()
    reading = Reading(database, tables=Tables([f"{database.name}.nosuch*"]))
    with pytest.raises(PreflightError, match="no table is there that is wanted"):
        reading.publisher(needs_tables=True).run()
    reading = Reading(database)
    reading.publisher(needs_tables=True, needs_database=database.name).run()
    database.run("DROP TABLE t")
    reading.publisher(needs_tables=True).run()
