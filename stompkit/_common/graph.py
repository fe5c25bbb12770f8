"""Topological order of things that reference each other, and their cycles."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TypeVar

__all__ = ["components", "parents_first", "ranks", "references_of"]

Node = TypeVar("Node", bound=Hashable)


def references_of(
    nodes: Iterable[Node], pairs: Iterable[tuple[Node, Node]]
) -> dict[Node, list[Node]]:
    """Return what each node references; pairs are a node and one that it references."""
    found: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node, other in pairs:
        if node in found:
            found[node].append(other)
    return found


def components(references: Mapping[Node, Collection[Node]]) -> list[list[Node]]:
    """Return the keys of a mapping in groups, each after all groups that it references.

    A group contains the members of a cycle, or a single key. References to others than the keys are
    ignored. The order is that of the mapping, as far as references allow. This is Tarjan's
    algorithm, without recursion because chains may be long.
    """
    found = []
    entered: dict[Node, int] = {}
    lowest: dict[Node, int] = {}
    #: Nodes that are left but in no group yet, in the order in which they were left.
    open_: dict[Node, None] = {}
    for start in references:
        path: list[tuple[Node, Iterator[Node]]] = []
        if start not in entered:
            entered[start] = lowest[start] = len(entered)
            path.append((start, iter(references[start])))
        while path:
            current, left = path[-1]
            following = next(_unseen(left, current, references, entered, lowest), None)
            if following is not None:
                entered[following] = lowest[following] = len(entered)
                path.append((following, iter(references[following])))
                continue
            path.pop()
            open_[current] = None
            if path:
                before = path[-1][0]
                lowest[before] = min(lowest[before], lowest[current])
            if lowest[current] == entered[current]:
                group = [current]
                del open_[current]
                while open_ and entered[next(reversed(open_))] > entered[current]:
                    group.append(open_.popitem()[0])
                # It cannot be reached again.
                lowest.update(dict.fromkeys(group, len(references)))
                found.append(group[::-1])
    return found


def _unseen(
    left: Iterator[Node],
    current: Node,
    references: Mapping[Node, Collection[Node]],
    entered: Mapping[Node, int],
    lowest: dict[Node, int],
) -> Iterator[Node]:
    """Yield references to nodes not entered before; note those to nodes in no group yet."""
    for each in left:
        if each not in references:
            continue
        if each not in entered:
            yield each
        elif lowest[each] < len(references):
            lowest[current] = min(lowest[current], entered[each])


def parents_first(references: Mapping[Node, Collection[Node]]) -> list[Node]:
    """Return the keys of a mapping, each after those that it references, except in cycles.

    Otherwise the order is unchanged.
    """
    return list(chain.from_iterable(components(references)))


def ranks(references: Mapping[Node, Collection[Node]]) -> dict[Node, int]:
    """Return the length of the longest chain of references that ends at each key, from 1 on.

    The members of a cycle have the same rank.
    """
    found: dict[Node, int] = {}
    for group in components(references):
        known = [found.get(each, 0) for node in group for each in references[node]]
        found.update(dict.fromkeys(group, 1 + max(known, default=0)))
    return found
