"""Statements of a store, built once; SQLAlchemy compiles each once for a database."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Executable,
    Select,
    Table,
    bindparam,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite

from stompkit.replica.store._tables import Tables

__all__ = ["ByKeys", "Many", "Statements"]


class Many:
    """A statement for many rows at once.

    It is given to the driver without most of SQLAlchemy, whose processing of each value would take
    longer than SQLite does.
    """

    def __init__(self, statement: Executable) -> None:
        """Describe the statement; it is compiled for the database when it is first run."""
        self._statement: Any = statement
        self._sql = ""
        self._names: tuple[str, ...] | None = None

    def run(self, connection: Connection, rows: Sequence[tuple[object, ...]]) -> None:
        """Run it for at least one row; values are in the order of the table's columns."""
        if not self._sql:
            compiled = self._statement.compile(dialect=connection.dialect)
            self._names = None if compiled.positional else tuple(compiled.binds)
            self._sql = compiled.string
        given: Any = rows
        if self._names is not None:
            given = [dict(zip(self._names, row, strict=True)) for row in rows]
        connection.exec_driver_sql(self._sql, given)


class ByKeys:
    """A query for the rows with one of many keys, also run without most of SQLAlchemy."""

    def __init__(self, key: Column[Any], columns: Sequence[Column[Any]]) -> None:
        """Describe the query."""
        self._query = select(*columns)
        self._key = key
        self._sql = ""

    def run(self, connection: Connection, keys: list[Any], *, reads_latest: bool) -> Sequence[Any]:
        """Run it for at least one key; ``reads_latest`` uses MySQL's locking reads."""
        dialect = connection.dialect
        if not self._sql:
            key = dialect.identifier_preparer.format_column(self._key)
            self._sql = f"{self._query.compile(dialect=dialect)} WHERE {key} IN "
        marker = "?" if dialect.paramstyle == "qmark" else "%s"
        sql = f"{self._sql}({', '.join([marker] * len(keys))})"
        if reads_latest:
            sql += " LOCK IN SHARE MODE"
        rows: Sequence[Any] = connection.exec_driver_sql(sql, tuple(keys)).all()
        return _without_views(rows) if dialect.driver == "psycopg2" else rows


def _without_views(rows: Sequence[Any]) -> Sequence[Any]:
    """Return the rows with bytes in place of memory views."""
    return [
        tuple(bytes(each) if isinstance(each, memoryview) else each for each in row) for row in rows
    ]


class Statements:
    """Statements on the tables of one store, in the dialect of one kind of database."""

    def __init__(self, tables: Tables, dialect: str) -> None:
        """Describe the statements."""
        self.tables = tables
        self.is_mysql = dialect in ("mysql", "mariadb")
        self._insert: Any = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}.get(
            dialect, mysql.insert
        )

    def upsert(self, table: Table, fixed: Sequence[str] = ()) -> Executable:
        """Return a statement that inserts or updates a row, except for its ``fixed`` columns."""
        into = self._insert(table)
        keys = [column.name for column in table.primary_key]
        names = [each.name for each in table.columns if each.name not in (*keys, *fixed)]
        made: Executable
        if self.is_mysql:
            made = into.on_duplicate_key_update({name: into.inserted[name] for name in names})
        else:
            new = {name: into.excluded[name] for name in names}
            made = into.on_conflict_do_update(index_elements=keys, set_=new)
        return made

    @staticmethod
    def by_keys(table: Table, *columns: str) -> ByKeys:
        """Return a query of rows, or some of their columns, by primary key."""
        (key,) = table.primary_key
        return ByKeys(key, [table.c[name] for name in columns] or list(table.c))

    @cached_property
    def state(self) -> Select[Any]:
        """Generation and position."""
        return select(self.tables.state.c.generation, self.tables.state.c.position)

    @cached_property
    def lock(self) -> Executable:
        """Makes SQLite lock the database, without a change."""
        state = self.tables.state
        return update(state).values(generation=state.c.generation)

    @cached_property
    def lock_row(self) -> Select[Any]:
        """Selects the state and locks its row."""
        return self.state.with_for_update()

    @cached_property
    def lock_at_once(self) -> Select[Any]:
        """Selects and locks the state; returns nothing if it is locked."""
        return self.state.with_for_update(skip_locked=True)

    @cached_property
    def count_up(self) -> Executable:
        """Increments the generation in the lock row."""
        state = self.tables.state
        return update(state).values(generation=state.c.generation + 1)

    @cached_property
    def set_position(self) -> Executable:
        """Stores the position of the last changeset."""
        return update(self.tables.state).values(position=bindparam("last"))

    @cached_property
    def meta(self) -> Select[Any]:
        """Selects the value of a metadata name."""
        meta = self.tables.meta.c
        return select(meta.content).where(meta.name == bindparam("wanted"))

    @cached_property
    def put_meta(self) -> Executable:
        """Stores the value of a metadata name."""
        return self.upsert(self.tables.meta)

    @cached_property
    def origins(self) -> Select[Any]:
        """Selects all origins."""
        origins = self.tables.origins.c
        return select(
            origins.origin, origins.sequence, origins.clock, origins.floor, origins.last_id
        )

    @cached_property
    def vector(self) -> Select[Any]:
        """Selects the last sequence of each origin."""
        return select(self.tables.origins.c.origin, self.tables.origins.c.sequence)

    @cached_property
    def put_origins(self) -> Executable:
        """Stores origins."""
        return self.upsert(self.tables.origins)

    @cached_property
    def add_changesets(self) -> Many:
        """Adds changesets."""
        return Many(insert(self.tables.changesets))

    @cached_property
    def add_touched(self) -> Many:
        """Adds references from changesets to the rows that they changed."""
        return Many(insert(self.tables.touched))

    @cached_property
    def changesets(self) -> ByKeys:
        """Selects whole changesets, by position."""
        return self.by_keys(self.tables.changesets)

    @cached_property
    def rows(self) -> ByKeys:
        """Selects whole rows, by id."""
        return self.by_keys(self.tables.rows)

    @cached_property
    def digests_of_rows(self) -> ByKeys:
        """Selects the columns of rows that contribute to the digests."""
        return self.by_keys(self.tables.rows, "id", "table_name", "is_live", "digest")

    @cached_property
    def put_rows(self) -> Many:
        """Stores rows."""
        return Many(self.upsert(self.tables.rows, ("table_name", "row_key")))

    @cached_property
    def drop_rows(self) -> Executable:
        """Deletes a row."""
        rows = self.tables.rows
        return delete(rows).where(rows.c.id == bindparam("wanted"))

    @cached_property
    def digests(self) -> ByKeys:
        """Selects the digests of some tables."""
        return self.by_keys(self.tables.digests)

    @cached_property
    def put_digests(self) -> Executable:
        """Stores the digests of tables."""
        return self.upsert(self.tables.digests)

    @cached_property
    def put_page(self) -> Executable:
        """Stores the vector of a page."""
        return self.upsert(self.tables.pages)

    @cached_property
    def base_rows(self) -> ByKeys:
        """Selects whole rows of the base, by id."""
        return self.by_keys(self.tables.base)

    @cached_property
    def put_base_rows(self) -> Many:
        """Stores rows of the base."""
        return Many(self.upsert(self.tables.base, ("table_name", "row_key")))

    @cached_property
    def hold(self) -> Executable:
        """Stores held changesets."""
        return self.upsert(self.tables.held)

    @cached_property
    def put_peers(self) -> Executable:
        """Stores peers."""
        return self.upsert(self.tables.peers)
