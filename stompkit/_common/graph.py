"""Topological order of references, and their cycles."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

__all__ = ["parents_first"]


def parents_first(references: Mapping[int, Collection[int]]) -> list[list[int]]:
    """Return the numbers in groups, each after all groups that it references.

    A group contains the members of a cycle, or a single number. This is Tarjan's algorithm, without
    recursion because chains may be long.
    """
    found = []
    entered: dict[int, int] = {}
    lowest: dict[int, int] = {}
    is_open: dict[int, None] = {}
    for start in references:
        path: list[tuple[int, Iterator[int]]] = []
        following: int | None = None if start in entered else start
        while following is not None or path:
            if following is not None:
                entered[following] = lowest[following] = len(entered)
                is_open[following] = None
                path.append((following, iter(references[following])))
            current, left = path[-1]
            following = None
            for each in left:
                if each not in entered:
                    following = each
                    break
                if each in is_open:
                    lowest[current] = min(lowest[current], entered[each])
            if following is not None:
                continue
            path.pop()
            if path:
                before = path[-1][0]
                lowest[before] = min(lowest[before], lowest[current])
            if lowest[current] == entered[current]:
                group = []
                while current in is_open:
                    group.append(is_open.popitem()[0])
                found.append(group)
    return found
