"""Nodes whose tables temporarily have different columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from stompkit.replica import Replica
from stompkit.replica.applier import Incoming
from stompkit.replica.signed import SignedChangeset
from stompkit.replication.model.events import RowChange

PLAIN = "CREATE TABLE notes (id VARCHAR(20) PRIMARY KEY, txt VARCHAR(50))"
MORE = "ALTER TABLE notes ADD COLUMN stars INTEGER"


def made(path: Path, *statements: str) -> Engine:
    engine = create_engine(f"sqlite:///{path}")
    run(engine, *statements)
    return engine


def run(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def rows(engine: Engine) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text("SELECT * FROM notes ORDER BY id"))]


def replica(engine: Engine, branch: str) -> Replica:
    made = Replica(engine, branch_id=branch, trunk_id="notes")
    made.create()
    return made


def write(node: Replica, key: str, **values: Any) -> None:
    change = RowChange(table="notes", action="write", key={"id": key}, after={"id": key, **values})
    node.write([change])


def hand_over(giver: Replica, taker: Replica) -> None:
    """Apply to a node everything that another one has."""
    with giver.store.reading() as reader:
        records = reader.changesets(after=0)
    incoming = [
        Incoming(SignedChangeset(each.body or b"", each.signature), "giver") for each in records
    ]
    with taker.store.transaction() as tx:
        taker._components.applier.apply(tx, incoming)


@pytest.mark.parametrize("how", ["retry", "start", "import_existing"])
def test_values_of_a_column_that_comes_later_are_kept(tmp_path: Path, how: str) -> None:
    new, old = made(tmp_path / "new", PLAIN, MORE), made(tmp_path / "old", PLAIN)
    author, reader = replica(new, "new"), replica(old, "old")
    for number in range(3):
        write(author, f"n{number}", txt="hello", stars=number)
    hand_over(author, reader)
    assert rows(old) == [(f"n{number}", "hello") for number in range(3)]
    (warning,) = reader.status().warnings
    assert "notes has no column stars" in warning
    # The column is added while the node is down.
    reader.close()
    run(old, MORE)
    reader = replica(old, "old")
    if how == "start":
        reader.start()
    else:
        getattr(reader, how)()
    assert rows(old) == rows(new) == [(f"n{number}", "hello", number) for number in range(3)]
    assert reader.status().warnings == []
    assert reader.check() == []
    hand_over(reader, author)
    assert rows(new) == rows(old)
    reader.close()
    author.close()


def test_importing_writes_no_null_over_what_others_have(tmp_path: Path) -> None:
    """The node may never have seen that the column was missing."""
    new, old = made(tmp_path / "new", PLAIN, MORE), made(tmp_path / "old", PLAIN, MORE)
    author, reader = replica(new, "new"), replica(old, "old")
    write(author, "n", txt="hello", stars=5)
    hand_over(author, reader)
    run(old, "UPDATE notes SET stars = NULL, txt = 'bye'", "INSERT INTO notes VALUES ('m', 'x', 1)")
    assert reader.import_existing() == 2
    hand_over(reader, author)
    assert rows(new) == [("m", "x", 1), ("n", "bye", 5)]
    # The difference from the table is reported nevertheless.
    assert [(each.key["id"], each.columns) for each in reader.check()] == [("n", ("stars",))]
    assert reader.import_existing() == 0
    reader.close()
    author.close()
