"""The commit queue of a broker without a store, which keeps nothing.

It is the base of the one that passes operations to a store: callers need not know if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from stompkit.server.domain.deliveries import ConnectionBase, MessageReference
from stompkit.server.domain.settlements import Acknowledged
from stompkit.server.interfaces import Operation, Put, StoredMessage, StoreError

__all__ = ["CommitQueue"]


class CommitQueue:
    """Discards all operations: everything is in memory."""

    #: True if there is a store.
    has_store: ClassVar[bool] = False

    def __init__(self) -> None:
        """Start empty."""
        #: Number of bytes of messages passed to the store and not completed.
        self.octets = 0
        #: The error of the last call of the store, if it failed.
        self.failure: StoreError | None = None

    # Effects of frames.

    def record(self, operation: Operation) -> None:
        """Add an operation to the current batch."""

    def hide(self, operation: Operation) -> None:
        """Add the removal of a readable message: later reads do not return it."""

    def put(self, entry: MessageReference, operation: Put) -> None:
        """Add a message; the home of its reference is notified when it is stored."""

    @property
    def is_recording(self) -> bool:
        """Return True if the current batch contains operations."""
        return False

    def follow(self, entry: MessageReference) -> None:
        """Delay a message that is not stored until the current batch is stored.

        Its home is notified as if the message were stored.
        """

    def take(self, entries: Sequence[MessageReference]) -> None:
        """Record references settled by this batch that must return if it fails."""

    def forget(self, acknowledged: Acknowledged) -> None:
        """Add the removal of everything that a transaction has acknowledged.

        It is undone if the batch fails.
        """

    def undo_with(self, undo: Callable[[], None], kept: Callable[[], None]) -> None:
        """Call *undo* if the current batch fails, after its sender has been notified.

        ``kept`` is called if it succeeds.
        """
        kept()

    def when_kept(self, call: Callable[[], None]) -> None:
        """Add a call to be made once the current batch is stored and its sender notified."""
        call()

    def apart(self, operation: Operation) -> None:
        """Apply an operation in a separate batch, ahead of the current one."""

    def lazily(self, operation: Operation) -> None:
        """Apply an operation with the next batch; it may be lost if the process dies."""

    def cut(self, sender: ConnectionBase | None = None, receipt: str | None = None) -> bool:
        """End the current batch; return True if there was one, whose sender is notified later."""
        return False

    def cut_for(self, done: Callable[[StoreError | None], None]) -> bool:
        """End the current batch, if any; ``done`` is called on completion, with any error."""
        return False

    def carry_out(
        self, changes: Callable[[], object], done: Callable[[StoreError | None], None]
    ) -> None:
        """Make changes; call ``done`` once the store has all of them, or with the first error.

        Unlike :meth:`cut_for`, it includes the operations that *changes* applies :meth:`apart`.
        """
        changes()
        done(None)

    def barrier(self, sender: ConnectionBase, receipt: str) -> None:
        """Notify a sender when everything recorded so far is stored."""
        sender.committed(receipt, None)

    # The cycle.

    @property
    def has_work(self) -> bool:
        """True if :meth:`flush` would call the store now."""
        return False

    def flush(self) -> None:
        """Pass all pending batches to the store, unless it is busy."""

    # Reading, opening and closing.

    def read(
        self,
        lane: int,
        after: int,
        max_messages: int,
        max_octets: int,
        done: Callable[[Sequence[StoredMessage]], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Read messages from the store; does nothing after :meth:`close`.

        The read follows all operations passed before, so that hidden messages are already removed.
        """
        raise NotImplementedError("messages outside memory require a store")

    def close(self) -> None:
        """Apply all pending operations, close the store and stop its runner; blocks."""

    def abandon(self) -> None:
        """Discard pending operations and ignore the results of current ones; the store stays open.

        Another commit queue can use the store and its runner from now on.
        """

    def empty(self, done: Callable[[StoreError | None], None]) -> None:
        """Delete the whole content of the store, before all other operations, or nothing of it."""
        done(None)
