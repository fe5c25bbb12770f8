"""The surviving contribution of one changeset to a row."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from stompkit.replica.rows import _counters, _members
from stompkit.replica.rules import Candidate, Rule, RuleError, Stamp, TableRules
from stompkit.replica.vectors import Dot
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import Value, from_json, row_to_json, to_json

__all__ = ["Contribution", "Effect"]


class Effect:
    """The effect of a change on a row, by the rules of its table."""

    __slots__ = ("amounts", "befores", "edits", "is_alive", "is_write", "values")

    def __init__(self, change: RowChange, rules: TableRules) -> None:
        """Analyse a change.

        Raises ValueError for an action that replicas do not have, and its subclasses RuleError
        and InvalidValueError for invalid values.
        """
        self.is_write = change.action == "write"
        self.is_alive = change.action != "delete"
        #: Columns with versions, and the values seen before, as JSON.
        self.values: dict[str, Any] = {}
        self.befores: dict[str, Any] = {}
        #: Differences of counters, and edits of sets.
        self.amounts: dict[str, Decimal] = {}
        self.edits: dict[str, _members.Edit] = {}
        if not self.is_alive:
            return
        if not self.is_write and change.action != "update":
            raise ValueError(
                f"replicas write, update and delete rows: {change.action!r} is nothing"
            )
        key, merging = change.key, rules.merging
        after = {name: value for name, value in (change.after or {}).items() if name not in key}
        before = None if self.is_write else change.before or {}
        for name, rule in merging.items():
            if name in after:
                self._merge(name, rule, after.pop(name), before)
        self.values |= row_to_json(after)
        if before:
            self.befores = row_to_json({name: before[name] for name in after if name in before})

    def _merge(
        self, name: str, rule: Rule, value: Value, before: Mapping[str, Value] | None
    ) -> None:
        if before is not None and name not in before:
            raise RuleError(f"column {name}: nobody says what was there, and so what has changed")
        if rule.kind == "members":
            self.edits[name] = _members.edit(value, before and before[name], name)
            return
        exact = _counters.number(value, name)
        if before is None:
            self.values[name] = to_json(value)
        else:
            self.amounts[name] = _counters.difference(exact, _counters.number(before[name], name))


class Contribution(msgspec.Struct, array_like=True, gc=False):
    """The surviving parts of one changeset."""

    origin: str
    sequence: int
    hlc: int
    #: True if it has left the row in existence; ``None`` if a later write has decided that.
    is_alive: bool | None
    #: True if it has created the row, and no later write that knew of it has recreated the row.
    is_insert: bool
    #: True if a later write that knew of it has deleted the row. The rest serves concurrent changes
    #: of the row, and is unused if the row was recreated.
    is_deleted: bool
    values: dict[str, Any]
    befores: dict[str, Any]
    sets: dict[str, _members.Part]

    @property
    def dot(self) -> Dot:
        """Identity of the changeset."""
        return self.origin, self.sequence

    @property
    def stamp(self) -> Stamp:
        """Time and origin of the changeset."""
        return Stamp(self.hlc, self.origin, self.sequence)

    @property
    def is_left(self) -> bool:
        """True if anything survives."""
        return bool(self.is_alive is not None or self.values or self.sets or self.is_insert)

    def candidate(self, column: str) -> Candidate:
        """Return its version of a column."""
        return Candidate(
            self.stamp, from_json(self.values[column]), from_json(self.befores.get(column))
        )

    def supersede(self, effect: Effect) -> bool:
        """Remove the parts that a later change has overwritten; returns True if any is left."""
        if effect.is_write:
            return False
        self.is_alive = None
        if not effect.is_alive:
            self.is_deleted = True
        values = self.values
        if values:
            for name in effect.values:
                if name in values:
                    del values[name]
                    self.befores.pop(name, None)
        for name, edit in effect.edits.items():
            part = self.sets.get(name)
            if part is not None and not part.supersede(edit):
                del self.sets[name]
        return bool(values or self.sets or self.is_insert)

    def keep_befores(self, effect: Effect) -> None:
        """Copy the values before this change into a later change of the same changeset."""
        for name in effect.values:
            if name in self.befores:
                effect.befores[name] = self.befores[name]
            elif name in self.values:
                effect.befores.pop(name, None)

    def absorb(self, effect: Effect) -> None:
        """Add the effect of a change."""
        self.is_alive = effect.is_alive
        self.is_deleted &= not effect.is_alive
        self.is_insert |= effect.is_write
        self.values |= effect.values
        self.befores |= effect.befores
        for name, edit in effect.edits.items():
            part = self.sets.get(name)
            if part is None:
                self.sets[name] = _members.Part(edit.kind, edit.added)
            else:
                part.kind = edit.kind
                part.members |= edit.added

    def intersect(self, other: Contribution) -> bool:
        """Keep the parts that survive at both replicas; returns True if there are any."""
        if other.is_alive is None:
            self.is_alive = None
        self.is_deleted |= other.is_deleted
        for name in self.values.keys() - other.values.keys():
            del self.values[name]
            self.befores.pop(name, None)
        for name, part in list(self.sets.items()):
            theirs = other.sets.get(name)
            if theirs is None or not part.intersect(theirs):
                del self.sets[name]
        return self.is_left

    def insert(self) -> Contribution:
        """Return a copy reduced to the fact that it has created the row."""
        return Contribution(
            self.origin, self.sequence, self.hlc, None, True, self.is_deleted, {}, {}, {}
        )

    def copy(self) -> Contribution:
        """Return an independent copy."""
        return Contribution(
            self.origin,
            self.sequence,
            self.hlc,
            self.is_alive,
            self.is_insert,
            self.is_deleted,
            dict(self.values),
            dict(self.befores),
            {name: part.copy() for name, part in self.sets.items()},
        )
