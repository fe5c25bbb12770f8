"""MySQL itself, where it is installed or fetched: what MariaDB has not."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing

import pytest

from stompkit.replication.events import RowChange
from stompkit.replication.publishers.mysql import PreflightProblem, StreamProblem
from stompkit.replication.publishers.mysql._packets import understandable
from stompkit.replication.values import Json
from tests.replication.drawn_tables import apply
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
        "INSERT INTO t VALUES (2, NULL, 'b', JSON_ARRAY(1.5, NOW() IS NULL), NULL, 'a')",
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


def test_a_column_of_vectors_is_one_in_the_target(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, v VECTOR(3))")
    vector = struct.pack("<3f", 1, 2.5, -3)
    change = RowChange(table="t", action="write", key={"id": 1}, after={"id": 1, "v": vector})
    apply(database.url, [change], create=False)
    assert database.ask("SELECT HEX(v) FROM t") == ((vector.hex().upper(),),)
    without_key = RowChange(table="t", action="delete", key={}, before={"id": 1, "v": vector})
    apply(database.url, [without_key], create=False)
    assert database.ask("SELECT id FROM t") == ()


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


def test_compressed_transactions_are_read_as_others(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, v VECTOR(2), a TEXT)")
    reading = Reading(database)
    database.run(
        "SET SESSION binlog_transaction_compression = ON, cte_max_recursion_depth = 3000",
        "INSERT INTO t WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n "
        "WHERE id < 3000) SELECT id, TO_VECTOR('[1, 2]'), REPEAT('ab', 500) FROM n",
        "UPDATE t SET a = 'c' WHERE id = 1",
        "SET SESSION binlog_transaction_compression = OFF",
        "DELETE FROM t WHERE id = 2",
        "SET SESSION binlog_transaction_compression = ON",
        "ALTER TABLE t ADD COLUMN b INT",
        "INSERT INTO t VALUES (3001, NULL, 'd', 5)",
    )
    written, updated, deleted, altered, last = reading.changesets()
    vector = struct.pack("<2f", 1, 2)
    assert [change.after for change in written.changes] == [
        {"id": number, "v": vector, "a": "ab" * 500} for number in range(1, 3001)
    ]
    assert [each.changes[0].action for each in (updated, deleted, altered, last)] == [
        "update",
        "delete",
        "schema",
        "write",
    ]
    assert last.changes[0].after == {"id": 3001, "v": None, "a": "d", "b": 5}
    # Reading goes on behind each of them.
    database.run("DELETE FROM t WHERE id = 3")
    assert [change.key for change in reading.changes()] == [{"id": 3}]


def test_a_server_that_compresses_everything_is_read(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    reading = Reading(database)
    try:
        database.run("SET GLOBAL binlog_transaction_compression = ON")
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (1)")
        assert [change.key for change in reading.changes(snapshot="initial")] == [{"id": 1}]
    finally:
        database.run("SET GLOBAL binlog_transaction_compression = OFF")


def test_parts_of_documents_are_refused_with_what_to_do(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, d JSON)",
        """INSERT INTO t VALUES (1, '{"a": "long enough to be left out", "b": 1}')""",
    )
    reading = Reading(database)
    try:
        database.run("SET GLOBAL binlog_row_value_options = PARTIAL_JSON")
        with pytest.raises(PreflightProblem, match="binlog_row_value_options = ''"):
            reading.changes()
    finally:
        database.run("SET GLOBAL binlog_row_value_options = ''")
    # A session may ask for it, too.
    database.run(
        "SET SESSION binlog_row_value_options = PARTIAL_JSON",
        "UPDATE t SET d = JSON_SET(d, '$.b', 2)",
    )
    with pytest.raises(StreamProblem, match="set binlog_row_value_options to nothing"):
        reading.changes()


def test_an_event_without_anything_new_stays_as_it_is() -> None:
    header = b"\0" + b"\0\0\0\0" + bytes((30,)) + b"\0\0\0\0" + struct.pack("<I", 24) + b"\0" * 6
    data = header + b"12345"
    assert understandable(data, 0) is data
