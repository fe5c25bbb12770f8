"""Times of many things, in any order, and the one timer that notes the next of them."""

from __future__ import annotations

import heapq
from typing import Final, Generic, TypeVar

__all__ = ["Deadlines"]

_T = TypeVar("_T")

#: Discarded times in the heap before it is looked whether they are more than half of it.
_FEW: Final = 64


class Deadlines(Generic[_T]):
    """Things with a time each, the earliest first; things with the same time keep their order.

    Nothing is assumed about the order in which times are added: a setting can change, and a clock
    can be set back. Adding and discarding take logarithmic time on average. A thing that was
    discarded is not kept alive.
    """

    __slots__ = ("_heap", "_keys", "_last", "_things")

    def __init__(self) -> None:
        """Begin with nothing."""
        #: Times with the numbers of things; those of things that were discarded stay for a while.
        self._heap: list[tuple[float, int]] = []
        self._things: dict[int, _T] = {}
        self._keys: dict[_T, tuple[float, int]] = {}
        self._last = 0

    def __len__(self) -> int:
        """Return the number of things."""
        return len(self._keys)

    def set(self, thing: _T, when: float) -> None:
        """Give a thing a time, in place of the one that it has."""
        self.discard(thing)
        self._last += 1
        key = (when, self._last)
        self._keys[thing] = key
        self._things[self._last] = thing
        heapq.heappush(self._heap, key)

    def get(self, thing: _T) -> float | None:
        """Return the time of a thing, if it has one."""
        key = self._keys.get(thing)
        return None if key is None else key[0]

    def discard(self, thing: _T) -> None:
        """Forget a thing, if it is there."""
        key = self._keys.pop(thing, None)
        if key is None:
            return
        del self._things[key[1]]
        if len(self._heap) > 2 * len(self._keys) + _FEW:
            self._heap = list(self._keys.values())
            heapq.heapify(self._heap)

    def first(self) -> tuple[float, _T] | None:
        """Return the earliest time and its thing."""
        heap = self._heap
        while heap:
            when, number = heap[0]
            if number in self._things:
                return when, self._things[number]
            heapq.heappop(heap)
        return None

    def pop_due(self, now: float) -> _T | None:
        """Take out and return the first thing whose time has come."""
        first = self.first()
        if first is None or first[0] > now:
            return None
        self.discard(first[1])
        return first[1]

    def clear(self) -> None:
        """Forget everything."""
        self._heap.clear()
        self._things.clear()
        self._keys.clear()
