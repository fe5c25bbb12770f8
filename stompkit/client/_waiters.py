"""Deferreds that wait for one event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred

__all__ = ["Waiters"]

_T = TypeVar("_T")


class Waiters(Generic[_T]):
    """Deferreds that fire together, except for cancelled ones."""

    def __init__(self) -> None:
        """Start without waiting Deferreds."""
        self._waiting: list[Deferred[_T]] = []

    def __bool__(self) -> bool:
        """Return True if a Deferred waits."""
        return bool(self._waiting)

    def wait(self) -> Deferred[_T]:
        """Return a new Deferred."""
        deferred: Deferred[_T] = Deferred(self._forget)
        self._waiting.append(deferred)
        return deferred

    def callback(self, value: _T) -> None:
        """Fire all Deferreds."""
        for deferred in self._all():
            deferred.callback(value)

    def errback(self, error: Exception) -> None:
        """Fail all Deferreds."""
        for deferred in self._all():
            deferred.errback(error)

    def _all(self) -> Iterator[Deferred[_T]]:
        """Return the waiting Deferreds, without those cancelled while the others fire."""
        waiting, self._waiting = self._waiting, []
        return (deferred for deferred in waiting if not deferred.called)

    def _forget(self, deferred: Deferred[_T]) -> None:
        if deferred in self._waiting:
            self._waiting.remove(deferred)
