"""Several who wait for the same thing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred

__all__ = ["Waiters"]

_T = TypeVar("_T")


class Waiters(Generic[_T]):
    """Deferreds that fire together, but for those that are cancelled before."""

    def __init__(self) -> None:
        """Start with nobody waiting."""
        self._waiting: list[Deferred[_T]] = []

    def wait(self) -> Deferred[_T]:
        """A new one."""
        deferred: Deferred[_T] = Deferred(self._forget)
        self._waiting.append(deferred)
        return deferred

    def callback(self, value: _T) -> None:
        """Fire all."""
        for deferred in self._all():
            deferred.callback(value)

    def errback(self, error: Exception) -> None:
        """Fail all."""
        for deferred in self._all():
            deferred.errback(error)

    def _all(self) -> Iterator[Deferred[_T]]:
        """Those who wait now, without any that is cancelled while the others are told."""
        waiting, self._waiting = self._waiting, []
        return (deferred for deferred in waiting if not deferred.called)

    def _forget(self, deferred: Deferred[_T]) -> None:
        if deferred in self._waiting:
            self._waiting.remove(deferred)
