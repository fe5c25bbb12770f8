"""Deadlines of many items, in any order."""

from __future__ import annotations

import heapq
from typing import Final, Generic, TypeVar

__all__ = ["Deadlines"]

_T = TypeVar("_T")

#: Number of discarded deadlines in the heap before it is checked for compaction.
_FEW: Final = 64


class Deadlines(Generic[_T]):
    """Items with one deadline each, the earliest first; equal deadlines keep their order.

    Deadlines may be added in any order: a setting can change, and a clock can be set back. Adding
    and discarding take logarithmic time on average. A discarded item is not kept alive.
    """

    __slots__ = ("_heap", "_keys", "_last", "_things")

    def __init__(self) -> None:
        """Start empty."""
        #: Deadlines with the numbers of items; those of discarded items stay for a while.
        self._heap: list[tuple[float, int]] = []
        self._things: dict[int, _T] = {}
        self._keys: dict[_T, tuple[float, int]] = {}
        self._last = 0

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._keys)

    def set(self, thing: _T, when: float) -> None:
        """Set the deadline of an item, replacing an earlier one."""
        self.discard(thing)
        self._last += 1
        key = (when, self._last)
        self._keys[thing] = key
        self._things[self._last] = thing
        heapq.heappush(self._heap, key)

    def get(self, thing: _T) -> float | None:
        """Return the deadline of an item, or None."""
        key = self._keys.get(thing)
        return None if key is None else key[0]

    def discard(self, thing: _T) -> None:
        """Remove an item, if it exists."""
        key = self._keys.pop(thing, None)
        if key is None:
            return
        del self._things[key[1]]
        if len(self._heap) > 2 * len(self._keys) + _FEW:
            self._heap = list(self._keys.values())
            heapq.heapify(self._heap)

    def first(self) -> tuple[float, _T] | None:
        """Return the earliest deadline and its item."""
        heap = self._heap
        while heap:
            when, number = heap[0]
            if number in self._things:
                return when, self._things[number]
            heapq.heappop(heap)
        return None

    def pop_due(self, now: float) -> _T | None:
        """Remove and return the first item whose deadline has passed."""
        first = self.first()
        if first is None or first[0] > now:
            return None
        self.discard(first[1])
        return first[1]

    def clear(self) -> None:
        """Remove all items."""
        self._heap.clear()
        self._things.clear()
        self._keys.clear()
