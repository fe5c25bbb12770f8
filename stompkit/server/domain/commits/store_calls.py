"""Calls of the store: one for all pending write batches, or one for each after a failure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from stompkit.server.domain.commits.batches import RecordingCommitQueue
from stompkit.server.domain.commits.write_batch import StoreCall, WriteBatch, without_older
from stompkit.server.domain.deliveries import ConnectionBase
from stompkit.server.domain.scheduling.scheduler import Scheduler
from stompkit.server.domain.settlements import Acknowledged
from stompkit.server.interfaces import (
    BriefRunner,
    BriefStore,
    CreateLane,
    DropLane,
    MessageStore,
    Operation,
    Put,
    StoreError,
    StoreRunner,
    Timer,
)
from stompkit.server.log import store_events

__all__ = ["CallingCommitQueue"]

#: Maximum delay in seconds of an operation that nobody waits for, to share a commit.
_LAZY_S: Final = 0.1
#: Delay in seconds before a failed store is tried again, if no other operation arrives.
_RETRY_S: Final = 1.0
#: Maximum number of cycles between two batches of a sole sender: one in which the batch is passed
#: to the store and completes, and one that brings the next.
_CYCLES_OF_ONE: Final = 3


class CallingCommitQueue(RecordingCommitQueue):
    """Passes write batches to the store, in order, and reports their completion."""

    def __init__(
        self,
        store: MessageStore,
        runner: StoreRunner,
        scheduler: Scheduler,
        *,
        sync_interval_s: float | None = None,
    ) -> None:
        """Start empty; a call of the store that has completed ends a cycle."""
        super().__init__()
        self._store = store
        self._runner = runner
        self._scheduler = scheduler
        self._sync_interval_s = sync_interval_s
        #: Failed batches without messages, which are retried with the next call.
        self._owed: list[WriteBatch] = []
        #: Lanes, by number, whose creation was part of a refused batch. None of them has a message.
        #: Each is created with the next batch that needs it.
        self._unmade: dict[int, CreateLane] = {}
        #: Reads that wait for the pending removals of messages that they could return.
        self._reads: list[Callable[[], None]] = []
        self._busy = False
        #: The current call of the store, and the batches to be applied one by one after it.
        self._call: StoreCall | None = None
        self._rest: deque[WriteBatch] = deque()
        #: The store, if it supports brief calls.
        self._brief_store = store if isinstance(store, BriefStore) else None
        self._brief_runner = runner if isinstance(runner, BriefRunner) else None
        #: The sender of the last batches, if there was only one, and the number of cycles since
        #: then.
        self._last_sender: ConnectionBase | None = None
        self._cycles = 0
        self._closed = False
        self._is_abandoned = False
        self._unsynced = False
        self._timer: Timer | None = None
        self._sync_timer: Timer | None = None

    # The cycle.

    @property
    def has_work(self) -> bool:
        """True if :meth:`flush` would call the store now."""
        if self._busy or self._closed:
            return False
        return self._batch is not None or bool(self._pending)

    def flush(self) -> None:
        """Pass all pending batches to the store, unless it is busy."""
        self._cycles += 1
        self.cut()
        if self._busy or self._closed:
            return
        if self._pending:
            self._start()
        elif self._owed:
            self._later(_RETRY_S)
        elif self._lazy:
            self._later(_LAZY_S)

    def _start(self) -> None:
        self._busy = True
        is_one = len(self._owed) + len(self._pending) == 1
        batches = self._all_batches()
        operations = self._operations(batches)
        self._call = call = StoreCall(self._store, batches, operations)
        run = self._runner.run
        if is_one and self._is_alone(batches[-1].sender):
            store, runner = self._brief_store, self._brief_runner
            if store is not None and runner is not None and store.is_brief(operations):
                run = runner.run_brief
        run(
            call.make,
            lambda _: self._did(batches, operations),
            lambda error: self._failed(batches, error),
        )
        reads, self._reads = self._reads, []
        for read in reads:
            read()

    def _all_batches(self) -> list[WriteBatch]:
        """Take all pending batches, in order: delivery counts are newer than retried batches."""
        marks = WriteBatch()
        marks.operations, self._lazy = self._lazy, []
        batches = [*self._owed, *([marks] if marks.operations else ()), *self._pending]
        self._owed, self._pending = [], []
        self._hides = False
        return batches

    def _is_alone(self, sender: ConnectionBase | None) -> bool:
        """Return True if only the sender of a batch has used the store recently.

        Blocking its thread for the disk then delays nobody else. No other batches arrive meanwhile
        that could share the next commit.
        """
        is_alone = sender is self._last_sender and self._cycles <= _CYCLES_OF_ONE
        self._last_sender = sender
        self._cycles = 0
        return is_alone

    def _operations(self, batches: Sequence[WriteBatch]) -> list[Operation]:
        """Return the operations of batches, preceded by the creation of missing lanes."""
        operations = [each for batch in batches for each in batch.operations]
        if not self._unmade:
            return operations
        first: list[Operation] = []
        for number in dict.fromkeys(each.lane for each in operations if isinstance(each, Put)):
            if number in self._unmade:
                # The lane may exist after all if the connection to a database was lost in a commit.
                first += [DropLane(number), self._unmade[number]]
        return first + operations

    def _did(self, batches: list[WriteBatch], operations: Sequence[Operation]) -> None:
        self._busy = False
        self._unsynced = True
        if self.failure is not None and any(map(self._is_written, operations)):
            self.failure = None
            store_events.store_recovered()
        if self._unmade:
            self._forget_unmade(operations)
        for batch in batches:
            self._finish(batch, None)
        self._sync_later()
        self._scheduler.flush()

    def _is_written(self, operation: Operation) -> bool:
        """Return True if an operation causes a write: a lane never created needs no drop."""
        return not (isinstance(operation, DropLane) and operation.lane in self._unmade)

    def _finish(self, batch: WriteBatch, error: StoreError | None) -> None:
        if self._is_abandoned:
            return
        self.octets -= batch.octets
        puts = batch.puts
        if len(puts) > 1:
            # Messages dropped to make room for one of them must not include the others.
            for entry in puts:
                entry.home.arrived(entry)
        for entry in puts:
            entry.home.put_done(entry, error)
        for entry in batch.taken:
            entry.home.in_doubt -= 1
            if error is not None:
                entry.home.taken_back(entry)
            else:
                self._scheduler.touch(entry.home)
        if batch.gone is not None:
            self._finish_gone(batch.gone, error)
        if batch.sender is not None:
            batch.sender.committed(batch.receipt, error)
        if batch.done is not None:
            batch.done(error)
        then = batch.kept if error is None else batch.undo
        if then is not None:
            then()

    def _finish_gone(self, gone: Acknowledged, error: StoreError | None) -> None:
        for home, share in gone.shares.items():
            home.in_doubt -= share.messages
            self._scheduler.touch(home)
        if error is not None:
            if gone.finish is not None:
                gone.finish()
            for entry in gone.entries:
                entry.home.taken_back(entry)

    # Failures of the store.

    def _failed(self, batches: list[WriteBatch], error: StoreError) -> None:
        """Identify the failing batch by applying the batches one by one."""
        if self.failure is None:
            store_events.store_failed(error=str(error))
        self.failure = error
        if self._closed:
            # close() has handled it.
            return
        if len(batches) == 1:
            self._give_up(batches[0], error)
            self._busy = False
            self._scheduler.flush()
            return
        self._rest = deque(batches)
        self._one_by_one()

    def _one_by_one(self) -> None:
        while self._rest and not self._is_abandoned:
            if self._closed or not self._do_first():
                return
        self._busy = False
        self._sync_later()
        self._scheduler.flush()

    def _do_first(self) -> bool:
        """Apply the first of several batches; return True if it completed immediately."""
        batch = self._rest.popleft()
        operations = self._operations([batch])
        self._call = call = StoreCall(self._store, [batch], operations)
        # With a runner that answers immediately, the stack must not grow with each batch.
        is_done = is_later = False

        def go_on() -> None:
            nonlocal is_done
            is_done = True
            if is_later:
                self._one_by_one()

        def did(_: object) -> None:
            self._unsynced = True
            self._forget_unmade(operations)
            self._forget_older(operations)
            self._finish(batch, None)
            go_on()

        def failed(error: StoreError) -> None:
            self.failure = error
            if not self._closed:
                self._give_up(batch, error)
                go_on()

        self._runner.run(call.make, did, failed)
        is_later = True
        return is_done

    def _give_up(self, batch: WriteBatch, error: StoreError) -> None:
        """Refuse a batch with messages; retry one without them, and notify its sender."""
        if batch.puts or batch.taken or batch.gone is not None or batch.undo is not None:
            for each in batch.operations:
                if isinstance(each, CreateLane):
                    self._unmade[each.lane] = each
        else:
            self._owe(batch.operations)
        self._finish(batch, error)

    def _owe(self, operations: Sequence[Operation]) -> None:
        """Schedule operations to be retried; lanes never created are not dropped."""
        again = WriteBatch()
        again.operations = list(filter(self._is_written, operations))
        self._forget_unmade(operations)
        self._forget_older(operations)
        if again.operations:
            self._owed.append(again)

    def _forget_unmade(self, operations: Sequence[Operation]) -> None:
        """Record that lanes now exist, or are no longer needed."""
        for each in operations:
            if isinstance(each, (CreateLane, DropLane)):
                self._unmade.pop(each.lane, None)

    def _forget_older(self, operations: Sequence[Operation]) -> None:
        """Discard retried operations whose values have since been overwritten."""
        self._owed = without_older(self._owed, operations)

    # Timers.

    def _later(self, delay_s: float) -> None:
        if self._timer is None and not self._closed:
            self._timer = self._scheduler.clock.callLater(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._busy and not self._closed and (self._lazy or self._owed or self._pending):
            self._start()

    def _sync_later(self) -> None:
        interval_s = self._sync_interval_s
        if interval_s is not None and self._sync_timer is None and not self._closed:
            self._sync_timer = self._scheduler.clock.callLater(interval_s, self._sync)

    def _sync(self) -> None:
        self._sync_timer = None
        if self._unsynced and not self._closed:
            self._unsynced = False
            self._runner.run(self._store.sync, lambda _: None, self._sync_failed)

    def _sync_failed(self, error: StoreError) -> None:
        self._unsynced = True
        self.failure = error
        store_events.store_sync_failed(error=str(error))
        self._sync_later()
