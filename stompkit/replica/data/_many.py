"""Multi-row statements, in the form that each driver executes fastest.

Psycopg sends the executions of one statement as a pipeline. After a failed execution, it assumes
that the following statements were prepared, and later executions fail. So this module uses one
execution with many rows, or one for each row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import Connection

__all__ = ["Values", "each_row", "insert_rows", "mark_of", "parts_of", "together"]

#: Column values in the driver's types.
Values = tuple[object, ...]

#: Maximum number of parameters in a statement: PostgreSQL permits at most 65,535.
_MOST_PARAMETERS: Final = 30_000


def mark_of(connection: Connection) -> str:
    """Return the placeholder of a parameter."""
    return "?" if connection.dialect.paramstyle == "qmark" else "%s"


def each_row(connection: Connection, statement: str, rows: Sequence[Values]) -> None:
    """Execute a statement for each row, in order."""
    if connection.dialect.name == "postgresql":
        for row in rows:
            connection.exec_driver_sql(statement, row)
    elif rows:
        connection.exec_driver_sql(statement, list(rows) if len(rows) > 1 else rows[0])


def insert_rows(connection: Connection, statement: str, rows: Sequence[Values]) -> None:
    """Execute a single-row INSERT for all rows."""
    if connection.dialect.name != "postgresql":
        each_row(connection, statement, rows)
        return
    for part in parts_of(rows):
        one = f"({', '.join([mark_of(connection)] * len(part[0]))})"
        # No name can contain the placeholder: percent signs are doubled in names.
        many = statement.replace(f"VALUES {one}", f"VALUES {', '.join([one] * len(part))}", 1)
        connection.exec_driver_sql(many, together(part))


def parts_of(rows: Sequence[Values]) -> Iterator[Sequence[Values]]:
    """Yield slices of the rows that fit into one statement."""
    size = _MOST_PARAMETERS // len(rows[0]) if rows else 1
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def together(rows: Sequence[Values]) -> Values:
    """Return the values of all rows."""
    return tuple(value for row in rows for value in row)
