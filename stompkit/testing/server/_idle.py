"""Detection of a store without pending calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from twisted.internet.defer import Deferred

from stompkit.server import StoreRunner
from stompkit.server.interfaces import StoreError

__all__ = ["IdleRunner"]

_T = TypeVar("_T")

#: Maximum number of rounds of waiting for the store. Completed calls cause more, as a due message
#: is read, enqueued and delivered. While clients keep sending, this never ends.
_ROUNDS: Final = 10


class IdleRunner:
    """Runs the calls of a store by another runner, and counts the pending ones."""

    def __init__(self, runner: StoreRunner) -> None:
        """Start without pending calls."""
        self._runner = runner
        self._under_way = 0

    def run(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Run ``work``, and then one of the callbacks."""
        self._under_way += 1
        self._runner.run(work, self._counted(done), self._counted(failed))

    def stop(self) -> None:
        """Wait for pending calls; accept no more."""
        self._runner.stop()

    async def settle(self) -> None:
        """Wait for pending calls and those that they cause, up to the maximum number of rounds."""
        for _ in range(_ROUNDS):
            if not self._under_way:
                return
            before: Deferred[object] = Deferred()
            self._runner.run(lambda: None, before.callback, before.errback)
            await before

    def _counted(self, notify: Callable[[_T], None]) -> Callable[[_T], None]:
        def counted(value: _T) -> None:
            try:
                notify(value)
            finally:
                self._under_way -= 1

        return counted
