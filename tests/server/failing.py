"""Stores that fail on request, and runners that wait until they are resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from stompkit.server import InlineRunner
from stompkit.server.interfaces import (
    LaneState,
    MessageStore,
    Operation,
    StoredMessage,
    StoreError,
    StoreFullError,
)
from stompkit.server.stores import LmdbStore
from stompkit.server.stores.changes import Changes
from stompkit.server.stores.memory import MemoryStore
from stompkit.server.stores.sqlalchemy import SqlAlchemyStore

__all__ = ["KINDS", "FailingStore", "HeldRunner", "everything", "failing_store"]

#: The kinds of stores.
KINDS: Final = ("memory", "lmdb", "sqlite")
#: Failures after which a broker is believed to retry without a pause.
_MOST_FAILURES: Final = 2_000


class FailingStore:
    """A store of any kind that fails on request."""

    def __init__(self, store: MessageStore | None = None) -> None:
        """Wrap a store; without ``store``, one in memory. It works at first."""
        self._store = MemoryStore() if store is None else store
        #: Returns True if the given operations have to fail.
        self.fails: Callable[[Sequence[Operation]], bool] = lambda _: False
        self.reads_fail = False
        #: True to lose the connection after an update, before the reply.
        self.is_cut_off = False
        self.applied = 0
        self._failures_left = _MOST_FAILURES

    def open(self) -> None:
        """Open the store."""
        self._store.open()

    def lanes(self) -> list[LaneState]:
        """Return all lanes."""
        return self._store.lanes()

    def records(self) -> Mapping[str, bytes]:
        """Return all records."""
        return self._store.records()

    def apply(self, operations: Sequence[Operation]) -> None:
        """Apply all operations or none."""
        if self.fails(operations):
            # A full disk fails at the commit; impossible operations are detected earlier.
            changes = Changes(self._store.lanes())
            for operation in operations:
                changes.add(operation)
            self._failures_left -= 1
            if not self._failures_left:
                pytest.fail("the broker calls a store that fails again and again, without a pause")
            raise StoreFullError("no space left on device")
        self.applied += 1
        self._store.apply(operations)
        if self.is_cut_off:
            raise StoreError("the connection was lost")

    def read(
        self, lane: int, after: int, max_messages: int, max_octets: int
    ) -> Sequence[StoredMessage]:
        """Return stored messages, or fail."""
        if self.reads_fail:
            raise StoreError("input/output error")
        return self._store.read(lane, after, max_messages, max_octets)

    def sync(self) -> None:
        """Make all data durable."""
        self._store.sync()

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def failing_store(kind: str, directory: Path) -> FailingStore:
    """Return a store of one of the kinds, with its files in a directory."""
    if kind == "memory":
        return FailingStore()
    if kind == "lmdb":
        return FailingStore(LmdbStore(directory, synchronous=False))
    url = f"sqlite:///{directory / 'messages.sqlite'}"
    return FailingStore(SqlAlchemyStore(url, synchronous=False))


def everything(_: Sequence[Operation]) -> bool:
    """Return True: all operations fail."""
    return True


class HeldRunner(InlineRunner):
    """A runner that can be paused, so that many frames share a commit."""

    def __init__(self) -> None:
        """Start without a pause."""
        super().__init__()
        self.is_held = False
        self._waiting: list[Callable[[], None]] = []

    def run(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Make a call now or later."""
        if self.is_held:
            self._waiting.append(lambda: InlineRunner.run(self, work, done, failed))
        else:
            super().run(work, done, failed)

    @property
    def is_waiting(self) -> bool:
        """Return True if a call waits."""
        return bool(self._waiting)

    def step(self) -> None:
        """Make the oldest waiting call."""
        self._waiting.pop(0)()

    def go_on(self) -> None:
        """Make all waiting calls, and end the pause."""
        self.is_held = False
        while self._waiting:
            self.step()

    def stop(self) -> None:
        """Make all waiting calls; accept no more."""
        self.go_on()
        super().stop()
