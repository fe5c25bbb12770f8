"""Stores that fail when they are told to, and that answer when they are told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stompkit.server import InlineRunner
from stompkit.server._stores.memory import MemoryStore
from stompkit.server.interfaces import Operation, StoredMessage, StoreError, StoreFull

__all__ = ["FailingStore", "HeldRunner", "everything"]


class FailingStore(MemoryStore):
    """A store that fails when it is told to."""

    def __init__(self) -> None:
        """Work, for now."""
        super().__init__()
        #: Given the operations that are to be done; says whether they fail.
        self.fails: Callable[[Sequence[Operation]], bool] = lambda _: False
        self.reads_fail = False
        self.applied = 0

    def apply(self, operations: Sequence[Operation]) -> None:
        """Do all or nothing."""
        if self.fails(operations):
            raise StoreFull("no space left on device")
        self.applied += 1
        super().apply(operations)

    def read(
        self, lane: int, after: int, max_messages: int, max_octets: int
    ) -> Sequence[StoredMessage]:
        """Read, if it works."""
        if self.reads_fail:
            raise StoreError("input/output error")
        return super().read(lane, after, max_messages, max_octets)


def everything(_: Sequence[Operation]) -> bool:
    """Fail always."""
    return True


class HeldRunner(InlineRunner):
    """Calls the store when it is told to, so that many frames share a commit."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        super().__init__()
        self.is_held = False
        self._waiting: list[Callable[[], None]] = []

    def run(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Call now or later."""
        if self.is_held:
            self._waiting.append(lambda: InlineRunner.run(self, work, done, failed))
        else:
            super().run(work, done, failed)

    def step(self) -> None:
        """Make the call that has waited for longest."""
        self._waiting.pop(0)()

    def go_on(self) -> None:
        """Call what has waited, and wait no more."""
        self.is_held = False
        while self._waiting:
            self.step()
