"""The statements of a store, made once; SQLAlchemy compiles each once for a database."""

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

    It is given to the driver past most of SQLAlchemy, which would look at each value by itself:
    that takes longer than SQLite does.
    """

    def __init__(self, statement: Executable) -> None:
        """Describe it; it is compiled when it is first run, for the database as it is then."""
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
    """A query for the rows that have one of many keys, run in the same way."""

    def __init__(self, key: Column[Any], columns: Sequence[Column[Any]]) -> None:
        """Describe it."""
        self._query = select(*columns)
        self._key = key
        self._sql = ""

    def run(self, connection: Connection, keys: list[Any], *, reads_latest: bool) -> Sequence[Any]:
        """Run it for at least one key; with ``reads_latest`` as MySQL's locking reads do."""
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
    """The rows, with octets in place of views of octets."""
    return [
        tuple(bytes(each) if isinstance(each, memoryview) else each for each in row) for row in rows
    ]


class Statements:
    """Statements on the tables of one store, in the dialect of one kind of database."""

    def __init__(self, tables: Tables, dialect: str) -> None:
        """Describe them."""
        self.tables = tables
        self.is_mysql = dialect in ("mysql", "mariadb")
        self._insert: Any = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}.get(
            dialect, mysql.insert
        )

    def upsert(self, table: Table, fixed: Sequence[str] = ()) -> Executable:
        """What inserts a row, or changes all of it but its key and what is ``fixed``."""
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
        """The rows, or some columns of them, whose only key is one of many."""
        (key,) = table.primary_key
        return ByKeys(key, [table.c[name] for name in columns] or list(table.c))

    @cached_property
    def state(self) -> Select[Any]:
        """Generation and position."""
        return select(self.tables.state.c.generation, self.tables.state.c.position)

    @cached_property
    def lock(self) -> Executable:
        """Has SQLite lock the database, without a change."""
        state = self.tables.state
        return update(state).values(generation=state.c.generation)

    @cached_property
    def lock_row(self) -> Select[Any]:
        """The state, whose row is locked."""
        return self.state.with_for_update()

    @cached_property
    def lock_at_once(self) -> Select[Any]:
        """The same; nothing where somebody else has locked it."""
        return self.state.with_for_update(skip_locked=True)

    @cached_property
    def count_up(self) -> Executable:
        """Changes the one row that all lock."""
        state = self.tables.state
        return update(state).values(generation=state.c.generation + 1)

    @cached_property
    def set_position(self) -> Executable:
        """Keeps the position of the last changeset."""
        return update(self.tables.state).values(position=bindparam("last"))

    @cached_property
    def meta(self) -> Select[Any]:
        """The content of a name."""
        meta = self.tables.meta.c
        return select(meta.content).where(meta.name == bindparam("wanted"))

    @cached_property
    def put_meta(self) -> Executable:
        """Keeps the content of a name."""
        return self.upsert(self.tables.meta)

    @cached_property
    def origins(self) -> Select[Any]:
        """All origins."""
        origins = self.tables.origins.c
        return select(
            origins.origin, origins.sequence, origins.clock, origins.floor, origins.last_id
        )

    @cached_property
    def vector(self) -> Select[Any]:
        """The last sequence of each origin."""
        return select(self.tables.origins.c.origin, self.tables.origins.c.sequence)

    @cached_property
    def put_origins(self) -> Executable:
        """Keeps origins."""
        return self.upsert(self.tables.origins)

    @cached_property
    def add_changesets(self) -> Many:
        """Adds changesets."""
        return Many(insert(self.tables.changesets))

    @cached_property
    def add_touched(self) -> Many:
        """Adds which rows a changeset has changed."""
        return Many(insert(self.tables.touched))

    @cached_property
    def changesets(self) -> ByKeys:
        """Whole changesets, by position."""
        return self.by_keys(self.tables.changesets)

    @cached_property
    def rows(self) -> ByKeys:
        """Whole rows, by id."""
        return self.by_keys(self.tables.rows)

    @cached_property
    def digests_of_rows(self) -> ByKeys:
        """What of rows is in the digests of their tables."""
        return self.by_keys(self.tables.rows, "id", "table_name", "is_live", "digest")

    @cached_property
    def put_rows(self) -> Many:
        """Keeps rows."""
        return Many(self.upsert(self.tables.rows, ("table_name", "row_key")))

    @cached_property
    def drop_rows(self) -> Executable:
        """Deletes a row."""
        rows = self.tables.rows
        return delete(rows).where(rows.c.id == bindparam("wanted"))

    @cached_property
    def digests(self) -> ByKeys:
        """The digests of some tables."""
        return self.by_keys(self.tables.digests)

    @cached_property
    def put_digests(self) -> Executable:
        """Keeps the digests of tables."""
        return self.upsert(self.tables.digests)

    @cached_property
    def put_page(self) -> Executable:
        """Keeps the vector of a page."""
        return self.upsert(self.tables.pages)

    @cached_property
    def base_rows(self) -> ByKeys:
        """Whole rows of the base, by id."""
        return self.by_keys(self.tables.base)

    @cached_property
    def put_base_rows(self) -> Many:
        """Keeps rows of the base."""
        return Many(self.upsert(self.tables.base, ("table_name", "row_key")))

    @cached_property
    def hold(self) -> Executable:
        """Keeps changesets that are not applied."""
        return self.upsert(self.tables.held)

    @cached_property
    def put_peers(self) -> Executable:
        """Keeps peers."""
        return self.upsert(self.tables.peers)
