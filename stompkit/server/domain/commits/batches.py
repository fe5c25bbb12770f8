"""Write batches of frames: the recording of operations for the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from stompkit.server.domain.commits.commit_queue import CommitQueue
from stompkit.server.domain.commits.write_batch import Completion, WriteBatch
from stompkit.server.domain.deliveries import ConnectionBase, MessageReference
from stompkit.server.domain.settlements import Acknowledged
from stompkit.server.interfaces import (
    Operation,
    Put,
    StoreError,
)

__all__ = ["RecordingCommitQueue"]


class RecordingCommitQueue(CommitQueue):
    """Records the operations of frames in write batches; a subclass passes these to the store."""

    has_store: ClassVar[bool] = True

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self._batch: WriteBatch | None = None
        self._pending: list[WriteBatch] = []
        #: Reports the completion of the changes being made by :meth:`carry_out`, if any.
        self._completion: Completion | None = None
        self._lazy: list[Operation] = []
        #: True if a pending operation removes messages that reads could return.
        self._hides = False

    # Effects of frames.

    def record(self, operation: Operation) -> None:
        """Add an operation to the current batch."""
        batch = self._batch
        if batch is None:
            batch = self._batch = WriteBatch()
        batch.operations.append(operation)

    def hide(self, operation: Operation) -> None:
        """Add the removal of a readable message: later reads do not return it."""
        self.record(operation)
        self._hides = True

    def put(self, entry: MessageReference, operation: Put) -> None:
        """Add a message; the home of its reference is notified when it is stored."""
        self.record(operation)
        batch = self._batch
        assert batch is not None  # record() has created it
        batch.puts.append(entry)
        batch.octets += operation.size
        self.octets += operation.size

    @property
    def is_recording(self) -> bool:
        """Return True if the current batch contains operations."""
        return self._batch is not None and bool(self._batch.operations)

    def follow(self, entry: MessageReference) -> None:
        """Delay a message that is not stored until the current batch is stored.

        Its home is notified as if the message were stored.
        """
        batch = self._batch
        if batch is None:
            batch = self._batch = WriteBatch()
        size = entry.message.size
        batch.puts.append(entry)
        batch.octets += size
        self.octets += size

    def take(self, entries: Sequence[MessageReference]) -> None:
        """Record references settled by this batch that must return if it fails."""
        if self._batch is not None:
            self._batch.taken.extend(entries)
            for entry in entries:
                # Their queue must still exist then.
                entry.home.in_doubt += 1

    def forget(self, acknowledged: Acknowledged) -> None:
        """Add the removal of everything that a transaction has acknowledged.

        It is undone if the batch fails.
        """
        batch = self._batch
        for home, share in acknowledged.shares.items():
            # Nothing is removed for a queue that an operator has deleted meanwhile.
            if share.removals and home.is_stored:
                if batch is None:
                    batch = self._batch = WriteBatch()
                batch.operations.extend(share.removals)
        if batch is not None:
            batch.gone = acknowledged
            for home, share in acknowledged.shares.items():
                home.in_doubt += share.messages

    def undo_with(self, undo: Callable[[], None], kept: Callable[[], None]) -> None:
        """Call *undo* if the current batch fails, after its sender has been notified.

        ``kept`` is called if it succeeds.
        """
        if self._batch is not None:
            self._batch.undo = undo
            self._batch.kept = kept

    def when_kept(self, call: Callable[[], None]) -> None:
        """Add a call to be made once the current batch is stored and its sender notified."""
        batch = self._batch
        if batch is None:
            call()
            return
        earlier = batch.kept

        def both() -> None:
            if earlier is not None:
                earlier()
            call()

        batch.kept = both

    def apart(self, operation: Operation) -> None:
        """Apply an operation in a separate batch, ahead of the current one."""
        batch = WriteBatch()
        batch.operations.append(operation)
        self._pend(batch)

    def _pend(self, batch: WriteBatch) -> None:
        if self._completion is not None:
            self._completion.add(batch)
        self._pending.append(batch)

    def lazily(self, operation: Operation) -> None:
        """Apply an operation with the next batch; it may be lost if the process dies."""
        self._lazy.append(operation)

    def cut(self, sender: ConnectionBase | None = None, receipt: str | None = None) -> bool:
        """End the current batch; return True if there was one, whose sender is notified later."""
        batch = self._batch
        if batch is None:
            return False
        self._batch = None
        batch.sender = sender
        batch.receipt = receipt
        self._pend(batch)
        return True

    def cut_for(self, done: Callable[[StoreError | None], None]) -> bool:
        """End the current batch, if any; ``done`` is called on completion, with any error."""
        batch = self._batch
        if batch is None:
            return False
        batch.done = done
        return self.cut()

    def carry_out(
        self, changes: Callable[[], object], done: Callable[[StoreError | None], None]
    ) -> None:
        """Make changes; call ``done`` once the store has all of them, or with the first error.

        Unlike :meth:`cut_for`, it includes the operations that *changes* applies :meth:`apart`.
        """
        self.cut()
        completion = Completion(done)
        outer, self._completion = self._completion, completion
        try:
            changes()
            self.cut()
        finally:
            self._completion = outer
        completion.end()

    def barrier(self, sender: ConnectionBase, receipt: str) -> None:
        """Notify a sender when everything recorded so far is stored."""
        self.cut()
        batch = WriteBatch()
        batch.sender, batch.receipt = sender, receipt
        self._pend(batch)
