"""A row that several nodes write, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stompkit.replica.rows import Conflict, RowState, Stamp
from stompkit.replica.rules import TableRules
from stompkit.replication.model.events import Action, RowChange
from stompkit.replication.model.values import Value

__all__ = ["KEY", "PLAIN", "A", "B", "C", "D", "Row", "inserted"]

KEY: Final[dict[str, Value]] = {"id": 1}
PLAIN: Final = TableRules()
#: Origins.
A, B, C, D = "A~00000001", "B~00000001", "C~00000001", "D~00000001"


class Row:
    """A row with its rules; each changeset has the dots that its writer knew."""

    def __init__(self, rules: TableRules = PLAIN) -> None:
        """Start with a row that was never written."""
        self.rules = rules
        self.state = RowState()

    def take(
        self,
        dot: tuple[str, int],
        action: Action,
        after: dict[str, Value] | None = None,
        before: dict[str, Value] | None = None,
        *,
        knows: Mapping[str, int],
        hlc: int = 0,
    ) -> None:
        """Apply a change; by default greater sequences are later."""
        change = RowChange(table="t", action=action, key=KEY, before=before, after=after)
        clock = {**knows, dot[0]: dot[1]}
        self.state.apply(change, Stamp(hlc or dot[1], *dot), clock, self.rules)

    @property
    def visible(self) -> dict[str, Value] | None:
        """The visible row."""
        return self.state.visible(self.rules)

    @property
    def conflicts(self) -> list[Conflict]:
        """The conflicts that were decided by rules."""
        return self.state.conflicts(self.rules)


def inserted(after: dict[str, Value], rules: TableRules = PLAIN) -> Row:
    """Return a row that A has inserted."""
    row = Row(rules)
    row.take((A, 1), "write", {**KEY, **after}, knows={})
    return row
