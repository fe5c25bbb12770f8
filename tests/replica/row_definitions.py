"""The expected state of a row, computed from all changesets by the definitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec

from stompkit.replica.rows import Candidate, Stamp
from stompkit.replica.rules import RuleError, TableRules
from stompkit.replica.vectors import covers
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import Value, to_json
from tests.replica.row_histories import COLUMNS, KEY, Written

__all__ = ["Defined"]

_MISSING: Final = object()


@dataclass(frozen=True)
class _Event:
    """One change of a changeset."""

    written: Written
    number: int

    @property
    def change(self) -> RowChange:
        return self.written.changes[self.number]

    @property
    def action(self) -> str:
        return self.change.action

    @property
    def after(self) -> dict[str, Value]:
        """Return the columns beside the key."""
        return {name: each for name, each in (self.change.after or {}).items() if name not in KEY}

    def before(self, name: str) -> Value:
        """Return the value before the change; None for a new row."""
        return None if self.action == "write" else (self.change.before or {})[name]

    def __lt__(self, other: _Event) -> bool:
        """Return True if this change is in the other one's past."""
        if self.written is other.written:
            return self.number < other.number
        return covers(other.written.clock, self.written.dot)


class Defined:
    """The expected row after all changesets of a history."""

    def __init__(self, history: Sequence[Written], rules: TableRules) -> None:
        """Select the relevant changes."""
        self._rules = rules
        self._events = [
            _Event(written, number) for written in history for number in range(len(written.changes))
        ]
        #: Changes without another change in their future.
        self._last = [e for e in self._events if not any(e < other for other in self._events)]
        self._inserts = [
            e for e in self._events if e.action == "write" and not self._is_replaced(e)
        ]
        self._shown = self._events
        if any(not self._is_deleted(each) for each in self._inserts):
            # A deleted row is not merged with one that was not deleted.
            self._inserts = [each for each in self._inserts if not self._is_deleted(each)]
            self._shown = [each for each in self._events if not self._is_deleted(each)]
        self._shown = sorted(self._shown, key=lambda each: (each.written.stamp, each.number))

    @property
    def row(self) -> dict[str, Value] | None:
        """Return the visible columns; members of lists as a set, with their types."""
        if not self._is_there:
            return None
        row: dict[str, Value] = {}
        for name in COLUMNS:
            kind = self._rules.rule(name).kind
            if kind == "members":
                value = self._set(name)
            else:
                value = self._register(name)
                value = self._counter(name, value) if kind == "sum" else value
            if value is not _MISSING:
                row[name] = value
        return row

    @property
    def conflicts(self) -> list[str]:
        """Return the columns that have more than one value; empty text for the row itself."""
        found = [""] if len({each.action == "delete" for each in self._last}) > 1 else []
        if self._is_there:
            found += [name for name in sorted(COLUMNS) if len(_forms(self._versions(name))) > 1]
        return found

    @property
    def _is_there(self) -> bool:
        if self._rules.on_delete == "last-writer":
            return max(self._last, key=lambda each: each.written.stamp).action != "delete"
        is_there = [each.action != "delete" for each in self._last]
        return all(is_there) if self._rules.on_delete == "delete-wins" else any(is_there)

    def _is_replaced(self, event: _Event) -> bool:
        return any(event < other and other.action == "write" for other in self._events)

    def _is_deleted(self, event: _Event) -> bool:
        changes = event.written.changes
        if changes[-1].action == "delete" and event.number < len(changes) - 1:
            return True
        return any(
            event < other and other.action == "delete" and other.written is not event.written
            for other in self._events
        )

    def _is_told_again(self, event: _Event, name: str) -> bool:
        return self._is_replaced(event) or any(
            event < other and name in other.after for other in self._events
        )

    def _versions(self, name: str) -> dict[Stamp, Value]:
        """Return the surviving values of a register, or the surviving start values of a counter."""
        kind = self._rules.rule(name).kind
        if kind == "members":
            return {}
        found = [each for each in self._shown if name in each.after]
        if kind == "sum":
            found = [e for e in found if e.action == "write" and not self._is_replaced(e)]
        else:
            found = [each for each in found if not self._is_told_again(each, name)]
        return {each.written.stamp: each.after[name] for each in found}

    def _register(self, name: str) -> Value:
        versions = self._versions(name)
        candidates = [Candidate(stamp, value) for stamp, value in versions.items()]
        if len(_forms(versions)) < 2:
            return candidates[0].value if candidates else _MISSING
        try:
            return self._rules.rule(name).pick(candidates).value
        except RuleError:
            return max(candidates, key=lambda each: each.stamp).value

    def _counter(self, name: str, initial: Value) -> Value:
        amounts = []
        for each in self._events:
            if each.action == "update" and name in each.after:
                made = [insert for insert in self._inserts if insert < each]
                if made or not any(other.action == "write" for other in self._events):
                    before = each.before(name)
                    amounts.append(Decimal(each.after[name] or 0) - Decimal(before or 0))
        if not amounts:
            return initial
        return sum(amounts, Decimal((None if initial is _MISSING else initial) or 0))

    def _set(self, name: str) -> Value:
        told = [each for each in self._shown if name in each.after]
        found = {
            member
            for each in told
            for member in _members(each.after[name]) - _members(each.before(name))
            if not self._is_replaced(each)
            and not any(
                each < other and member in _taken_out(other, name) for other in self._events
            )
        }
        kinds = [type(each.after[name]) for each in told if not self._is_told_again(each, name)]
        if not found and not kinds:
            return _MISSING
        if not found and kinds[-1] is type(None):
            return None
        if frozenset in [kind for kind in kinds if kind is not type(None)][-1:]:
            return frozenset(value for _, value in found)
        return found


def _forms(versions: dict[Stamp, Value]) -> set[bytes]:
    return {
        msgspec.json.encode(to_json(value), order="deterministic") for value in versions.values()
    }


def _members(value: Iterable[Any] | None) -> set[tuple[str, Any]]:
    return {(type(each).__name__, each) for each in value or ()}


def _taken_out(event: _Event, name: str) -> set[tuple[str, Any]]:
    if name not in event.after:
        return set()
    return _members(event.before(name)) - _members(event.after[name])
