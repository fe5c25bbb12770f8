"""What waits to be kept by the store, and who waits for it.

The operations of one frame are a unit: the store does all of it or none. Units that come up
while the store is busy are handed to it together when it is free again, so that many frames
share one commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, cast

from twisted.logger import Logger

from stompkit.server.interfaces import (
    BriefRunner,
    BriefStore,
    Clock,
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

if TYPE_CHECKING:
    from stompkit.server.domain.queues.references import MessageReference
    from stompkit.server.domain.session.connection import Connection
    from stompkit.server.domain.session.transactions import Acknowledged

__all__ = ["CommitQueue", "WriteBatch"]

_log: Final = Logger()

#: Seconds that an operation nobody waits for may wait for others to be done with.
_LAZY_S: Final = 0.1
#: Seconds until a store that has failed is tried again, if nothing else comes up.
_RETRY_S: Final = 1.0
#: Turns from one unit to the next of a sender who is the only one to be served: that in which the
#: unit was handed over and ends, and the one that brings the next.
_TURNS_OF_ONE: Final = 3


class WriteBatch:
    """Operations that are done together, and what depends on them.

    ``puts`` are the entries that can be delivered once the unit is done, whether they are stored or
    in memory; ``taken`` those that a transaction has settled, and that go back to their queues if
    it can't be done, as do those of ``gone``, which are very many. ``sender`` is the connection to
    tell, with the receipt that it wants, and ``done`` what else to call; ``undo`` is called only if
    the unit can't be done, which is not tried again then, and ``kept`` only if it is done.
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
        """Begin with nothing."""
        self.operations: list[Operation] = []
        self.puts: list[MessageReference] = []
        self.taken: list[MessageReference] = []
        self.gone: Acknowledged | None = None
        self.octets = 0
        self.sender: Connection | None = None
        self.receipt: str | None = None
        self.done: Callable[[StoreError | None], None] | None = None
        self.undo: Callable[[], None] | None = None
        self.kept: Callable[[], None] | None = None


class _Call:
    """Units that the store has been asked to do together."""

    __slots__ = ("is_done", "operations", "store", "units")

    def __init__(
        self, store: MessageStore, units: Sequence[WriteBatch], operations: Sequence[Operation]
    ) -> None:
        """Take the units, and what they come to."""
        self.store = store
        self.units = units
        self.operations = operations
        #: Whether they are done: known in the store's thread before anybody else hears of it.
        self.is_done = False

    def make(self) -> None:
        """Have the store do it."""
        self.store.apply(self.operations)
        self.is_done = True


def _what_is_set(operation: Operation) -> object:
    """What an operation gives a value that those before it count for nothing against."""
    if isinstance(operation, SetRecord):
        return operation.key
    if isinstance(operation, Mark):
        return operation.lane, operation.place
    return None


def _without_older(units: list[WriteBatch], operations: Sequence[Operation]) -> list[WriteBatch]:
    """Take from units what sets another value of something that operations set."""
    keys = set(map(_what_is_set, operations)) - {None}
    if not keys:
        return units
    for unit in units:
        unit.operations = [each for each in unit.operations if _what_is_set(each) not in keys]
    return [unit for unit in units if unit.operations]


class CommitQueue:
    """Hands units to the store, in order, and says when they are done."""

    def __init__(
        self,
        store: MessageStore,
        runner: StoreRunner,
        clock: Clock,
        wake: Callable[[], None],
        *,
        sync_interval_s: float | None = None,
    ) -> None:
        """Keep what is needed; ``wake`` is called when something has been done."""
        self._store = store
        self._runner = runner
        self._clock = clock
        self._wake = wake
        self._sync_interval_s = sync_interval_s
        self._unit: WriteBatch | None = None
        self._pending: list[WriteBatch] = []
        #: Units without messages that have failed and are tried again with whatever comes next.
        self._owed: list[WriteBatch] = []
        #: Lanes that were to be made by units that were refused, by their numbers: none of them
        #: has a message. They are made with the next one.
        self._unmade: dict[int, CreateLane] = {}
        self._lazy: list[Operation] = []
        #: Whether something is to be handed over that removes what could be read, and the reads
        #: that wait for that.
        self._hides = False
        self._reads: list[Callable[[], None]] = []
        self._busy = False
        #: What the store was asked for last, and the units that are done one by one after it.
        self._call: _Call | None = None
        self._rest: deque[WriteBatch] = deque()
        #: What can be asked to do little at once, where there is such.
        self._brief_store = store if isinstance(store, BriefStore) else None
        self._brief_runner = runner if isinstance(runner, BriefRunner) else None
        #: Whom the last units were of, if of one only, and turns that have ended since then.
        self._last_sender: Connection | None = None
        self._turns = 0
        self._closed = False
        self._is_abandoned = False
        self._unsynced = False
        self._timer: Timer | None = None
        self._sync_timer: Timer | None = None
        #: Octets of messages that have been handed over and are not done.
        self.octets = 0
        #: Why the last thing that the store was asked for failed, if it did.
        self.failure: StoreError | None = None

    # What frames do.

    def record(self, operation: Operation) -> None:
        """Add an operation to the unit of what is going on now."""
        unit = self._unit
        if unit is None:
            unit = self._unit = WriteBatch()
        unit.operations.append(operation)

    def hide(self, operation: Operation) -> None:
        """Add the removal of a message that could be read: nothing that follows reads it."""
        self.record(operation)
        self._hides = True

    def put(self, entry: MessageReference, operation: Put) -> None:
        """Add a message; its entry's home hears of it when it is done."""
        self.record(operation)
        unit = self._unit
        assert unit is not None  # record() has made it
        unit.puts.append(entry)
        unit.octets += operation.size
        self.octets += operation.size

    @property
    def is_recording(self) -> bool:
        """Return whether what is going on now has the store do anything."""
        return self._unit is not None and bool(self._unit.operations)

    def follow(self, entry: MessageReference) -> None:
        """Have a message that is not stored wait until what is going on now is kept.

        Its home hears of it as if it were stored.
        """
        unit = self._unit
        if unit is None:
            unit = self._unit = WriteBatch()
        size = entry.message.size
        unit.puts.append(entry)
        unit.octets += size
        self.octets += size

    def take(self, entries: Sequence[MessageReference]) -> None:
        """Note entries settled by this unit that must come back if it fails."""
        if self._unit is not None:
            self._unit.taken.extend(entries)
            for entry in entries:
                # They must find their queue again.
                entry.home.in_doubt += 1

    def forget(self, acknowledged: Acknowledged) -> None:
        """Add the removal of all that a transaction has acknowledged.

        It comes back if that can't be done.
        """
        unit = self._unit
        for home, share in acknowledged.shares.items():
            # There is nothing to remove of a queue that an operator has removed meanwhile.
            if share.removals and home.is_stored:
                if unit is None:
                    unit = self._unit = WriteBatch()
                unit.operations.extend(share.removals)
        if unit is not None:
            unit.gone = acknowledged
            for home, share in acknowledged.shares.items():
                home.in_doubt += share.messages

    def undo_with(self, undo: Callable[[], None], kept: Callable[[], None] | None = None) -> None:
        """Have something called if what is going on now can't be kept, once its sender knows.

        ``kept`` is called if it is kept.
        """
        if self._unit is not None:
            self._unit.undo = undo
            self._unit.kept = kept

    def when_kept(self, call: Callable[[], None]) -> None:
        """Call something, too, once what is going on now is kept and its sender has been told."""
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
        """Have an operation done in a unit of its own, ahead of what is going on now."""
        unit = WriteBatch()
        unit.operations.append(operation)
        self._pending.append(unit)

    def lazily(self, operation: Operation) -> None:
        """Have an operation done with the next unit; it may be lost if the process dies."""
        self._lazy.append(operation)

    def cut(self, sender: Connection | None = None, receipt: str | None = None) -> bool:
        """End the unit; its sender is told when it is done, if there was one."""
        unit = self._unit
        if unit is None:
            return False
        self._unit = None
        unit.sender = sender
        unit.receipt = receipt
        self._pending.append(unit)
        return True

    def cut_for(self, done: Callable[[StoreError | None], None]) -> bool:
        """End the unit, if there is one; ``done`` hears of its end, with what kept it from it."""
        unit = self._unit
        if unit is None:
            return False
        unit.done = done
        return self.cut()

    def barrier(self, sender: Connection, receipt: str) -> None:
        """Tell a sender when everything that was recorded so far is done."""
        self.cut()
        unit = WriteBatch()
        unit.sender, unit.receipt = sender, receipt
        self._pending.append(unit)

    # The turn.

    @property
    def has_work(self) -> bool:
        """Whether :meth:`flush` would do something now."""
        if self._busy or self._closed:
            return False
        return self._unit is not None or bool(self._pending)

    def flush(self) -> None:
        """Hand over what there is, unless the store is busy."""
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
        """Take all that is to be done, in order: what notes deliveries is younger than the owed."""
        marks = WriteBatch()
        marks.operations, self._lazy = self._lazy, []
        units = [*self._owed, *([marks] if marks.operations else ()), *self._pending]
        self._owed, self._pending = [], []
        self._hides = False
        return units

    def _is_alone(self, sender: Connection | None) -> bool:
        """Whether nobody but the sender of a unit has asked for anything of late.

        What its thread waits for the disk is then no loss to others; and nobody's units come up
        meanwhile, to share the next commit.
        """
        is_alone = sender is self._last_sender and self._turns <= _TURNS_OF_ONE
        self._last_sender = sender
        self._turns = 0
        return is_alone

    def _operations(self, units: Sequence[WriteBatch]) -> list[Operation]:
        """What units come to, after the making of the lanes that they need and that failed."""
        operations = [each for unit in units for each in unit.operations]
        if not self._unmade:
            return operations
        first: list[Operation] = []
        for number in dict.fromkeys(each.lane for each in operations if isinstance(each, Put)):
            if number in self._unmade:
                # A database that was lost in a commit may have made it after all.
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
        self._wake()

    def _is_written(self, operation: Operation) -> bool:
        """Whether an operation has the store write: it does not drop what it never made."""
        return not (isinstance(operation, DropLane) and operation.lane in self._unmade)

    def _finish(self, unit: WriteBatch, error: StoreError | None) -> None:
        if self._is_abandoned:
            return
        self.octets -= unit.octets
        puts = unit.puts
        if len(puts) > 1:
            # What is dropped for the sake of one of them is none of the others.
            for entry in puts:
                entry.home.arrived(entry)
        for entry in puts:
            entry.home.put_done(entry, error)
        for entry in unit.taken:
            entry.home.in_doubt -= 1
            if error is not None:
                entry.home.taken_back(entry)
            else:
                entry.home.host.broker.touch(entry.home)
        if unit.gone is not None:
            self._finish_gone(unit.gone, error)
        if unit.sender is not None:
            unit.sender.committed(unit.receipt, error)
        if unit.done is not None:
            unit.done(error)
        then = unit.kept if error is None else unit.undo
        if then is not None:
            then()

    @staticmethod
    def _finish_gone(gone: Acknowledged, error: StoreError | None) -> None:
        for home, share in gone.shares.items():
            home.in_doubt -= share.messages
            home.host.broker.touch(home)
        if error is not None:
            gone.entries[0].home.host.broker.finish_forgetting()
            for entry in gone.entries:
                entry.home.taken_back(entry)

    # When the store fails.

    def _failed(self, units: list[WriteBatch], error: StoreError) -> None:
        """Find out whose fault it was, by doing one unit after the other."""
        if self.failure is None:
            _log.error("the store has failed: {error}", error=error)
        self.failure = error
        if self._closed:
            # close() has seen to it.
            return
        if len(units) == 1:
            self._give_up(units[0], error)
            self._busy = False
            self._wake()
            return
        self._rest = deque(units)
        self._one_by_one()

    def _one_by_one(self) -> None:
        while self._rest and not self._is_abandoned:
            if self._closed or not self._do_first():
                return
        self._busy = False
        self._sync_later()
        self._wake()

    def _do_first(self) -> bool:
        """Do the first of several units; says whether it is done now, or else goes on later."""
        unit = self._rest.popleft()
        operations = self._operations([unit])
        self._call = call = _Call(self._store, [unit], operations)
        # A runner that answers at once must not have the stack grow with each unit.
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
        """Refuse a unit with messages; one without them is tried again, and its sender told."""
        if unit.puts or unit.taken or unit.gone is not None or unit.undo is not None:
            for each in unit.operations:
                if isinstance(each, CreateLane):
                    self._unmade[each.lane] = each
        else:
            self._owe(unit.operations)
        self._finish(unit, error)

    def _owe(self, operations: Sequence[Operation]) -> None:
        """Have operations done later; what was never made need not be dropped."""
        again = WriteBatch()
        again.operations = list(filter(self._is_written, operations))
        self._forget_unmade(operations)
        self._forget_older(operations)
        if again.operations:
            self._owed.append(again)

    def _forget_unmade(self, operations: Sequence[Operation]) -> None:
        """Note that lanes are made, or nobody's any more."""
        for each in operations:
            if isinstance(each, (CreateLane, DropLane)):
                self._unmade.pop(each.lane, None)

    def _forget_older(self, operations: Sequence[Operation]) -> None:
        """Write no older values over those that are set, or to be set, by now."""
        self._owed = _without_older(self._owed, operations)

    # Time.

    def _later(self, delay_s: float) -> None:
        if self._timer is None and not self._closed:
            self._timer = self._clock.callLater(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._busy and not self._closed and (self._lazy or self._owed or self._pending):
            self._start()

    def _sync_later(self) -> None:
        interval_s = self._sync_interval_s
        if interval_s is not None and self._sync_timer is None and not self._closed:
            self._sync_timer = self._clock.callLater(interval_s, self._sync)

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

    # Reading, beginning and end.

    def read(
        self,
        lane: int,
        after: int,
        max_messages: int,
        max_octets: int,
        done: Callable[[Sequence[StoredMessage]], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Have messages read; not after the end.

        That is after everything that was handed over before, and what was hidden is gone by then.
        """
        if self._closed:
            return

        def read() -> object:
            return self._store.read(lane, after, max_messages, max_octets)

        def did(messages: object) -> None:
            if not self._closed:
                done(cast("Sequence[StoredMessage]", messages))
                self._wake()

        def did_not(error: StoreError) -> None:
            if not self._closed:
                _log.error("the store can't be read: {error}", error=error)
                self.failure = error
                failed(error)
                self._wake()

        if self._hides:
            self._reads.append(lambda: self._runner.run(read, did, did_not))
        else:
            self._runner.run(read, did, did_not)

    def close(self) -> None:
        """Have what is left done, close the store and stop its runner; blocks."""
        if self._closed:
            return
        self.cut()
        self._closed = True
        self._cancel_timers()
        # What is owed is older than what the store was asked for since.
        owed, self._owed = self._owed, []
        units = self._all_units()
        call, rest = self._call if self._busy else None, list(self._rest)
        self._rest.clear()
        outcomes: list[tuple[WriteBatch, StoreError | None]] = []

        def finish() -> None:
            # In the store's thread, after what was asked for before: that may have failed, and
            # nobody will hear of it any more.
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
        """Do units, together or else one by one; gives what came of each."""
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
        """Leave undone what is left, and tell nobody of what is being done; the store stays open.

        Another journal can use the store and its runner from now on.
        """
        self._closed = self._is_abandoned = True
        self._cancel_timers()
        self._unit = None
        for left in (self._pending, self._owed, self._lazy, self._reads):
            left.clear()

    def empty(self, done: Callable[[StoreError | None], None]) -> None:
        """Have the store forget all that it has, ahead of everything else; all of it or nothing."""
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
