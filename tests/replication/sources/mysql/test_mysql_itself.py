"""MySQL itself, if it is installed or fetched: features that MariaDB lacks."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stompkit.replication.model.events import RowChange, Source, make_changeset
from stompkit.replication.model.values import Json
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.sql import SqlSink
from stompkit.replication.sources.mysql import OffsetLostError, PreflightError, StreamError
from stompkit.replication.sources.mysql._binlog.packets import understandable
from stompkit.replication.sources.mysql._binlog.values import json_text
from tests.effort import drawn
from tests.replication.drawn_tables import apply
from tests.replication.sources.mysql.reading import Database, Reading
from tests.servers import MySql, mysql

__all__ = ["mysql"]


@pytest.fixture
def database(mysql: MySql) -> Iterator[Database]:
    """An empty MySQL database."""
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


@pytest.mark.parametrize(
    "number", ["1.5", "-0.0", "12345678901234.5", "18446744073709551615", "-1e+200", "3.0e20"]
)
def test_documents_with_numbers_that_the_target_holds_are_stored(
    database: Database, number: str
) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, d JSON)")
    after = {"id": 1, "d": Json(f'{{"n": [{number}]}}')}
    change = RowChange(table="t", action="write", key={"id": 1}, after=after)
    apply(database.url, [change], create=False)
    ((document,),) = database.ask("SELECT d FROM t")
    (found,) = json.loads(document, parse_float=Decimal, parse_int=Decimal)["n"]
    assert found == Decimal(number)


@pytest.mark.parametrize(
    "number", ["0.10000000000000000001", "18446744073709551617", "-9223372036854775809", "4e-324"]
)
def test_documents_with_numbers_that_the_target_would_round_are_refused(
    database: Database, number: str
) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY, d JSON)")
    after = {"id": 1, "d": Json(f'{{"n": [{number}, 1]}}')}
    change = RowChange(table="t", action="write", key={"id": 1}, after=after)
    with pytest.raises(ApplyError, match=r"column 'd'.* has more digits than a number in a JSON"):
        apply(database.url, [change], create=False)
    sink = SqlSink(database.url, lossy=True)
    sink.apply([make_changeset("origin", 1, [change], Source(kind="test"))])
    sink.close()
    ((document,),) = database.ask("SELECT d FROM t")
    assert json.loads(document)["n"][0] == pytest.approx(float(number))


def test_a_statement_that_was_logged_as_such_is_read(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE m (id INT) ENGINE=MEMORY")
    reading = Reading(database)
    # With session variables that the library for the log does not know.
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
        with pytest.raises(PreflightError, match="another reader's already"):
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
    # Reading continues after each of them.
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


OTHER = "00000000-0000-0000-0000-00000000000"


def test_files_that_were_read_to_their_end_can_be_purged(database: Database) -> None:
    """Transactions of other servers may arrive out of order of their numbers."""
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    reading = Reading(database, start="now")
    assert reading.changes() == []
    for number, gtid in enumerate((f"{OTHER}1:7", f"{OTHER}1:5", f"{OTHER}1:6", f"{OTHER}2:1")):
        database.run(
            f"SET gtid_next = '{gtid}'",
            f"INSERT INTO t VALUES ({number})",
            "SET gtid_next = AUTOMATIC",
        )
    database.run("INSERT INTO t VALUES (4)")
    assert [change.key["id"] for change in reading.changes()] == [0, 1, 2, 3, 4]
    database.run("FLUSH BINARY LOGS", "INSERT INTO t VALUES (5)")
    database.purge()
    assert [change.key["id"] for change in reading.changes()] == [5]
    # The contents of a purged unread file are unknown.
    database.run("FLUSH BINARY LOGS", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (6)")
    database.purge()
    with pytest.raises(OffsetLostError, match="purged"):
        reading.changes()


@pytest.mark.parametrize("gtid", ["AUTOMATIC", f"{OTHER}3:2", "AUTOMATIC:tag"])
def test_one_transaction_in_a_purged_file_is_too_much(database: Database, gtid: str) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    reading = Reading(database, start="now")
    database.run("INSERT INTO t VALUES (1)")
    reading.changes(snapshot="initial")
    database.run(
        f"SET gtid_next = '{gtid}'",
        "INSERT INTO t VALUES (2)",
        "SET gtid_next = AUTOMATIC",
        "FLUSH BINARY LOGS",
    )
    database.purge()
    with pytest.raises(OffsetLostError, match="purged"):
        reading.changes()


@pytest.fixture
def in_parts(database: Database) -> Iterator[Database]:
    """A database whose server logs partial updates of documents only."""
    database.run(
        "SET GLOBAL binlog_row_value_options = PARTIAL_JSON",
        "SET SESSION binlog_row_value_options = PARTIAL_JSON",
    )
    yield database
    database.run("SET GLOBAL binlog_row_value_options = ''")


#: Long enough for MySQL to log partial updates.
_LONG: Final = "long enough to be left out " * 10
_SEVERAL: Final = json.dumps(
    {"b": 1.50, "list": [1, {"x y": "z"}, 3], "text": _LONG, 'quoted " . [0]': {"a": None}}
)


@pytest.mark.parametrize(
    "expression",
    [
        "JSON_SET(d, '$.b', 2)",
        "JSON_SET(d, '$.b', CAST('7.250' AS DECIMAL(9,3)), '$.list[1].\"x y\"', 'ü')",
        "JSON_SET(d, '$.new', JSON_OBJECT('a', JSON_ARRAY(1, NULL, true)))",
        "JSON_REMOVE(d, '$.list[0]', '$.b')",
        "JSON_REPLACE(d, '$.list', JSON_ARRAY())",
        'JSON_SET(d, \'$."quoted \\\\" . [0]".a\', 18446744073709551615)',
        "JSON_SET(d, '$.list[2]', 1e300, '$.list[9]', -0.5)",
        "JSON_REMOVE(JSON_SET(d, '$.z', 1), '$.z')",
        "JSON_SET(d, '$.b', NULL)",
        "CAST('[1, 2]' AS JSON)",
        "NULL",
    ],
)
def test_changed_parts_of_documents_are_told_as_whole_documents(
    in_parts: Database, expression: str
) -> None:
    in_parts.run("CREATE TABLE t (id INT PRIMARY KEY, e JSON, d JSON, n INT)")
    with closing(in_parts.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1, %s, %s, 0), (2, NULL, %s, 0)", [_SEVERAL] * 3)
    reading = Reading(in_parts)
    in_parts.run(f"UPDATE t SET d = {expression}, n = 1", "UPDATE t SET n = 2 WHERE id = 1")
    first, second, last = reading.changes(snapshot="never")
    read = {change.key["id"]: change for change in Reading(in_parts).changes(snapshot="only")}
    assert first.before is not None
    assert (first.before["n"], first.before["e"]) == (0, first.before["d"])
    assert _said(second) == _said(read[2])
    assert _said(last) == _said(read[1])
    assert _said(first) == {**_said(last), "n": 1}


def _said(change: RowChange) -> dict[str, Any]:
    """Return a row with its documents as parsed values: blanks and 1e+300 make no difference."""
    found = change.after or {}
    return {
        name: json.loads(json_text(value), parse_float=Decimal) if name in "ed" else value
        for name, value in found.items()
    }


_SCALARS: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(-1e9, 1e9),
    st.text('aü"$'),
)
_NAMES: Final = st.text('ab "\\\\.[$ü', max_size=3)
_DOCUMENTS: Final = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)


def _paths(document: Any, path: str = "$") -> Iterator[str]:
    """Return all paths of a document, and some missing ones."""
    yield path
    if isinstance(document, dict):
        for name, inner in {**document, "new": None}.items():
            yield from _paths(inner, f"{path}.{json.dumps(name, ensure_ascii=False)}")
    elif isinstance(document, list):
        for number, inner in enumerate([*document, None]):
            yield from _paths(inner, f"{path}[{number}]")


@given(data=st.data())
@settings(
    max_examples=drawn(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_changes_of_any_document_are_told(in_parts: Database, data: st.DataObject) -> None:
    document = {"long": _LONG, "d": data.draw(_DOCUMENTS)}
    expression, arguments = "d", list[str]()
    for _ in range(data.draw(st.integers(1, 4))):
        path = data.draw(st.sampled_from([*_paths(document)][1:]))
        verb = data.draw(st.sampled_from(("SET", "INSERT", "REPLACE", "ARRAY_INSERT", "REMOVE")))
        if verb == "ARRAY_INSERT" and not path.endswith("]"):
            verb = "SET"
        part = "" if verb == "REMOVE" else ", CAST(%s AS JSON)"
        expression = f"JSON_{verb}({expression}, %s{part})"
        arguments.append(path)
        if part:
            arguments.append(json.dumps(data.draw(_DOCUMENTS)))
    with closing(in_parts.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS t")
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, d JSON)")
        cursor.execute("INSERT INTO t VALUES (1, %s)", [json.dumps(document)])
        reading = Reading(in_parts)
        cursor.execute("SET SESSION binlog_row_value_options = PARTIAL_JSON")
        cursor.execute(f"UPDATE t SET d = {expression}", arguments)
    changes = reading.changes(snapshot="never")
    (read,) = Reading(in_parts).changes(snapshot="only")
    # The log contains changed columns only.
    for change in changes:
        assert _said(change) == _said(read)


def test_parts_of_documents_that_are_not_in_the_log_are_refused(in_parts: Database) -> None:
    in_parts.run("CREATE TABLE t (id INT PRIMARY KEY, d JSON)")
    with closing(in_parts.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1, %s)", [_SEVERAL])
    reading = Reading(in_parts)
    in_parts.run("SET GLOBAL binlog_row_image = MINIMAL")
    try:
        with pytest.raises(PreflightError, match="SET GLOBAL binlog_row_image = FULL"):
            reading.changes()
    finally:
        in_parts.run("SET GLOBAL binlog_row_image = FULL")
    # A session may choose that setting, too.
    in_parts.run("SET SESSION binlog_row_image = MINIMAL", "UPDATE t SET d = JSON_SET(d, '$.b', 2)")
    with pytest.raises(StreamError, match="SET GLOBAL binlog_row_image = FULL"):
        reading.changes()


def test_an_event_without_anything_new_stays_as_it_is() -> None:
    header = b"\0" + b"\0\0\0\0" + bytes((30,)) + b"\0\0\0\0" + struct.pack("<I", 24) + b"\0" * 6
    data = header + b"12345"
    assert understandable(data, 0) is data
