"""Columns that tell one row of a target's table from all others, also without a key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.exc import OperationalError

from stompkit.replication.sql.database import RejectedRowError
from stompkit.replication.sql.tables import TargetTable, quote

__all__ = ["NoRowIdError", "check_row_id", "row_id_of"]

#: SQLite's names of the number of a row. A column of the same name hides one.
_SQLITE: Final = ("rowid", "_rowid_", "oid")
#: A ``ctid`` is a place in one partition, or in one table of those that inherit.
_POSTGRESQL: Final = ("tableoid", "ctid")
_NOT_THERE: Final = "no such column"


class NoRowIdError(RejectedRowError):
    """A change of one row in a table where equal rows cannot be told apart."""

    def __init__(self, table: TargetTable) -> None:
        """Name the table, and the remedy."""
        super().__init__(
            f"one row of the target's table {table.name!r} cannot be told from others like it: its"
            f" columns {', '.join(_SQLITE)} hide SQLite's number of a row. Rename one of these"
            " columns, or give the table a primary key of NOT NULL columns"
        )


def row_id_of(
    connection: Connection,
    backend: str,
    quoted: str,
    columns: Iterable[ReflectedColumn],
    primary_key: Iterable[str],
) -> tuple[str, ...]:
    """Return the quoted columns whose values only one row has.

    Empty for MySQL, which limits a change to one row, and if there are none.
    """
    if backend == "postgresql":
        return _POSTGRESQL
    if backend == "sqlite":
        return _in_sqlite(connection, quoted, list(columns), list(primary_key))
    return ()


def check_row_id(connection: Connection, table: TargetTable) -> None:
    """Raise :class:`NoRowIdError` unless statements can change one of equal rows."""
    if connection.dialect.name == "sqlite" and not table.row_id:
        raise NoRowIdError(table)


def _in_sqlite(
    connection: Connection, quoted: str, columns: list[ReflectedColumn], key: list[str]
) -> tuple[str, ...]:
    """Return a name of the row's number, or a key that is never NULL."""
    hidden = {column["name"].lower() for column in columns}
    free = next((name for name in _SQLITE if name not in hidden), None)
    if free is not None and _is_there(connection, quoted, free):
        return (free,)
    required = {column["name"] for column in columns if not column["nullable"]}
    return tuple(quote(connection, name) for name in key) if required.issuperset(key) else ()


def _is_there(connection: Connection, quoted: str, name: str) -> bool:
    """Return whether rows have a number: those of a table WITHOUT ROWID have none."""
    try:
        connection.exec_driver_sql(f"SELECT {name} FROM {quoted} LIMIT 0")
    except OperationalError as error:
        if _NOT_THERE not in str(error.orig):
            raise
        return False
    return True
