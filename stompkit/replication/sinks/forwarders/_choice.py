"""Selection of a subscriber's tables, and the names that it uses for them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from stompkit.replication.model.events import RowChange

__all__ = ["Choice", "choose"]

#: Function that returns a table's name for a change; ``None`` to skip the change.
Choice = Callable[[RowChange], str | None]


def choose(tables: Collection[str] | None) -> Choice:
    """Choose tables by their exact names, with or without schema, or all of them for ``None``.

    Raises ``ValueError`` for anything but a list, a tuple or a set of texts.
    """
    if tables is None:
        return lambda change: change.name
    if not isinstance(tables, (list, tuple, set, frozenset)):
        raise ValueError(f"tables are a list, a tuple or a set of names, not {tables!r}")
    if not all(isinstance(name, str) for name in tables):
        raise ValueError(f"names of tables are text: {tables!r}")
    names = frozenset(tables)

    def name_of(change: RowChange) -> str | None:
        if change.name in names:
            return change.name
        return change.table if change.table in names else None

    return name_of
