"""Pending operations for the store, and the connections that wait for them.

The operations of one frame form a write batch, which the store applies as a whole or not at all.
Batches that arrive while the store is busy are applied together when it is free again, so that many
frames share one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

from stompkit.server.domain.commits.store_calls import CallingCommitQueue
from stompkit.server.domain.commits.write_batch import WriteBatch, without_older
from stompkit.server.interfaces import (
    DropLane,
    Operation,
    SetRecord,
    StoredMessage,
    StoreError,
)
from stompkit.server.log import store_events

__all__ = ["StoreCommitQueue"]


class StoreCommitQueue(CallingCommitQueue):
    """The commit queue of a broker with a store: it also reads, closes and empties the store."""

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
        if self._closed:
            return

        def read() -> object:
            return self._store.read(lane, after, max_messages, max_octets)

        def did(messages: object) -> None:
            if not self._closed:
                done(cast("Sequence[StoredMessage]", messages))
                self._scheduler.flush()

        def did_not(error: StoreError) -> None:
            if not self._closed:
                store_events.store_read_failed(error=str(error))
                self.failure = error
                failed(error)
                self._scheduler.flush()

        if self._hides:
            self._reads.append(lambda: self._runner.run(read, did, did_not))
        else:
            self._runner.run(read, did, did_not)

    def close(self) -> None:
        """Apply all pending operations, close the store and stop its runner; blocks."""
        if self._closed:
            return
        self.cut()
        self._closed = True
        self._cancel_timers()
        # Retried operations are older than everything passed to the store since.
        owed, self._owed = self._owed, []
        batches = self._all_batches()
        call, rest = self._call if self._busy else None, list(self._rest)
        self._rest.clear()
        outcomes: list[tuple[WriteBatch, StoreError | None]] = []

        def finish() -> None:
            # Runs in the store's thread, after the calls made before. Those may have failed without
            # anybody being notified.
            again: Sequence[WriteBatch] = ()
            first = owed
            if call is not None and call.is_done:
                first = without_older(owed, call.operations)
            elif call is not None:
                again = call.batches
            outcomes.extend(self._do_last([*first, *again, *rest, *batches]))

        def did(_: object) -> None:
            for reason in [error for _, error in outcomes if error is not None][:1]:
                self._lost(reason)
            for batch, error in outcomes:
                self._finish(batch, error)

        self._runner.run(finish, did, self._lost)
        self._runner.run(self._store.close, lambda _: None, self._lost)
        self._runner.stop()

    def _do_last(
        self, batches: Sequence[WriteBatch]
    ) -> Iterator[tuple[WriteBatch, StoreError | None]]:
        """Apply batches, together or else one by one; yield the result of each."""
        operations = self._operations(batches)
        try:
            if operations:
                self._store.apply(operations)
        except StoreError as error:
            if len(batches) == 1:
                yield batches[0], error
                return
        else:
            for batch in batches:
                yield batch, None
            return
        for batch in batches:
            yield from self._do_last([batch])

    def _cancel_timers(self) -> None:
        for timer in (self._timer, self._sync_timer):
            if timer is not None and timer.active():
                timer.cancel()

    def abandon(self) -> None:
        """Discard pending operations and ignore the results of current ones; the store stays open.

        Another commit queue can use the store and its runner from now on.
        """
        self._closed = self._is_abandoned = True
        self._cancel_timers()
        self._batch = None
        for left in (self._pending, self._owed, self._lazy, self._reads):
            left.clear()

    def empty(self, done: Callable[[StoreError | None], None]) -> None:
        """Delete the whole content of the store, before all other operations, or nothing of it."""
        store = self._store

        def forget() -> None:
            operations: list[Operation] = [DropLane(state.lane) for state in store.lanes()]
            operations += [SetRecord(key, None) for key in store.records()]
            if operations:
                store.apply(operations)

        def did(_: object) -> None:
            self._unsynced = True
            self._sync_later()
            done(None)

        def failed(error: StoreError) -> None:
            self.failure = error
            store_events.store_empty_failed(error=str(error))
            done(error)

        self._runner.run(forget, did, failed)

    @staticmethod
    def _lost(error: StoreError) -> None:
        store_events.store_close_failed(error=str(error))
