"""The columns that a source says its tables have."""

from __future__ import annotations

from stompkit.replication.events import RowChange
from stompkit.replication.sinks.sql.parts import (
    ColumnChanges,
    SchemaProblem,
    changes_of,
    columns_of,
)
from stompkit.replication.values import ValueProblem, row_from_json
from stompkit.spark._states import Broken, Document
from stompkit.spark.targets.base import NewColumn

__all__ = ["told_changes", "told_columns"]


def told_columns(told: Document) -> dict[str, NewColumn]:
    """Return the columns of a change with the operation ``schema``, read as ``replicate`` does.

    ``told`` is what the change tells, in the JSON that it was sent as. There are none where it
    tells only a statement. Raises :class:`~stompkit.spark._states.Broken` for columns
    that can't be read.
    """
    try:
        columns = columns_of(_change(told))
    except (SchemaProblem, ValueProblem) as problem:
        raise Broken(str(problem)) from None
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
    """Return what has become of columns that were there, and of the rows with them.

    Raises :class:`~stompkit.spark._states.Broken` for what can't be read.
    """
    try:
        return changes_of(_change(told))
    except (SchemaProblem, ValueProblem) as problem:
        raise Broken(str(problem)) from None


def _change(told: Document) -> RowChange:
    return RowChange(table="", action="schema", key={}, after=row_from_json(told))
