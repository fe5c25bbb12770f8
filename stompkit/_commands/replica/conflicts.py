"""Output of conflicts, for ``stompkit replica conflicts``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from stompkit._commands.replica.documents import as_members, is_document
from stompkit._commands.shared.text import aligned, when
from stompkit._commands.shared.values import shown_key, shown_row, shown_value
from stompkit._common.text import shown
from stompkit.replica.clock import seconds_of
from stompkit.replica.rows import Conflict
from stompkit.replica.rules import Candidate
from stompkit.replica.vectors import dot_text
from stompkit.replication.model.values import Value, row_to_json, to_json

__all__ = ["RowInConflict", "conflict_lines", "conflicts_as_json"]


class RowInConflict(Protocol):
    """A row with conflicting concurrent changes."""

    @property
    def table(self) -> str:
        """Table name as in changes."""

    @property
    def key(self) -> dict[str, Value]:
        """Key of the row."""

    @property
    def conflicts(self) -> list[Conflict]:
        """Conflicts by column; the empty name is the row's existence."""


def conflict_lines(rows: Sequence[RowInConflict], author_of: Callable[[str], str]) -> Iterator[str]:
    """Yield lines with the versions of rows and their authors; the winner is the first.

    ``author_of`` returns the author of a changeset by its name.
    """
    for row in rows:
        yield f"{shown(row.table)} {shown_key(row.key)}"
        lines = [
            (
                "" if place else _name(row.table, conflict.column),
                f"loser {place}" if place else "winner",
                _shown(row.table, conflict.column, version.value),
                _changeset(version),
                when(seconds_of(version.stamp.hlc)),
                shown(author_of(_changeset(version))),
            )
            for conflict in row.conflicts
            for place, version in enumerate((conflict.winner, *conflict.losers))
        ]
        yield from (f"  {line}" for line in aligned(lines))


def _name(table: str, column: str) -> str:
    if not column:
        return "(the row)"
    (name,) = as_members(table, {column: None})
    return shown(name)


def _shown(table: str, column: str, value: Value) -> str:
    """Return a version of a column, or of the existence of the row, as text."""
    if not column:
        return "(deleted)" if value is None else shown_row(as_members(table, value)) or "(there)"
    if value is None and is_document(table):
        return "(removed)"
    (member,) = as_members(table, {column: value}).values()
    return shown_value(member)


def _changeset(version: Candidate) -> str:
    return dot_text((version.stamp.origin, version.stamp.sequence))


def conflicts_as_json(rows: Sequence[RowInConflict]) -> list[dict[str, Any]]:
    """Return conflicts as JSON data, with values as in ``values``."""
    return [
        {
            "table": row.table,
            "key": row_to_json(row.key),
            "conflicts": [
                {
                    "column": conflict.column,
                    "winner": _as_json(conflict.column, conflict.winner),
                    "losers": [_as_json(conflict.column, each) for each in conflict.losers],
                }
                for conflict in row.conflicts
            ],
        }
        for row in rows
    ]


def _as_json(column: str, version: Candidate) -> dict[str, Any]:
    value = version.value
    is_row = not column and value is not None
    return {
        "changeset": _changeset(version),
        "time": seconds_of(version.stamp.hlc),
        "value": row_to_json(value) if is_row else to_json(value),
    }
