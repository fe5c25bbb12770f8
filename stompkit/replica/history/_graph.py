"""Changesets and their parents, in an order for drawing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush

import msgspec

from stompkit.replica.history._entries import Entry
from stompkit.replica.vectors import Dot

__all__ = ["Edge", "Graph", "GraphNode", "graph_of"]


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """A changeset of the graph."""

    entry: Entry
    #: Number of current conflicts in which it has won or lost.
    conflicts: int = 0
    #: Number of parents outside the graph: they are older, or no longer kept.
    parents_elsewhere: int = 0

    @property
    def is_merge(self) -> bool:
        """True if it was made on top of several concurrent changesets."""
        return len(self.entry.parents) > 1


class Edge(msgspec.Struct, frozen=True):
    """An edge from a parent to a child, by their ids."""

    parent: str
    child: str


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the history."""

    #: Changesets sorted by causality, and otherwise by the clocks, oldest first.
    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[Edge, ...] = ()
    #: Origins in the order in which they appear.
    origins: tuple[str, ...] = ()
    #: True if there are earlier changesets that are omitted.
    is_cut: bool = False


def graph_of(
    entries: Collection[Entry], conflicts: Mapping[Dot, int], *, is_cut: bool = False
) -> Graph:
    """Return the sorted graph: equal on all nodes for equal changesets."""
    known = {entry.id: entry for entry in entries}
    children: dict[str, list[str]] = {}
    waits_for: dict[str, int] = {}
    for entry in entries:
        parents = [parent for parent in entry.parents if parent in known]
        waits_for[entry.id] = len(parents)
        for parent in parents:
            children.setdefault(parent, []).append(entry.id)
    ready = [_place(entry) for entry in entries if not waits_for[entry.id]]
    heapify(ready)
    nodes = []
    while ready:
        entry = known[heappop(ready)[-1]]
        nodes.append(
            GraphNode(
                entry=entry,
                conflicts=conflicts.get(entry.dot, 0),
                parents_elsewhere=sum(parent not in known for parent in entry.parents),
            )
        )
        for child in children.get(entry.id, ()):
            waits_for[child] -= 1
            if not waits_for[child]:
                heappush(ready, _place(known[child]))
    return Graph(
        nodes=tuple(nodes),
        edges=tuple(_edges(nodes, known)),
        origins=tuple(dict.fromkeys(node.entry.origin for node in nodes)),
        is_cut=is_cut,
    )


def _place(entry: Entry) -> tuple[int, str, int, str]:
    return entry.hlc, entry.origin, entry.sequence, entry.id


def _edges(nodes: Iterable[GraphNode], known: Collection[str]) -> Iterable[Edge]:
    for node in nodes:
        for parent in node.entry.parents:
            if parent in known:
                yield Edge(parent, node.entry.id)
