"""Create the tables of a store in an SQL database, or migrate them from an earlier version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import uuid4

from sqlalchemy import Connection, insert, inspect, select, update

from stompkit._common.tables import create_missing
from stompkit.server.stores.tables import META, TABLES, VERSION
from stompkit.server.stores.versions import upgrade

__all__ = ["prepare"]

_MIGRATIONS: Final[dict[int, Callable[[Connection], None]]] = {}


def prepare(connection: Connection, name: str) -> str:
    """Create the tables or check their version; return the stamp.

    ``name`` is that of the store in messages. Raises :class:`StoreError` for an unknown version.
    """
    found = _found(connection) if inspect(connection).has_table(META.name) else None
    if found is None:
        # Another process may have created them since.
        create_missing(connection, TABLES.sorted_tables)
        found = _found(connection)
    if found is None:
        stamp = uuid4().hex
        row = {"id": 1, "version": VERSION, "uuid": uuid4().hex, "stamp": stamp}
        connection.execute(insert(META), row)
        return stamp
    version, stamp = found
    if version != VERSION:
        upgrade(f"the store {name}", version, VERSION, _MIGRATIONS, connection)
        connection.execute(update(META).values(version=VERSION))
    return stamp


def _found(connection: Connection) -> tuple[int, str] | None:
    """Return version and stamp, if the store has them."""
    row = connection.execute(select(META.c.version, META.c.stamp)).one_or_none()
    return None if row is None else (row.version, row.stamp)
