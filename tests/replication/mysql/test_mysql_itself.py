"""MySQL itself, where it is installed or fetched: what MariaDB has not."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from stompkit.replication.publishers.mysql import PreflightProblem
from stompkit.replication.publishers.mysql._packets import understandable
from stompkit.replication.values import Json
from tests.replication.mysql.reading import Database, Reading
from tests.servers import MySql, mysql

__all__ = ["mysql"]


@pytest.fixture
def database(mysql: MySql) -> Iterator[Database]:
    """An empty database of MySQL."""
    database = Database(mysql)
    yield database
    database.close()


def test_vectors_are_octets_and_documents_are_documents(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v VECTOR(3), name VARCHAR(9) CHARACTER SET latin1, "
        "d JSON, g POINT, e ENUM('a', 'ä') CHARACTER SET latin1)"
    )
    reading = Reading(database)
    database.run(
        "INSERT INTO t VALUES (1, TO_VECTOR('[1, 2.5, -3]'), 'é', 'true', POINT(1, 2), 'ä')",
        "INSERT INTO t VALUES (2, NULL, 'b', JSON_ARRAY(1.50, NOW() IS NULL), NULL, 'a')",
        "INSERT INTO t (id, d) VALUES (3, 'null'), (4, NULL), (5, '\"x\"')",
    )
    first, second, *others = reading.changes()
    assert first.after == {
        "id": 1,
        "v": struct.pack("<3f", 1, 2.5, -3),
        "name": "é",
        "d": Json("true"),
        "g": struct.pack("<IBIdd", 0, 1, 1, 1.0, 2.0),
        "e": "ä",
    }
    assert second.after is not None
    assert second.after["d"] == [1.5, 0]
    documents = [change.after and change.after["d"] for change in others]
    assert documents == [Json("null"), None, Json('"x"')]
    read = Reading(database).changes(snapshot="only")
    assert [change.after for change in read] == [
        change.after for change in (first, second, *others)
    ]


def test_a_statement_that_was_logged_as_such_is_read(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE m (id INT) ENGINE=MEMORY")
    reading = Reading(database)
    # With variables of the session that the library for the log does not know.
    database.run(
        "SET SESSION sql_require_primary_key = 1, default_table_encryption = 0",
        "CREATE TABLE u (id INT PRIMARY KEY, a VARCHAR(9))",
        "ALTER TABLE t ADD COLUMN a INT",
        "INSERT INTO t VALUES (1, 2)",
    )
    actions = [(change.table, change.action) for change in reading.changes()]
    assert actions == [("u", "schema"), ("t", "schema"), ("t", "write")]


def test_a_number_of_another_reader_is_refused(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    with Reading(database).running(blocking=True) as running:
        database.run("INSERT INTO t VALUES (1)")
        running.wait_for_changes(1)
        number = running.publisher.server_id
        with pytest.raises(PreflightProblem, match="another reader's already"):
            Reading(database, server_id=number).changes()


def test_an_event_without_anything_new_stays_as_it_is() -> None:
    header = b"\0" + b"\0\0\0\0" + bytes((30,)) + b"\0\0\0\0" + struct.pack("<I", 24) + b"\0" * 6
    data = header + b"12345"
    assert understandable(data, 0) is data
