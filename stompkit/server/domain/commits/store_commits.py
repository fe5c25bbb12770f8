"""Pending operations for the store, and the connections that wait for them.

The operations of one frame form a write batch, which the store applies as a whole or not at all.
Batches that arrive while the store is busy are applied together when it is free again, so that many
frames share one commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Final, cast

from twisted.logger import Logger

from stompkit.server.domain.commits.commit_queue import CommitQueue
from stompkit.server.domain.deliveries import ConnectionBase, MessageReference
from stompkit.server.domain.scheduling.scheduler import Scheduler
from stompkit.server.domain.settlements import Acknowledged
from stompkit.server.interfaces import (
    BriefRunner,
    BriefStore,
    CreateLane,
    DropLane,
    Mark,
    MessageStore,
    Operation,
    Put,
    SetRecord,
    StoredMessage,
    StoreError,
    StoreRunner,
    Timer,
)

__all__ = ["StoreCommitQueue", "WriteBatch"]

_log: Final = Logger()

#: Maximum delay in seconds of an operation that nobody waits for, to share a commit.
_LAZY_S: Final = 0.1
#: Delay in seconds before a failed store is tried again, if no other operation arrives.
_RETRY_S: Final = 1.0
#: Maximum number of cycles between two batches of a sole sender: one in which the batch is passed
#: to the store and completes, and one that brings the next.
_TURNS_OF_ONE: Final = 3


class WriteBatch:
    """Operations that are applied together, and their dependent actions.

    ``puts`` are the references that can be delivered once the batch is done, whether stored or in
    memory. ``taken`` are those that a transaction has settled; they return to their queues if the
    batch fails, as do those of ``gone``, which may be very many. ``sender`` is the connection to
    notify, with the receipt that it wants. ``done`` is called in any case. ``undo`` is called only
    if the batch fails, which is then not tried again, and ``kept`` only if it succeeds.
    """

    __slots__ = (
        "done",
        "gone",
        "kept",
        "octets",
        "operations",
        "puts",
        "receipt",
        "sender",
        "taken",
        "undo",
    )

    def __init__(self) -> None:
        """Start empty."""
        self.operations: list[Operation] = []
        self.puts: list[MessageReference] = []
        self.taken: list[MessageReference] = []
        self.gone: Acknowledged | None = None
        self.octets = 0
        self.sender: ConnectionBase | None = None
        self.receipt: str | None = None
        self.done: Callable[[StoreError | None], None] | None = None
        self.undo: Callable[[], None] | None = None
        self.kept: Callable[[], None] | None = None


class _Call:
    """Write batches passed to the store in one call."""

    __slots__ = ("is_done", "operations", "store", "units")

    def __init__(
        self, store: MessageStore, units: Sequence[WriteBatch], operations: Sequence[Operation]
    ) -> None:
        """Start with the batches and their combined operations."""
        self.store = store
        self.units = units
        self.operations = operations
        #: True once they are applied; set in the store's thread before anybody else is notified.
        self.is_done = False

    def make(self) -> None:
        """Apply the operations to the store."""
        self.store.apply(self.operations)
        self.is_done = True


def _what_is_set(operation: Operation) -> object:
    """Return the key of a value that the operation overwrites, or None."""
    if isinstance(operation, SetRecord):
        return operation.key
    if isinstance(operation, Mark):
        return operation.lane, operation.place
    return None


def _without_older(units: list[WriteBatch], operations: Sequence[Operation]) -> list[WriteBatch]:
    """Remove operations from batches that set values which *operations* overwrite."""
    keys = set(map(_what_is_set, operations)) - {None}
    if not keys:
        return units
    for unit in units:
        unit.operations = [each for each in unit.operations if _what_is_set(each) not in keys]
    return [unit for unit in units if unit.operations]


class StoreCommitQueue(CommitQueue):
    """Passes write batches to the store, in order, and reports their completion."""

    has_store: ClassVar[bool] = True

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
        self._unit: WriteBatch | None = None
        self._pending: list[WriteBatch] = []
        #: Failed batches without messages, which are retried with the next call.
        self._owed: list[WriteBatch] = []
        #: Lanes, by number, whose creation was part of a refused batch. None of them has a message.
        #: Each is created with the next batch that needs it.
        self._unmade: dict[int, CreateLane] = {}
        self._lazy: list[Operation] = []
        #: True if a pending operation removes messages that reads could return; the reads that wait
        #: for it follow.
        self._hides = False
        self._reads: list[Callable[[], None]] = []
        self._busy = False
        #: The current call of the store, and the batches to be applied one by one after it.
        self._call: _Call | None = None
        self._rest: deque[WriteBatch] = deque()
        #: The store, if it supports brief calls.
        self._brief_store = store if isinstance(store, BriefStore) else None
        self._brief_runner = runner if isinstance(runner, BriefRunner) else None
        #: The sender of the last batches, if there was only one, and the number of cycles since
        #: then.
        self._last_sender: ConnectionBase | None = None
        self._turns = 0
        self._closed = False
        self._is_abandoned = False
        self._unsynced = False
        self._timer: Timer | None = None
        self._sync_timer: Timer | None = None

    # Effects of frames.

    def record(self, operation: Operation) -> None:
        """Add an operation to the current batch."""
        unit = self._unit
        if unit is None:
            unit = self._unit = WriteBatch()
        unit.operations.append(operation)

    def hide(self, operation: Operation) -> None:
        """Add the removal of a readable message: later reads do not return it."""
        self.record(operation)
        self._hides = True

    def put(self, entry: MessageReference, operation: Put) -> None:
        """Add a message; the home of its reference is notified when it is stored."""
        self.record(operation)
        unit = self._unit
        assert unit is not None  # record() has created it
        unit.puts.append(entry)
        unit.octets += operation.size
        self.octets += operation.size

    @property
    def is_recording(self) -> bool:
        """Return True if the current batch contains operations."""
        return self._unit is not None and bool(self._unit.operations)

    def follow(self, entry: MessageReference) -> None:
        """Delay a message that is not stored until the current batch is stored.

        Its home is notified as if the message were stored.
        """
        unit = self._unit
        if unit is None:
            unit = self._unit = WriteBatch()
        size = entry.message.size
        unit.puts.append(entry)
        unit.octets += size
        self.octets += size

    def take(self, entries: Sequence[MessageReference]) -> None:
        """Record references settled by this batch that must return if it fails."""
        if self._unit is not None:
            self._unit.taken.extend(entries)
            for entry in entries:
                # Their queue must still exist then.
                entry.home.in_doubt += 1

    def forget(self, acknowledged: Acknowledged) -> None:
        """Add the removal of everything that a transaction has acknowledged.

        It is undone if the batch fails.
        """
        unit = self._unit
        for home, share in acknowledged.shares.items():
            # Nothing is removed for a queue that an operator has deleted meanwhile.
            if share.removals and home.is_stored:
                if unit is None:
                    unit = self._unit = WriteBatch()
                unit.operations.extend(share.removals)
        if unit is not None:
            unit.gone = acknowledged
            for home, share in acknowledged.shares.items():
                home.in_doubt += share.messages

    def undo_with(self, undo: Callable[[], None], kept: Callable[[], None]) -> None:
        """Call *undo* if the current batch fails, after its sender has been notified.

        ``kept`` is called if it succeeds.
        """
        if self._unit is not None:
            self._unit.undo = undo
            self._unit.kept = kept

    def when_kept(self, call: Callable[[], None]) -> None:
        """Add a call to be made once the current batch is stored and its sender notified."""
        unit = self._unit
        if unit is None:
            call()
            return
        earlier = unit.kept

        def both() -> None:
            if earlier is not None:
                earlier()
            call()

        unit.kept = both

    def apart(self, operation: Operation) -> None:
        """Apply an operation in a separate batch, ahead of the current one."""
        unit = WriteBatch()
        unit.operations.append(operation)
        self._pending.append(unit)

    def lazily(self, operation: Operation) -> None:
        """Apply an operation with the next batch; it may be lost if the process dies."""
        self._lazy.append(operation)

    def cut(self, sender: ConnectionBase | None = None, receipt: str | None = None) -> bool:
        """End the current batch; return True if there was one, whose sender is notified later."""
        unit = self._unit
        if unit is None:
            return False
        self._unit = None
        unit.sender = sender
        unit.receipt = receipt
        self._pending.append(unit)
        return True

    def cut_for(self, done: Callable[[StoreError | None], None]) -> bool:
        """End the current batch, if any; ``done`` is called on completion, with any error."""
        unit = self._unit
        if unit is None:
            return False
        unit.done = done
        return self.cut()

    def barrier(self, sender: ConnectionBase, receipt: str) -> None:
        """Notify a sender when everything recorded so far is stored."""
        self.cut()
        unit = WriteBatch()
        unit.sender, unit.receipt = sender, receipt
        self._pending.append(unit)

    # The cycle.

    @property
    def has_work(self) -> bool:
        """True if :meth:`flush` would call the store now."""
        if self._busy or self._closed:
            return False
        return self._unit is not None or bool(self._pending)

    def flush(self) -> None:
        """Pass all pending batches to the store, unless it is busy."""
        self._turns += 1
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
        units = self._all_units()
        operations = self._operations(units)
        self._call = call = _Call(self._store, units, operations)
        run = self._runner.run
        if is_one and self._is_alone(units[-1].sender):
            store, runner = self._brief_store, self._brief_runner
            if store is not None and runner is not None and store.is_brief(operations):
                run = runner.run_brief
        run(
            call.make,
            lambda _: self._did(units, operations),
            lambda error: self._failed(units, error),
        )
        reads, self._reads = self._reads, []
        for read in reads:
            read()

    def _all_units(self) -> list[WriteBatch]:
        """Take all pending batches, in order: delivery counts are newer than retried batches."""
        marks = WriteBatch()
        marks.operations, self._lazy = self._lazy, []
        units = [*self._owed, *([marks] if marks.operations else ()), *self._pending]
        self._owed, self._pending = [], []
        self._hides = False
        return units

    def _is_alone(self, sender: ConnectionBase | None) -> bool:
        """Return True if only the sender of a batch has used the store recently.

        Blocking its thread for the disk then delays nobody else. No other batches arrive meanwhile
        that could share the next commit.
        """
        is_alone = sender is self._last_sender and self._turns <= _TURNS_OF_ONE
        self._last_sender = sender
        self._turns = 0
        return is_alone

    def _operations(self, units: Sequence[WriteBatch]) -> list[Operation]:
        """Return the operations of batches, preceded by the creation of missing lanes."""
        operations = [each for unit in units for each in unit.operations]
        if not self._unmade:
            return operations
        first: list[Operation] = []
        for number in dict.fromkeys(each.lane for each in operations if isinstance(each, Put)):
            if number in self._unmade:
                # The lane may exist after all if the connection to a database was lost in a commit.
                first += [DropLane(number), self._unmade[number]]
        return first + operations

    def _did(self, units: list[WriteBatch], operations: Sequence[Operation]) -> None:
        self._busy = False
        self._unsynced = True
        if self.failure is not None and any(map(self._is_written, operations)):
            self.failure = None
            _log.info("the store works again")
        if self._unmade:
            self._forget_unmade(operations)
        for unit in units:
            self._finish(unit, None)
        self._sync_later()
        self._scheduler.flush()

    def _is_written(self, operation: Operation) -> bool:
        """Return True if an operation causes a write: a lane never created needs no drop."""
        return not (isinstance(operation, DropLane) and operation.lane in self._unmade)

    def _finish(self, unit: WriteBatch, error: StoreError | None) -> None:
        if self._is_abandoned:
            return
        self.octets -= unit.octets
        puts = unit.puts
        if len(puts) > 1:
            # Messages dropped to make room for one of them must not include the others.
            for entry in puts:
                entry.home.arrived(entry)
        for entry in puts:
            entry.home.put_done(entry, error)
        for entry in unit.taken:
            entry.home.in_doubt -= 1
            if error is not None:
                entry.home.taken_back(entry)
            else:
                self._scheduler.touch(entry.home)
        if unit.gone is not None:
            self._finish_gone(unit.gone, error)
        if unit.sender is not None:
            unit.sender.committed(unit.receipt, error)
        if unit.done is not None:
            unit.done(error)
        then = unit.kept if error is None else unit.undo
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

    def _failed(self, units: list[WriteBatch], error: StoreError) -> None:
        """Identify the failing batch by applying the batches one by one."""
        if self.failure is None:
            _log.error("the store has failed: {error}", error=error)
        self.failure = error
        if self._closed:
            # close() has handled it.
            return
        if len(units) == 1:
            self._give_up(units[0], error)
            self._busy = False
            self._scheduler.flush()
            return
        self._rest = deque(units)
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
        unit = self._rest.popleft()
        operations = self._operations([unit])
        self._call = call = _Call(self._store, [unit], operations)
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
            self._finish(unit, None)
            go_on()

        def failed(error: StoreError) -> None:
            self.failure = error
            if not self._closed:
                self._give_up(unit, error)
                go_on()

        self._runner.run(call.make, did, failed)
        is_later = True
        return is_done

    def _give_up(self, unit: WriteBatch, error: StoreError) -> None:
        """Refuse a batch with messages; retry one without them, and notify its sender."""
        if unit.puts or unit.taken or unit.gone is not None or unit.undo is not None:
            for each in unit.operations:
                if isinstance(each, CreateLane):
                    self._unmade[each.lane] = each
        else:
            self._owe(unit.operations)
        self._finish(unit, error)

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
        self._owed = _without_older(self._owed, operations)

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
        _log.error("the store can't sync: {error}", error=error)
        self._sync_later()

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
                _log.error("the store can't be read: {error}", error=error)
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
        units = self._all_units()
        call, rest = self._call if self._busy else None, list(self._rest)
        self._rest.clear()
        outcomes: list[tuple[WriteBatch, StoreError | None]] = []

        def finish() -> None:
            # Runs in the store's thread, after the calls made before. Those may have failed without
            # anybody being notified.
            again: Sequence[WriteBatch] = ()
            first = owed
            if call is not None and call.is_done:
                first = _without_older(owed, call.operations)
            elif call is not None:
                again = call.units
            outcomes.extend(self._do_last([*first, *again, *rest, *units]))

        def did(_: object) -> None:
            for reason in [error for _, error in outcomes if error is not None][:1]:
                self._lost(reason)
            for unit, error in outcomes:
                self._finish(unit, error)

        self._runner.run(finish, did, self._lost)
        self._runner.run(self._store.close, lambda _: None, self._lost)
        self._runner.stop()

    def _do_last(
        self, units: Sequence[WriteBatch]
    ) -> Iterator[tuple[WriteBatch, StoreError | None]]:
        """Apply batches, together or else one by one; yield the result of each."""
        operations = self._operations(units)
        try:
            if operations:
                self._store.apply(operations)
        except StoreError as error:
            if len(units) == 1:
                yield units[0], error
                return
        else:
            for unit in units:
                yield unit, None
            return
        for unit in units:
            yield from self._do_last([unit])

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
        self._unit = None
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
            _log.error("the store can't be emptied: {error}", error=error)
            done(error)

        self._runner.run(forget, did, failed)

    @staticmethod
    def _lost(error: StoreError) -> None:
        _log.error("the store could not be closed properly: {error}", error=error)
