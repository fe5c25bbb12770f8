"""Creating missing tables, by many at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from sqlalchemy import Column, ForeignKey, Index, Integer, MetaData, Table, inspect, text
from sqlalchemy.exc import DBAPIError

from stompkit._common.tables import ONLY_ON, create_missing
from tests.replica.stores import ALL_KINDS, database_url, make_engine, server_urls
from tests.servers import PostgreSql, mariadb, mariadb_type, postgresql

__all__ = ["database_url", "mariadb", "mariadb_type", "postgresql", "server_urls"]

#: The memory's database has one connection.
KINDS = [kind for kind in ALL_KINDS if kind != "memory"]
AT_ONCE = 4
ROUNDS = 25
PATIENCE_S = 60.0


def tables_of(number: int) -> MetaData:
    """Return two tables, one of which refers to the other, and has an index."""
    metadata = MetaData()
    Table(f"parent_{number}", metadata, Column("id", Integer, primary_key=True))
    parent: Column[int] = Column("parent", ForeignKey(f"parent_{number}.id"), nullable=False)
    child = Table(f"child_{number}", metadata, Column("id", Integer, primary_key=True), parent)
    Index(f"of_parent_{number}", child.c.parent, child.c.id)
    return metadata


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_indexes_each_dialect_has_its_own(
    kind: str, database_url: Callable[[str], str]
) -> None:
    metadata = MetaData()
    columns = [Column(name, Integer) for name in "abcdefghij"]
    table = Table("both", metadata, *columns)
    engine = make_engine(kind, database_url(kind))
    own = engine.dialect.name
    for column in columns:
        # Of the same name, in an order that differs from run to run.
        Index(f"both_{column.name}", column, info={ONLY_ON: (own,)})
        Index(f"both_{column.name}", column, columns[0], columns[1], info={ONLY_ON: ("other",)})
    create_missing(engine, [table])
    looked = inspect(engine).get_indexes("both")
    assert {each["name"]: each["column_names"] for each in looked} == {
        f"both_{column.name}": [column.name] for column in columns
    }
    engine.dispose()


@pytest.mark.parametrize("kind", KINDS)
def test_many_can_create_at_once(kind: str, database_url: Callable[[str], str]) -> None:
    engines = [make_engine(kind, database_url(kind)) for _ in range(AT_ONCE)]
    for engine in engines:
        # SQLite refuses to change its journal mode while others use the database.
        engine.connect().close()
    barrier = threading.Barrier(AT_ONCE)

    def create(number: int) -> None:
        for of_round in range(ROUNDS):
            tables = tables_of(of_round).sorted_tables
            barrier.wait(PATIENCE_S)
            with engines[number].begin() as connection:
                create_missing(connection, tables)

    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(create, range(AT_ONCE)))
        looked = inspect(engines[0])
        for number in range(ROUNDS):
            assert looked.has_table(f"parent_{number}")
            indexes = {each["name"] for each in looked.get_indexes(f"child_{number}")}
            assert f"of_parent_{number}" in indexes
    finally:
        for number in range(ROUNDS):
            tables_of(number).drop_all(engines[0])
        for engine in engines:
            engine.dispose()


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_creation_is_completed(
    kind: str, database_url: Callable[[str], str]
) -> None:
    engine = make_engine(kind, database_url(kind))
    metadata = tables_of(0)
    child = metadata.tables["child_0"]
    indexes, child.indexes = set(child.indexes), set()
    try:
        create_missing(engine, [metadata.tables["parent_0"]])
        create_missing(engine, [child])
        child.indexes = indexes
        create_missing(engine, metadata.sorted_tables)
        assert "of_parent_0" in {each["name"] for each in inspect(engine).get_indexes("child_0")}
    finally:
        metadata.drop_all(engine)
        engine.dispose()


def test_who_may_not_create_passes_where_nothing_is_missing(postgresql: PostgreSql) -> None:
    owner = make_engine("postgresql", postgresql.url(postgresql.new_database()))
    metadata = tables_of(0)
    create_missing(owner, metadata.sorted_tables)
    with owner.begin() as connection:
        with suppress(DBAPIError), connection.begin_nested():
            connection.execute(text("CREATE ROLE reader"))
        connection.execute(text("REVOKE CREATE ON SCHEMA public FROM PUBLIC"))
    with owner.begin() as connection:
        connection.execute(text("SET LOCAL ROLE reader"))
        create_missing(connection, metadata.sorted_tables)
        with pytest.raises(DBAPIError, match="permission denied"), connection.begin_nested():
            create_missing(connection, tables_of(1).sorted_tables)
    owner.dispose()
