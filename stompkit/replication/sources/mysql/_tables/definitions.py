"""Effects of DDL statements on rows that were already published."""

from __future__ import annotations

from typing import Any, Literal

from stompkit.replication.sources.mysql._tables.statements import Effect, Name

__all__ = ["Definitions", "Outcome"]

#: ``nothing``: the published rows stay correct; ``empty``: the table is empty now; ``copy``: all
#: rows have to be published again.
Outcome = Literal["nothing", "empty", "copy"]


class Definitions:
    """Dropped tables and columns, whose values consumers still have."""

    def __init__(self, state: dict[str, Any] | None) -> None:
        """Restore from :meth:`state`; ``None`` for an empty start."""
        state = state or {}
        self._gone: set[Name] = {(schema, table) for schema, table in state.get("gone", ())}
        self._dropped: dict[Name, set[str]] = {
            (schema, table): set(names) for schema, table, names in state.get("columns", ())
        }

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, as JSON values."""
        return {
            "gone": sorted(map(list, self._gone)),
            "columns": [[*name, sorted(names)] for name, names in sorted(self._dropped.items())],
        }

    def is_gone(self, table: Name) -> None:
        """Record that a table does not exist."""
        self._gone.add(table)
        self._dropped.pop(table, None)

    def follow(self, effect: Effect) -> Outcome:
        """Apply a statement's effect; return its outcome for the published rows."""
        table = effect.table
        outcome: Outcome = "nothing"
        if effect.kind == "gone":
            self.is_gone(table)
            return outcome
        if effect.kind == "made":
            outcome = "empty" if table in self._gone else "nothing"
        elif effect.kind == "replaced":
            outcome = "empty"
        elif effect.kind == "copy" or self._dropped.get(table, set()).intersection(effect.added):
            outcome = "copy"
        self._gone.discard(table)
        if outcome != "nothing":
            self._dropped.pop(table, None)
        elif effect.dropped:
            self._dropped.setdefault(table, set()).update(effect.dropped)
        return outcome
