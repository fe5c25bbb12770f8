"""What one worker has still to do: in order, bounded, with what failed waiting for its time."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count

from stompkit.replication.replicators.messages import Key

__all__ = ["Backlog", "Completion", "Item"]


class Completion:
    """A future that is done when each of several items is done."""

    def __init__(self, items: int) -> None:
        """Wait for that many."""
        self.future: Future[None] = Future()
        # From here on it can't be cancelled.
        self.future.set_running_or_notify_cancel()
        self._left = items
        self._lock = threading.Lock()
        if not items:
            self.future.set_result(None)

    def settle(self) -> None:
        """Note that one is done."""
        with self._lock:
            self._left -= 1
            is_last = not self._left and not self.future.done()
        if is_last:
            self.future.set_result(None)

    def abandon(self, error: Exception) -> None:
        """Note that one will not be done."""
        with self._lock:
            is_first = not self.future.done() and self._left > 0
            self._left = 0
        if is_first:
            self.future.set_exception(error)


@dataclass(slots=True, eq=False)
class Item:
    """A key that a callback is to be called with."""

    topic: str
    key: Key
    #: Topic and key as octets: what has the same does the same.
    identity: bytes
    #: Of those who want to know when it is done.
    completions: list[Completion] = field(default_factory=list)
    #: How often it has failed.
    failures: int = 0
    #: Why, the last time.
    reason: str = ""
    #: How many keys its next try may be made with, itself included.
    together: int = 2**31

    def absorb(self, other: Item) -> None:
        """Stand for another one as well, of the same identity."""
        self.completions.extend(other.completions)
        self.failures = max(self.failures, other.failures)


class Backlog:
    """Items in their order; not safe for threads, and without a clock of its own.

    At the limit, an item of which the like waits already is merged with that one, which keeps its
    place: it is done after the last change all the same, and one that changes all the time does
    not wait for ever. Nothing is merged below the limit, but with what waits for its next try.
    """

    def __init__(self, *, limit: int, max_batch: int) -> None:
        """Begin without any; ``limit`` bounds what waits, ``max_batch`` what is taken at once."""
        self.merged = 0
        self._limit = limit
        self._max_batch = max_batch
        self._waiting: deque[Item] = deque()
        #: The last that waits of each identity.
        self._last: dict[bytes, Item] = {}
        self._delayed: list[tuple[float, int, Item]] = []
        self._delayed_by: dict[bytes, Item] = {}
        self._numbers = count()
        self._are_retries_next = True

    def __len__(self) -> int:
        return len(self._waiting) + len(self._delayed)

    @property
    def delayed(self) -> int:
        """How many wait for their next try."""
        return len(self._delayed)

    def add(self, item: Item) -> bool:
        """Take an item as the last one; whether there was room for it."""
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
        """Items for the next call, in order; none when none is due.

        What failed before takes turns with what is new.
        """
        if self._are_retries_next:
            batch = self._take_due(now) or self._take_waiting()
        else:
            batch = self._take_waiting() or self._take_due(now)
        self._are_retries_next = not self._are_retries_next
        return batch

    def put_back(self, items: Iterable[Item]) -> None:
        """Take back what was taken, to be the first again; it may be more than the limit then."""
        for item in reversed(list(items)):
            self._waiting.appendleft(item)
            self._last.setdefault(item.identity, item)

    def delay(self, item: Item, due: float) -> None:
        """Take back what has failed, until it is due."""
        if not self._is_merged(item, self._delayed_by):
            heapq.heappush(self._delayed, (due, next(self._numbers), item))
            self._delayed_by[item.identity] = item

    def next_due(self) -> float | None:
        """When the next delayed item is due."""
        return self._delayed[0][0] if self._delayed else None

    def hasten(self) -> None:
        """Have everything delayed be due."""
        self._delayed = [(float("-inf"), number, item) for _, number, item in self._delayed]
        heapq.heapify(self._delayed)

    def clear(self) -> list[Item]:
        """Give up everything."""
        items = [*self._waiting, *(item for *_, item in sorted(self._delayed))]
        self._waiting.clear()
        self._last.clear()
        self._delayed.clear()
        self._delayed_by.clear()
        return items

    # Inside.

    def _is_merged(self, item: Item, among: dict[bytes, Item]) -> bool:
        """Whether there is one that stands for it from now on."""
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
            # One that came before the like of it has failed: its next try is for both.
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
