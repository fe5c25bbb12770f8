"""The backlog of one worker: ordered and bounded, with delayed retries of failed items."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count

from stompkit.replication.workers.messages import Key

__all__ = ["Backlog", "Completion", "Item"]


class Completion:
    """A future that is done when each of several items is done."""

    def __init__(self, items: int) -> None:
        """Wait for that many items."""
        self.future: Future[None] = Future()
        # From here on it cannot be cancelled.
        self.future.set_running_or_notify_cancel()
        self._left = items
        self._lock = threading.Lock()
        if not items:
            self.future.set_result(None)

    def settle(self) -> None:
        """Count one completed item."""
        with self._lock:
            self._left -= 1
            is_last = not self._left and not self.future.done()
        if is_last:
            self.future.set_result(None)

    def abandon(self, error: Exception) -> None:
        """Fail the future, because one item will not be completed."""
        with self._lock:
            is_first = not self.future.done() and self._left > 0
            self._left = 0
        if is_first:
            self.future.set_exception(error)


@dataclass(slots=True, eq=False)
class Item:
    """A key to be passed to a callback."""

    topic: str
    key: Key
    #: Topic and key as bytes; items with the same identity can be merged.
    identity: bytes
    #: Completions to settle when it is done.
    completions: list[Completion] = field(default_factory=list)
    #: Number of failures.
    failures: int = 0
    #: Reason of the last failure.
    reason: str = ""
    #: Maximum number of keys in the call of its next try, itself included.
    together: int = 2**31

    def absorb(self, other: Item) -> None:
        """Merge another item of the same identity into this one."""
        self.completions.extend(other.completions)
        self.failures = max(self.failures, other.failures)


class Backlog:
    """Items in order; not thread-safe, and without a clock.

    At the limit, a new item is merged with a waiting item of the same identity, which keeps its
    place. It is still processed after the last change, and a key that changes all the time does not
    wait forever. Below the limit, items are merged only with those that wait for a retry.
    """

    def __init__(self, *, limit: int, max_batch: int) -> None:
        """Start empty; ``limit`` bounds the waiting items, ``max_batch`` the items of one batch."""
        self.merged = 0
        self._limit = limit
        self._max_batch = max_batch
        self._waiting: deque[Item] = deque()
        #: Last waiting item of each identity.
        self._last: dict[bytes, Item] = {}
        self._delayed: list[tuple[float, int, Item]] = []
        self._delayed_by: dict[bytes, Item] = {}
        self._numbers = count()
        self._are_retries_next = True

    def __len__(self) -> int:
        return len(self._waiting) + len(self._delayed)

    @property
    def delayed(self) -> int:
        """Number of items that wait for a retry."""
        return len(self._delayed)

    def add(self, item: Item) -> bool:
        """Append an item; return False if the backlog is full."""
        if self._is_merged(item, self._delayed_by):
            return True
        if len(self) >= self._limit:
            if len(self._last) < len(self._waiting):
                self._merge_all()
            if self._is_merged(item, self._last):
                return True
            if len(self) >= self._limit:
                return False
        self._waiting.append(item)
        self._last[item.identity] = item
        return True

    def take(self, now: float) -> list[Item]:
        """Return the items of the next call, in order; empty if none is due.

        Items that failed before alternate with new ones.
        """
        if self._are_retries_next:
            batch = self._take_due(now) or self._take_waiting()
        else:
            batch = self._take_waiting() or self._take_due(now)
        self._are_retries_next = not self._are_retries_next
        return batch

    def put_back(self, items: Iterable[Item]) -> None:
        """Return taken items to the front; this may exceed the limit."""
        for item in reversed(list(items)):
            self._waiting.appendleft(item)
            self._last.setdefault(item.identity, item)

    def delay(self, item: Item, due: float) -> None:
        """Return a failed item, until its retry is due."""
        if not self._is_merged(item, self._delayed_by):
            heapq.heappush(self._delayed, (due, next(self._numbers), item))
            self._delayed_by[item.identity] = item

    def next_due(self) -> float | None:
        """Return the time at which the next delayed item is due."""
        return self._delayed[0][0] if self._delayed else None

    def hasten(self) -> None:
        """Make all delayed items due now."""
        self._delayed = [(float("-inf"), number, item) for _, number, item in self._delayed]
        heapq.heapify(self._delayed)

    def clear(self) -> list[Item]:
        """Remove and return all items."""
        items = [*self._waiting, *(item for *_, item in sorted(self._delayed))]
        self._waiting.clear()
        self._last.clear()
        self._delayed.clear()
        self._delayed_by.clear()
        return items

    # Inside.

    def _is_merged(self, item: Item, among: dict[bytes, Item]) -> bool:
        """Return True if the item was merged into an existing one."""
        found = among.get(item.identity)
        if found is None:
            return False
        found.absorb(item)
        self.merged += 1
        return True

    def _merge_all(self) -> None:
        firsts: dict[bytes, Item] = {}
        for item in self._waiting:
            if not self._is_merged(item, firsts):
                firsts[item.identity] = item
        self._waiting = deque(firsts.values())
        self._last = firsts

    def _take_waiting(self) -> list[Item]:
        batch: list[Item] = []
        while self._waiting and len(batch) < self._max_batch:
            item = self._waiting.popleft()
            if self._last.get(item.identity) is item:
                del self._last[item.identity]
            # An earlier item of the same identity has failed: its retry covers both.
            if not self._is_merged(item, self._delayed_by):
                batch.append(item)
        return batch

    def _take_due(self, now: float) -> list[Item]:
        batch: list[Item] = []
        most = self._max_batch
        while self._delayed and self._delayed[0][0] <= now:
            most = min(most, self._delayed[0][2].together)
            if len(batch) >= most:
                break
            item = heapq.heappop(self._delayed)[2]
            del self._delayed_by[item.identity]
            batch.append(item)
        return batch
