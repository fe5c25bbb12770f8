"""Find the patterns that match a name by its levels, without testing each pattern."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from stompkit.server.domain.names import Kind, Pattern

__all__ = ["PatternTree"]

_T = TypeVar("_T")

#: The wildcard for one level, and those for one or more, or any number of remaining levels.
_ONE: Final = "*"
_SOME: Final = ">"
_ANY: Final = "#"
_WILDCARDS: Final = frozenset((_ONE, _SOME, _ANY))


class _Node(Generic[_T]):
    """A node of the tree: the continuations of patterns with a common prefix."""

    __slots__ = ("below", "items")

    def __init__(self) -> None:
        #: Child nodes by the next level, which may be a wildcard.
        self.below: dict[str, _Node[_T]] = {}
        #: Items of the pattern that ends here, with their serial numbers.
        self.items: dict[_T, int] = {}


class PatternTree(Generic[_T]):
    """Items stored under patterns, found by names that the patterns match.

    The time of a look-up depends on the levels of the name and on the number of results, hardly on
    the number of patterns. At each level only the patterns with that level or ``*`` are followed.
    Results are not cached, so that they are never out of date.
    """

    __slots__ = ("_last", "_roots")

    def __init__(self) -> None:
        """Start empty."""
        self._roots: dict[Kind, _Node[_T]] = {}
        self._last = 0

    @property
    def is_empty(self) -> bool:
        """True if the tree holds no items; empty nodes are removed."""
        return not self._roots

    def add(self, pattern: Pattern, item: _T) -> None:
        """Add an item under a pattern, once."""
        node = self._roots.get(pattern.kind)
        if node is None:
            node = self._roots[pattern.kind] = _Node()
        for level in pattern.levels:
            below = node.below.get(level)
            if below is None:
                below = node.below[level] = _Node()
            node = below
        if item not in node.items:
            self._last += 1
            node.items[item] = self._last

    def remove(self, pattern: Pattern, item: _T) -> None:
        """Remove an item from a pattern, if it exists, with nodes that become empty."""
        node = self._roots.get(pattern.kind)
        if node is None:
            return
        way = []
        for level in pattern.levels:
            way.append((node, level))
            node = node.below.get(level)
            if node is None:
                return
        node.items.pop(item, None)
        while not (node.items or node.below):
            if not way:
                del self._roots[pattern.kind]
                return
            node, level = way.pop()
            del node.below[level]

    def clear(self) -> None:
        """Remove everything."""
        self._roots.clear()

    def find(self, name: str) -> list[_T]:
        """Return the items of all patterns that match a name, in order of addition.

        The name has no wildcards; levels that look like wildcards match only ``*`` and the final
        wildcards.
        """
        for kind, root in self._roots.items():
            prefix = kind.value
            if name.startswith(prefix):
                return self._below(root, name[len(prefix) :].split("."))
        return []

    @staticmethod
    def _below(root: _Node[_T], levels: list[str]) -> list[_T]:
        ends: list[_Node[_T]] = []
        nodes = [root]
        for level in levels:
            going_on = []
            for node in nodes:
                below = node.below
                if _SOME in below:
                    ends.append(below[_SOME])
                if _ANY in below:
                    ends.append(below[_ANY])
                if _ONE in below:
                    going_on.append(below[_ONE])
                if level in below and level not in _WILDCARDS:
                    going_on.append(below[level])
            if not going_on and not ends:
                return []
            nodes = going_on
        for node in nodes:
            ends.append(node)
            if _ANY in node.below:
                ends.append(node.below[_ANY])
        found = [(number, item) for end in ends for item, number in end.items.items()]
        # Serial numbers are unique, so items are never compared.
        return [item for _, item in sorted(found)]
