"""The order of tables in a snapshot."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

__all__ = ["parents_first"]

_Table = TypeVar("_Table", bound=Hashable)


def parents_first(
    tables: Sequence[_Table], references: Iterable[tuple[_Table, _Table]]
) -> list[_Table]:
    """Return the tables so that referenced tables come before those that reference them.

    ``references`` are pairs of a table and the one that its foreign key references. Otherwise the
    order is unchanged, also among tables with circular references, as far as tables outside of the
    cycle allow.
    """
    parents: dict[_Table, list[_Table]] = {table: [] for table in tables}
    for child, parent in references:
        if child in parents and parent in parents and parent != child:
            parents[child].append(parent)
    found: dict[_Table, None] = {}
    for table in tables:
        # Depth first, without recursion: chains may be long.
        path = [(table, iter(parents[table]))]
        entered = {table}
        while path:
            current, left = path[-1]
            following = next(
                (each for each in left if each not in entered and each not in found), None
            )
            if following is None:
                found.setdefault(current)
                path.pop()
            else:
                entered.add(following)
                path.append((following, iter(parents[following])))
    return list(found)
