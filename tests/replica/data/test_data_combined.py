"""Tables of the application and documents as one."""

from __future__ import annotations

import pytest

from stompkit.replica.data import Data, Wanted
from stompkit.replica.data.combined import CombinedData
from stompkit.replica.data.documents import DocumentData
from tests.replica.data.data_made import as_it_is, row, written
from tests.replication.sinks.sql_targets import Target, database_url, target

__all__ = ["database_url", "target"]


@pytest.fixture
def both(target: Target) -> CombinedData:
    """A table and documents."""
    target.execute("CREATE TABLE users (id INT NOT NULL PRIMARY KEY, age INT)")
    combined = CombinedData(as_it_is(target), DocumentData())
    combined.create(target.engine)
    return combined


def test_each_row_goes_to_where_its_table_is(target: Target, both: Data) -> None:
    rows = [
        row("users", 1, age=5, size=3),
        row("doc.notes", "n1", title="Milk"),
        row("nowhere", 1),
        row("users", 2, age="many"),
        Wanted(b"wrong", "doc.notes", {"id": 1}, {}),
    ]
    reasons = written(target, rows, both)
    assert sorted(reasons) == ["nowhere 1", "users 2", "wrong"]
    assert target.table("users") == [(1, 5)]
    with target.engine.connect() as connection:
        assert both.read(connection, "doc.notes") == [({"id": "n1"}, {"title": "Milk"})]
        assert both.read(connection, "users") == [({"id": 1}, {"age": 5})]
        assert both.read_one(connection, "users", {"id": 1}) == {"age": 5}
        assert both.read_one(connection, "doc.notes", {"id": "n2"}) is None
        assert both.tables(connection) == ["doc.notes", "users"]
        with pytest.raises(KeyError, match="nowhere"):
            both.read(connection, "nowhere")
    assert {table: set(names) for table, names in both.unknown.items()} == {"users": {"size"}}


def test_its_tables_are_those_of_all(both: Data) -> None:
    assert "users" in both.names
    assert "doc.notes" in both.names
    assert "notes" not in both.names


def test_all_look_at_their_tables_again(target: Target, both: Data) -> None:
    assert written(target, [row("users", 1, size=3)], both) == {}
    target.execute("ALTER TABLE users ADD COLUMN size INT")
    both.forget()
    assert not both.unknown
    assert written(target, [row("users", 1, size=3)], both) == {}
    assert target.table("users") == [(1, None, 3)]
