"""Differences between rows at two revisions, as changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import Value, row_to_json, to_json

__all__ = ["difference", "in_order"]

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


def difference(
    change: RowChange, before: Mapping[str, Value] | None, after: Mapping[str, Value] | None
) -> RowChange | None:
    """Return the change from ``before`` to ``after``; ``None`` if they are equal.

    ``change`` names the row. As in replication, an update has only the columns that differ.
    """
    if before is None:
        return None if after is None else _made(change, "write", None, dict(after))
    if after is None:
        return _made(change, "delete", dict(before), None)
    columns = [name for name in {**before, **after} if _differ(before.get(name), after.get(name))]
    if not columns:
        return None
    return _made(
        change,
        "update",
        {name: before.get(name) for name in columns},
        {name: after.get(name) for name in columns},
    )


def _differ(one: Value, other: Value) -> bool:
    """Return True if values differ as JSON, where 1, 1.0 and true are different."""
    return one is not other and _ENCODER.encode(to_json(one)) != _ENCODER.encode(to_json(other))


def _made(
    change: RowChange,
    action: str,
    before: dict[str, Value] | None,
    after: dict[str, Value] | None,
) -> RowChange:
    return msgspec.structs.replace(change, action=action, before=before, after=after, old_key=None)


def in_order(changes: Iterable[RowChange]) -> list[RowChange]:
    """Return the changes sorted by table and key."""
    return sorted(changes, key=lambda each: (each.name, _ENCODER.encode(row_to_json(each.key))))
