"""What the thread of an engine is told by others."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["Mailbox"]

_Given = TypeVar("_Given")


class Mailbox(Generic[_Given]):
    """Calls, which never wait, and deliveries, which do while there are too many of them."""

    def __init__(self, *, max_messages: int, max_bytes: int) -> None:
        """Bound the deliveries; one that is larger than that goes when there is no other."""
        self._most: Final = (max_messages, max_bytes)
        self._has_changed = threading.Condition()
        self._calls: deque[Callable[[], object]] = deque()
        self._deliveries: deque[tuple[_Given, int]] = deque()
        self._bytes = 0
        self._is_closed = False

    def call(self, function: Callable[[], object]) -> bool:
        """Have a function called by the engine's thread; false when that takes nothing more."""
        with self._has_changed:
            if not self._is_closed:
                self._calls.append(function)
                self._has_changed.notify_all()
            return not self._is_closed

    def deliver(self, delivery: _Given, size: int) -> bool:
        """Add a delivery of so many octets, when there is room; false when that will never be."""
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
        """What is to be called."""
        with self._has_changed:
            calls = list(self._calls)
            self._calls.clear()
            return calls

    def take(self, max_messages: int, max_bytes: int) -> list[_Given]:
        """Deliveries in their order: not more than that, but one if there is any."""
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
        """Take nothing more, and let nobody wait."""
        with self._has_changed:
            self._is_closed = True
            self._deliveries.clear()
            self._bytes = 0
            self._has_changed.notify_all()
