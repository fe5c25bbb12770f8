"""Table columns that a source declares in schema changes."""

from __future__ import annotations

from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import InvalidValueError, row_from_json
from stompkit.replication.sql import (
    ColumnChanges,
    SchemaError,
    changes_of,
    columns_of,
)
from stompkit.spark.states import Document, StateError
from stompkit.spark.targets.base import NewColumn

__all__ = ["told_changes", "told_columns"]


def told_columns(told: Document) -> dict[str, NewColumn]:
    """Return the columns of a change with the operation ``schema``, as ``replicate`` reads them.

    ``told`` is the content of the change, in the JSON of the message. The result is empty for a
    change that contains only a statement. Raises :class:`~stompkit.spark.states.StateError` for
    invalid columns.
    """
    try:
        columns = columns_of(_change(told))
    except (SchemaError, InvalidValueError) as problem:
        raise StateError(str(problem)) from None
    return {
        each.name: NewColumn(
            each.name,
            each.type,
            each.key,
            each.precision,
            each.scale,
            each.length,
            is_told=True,
            is_clock=each.native == "time",
        )
        for each in columns
    }


def told_changes(told: Document) -> ColumnChanges:
    """Return the changes of existing columns, and of the rows that contain them.

    Raises :class:`~stompkit.spark.states.StateError` for invalid content.
    """
    try:
        return changes_of(_change(told))
    except (SchemaError, InvalidValueError) as problem:
        raise StateError(str(problem)) from None


def _change(told: Document) -> RowChange:
    return RowChange(table="", action="schema", key={}, after=row_from_json(told))
