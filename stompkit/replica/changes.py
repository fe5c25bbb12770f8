"""Local row changes, reduced to what other replicas need.

A session reports written and loaded columns, and can change one row several times. The result
contains the differences from the replica's previous merged state: the common ancestor of this edit
and of concurrent edits on other nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stompkit._common.moved import renamed
from stompkit.replication.model.events import Action, RowChange
from stompkit.replication.model.values import Value, to_json

__all__ = ["expanded", "reduced"]


def expanded(change: RowChange, old: Mapping[str, Value] | None = None) -> Iterator[RowChange]:
    """Yield the changes that a change consists of, each for one row.

    A changed key means another row: the row under the old key is deleted, and ``old`` is its last
    visible state. Raises ValueError for a change of all rows of a table.
    """
    if change.action == "schema":
        return
    if change.action == "truncate":
        raise ValueError(f"{change.name}: a replica can tell changes of single rows only")
    if change.old_key is None or change.old_key == change.key:
        yield change
        return
    yield _made(change, "delete", key=change.old_key)
    after = {**(old or {}), **(change.before or {}), **(change.after or {})}
    yield _made(change, "write", after={n: v for n, v in after.items() if n not in change.old_key})


def reduced(change: RowChange, visible: Mapping[str, Value] | None) -> RowChange | None:
    """Return a change relative to the ``visible`` row; ``None`` if nothing differs."""
    if change.action == "delete":
        if visible is None:
            return None
        return _made(change, "delete", before=dict(visible))
    after = {name: value for name, value in (change.after or {}).items() if name not in change.key}
    if visible is None:
        before = {
            name: value for name, value in (change.before or {}).items() if name not in change.key
        }
        return _made(change, "write", after={**before, **after})
    # A column missing from the state was never written by any node.
    differing = {
        name: value for name, value in after.items() if not _are_same(visible.get(name), value)
    }
    if not differing:
        return None
    return _made(
        change,
        "update",
        before={name: visible.get(name) for name in differing},
        after=differing,
    )


def _are_same(one: Value, other: Value) -> bool:
    """Return True if two values are equivalent: 1.5 and 1.50 are, 1 and True are not."""
    if isinstance(one, (Mapping, list, tuple)) or isinstance(one, bool) != isinstance(other, bool):
        return to_json(one) == to_json(other) and repr(one) == repr(other)
    return bool(one == other)


def _made(
    change: RowChange,
    action: Action,
    before: dict[str, Value] | None = None,
    after: dict[str, Value] | None = None,
    key: dict[str, Value] | None = None,
) -> RowChange:
    return RowChange(
        table=change.table,
        schema=change.schema,
        action=action,
        key=change.key if key is None else key,
        before=before,
        after=after,
    )


renamed(__name__, told="reduced")
