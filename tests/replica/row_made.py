"""A row that is written by several, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stompkit.replica.rows import Conflict, RowState, Stamp
from stompkit.replica.rules import TableRules
from stompkit.replication.events import Action, RowChange
from stompkit.replication.values import Value

__all__ = ["KEY", "PLAIN", "A", "B", "C", "D", "Row", "inserted"]

KEY: Final[dict[str, Value]] = {"id": 1}
PLAIN: Final = TableRules()
#: Origins.
A, B, C, D = "A~00000001", "B~00000001", "C~00000001", "D~00000001"


class Row:
    """A row with its rules; each changeset is given with the dots that its writer had."""

    def __init__(self, rules: TableRules = PLAIN) -> None:
        """Begin with a row that nobody has written."""
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
        """Apply a change; those with greater sequences are later, if nothing else is said."""
        change = RowChange(table="t", action=action, key=KEY, before=before, after=after)
        clock = {**knows, dot[0]: dot[1]}
        self.state.apply(change, Stamp(hlc or dot[1], *dot), clock, self.rules)

    @property
    def visible(self) -> dict[str, Value] | None:
        """The row as it is seen."""
        return self.state.visible(self.rules)

    @property
    def conflicts(self) -> list[Conflict]:
        """What only rules have decided."""
        return self.state.conflicts(self.rules)


def inserted(after: dict[str, Value], rules: TableRules = PLAIN) -> Row:
    """A row that A has written first."""
    row = Row(rules)
    row.take((A, 1), "write", {**KEY, **after}, knows={})
    return row
