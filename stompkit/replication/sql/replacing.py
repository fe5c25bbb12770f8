"""Columns of a target that are created again, because the source has other values in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.types import TypeEngine

from stompkit.replication.sql.families import family_of
from stompkit.replication.sql.schema import (
    HOLDERS,
    SourceColumn,
    backend_of,
    column_type,
    make_columns,
)
from stompkit.replication.sql.tables import TargetColumn, TargetTable

__all__ = ["is_held", "recreate_columns", "replace_columns", "unfit_columns"]


def is_held(own: TargetColumn, column: SourceColumn, backend: str) -> bool:
    """Return True if a target's column holds values of the kind of a source's column.

    The column that would be created for them does. Their sizes are not compared.
    """
    made = family_of(column_type(column, backend))
    if made == "other":
        # PostgreSQL's own types, and lists of any type.
        return own.family in {*HOLDERS[column.type], "other", "array"}
    if column.type == "text" or (column.type == "interval" and column.native != "time"):
        # Other columns hold only some texts, and only intervals of time are numbers.
        return own.family == made
    return own.family == made or own.family in HOLDERS[column.type]


def unfit_columns(
    table: TargetTable, columns: Iterable[SourceColumn], backend: str
) -> list[SourceColumn]:
    """Return the columns whose values the target's columns of these names do not hold.

    Columns of a key are not among them, since they cannot be created again.
    """
    return [
        column
        for column in columns
        if (own := _free(table, column)) is not None and not is_held(own, column, backend)
    ]


def replace_columns(
    connection: Connection, table: TargetTable, columns: Iterable[SourceColumn]
) -> bool:
    """Recreate columns of another type or size than these; return True if there were any.

    Their values are published again. Key columns are unchanged.
    """
    backend = backend_of(connection)
    wanted = [
        column
        for column in columns
        if (own := _free(table, column)) is not None
        and not (is_held(own, column, backend) and _has_room(own, column, backend))
    ]
    recreate_columns(connection, table, wanted)
    return bool(wanted)


def _has_room(own: TargetColumn, column: SourceColumn, backend: str) -> bool:
    """Return True if a column of the right kind is as large as the one that would be created."""
    made = column_type(column, backend)
    if "decimal" in (column.type, family_of(made)):
        # Digits before and after the point are not compared.
        return False
    if column.type == "int":
        # Signed and unsigned integers have no room for each other's numbers.
        return own.family == family_of(made) and _is_unsigned(own.type_) == _is_unsigned(made)
    longest, needed = (getattr(each, "length", None) for each in (own.type_, made))
    return longest is None or (needed is not None and needed <= longest)


def _is_unsigned(type_: TypeEngine[Any]) -> bool:
    return bool(getattr(type_, "unsigned", False))


def recreate_columns(
    connection: Connection, table: TargetTable, columns: Iterable[SourceColumn]
) -> None:
    """Drop columns with their values, and create them with other types."""
    columns = list(columns)
    for column in columns:
        own = table.column(column.name)
        if own is not None:
            connection.exec_driver_sql(f"ALTER TABLE {table.quoted} DROP COLUMN {own.quoted}")
    make_columns(connection, table, columns)


def _free(table: TargetTable, column: SourceColumn) -> TargetColumn | None:
    """Return the target's column, unless it belongs to a key."""
    own = table.column(column.name)
    is_key = column.key or (own is not None and any(own.name in each for each in table.uniques))
    return None if is_key else own
