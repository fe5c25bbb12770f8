"""Many patterns, and which of them match a name: by its levels, not one pattern after the other."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from stompkit.server.domain.names import Kind, Pattern

__all__ = ["PatternTree"]

_T = TypeVar("_T")

#: The wildcard for one level, and those for the rest of a name if there is some, or anyway.
_ONE: Final = "*"
_SOME: Final = ">"
_ANY: Final = "#"
_WILDCARDS: Final = frozenset((_ONE, _SOME, _ANY))


class _Node(Generic[_T]):
    """What patterns that begin alike go on with."""

    __slots__ = ("below", "items")

    def __init__(self) -> None:
        #: By the next level, which may be a wildcard.
        self.below: dict[str, _Node[_T]] = {}
        #: What stands under the pattern that ends here, with the number that it was given.
        self.items: dict[_T, int] = {}


class PatternTree(Generic[_T]):
    """Items that each stand under a pattern, found by names that the pattern matches.

    What finding takes depends on the levels of the name and on what is found, hardly on how many
    patterns there are: at each level only the patterns go on that have the level or ``*`` there.
    Nothing that was found is remembered, so nothing can be out of date.
    """

    __slots__ = ("_last", "_roots")

    def __init__(self) -> None:
        """Begin with no pattern."""
        self._roots: dict[Kind, _Node[_T]] = {}
        self._last = 0

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing, of the levels of patterns that have gone either."""
        return not self._roots

    def add(self, pattern: Pattern, item: _T) -> None:
        """Put an item under a pattern; there it stands once."""
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
        """Take an item away from a pattern, if it is there, with what nothing stands under now."""
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
        """Forget everything."""
        self._roots.clear()

    def find(self, name: str) -> list[_T]:
        """What stands under patterns that match a name, in the order in which it was added.

        The name has no wildcards; levels that look like some match nothing but ``*`` and the
        wildcards for the rest.
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
        # No two have the same number, so items are never compared.
        return [item for _, item in sorted(found)]
