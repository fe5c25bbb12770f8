"""Conflict resolution: changes that decide the state of a row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from stompkit.replica.rows import Conflict
from stompkit.replica.rules import TableRules
from stompkit.replica.store import RowRecord
from stompkit.replication.model.events import Action, RowChange
from stompkit.replication.model.values import Value

__all__ = ["RowConflicts", "decision", "row_conflicts"]

_PICK: Final = re.compile(r"winner|loser(?: ([1-9][0-9]*))?").fullmatch


class RowConflicts(msgspec.Struct, frozen=True, kw_only=True):
    """A row with conflicting concurrent changes."""

    table: str
    key: dict[str, Value]
    #: The row as all nodes show it; ``None`` if it does not exist.
    row: dict[str, Value] | None
    #: Conflicts by column, with winner and losers; the empty column name is the row's existence.
    conflicts: list[Conflict]


def row_conflicts(record: RowRecord, rules: TableRules) -> RowConflicts:
    """Return the conflicts of a row."""
    return RowConflicts(
        table=record.table,
        key=record.key,
        row=record.state.visible(rules),
        conflicts=record.state.conflicts(rules),
    )


def decision(
    record: RowRecord,
    rules: TableRules,
    *,
    values: Mapping[str, Value] | None = None,
    pick: str | None = None,
    column: str | None = None,
) -> list[RowChange]:
    """Return the changes that resolve the conflicts of a row, for one changeset.

    ``values`` are values of columns. ``pick`` is ``winner`` or ``loser N``, counted from the
    newest, for all conflicts or for one ``column``; with fewer losers, the winner stays.
    A decision may confirm the visible value. A change without effect is not published, so the
    column is changed to another value and back.

    Raises LookupError if nothing is in conflict, and ValueError for an invalid pick.
    """
    found = row_conflicts(record, rules)
    if column is not None:
        chosen = [each for each in found.conflicts if each.column == column]
        found = msgspec.structs.replace(found, conflicts=chosen)
    if not found.conflicts:
        where = "" if column is None else f"column {column} of "
        raise LookupError(f"nothing is in conflict in {where}{record.table} {record.key}")
    if (values is None) == (pick is None):
        raise ValueError("say either values of columns, or pick='winner' or pick='loser 1'")
    is_there = found.row is not None
    wanted: dict[str, Value] = {}
    if values is not None:
        _check_columns(record, values)
        is_there = True
        wanted = dict(values)
    else:
        place = _place(str(pick))
        for conflict in found.conflicts:
            versions = [conflict.winner, *conflict.losers]
            version = versions[place] if place < len(versions) else conflict.winner
            if not conflict.column:
                is_there = version.value is not None
            elif rules.rule(conflict.column).kind == "sum":
                # Keep what was counted since the conflict.
                counted = (found.row or {})[conflict.column] - conflict.winner.value
                wanted[conflict.column] = counted + version.value
            else:
                wanted[conflict.column] = version.value
    return _changes(record, rules, found, wanted, is_there=is_there)


def _changes(
    record: RowRecord,
    rules: TableRules,
    found: RowConflicts,
    wanted: dict[str, Value],
    *,
    is_there: bool,
) -> list[RowChange]:
    make = _Maker(record)
    whole = record.state.visible(replace(rules, on_delete="update-wins")) or {}
    written = make("write", {**whole, **wanted})
    if found.row is None:
        # A row must exist before a change can delete it.
        return [written] if is_there else [written, make("delete")]
    if not is_there:
        return [make("delete")]
    if any(rules.rule(each.column).kind == "sum" for each in found.conflicts if each.column):
        # Only a new row can set the initial value of a counter.
        return [make("delete"), written]
    if not wanted:
        # Only the existence of the row is in conflict, and it exists: update any column to confirm
        # it.
        plain = [name for name in found.row if rules.rule(name).kind == "choice"]
        if not plain:
            return [make("delete"), written]
        wanted = {plain[0]: found.row[plain[0]]}
    same = [name for name, value in wanted.items() if _is_seen(found.row, name, value)]
    away = {name: _other(found, name) for name in same if rules.rule(name).kind == "choice"}
    return [*([make("update", away)] if away else []), make("update", wanted)]


class _Maker:
    """A factory of changes of one row."""

    def __init__(self, record: RowRecord) -> None:
        self._schema, _, self._table = record.table.rpartition(".")
        self._key = record.key

    def __call__(self, action: Action, after: Mapping[str, Value] | None = None) -> RowChange:
        return RowChange(
            schema=self._schema,
            table=self._table,
            action=action,
            key=self._key,
            after=None if after is None else dict(after),
        )


def _other(found: RowConflicts, column: str) -> Value:
    """Return a value that differs from the current one."""
    row = found.row or {}
    if row.get(column) is not None:
        return None
    losers: Sequence[Any] = [
        each.value
        for conflict in found.conflicts
        if conflict.column == column
        for each in (conflict.winner, *conflict.losers)
    ]
    return next((value for value in losers if value is not None), "")


def _is_seen(row: Mapping[str, Value], column: str, value: Value) -> bool:
    return column in row and bool(row[column] == value)


def _check_columns(record: RowRecord, values: Mapping[str, Value]) -> None:
    if not values:
        raise ValueError("values name the columns that are decided; {} names none")
    keys = sorted(record.key.keys() & values.keys())
    if keys:
        raise ValueError(f"{', '.join(keys)} tells which row it is, and cannot be decided")


def _place(pick: str) -> int:
    """Return 0 for the winner, otherwise the number of the loser."""
    match = _PICK(pick.strip().lower())
    if match is None:
        raise ValueError(f"pick is 'winner', 'loser 1', 'loser 2' and so on, not {pick!r}")
    return 0 if match[0] == "winner" else int(match[1] or 1)
