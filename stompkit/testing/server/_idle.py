"""When a store has done what it was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from twisted.internet.defer import Deferred

from stompkit.server import StoreRunner
from stompkit.server.interfaces import StoreError

__all__ = ["IdleRunner"]

_T = TypeVar("_T")

#: How often to wait for the store again. What is done leads to more, as a message that is due is
#: read, put into its queue and delivered; but where clients go on sending there is no end to it.
_ROUNDS: Final = 10


class IdleRunner:
    """Has the calls of a store run by another runner, and knows when none is left."""

    def __init__(self, runner: StoreRunner) -> None:
        """Begin with nothing asked for."""
        self._runner = runner
        self._under_way = 0

    def run(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Have ``work`` called, then one of the others."""
        self._under_way += 1
        self._runner.run(work, self._counted(done), self._counted(failed))

    def stop(self) -> None:
        """Wait for what has been asked for; take no more."""
        self._runner.stop()

    async def settle(self) -> None:
        """Wait until what was asked for has been done, and what the broker asks for thereupon."""
        for _ in range(_ROUNDS):
            if not self._under_way:
                return
            before: Deferred[object] = Deferred()
            self._runner.run(lambda: None, before.callback, before.errback)
            await before

    def _counted(self, tell: Callable[[_T], None]) -> Callable[[_T], None]:
        def told(value: _T) -> None:
            try:
                tell(value)
            finally:
                self._under_way -= 1

        return told
