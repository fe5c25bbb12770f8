"""What statements that define tables do to rows that consumers have been told of."""

from __future__ import annotations

from typing import Any, Literal

from stompkit.replication.publishers.mysql._statements import Effect, Name

__all__ = ["Definitions", "Outcome"]

#: ``nothing``: the rows that were told are right; ``empty``: there are none now; ``copy``: all have
#: to be told again.
Outcome = Literal["nothing", "empty", "copy"]


class Definitions:
    """Knows which tables and columns were dropped: consumers have them, and their values, still."""

    def __init__(self, state: dict[str, Any] | None) -> None:
        """Go on with what :meth:`state` gave; ``None`` for nothing."""
        state = state or {}
        self._gone: set[Name] = {(schema, table) for schema, table in state.get("gone", ())}
        self._dropped: dict[Name, set[str]] = {
            (schema, table): set(names) for schema, table, names in state.get("columns", ())
        }

    def state(self) -> dict[str, Any]:
        """Return what belongs into a checkpoint, for JSON."""
        return {
            "gone": sorted(map(list, self._gone)),
            "columns": [[*name, sorted(names)] for name, names in sorted(self._dropped.items())],
        }

    def is_gone(self, table: Name) -> None:
        """Note that a table is not there."""
        self._gone.add(table)
        self._dropped.pop(table, None)

    def follow(self, effect: Effect) -> Outcome:
        """Take what a statement does; gives what it does to the rows that were told."""
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
