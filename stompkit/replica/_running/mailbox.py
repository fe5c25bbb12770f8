"""A queue of calls and messages for the engine's thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["Mailbox"]

_Given = TypeVar("_Given")


class Mailbox(Generic[_Given]):
    """A queue of calls, which are unbounded, and of deliveries, which block while it is full."""

    def __init__(self, *, max_messages: int, max_bytes: int) -> None:
        """Limit the deliveries; an oversized one is accepted only into an empty queue."""
        self._most: Final = (max_messages, max_bytes)
        self._has_changed = threading.Condition()
        self._calls: deque[Callable[[], object]] = deque()
        self._deliveries: deque[tuple[_Given, int]] = deque()
        self._bytes = 0
        self._is_closed = False

    def call(self, function: Callable[[], object]) -> bool:
        """Queue a function for the engine's thread; returns False if the mailbox is closed."""
        with self._has_changed:
            if not self._is_closed:
                self._calls.append(function)
                self._has_changed.notify_all()
            return not self._is_closed

    def deliver(self, delivery: _Given, size: int) -> bool:
        """Add a delivery of ``size`` bytes, waiting for room; returns False if it is closed."""
        most_messages, most_bytes = self._most
        with self._has_changed:
            self._has_changed.wait_for(
                lambda: (
                    self._is_closed
                    or not self._deliveries
                    or (len(self._deliveries) < most_messages and self._bytes + size <= most_bytes)
                )
            )
            if not self._is_closed:
                self._deliveries.append((delivery, size))
                self._bytes += size
                self._has_changed.notify_all()
            return not self._is_closed

    def wait(self, timeout_s: float | None, *, for_deliveries: bool = True) -> None:
        """Wait until there is something to take, or the mailbox is closed."""
        with self._has_changed:
            self._has_changed.wait_for(
                lambda: (
                    self._is_closed
                    or bool(self._calls)
                    or (for_deliveries and bool(self._deliveries))
                ),
                timeout_s,
            )

    def take_calls(self) -> list[Callable[[], object]]:
        """Remove and return all queued calls."""
        with self._has_changed:
            calls = list(self._calls)
            self._calls.clear()
            return calls

    def take(self, max_messages: int, max_bytes: int) -> list[_Given]:
        """Remove and return deliveries in order, within the limits but at least one."""
        taken: list[_Given] = []
        size = 0
        with self._has_changed:
            while self._deliveries and len(taken) < max_messages:
                delivery, octets = self._deliveries[0]
                if taken and size + octets > max_bytes:
                    break
                self._deliveries.popleft()
                taken.append(delivery)
                size += octets
            self._bytes -= size
            if taken:
                self._has_changed.notify_all()
        return taken

    def close(self) -> None:
        """Close the mailbox and wake all waiting threads."""
        with self._has_changed:
            self._is_closed = True
            self._deliveries.clear()
            self._bytes = 0
            self._has_changed.notify_all()
