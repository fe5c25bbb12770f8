"""Tables of a real PostgreSQL: changes of columns, and the selection of tables."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from stompkit.replication.model.events import RowChange
from stompkit.replication.model.signals import signal
from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.postgres import postgres_pub
from tests.replication.sources.postgres.postgres_made import Database, Running


def _change(action: Any, key: dict[str, Any], **more: Any) -> RowChange:
    return RowChange(schema="public", table="t", action=action, key=key, **more)


# Changes of tables.


def test_change_of_columns_comes_ahead_of_the_first_row_that_has_them(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(5))")
    database.begin()
    with Running(database) as running:
        running.until_streaming()
        database.execute(
            "INSERT INTO t VALUES (1, 'a')",
            "ALTER TABLE t ADD w numeric(6,2) NOT NULL DEFAULT 1",
            "INSERT INTO t VALUES (2, 'b')",
            "ANALYZE t",
            "INSERT INTO t VALUES (3, 'c')",
        )
        first, schema, second, third = running.until_changes(4)
    assert [each.action for each in (first, second, third)] == ["write"] * 3
    assert schema == _change(
        "schema",
        {},
        after={
            "columns": [
                {"name": "id", "type": "int", "key": True, "nullable": False},
                {"name": "v", "type": "text", "length": 5, "key": False, "nullable": True},
                {
                    "name": "w",
                    "type": "decimal",
                    "precision": 6,
                    "scale": 2,
                    "key": False,
                    "nullable": False,
                },
            ],
            "untold": "values",
        },
    )
    assert first.after == {"id": 1, "v": "a"}
    assert third.after == {"id": 3, "v": "c", "w": Decimal("1.00")}


def test_change_of_columns_inside_a_transaction_splits_its_rows(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    database.begin()
    database.transaction(
        "INSERT INTO t VALUES (1, 5)", "ALTER TABLE t DROP v", "INSERT INTO t VALUES (2)"
    )
    changes = database.changes()
    assert [each.action for each in changes] == ["write", "schema", "write"]
    assert [each.after for each in changes if each.action == "write"] == [
        {"id": 1, "v": 5},
        {"id": 2},
    ]


def test_change_of_columns_while_nobody_reads_is_told(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    database.begin()
    database.execute("INSERT INTO t VALUES (1, 1)")
    assert [each.action for each in database.changes()] == ["write"]
    database.execute("ALTER TABLE t RENAME v TO w", "INSERT INTO t VALUES (2, 2)")
    assert [each.action for each in database.changes()] == ["schema", "write"]
    database.execute("INSERT INTO t VALUES (3, 3)")
    assert [each.action for each in database.changes()] == ["write"]


def test_rows_of_a_table_that_is_gone_can_be_read(database: Database) -> None:
    database.execute("CREATE TABLE t (a int, b int, PRIMARY KEY (b, a))")
    database.begin()
    database.execute("INSERT INTO t VALUES (1, 2)", "DROP TABLE t")
    (change,) = database.changes()
    assert change.key == {"a": 1, "b": 2}


# Which tables.


def test_tables_that_are_not_wanted_move_the_position_and_nothing_else(database: Database) -> None:
    tables = Tables(include=["public.t"])
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    database.execute(f"CREATE PUBLICATION {database.slot} FOR ALL TABLES")
    database.begin(tables)
    before = database.offsets.load()
    database.execute("INSERT INTO u VALUES (1)")
    assert database.read(tables) == []
    after = database.offsets.load()
    assert before is not None
    assert after is not None
    assert after.position != before.position
    database.transaction("INSERT INTO u VALUES (2)", "INSERT INTO t VALUES (2)")
    assert [each.table for each in database.changes(tables)] == ["t"]


def test_columns_are_masked_in_stream_and_snapshot(database: Database) -> None:
    tables = Tables(columns_exclude=["t.secret"], masks={"public.t.name": "truncate:1"})
    database.execute("CREATE TABLE t (id int PRIMARY KEY, name text, secret text)")
    database.begin(tables)
    database.execute("INSERT INTO t VALUES (1, 'Ada', 'x')")
    (change,) = database.changes(tables)
    assert change.after == {"id": 1, "name": "A"}
    (change,) = database.changes(tables, snapshot="only")
    assert change.after == {"id": 1, "name": "A"}


def test_publication_that_is_there_is_used_with_its_columns_and_conditions(
    database: Database,
) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int, w int GENERATED ALWAYS AS (id * 2) STORED)",
        "INSERT INTO t VALUES (1, 5), (-1, 5)",
        f"CREATE PUBLICATION {database.slot} FOR TABLE t (id) WHERE (id > 0)",
    )
    changes = database.changes(snapshot="initial")
    database.execute("INSERT INTO t VALUES (2, 5), (-2, 5)")
    changes += database.changes()
    assert [(each.action, each.after) for each in changes] == [
        ("read", {"id": 1}),
        ("write", {"id": 2}),
    ]


def test_partitions_are_tables(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "INSERT INTO t VALUES (1)",
    )
    changes = database.changes(snapshot="initial")
    database.execute("INSERT INTO t VALUES (2)")
    changes += database.changes()
    assert [(each.table, each.action, each.key["id"]) for each in changes] == [
        ("t1", "read", 1),
        ("t1", "write", 2),
    ]


# The function.


def test_signals_are_sent_of_a_plain_dsn(database: Database) -> None:
    database.execute("CREATE TABLE shop_orders (id int PRIMARY KEY, v int)")
    received: list[tuple[str, Any]] = []

    def written(key: Any) -> None:
        received.append(("write", key))

    def deleted(key: Any) -> None:
        received.append(("delete", key))

    signal("shop_orders_write").connect(written)
    signal("public.shop_orders_delete").connect(deleted)

    def publish() -> None:
        postgres_pub(
            database.url, slot=database.slot, publication_name=database.slot, blocking=False
        )

    database.execute("INSERT INTO shop_orders VALUES (9, 9)")
    publish()
    database.execute("INSERT INTO shop_orders VALUES (0, 1)")
    publish()
    database.execute("UPDATE shop_orders SET id = 3 WHERE id = 0", "DELETE FROM shop_orders")
    publish()
    assert received == [("write", 0), ("delete", 0), ("write", 3), ("delete", 9), ("delete", 3)]


def test_tables_are_given_once(database: Database) -> None:
    with pytest.raises(ValueError, match="those of the publication"):
        postgres_pub(database.url, database.publication(), tables=Tables())
