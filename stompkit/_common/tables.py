"""Create tables in a database that other processes use at the same time."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Final

from sqlalchemy import Connection, Engine, Index, Table, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable

__all__ = ["ONLY_ON", "create_missing"]

#: Key of ``Index.info`` for the names of the dialects that an index is created on; without it, all.
ONLY_ON: Final = "stompkit_only_on"

#: PostgreSQL's IF NOT EXISTS fails if another transaction creates the same table. Creators wait for
#: each other by this key of an advisory lock, which the end of the transaction releases.
_POSTGRESQL_KEY: Final = 0x73746F6D706B6974  # "stompkit"
_POSTGRESQL_LOCK: Final = text(f"SELECT pg_advisory_xact_lock({_POSTGRESQL_KEY})")


def create_missing(bind: Engine | Connection, tables: Iterable[Table]) -> None:
    """Create those of the tables, and of their indexes, that are missing.

    A look before CREATE is not enough, because another process may create the table in between. So
    each statement also tolerates that the table exists. Where nothing is missing, nothing but
    reading is done, so that users without the right to create tables pass. Tables must come behind
    those that they refer to. Raises SQLAlchemy's errors.
    """
    with bind.begin() if isinstance(bind, Engine) else nullcontext(bind) as connection:
        if connection.dialect.name == "sqlite":
            # Its transactions cannot begin to write after a read if another one has written since.
            missing = list(tables)
        else:
            missing = [table for table in tables if _is_missing(connection, table)]
        if not missing:
            return
        if connection.dialect.name == "postgresql":
            connection.execute(_POSTGRESQL_LOCK)
        for table in missing:
            connection.execute(CreateTable(table, if_not_exists=True))
            for index in _indexes(table, connection):
                _create_index(connection, index)


def _is_missing(connection: Connection, table: Table) -> bool:
    """Return True if the table is missing, or an index: its creation may have been interrupted."""
    looked = inspect(connection)
    if not looked.has_table(table.name, schema=table.schema):
        return True
    indexes = _indexes(table, connection)
    if not indexes:
        return False
    found = {each["name"] for each in looked.get_indexes(table.name, schema=table.schema)}
    return any(index.name not in found for index in indexes)


def _indexes(table: Table, connection: Connection) -> list[Index]:
    """Return the indexes for this dialect, sorted by name."""
    name = connection.dialect.name
    wanted = [each for each in table.indexes if name in each.info.get(ONLY_ON, (name,))]
    return sorted(wanted, key=lambda each: str(each.name))


def _create_index(connection: Connection, index: Index) -> None:
    # MySQL commits each of these statements, and has no IF NOT EXISTS for indexes.
    is_mysql = connection.dialect.name in ("mysql", "mariadb")
    try:
        connection.execute(CreateIndex(index, if_not_exists=not is_mysql))
    except DBAPIError:
        table = index.table
        if not is_mysql or table is None:
            raise
        found = inspect(connection).get_indexes(table.name, schema=table.schema)
        if all(each["name"] != index.name for each in found):
            raise
