"""Stores that fail when they are told to, and that answer when they are told to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from stompkit.server import InlineRunner
from stompkit.server.interfaces import (
    LaneState,
    MessageStore,
    Operation,
    StoredMessage,
    StoreError,
    StoreFull,
)
from stompkit.server.stores import LmdbStore
from stompkit.server.stores.changes import Changes
from stompkit.server.stores.memory import MemoryStore
from stompkit.server.stores.sqlalchemy import SqlAlchemyStore

__all__ = ["KINDS", "FailingStore", "HeldRunner", "everything", "failing_store"]

#: The kinds of stores.
KINDS: Final = ("memory", "lmdb", "sqlite")


class FailingStore:
    """A store of any kind that fails when it is told to."""

    def __init__(self, store: MessageStore | None = None) -> None:
        """Work, for now; without ``store``, in memory."""
        self._store = MemoryStore() if store is None else store
        #: Given the operations that are to be done; says whether they fail.
        self.fails: Callable[[Sequence[Operation]], bool] = lambda _: False
        self.reads_fail = False
        #: Whether it does what it is told to, but is cut off before it can say so.
        self.is_cut_off = False
        self.applied = 0

    def open(self) -> None:
        """Open the store."""
        self._store.open()

    def lanes(self) -> list[LaneState]:
        """All lanes."""
        return self._store.lanes()

    def records(self) -> Mapping[str, bytes]:
        """All records."""
        return self._store.records()

    def apply(self, operations: Sequence[Operation]) -> None:
        """Do all or nothing."""
        if self.fails(operations):
            # A disk is found to be full by a commit: what can't be done at all is found before.
            changes = Changes(self._store.lanes())
            for operation in operations:
                changes.add(operation)
            raise StoreFull("no space left on device")
        self.applied += 1
        self._store.apply(operations)
        if self.is_cut_off:
            raise StoreError("the connection was lost")

    def read(
        self, lane: int, after: int, max_messages: int, max_octets: int
    ) -> Sequence[StoredMessage]:
        """Read, if it works."""
        if self.reads_fail:
            raise StoreError("input/output error")
        return self._store.read(lane, after, max_messages, max_octets)

    def sync(self) -> None:
        """Have everything survive."""
        self._store.sync()

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def failing_store(kind: str, directory: Path) -> FailingStore:
    """A store of one of the kinds, with its files in a directory."""
    if kind == "memory":
        return FailingStore()
    if kind == "lmdb":
        return FailingStore(LmdbStore(directory, synchronous=False))
    url = f"sqlite:///{directory / 'messages.sqlite'}"
    return FailingStore(SqlAlchemyStore(url, synchronous=False))


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

    def stop(self) -> None:
        """Call what has waited; take no more."""
        self.go_on()
        super().stop()
