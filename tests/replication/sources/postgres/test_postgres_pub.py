"""The changesets of a real PostgreSQL: rows, keys, transactions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from stompkit.replication.model.events import RowChange
from stompkit.replication.model.tables import Tables
from tests.replication.sources.postgres.postgres_made import Database


def _change(action: Any, key: dict[str, Any], **more: Any) -> RowChange:
    return RowChange(schema="public", table="t", action=action, key=key, **more)


# Rows and keys.


def test_what_becomes_of_a_row(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.begin()
    database.execute(
        "INSERT INTO t VALUES (0, NULL)", "UPDATE t SET v = 'b'", "DELETE FROM t WHERE id = 0"
    )
    assert database.changes() == [
        _change("write", {"id": 0}, after={"id": 0, "v": None}),
        _change("update", {"id": 0}, after={"id": 0, "v": "b"}),
        _change("delete", {"id": 0}, before={"id": 0}),
    ]


def test_update_that_changes_the_key_tells_the_old_one(database: Database) -> None:
    database.execute("CREATE TABLE t (v text, id int PRIMARY KEY)", "INSERT INTO t VALUES ('a', 1)")
    database.begin()
    database.execute("UPDATE t SET id = 2")
    (change,) = database.changes()
    assert change == _change(
        "update", {"id": 2}, before={"id": 1}, after={"v": "a", "id": 2}, old_key={"id": 1}
    )


def test_composite_key_comes_in_the_order_of_the_key(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (a int, b text, c int, PRIMARY KEY (c, a))",
        "INSERT INTO t VALUES (1, 'x', 3)",
    )
    database.begin()
    database.execute("UPDATE t SET c = 4", "DELETE FROM t")
    update, delete = database.changes()
    assert list(update.key.items()) == [("c", 4), ("a", 1)]
    assert update.old_key is not None
    assert list(update.old_key.items()) == [("c", 3), ("a", 1)]
    assert list(delete.key.items()) == [("c", 4), ("a", 1)]
    assert delete.before == {"c": 4, "a": 1}


def test_whole_row_as_identity_tells_what_it_was_with_the_primary_key(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (v text, id int PRIMARY KEY)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t VALUES ('a', 1)",
    )
    database.begin()
    database.execute("UPDATE t SET v = NULL", "UPDATE t SET id = 2", "DELETE FROM t")
    update, moved, delete = database.changes()
    assert update == _change(
        "update", {"id": 1}, before={"v": "a", "id": 1}, after={"v": None, "id": 1}
    )
    assert (moved.key, moved.old_key) == ({"id": 2}, {"id": 1})
    assert delete == _change("delete", {"id": 2}, before={"v": None, "id": 2})


def test_other_index_as_identity_is_the_key(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL UNIQUE)",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX t_code_key",
        "INSERT INTO t VALUES (1, 'x')",
    )
    database.begin()
    database.execute("UPDATE t SET id = 2", "DELETE FROM t")
    update, delete = database.changes()
    assert update == _change("update", {"code": "x"}, after={"id": 2, "code": "x"})
    assert delete == _change("delete", {"code": "x"}, before={"code": "x"})


def test_table_without_a_key_tells_whole_rows_and_no_key(database: Database) -> None:
    database.execute("CREATE TABLE t (v text)", "ALTER TABLE t REPLICA IDENTITY FULL")
    database.begin()
    database.execute("INSERT INTO t VALUES ('a')", "UPDATE t SET v = 'b'", "DELETE FROM t")
    assert database.changes() == [
        _change("write", {}, after={"v": "a"}),
        _change("update", {}, before={"v": "a"}, after={"v": "b"}),
        _change("delete", {}, before={"v": "b"}),
    ]


def test_large_value_that_an_update_leaves_alone_is_missing_and_not_null(
    database: Database,
) -> None:
    large = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1000) i)"
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, large text, v int)",
        f"INSERT INTO t VALUES (1, {large}, 0), (2, NULL, 0)",
    )
    database.begin()
    database.execute("UPDATE t SET v = 1 WHERE id = 1", "UPDATE t SET v = 1 WHERE id = 2")
    with_large, without = database.changes()
    assert with_large.after == {"id": 1, "v": 1}
    assert without.after == {"id": 2, "large": None, "v": 1}


def test_large_value_is_there_where_the_whole_row_is_the_identity(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, large text, v int)",
        "ALTER TABLE t ALTER large SET STORAGE EXTERNAL",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t VALUES (1, repeat('x', 5000), 0)",
    )
    database.begin()
    database.execute("UPDATE t SET v = 1")
    (change,) = database.changes()
    assert change.after is not None
    assert list(change.after.items()) == [("id", 1), ("large", "x" * 5000), ("v", 1)]


def test_truncate_tells_each_table(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE u (id int PRIMARY KEY REFERENCES t)",
        "CREATE TABLE w (id int PRIMARY KEY)",
    )
    database.begin()
    database.execute("TRUNCATE t, w CASCADE")
    (changeset,) = database.read(Tables(exclude=["w"]))
    assert {(each.table, each.action) for each in changeset.changes} == {
        ("t", "truncate"),
        ("u", "truncate"),
    }


# Transactions.


def test_transaction_over_several_tables_is_one_changeset_in_order(database: Database) -> None:
    database.execute("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    database.begin()
    database.transaction(
        "INSERT INTO b VALUES (1)", "INSERT INTO a VALUES (1)", "DELETE FROM b", "UPDATE a SET id=2"
    )
    (changeset,) = database.read()
    assert [(each.table, each.action) for each in changeset.changes] == [
        ("b", "write"),
        ("a", "write"),
        ("b", "delete"),
        ("a", "update"),
    ]


def test_source_says_where_and_when(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.begin()
    with database.connect() as connection, connection.transaction():
        row = connection.execute(
            "INSERT INTO t VALUES (1) RETURNING pg_current_xact_id()"
        ).fetchone()
    assert row is not None
    (found,) = database.execute("SELECT pg_current_wal_lsn()::text, now()")
    (changeset,) = database.read()
    source = changeset.source
    assert (source.kind, source.server, source.is_snapshot) == ("postgresql", "here", False)
    assert source.transaction == str(row[0])
    assert source.time is not None
    assert timedelta() <= found[1] - source.time < timedelta(minutes=1)
    assert changeset.timestamp == source.time
    (is_before,) = database.execute(f"SELECT '{source.position}'::pg_lsn <= '{found[0]}'::pg_lsn")
    assert is_before == (True,)


def test_what_was_rolled_back_is_absent(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.begin()
    database.transaction(
        "INSERT INTO t VALUES (1)",
        "SAVEPOINT a",
        "INSERT INTO t VALUES (2)",
        "SAVEPOINT b",
        "INSERT INTO t VALUES (3)",
        "ROLLBACK TO a",
        "INSERT INTO t VALUES (4)",
        "RELEASE a",
    )
    with database.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t VALUES (5)")
        connection.execute("ROLLBACK")
    (changeset,) = database.read()
    assert [change.key["id"] for change in changeset.changes] == [1, 4]


def test_large_transaction_is_whole(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.begin()
    database.execute("INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 20000) i")
    (changeset,) = database.read()
    assert [change.after for change in changeset.changes] == [
        {"id": number, "v": f"row {number}"} for number in range(1, 20001)
    ]


def test_messages_and_origins_of_applications_are_no_changes(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY)",
        f"SELECT pg_replication_origin_create('{database.slot}')",
    )
    database.begin()
    database.transaction(
        f"SELECT pg_replication_origin_session_setup('{database.slot}')",
        "SELECT pg_replication_origin_xact_setup('0/1', now())",
        "SELECT pg_logical_emit_message(true, 'app', 'in it')",
        "SELECT pg_logical_emit_message(false, 'app', 'beside it')",
        "INSERT INTO t VALUES (1)",
    )
    database.execute(f"SELECT pg_replication_origin_drop('{database.slot}')")
    assert [change.key for change in database.changes()] == [{"id": 1}]
