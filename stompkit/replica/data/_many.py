"""Statements for many rows at once, in the way that each driver takes them best.

Psycopg sends the executions of one statement as a pipeline. Where one of them fails it goes on as
if those behind had been prepared, and what is executed later fails for that. So there is one
execution with many rows, or one for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import Connection

__all__ = ["Values", "each_row", "insert_rows", "mark_of", "parts_of", "together"]

#: Values of columns, as a driver takes them.
Values = tuple[object, ...]

#: Parameters in one statement: PostgreSQL takes no more than 65,535.
_MOST_PARAMETERS: Final = 30_000


def mark_of(connection: Connection) -> str:
    """What stands for a parameter."""
    return "?" if connection.dialect.paramstyle == "qmark" else "%s"


def each_row(connection: Connection, statement: str, rows: Sequence[Values]) -> None:
    """Execute a statement for each row, in their order."""
    if connection.dialect.name == "postgresql":
        for row in rows:
            connection.exec_driver_sql(statement, row)
    elif rows:
        connection.exec_driver_sql(statement, list(rows) if len(rows) > 1 else rows[0])


def insert_rows(connection: Connection, statement: str, rows: Sequence[Values]) -> None:
    """Execute an INSERT with the VALUES of one row for all of them."""
    if connection.dialect.name != "postgresql":
        each_row(connection, statement, rows)
        return
    for part in parts_of(rows):
        one = f"({', '.join([mark_of(connection)] * len(part[0]))})"
        # No name can have the mark: in those, a percent sign is doubled.
        many = statement.replace(f"VALUES {one}", f"VALUES {', '.join([one] * len(part))}", 1)
        connection.exec_driver_sql(many, together(part))


def parts_of(rows: Sequence[Values]) -> Iterator[Sequence[Values]]:
    """As many rows as fit into a statement, each time."""
    size = _MOST_PARAMETERS // len(rows[0]) if rows else 1
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def together(rows: Sequence[Values]) -> Values:
    """The values of all rows."""
    return tuple(value for row in rows for value in row)
