"""The durable store: LMDB, a B-tree in one file, and a log of what it is about to have."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from twisted.logger import Logger

from stompkit.server.interfaces import (
    CreateLane,
    Delivered,
    DropLane,
    LaneState,
    Mark,
    Operation,
    Put,
    Remove,
    SetRecord,
    StoredMessage,
    StoreError,
    StoreFull,
)
from stompkit.server.stores.environment import Databases, Environment, Transaction
from stompkit.server.stores.log import ChangeLog, note_number, pack_changes
from stompkit.server.stores.record import (
    KEY,
    NUMBER,
    pack_lane,
    pack_message,
    pack_record,
    record_key,
    unpack_lane,
    unpack_message,
    unpack_record,
    unpack_size,
)

__all__ = ["LmdbStore"]

_log: Final = Logger()

_MAX_OCTETS: Final = 64 * 1024 * 1024 * 1024
_TURN_KEY: Final = b"turn"
_pack_key: Final = KEY.pack

#: A batch of no more operations, with no more octets in messages, goes to the log.
_LOG_OPERATIONS: Final = 128
_LOG_OCTETS: Final = 32 * 1024
#: From so many operations, or octets, in the log on the database gets them with the next batch.
#: The rest of the log is for what has to be possible while the database can't grow.
_HELD_OPERATIONS: Final = 512
_HELD_OCTETS: Final = 256 * 1024
#: Octets that the database must be able to grow by before anything goes to the log: more than what
#: is in it can come to, were each message in a page of its own. What is in the log has been
#: promised, and can't be refused for want of room within the limit any more.
_ROOM: Final = 16 * 1024 * 1024
#: Operations that take the log no longer than a write to the disk.
_BRIEF_OPERATIONS: Final = 8


class LmdbStore:
    """Keeps messages in ``DIRECTORY/messages.lmdb``.

    Only one process may have it open. One that forks, as daemons do, has to do so before.
    """

    def __init__(
        self, directory: Path, *, synchronous: bool = True, max_octets: int = _MAX_OCTETS
    ) -> None:
        """Describe a store below ``directory``, which is made if need be.

        With ``synchronous`` off, what is applied survives the death of the process, but that of
        the machine only once :meth:`sync` has returned. Before that a loss of power takes the
        last changes; on a file system that does not write in order it can take the whole store
        along, as LMDB's MDB_NOSYNC says.

        The file never gets smaller, and grows to ``max_octets`` at most. There the store is
        full: :class:`StoreFull` for what has a :class:`Put` in it, while all else still works.
        """
        self._environment = Environment(directory, synchronous=synchronous, max_octets=max_octets)
        self._synchronous = synchronous
        #: Whether something may have been freed that has not become usable yet.
        self._may_have_freed = True
        #: Small changes that the database has not: see :mod:`stompkit.server.stores.log`.
        self._changes: ChangeLog | None = None
        #: What has been written there and is not in the database, with the number of the last
        #: record that may have been written.
        self._held: list[Operation] = []
        self._number = 0
        #: Whether a record failed: nothing can follow it until the database has all.
        self._is_torn = False
        #: Whether the database has room for all that the log may come to have.
        self._is_roomy = False
        #: Lanes that were seen to be there.
        self._seen: set[int] = set()

    def open(self) -> None:
        """Open or make the store; refuses one of a version that it does not know."""
        self._environment.open()
        try:
            self._open_log()
        except BaseException:
            self._close_log()
            self._environment.close()
            raise

    def _open_log(self) -> None:
        """Take in what was written to the log, and make the log ready to be used."""
        environment = self._environment
        self._changes = changes = ChangeLog(environment)
        self._number, self._held = changes.read()
        self._is_torn = False
        self._seen.clear()
        try:
            self._settle()
        except StoreFull as error:
            _log.warn("what is in the log of the store stays there: {error}", error=error)
        if self._synchronous:
            # What was taken in by one that does not sync must be there when the log goes on.
            environment.sync()
            self._is_roomy = environment.room() >= _ROOM
            try:
                changes.open()
            except OSError as error:
                # It is a matter of speed, no more.
                _log.warn("the store has no log: {error}", error=error)

    def _close_log(self) -> None:
        if self._changes is not None:
            self._changes.close()
            self._changes = None

    def lanes(self) -> list[LaneState]:
        """All lanes, by their numbers."""
        with self._all() as (txn, databases):
            return [
                unpack_lane(value, NUMBER.unpack(key)[0])
                for key, value in txn.cursor(databases.lanes)
            ]

    def records(self) -> Mapping[str, bytes]:
        """All records."""
        # None of them goes through the log.
        with self._environment.transaction() as (txn, databases):
            cursor = txn.cursor(databases.records)
            return dict(unpack_record(bytes(value)) for _, value in cursor)

    def is_brief(self, operations: Sequence[Operation]) -> bool:
        """Whether to apply these would be one write to the disk, and next to nothing else."""
        return (
            len(operations) <= _BRIEF_OPERATIONS
            and self._can_hold()
            and self._are_small(operations)
        )

    def apply(self, operations: Sequence[Operation]) -> None:
        """Do all of it, in order, or nothing."""
        if self._can_hold() and self._are_small(operations) and self._hold(operations):
            return
        try:
            self._commit(operations)
        except StoreFull:
            if _has_put(operations) or self._is_torn or not self._hold(operations):
                raise

    # The log.

    def _can_hold(self) -> bool:
        """Whether the log is there for what comes next, and has not enough."""
        changes = self._changes
        return (
            changes is not None
            and self._is_roomy
            and not self._is_torn
            and len(self._held) < _HELD_OPERATIONS
            and changes.octets < _HELD_OCTETS
            and changes.has_room(0)
        )

    def _are_small(self, operations: Sequence[Operation]) -> bool:
        """Whether operations gain by the log."""
        if not 0 < len(operations) <= _LOG_OPERATIONS:
            return False
        octets = 0
        for operation in operations:
            if isinstance(operation, Put):
                octets += len(operation.lines) + len(operation.body)
                if octets > _LOG_OCTETS:
                    return False
        return True

    def _hold(self, operations: Sequence[Operation]) -> bool:
        """Have the log keep operations; not if it has no room for them, or can't be written."""
        changes = self._changes
        assert changes is not None
        with self._environment.errors():
            octets = pack_changes(operations)
            if octets is None or not changes.has_room(len(octets)):
                return False
        for operation in operations:
            if isinstance(operation, Put) and operation.lane not in self._seen:
                self._look_for(operation.lane)
        self._number += 1
        try:
            changes.append(self._number, octets)
        except OSError as error:
            # It may have reached the disk. No other record has its number, and once the database
            # says that it has this one, it is of no value.
            self._is_torn = True
            _log.warn("the log of the store can't be written: {error}", error=error)
            return False
        self._held += operations
        return True

    def _look_for(self, lane: int) -> None:
        """Raise :class:`StoreError` unless there is that lane."""
        with self._environment.transaction() as (txn, databases):
            found = txn.get(NUMBER.pack(lane), db=databases.lanes)
            if found is None:
                raise _no_lane(lane)
            # One that can't be read takes no messages either.
            unpack_lane(found, lane)
        self._seen.add(lane)

    def _settle(self) -> None:
        """Have the database take in what is in the log."""
        if not self._held and not self._is_torn:
            return
        try:
            self._write(())
        except StoreFull:
            # It has been promised that this is kept, whatever the limit.
            with self._environment.extended():
                self._write(())
        except StoreError as error:
            if not isinstance(error.__cause__, (struct.error, ValueError)):
                raise
            # What was damaged would be in the way of all else for ever.
            self._held = [each for each in self._held if self._is_possible(each)]
            self._write(())

    def _is_possible(self, operation: Operation) -> bool:
        """Whether an operation can be done; so can each that keeps a message, or else fails."""
        try:
            with self._environment.transaction(write=True, keep=False) as (txn, databases):
                _do(txn, databases, [operation])
        except StoreFull:
            return True
        except StoreError as error:
            if isinstance(operation, Put):
                raise
            _log.error("a change of the store is given up: {error}", error=error)
            return False
        return True

    @contextmanager
    def _all(self) -> Iterator[tuple[Transaction, Databases]]:
        """A transaction for reading that sees what is in the log, too."""
        try:
            self._settle()
        except StoreFull:
            # There is no room on the disk: it is taken in for as long as this takes only.
            with (
                self._environment.extended(),
                self._environment.transaction(write=True, keep=False) as (txn, databases),
            ):
                _do(txn, databases, self._held)
                yield txn, databases
        else:
            with self._environment.transaction() as (txn, databases):
                yield txn, databases

    # The database.

    def _commit(self, operations: Sequence[Operation]) -> None:
        """Have the database take in what is in the log, and operations: these, too, or not."""
        if not self._held and not self._is_torn:
            self._write_in_spite(operations)
            return
        try:
            self._write(operations)
        except StoreError:
            # Whosever fault it was.
            self._settle()
            self._write_in_spite(operations)

    def _write_in_spite(self, operations: Sequence[Operation]) -> None:
        """Write, with what can be done about a store that is full."""
        try:
            self._write(operations)
        except StoreFull:
            if not _has_put(operations):
                # What makes room, or needs hardly any, must be possible in a full store.
                with self._environment.extended():
                    self._write(operations)
            elif self._may_have_freed:
                self._may_have_freed = False
                self._turn_over()
                self._write(operations)
            else:
                raise
        self._may_have_freed = True

    def _turn_over(self) -> None:
        """Commit next to nothing, twice.

        The pages that a commit has freed are used by the one after the next at the earliest, and
        there would be none as long as all that comes is refused.
        """
        with self._environment.extended():
            for turn in range(2):
                with self._environment.transaction(write=True) as (txn, databases):
                    txn.put(_TURN_KEY, NUMBER.pack(turn), db=databases.meta)

    def _write(self, operations: Sequence[Operation]) -> None:
        """Do what is in the log, and operations, within one transaction."""
        changes = self._changes
        has_record = bool(self._held) or self._is_torn
        with self._environment.transaction(write=True) as (txn, databases):
            _do(txn, databases, [*self._held, *operations] if self._held else operations)
            if has_record:
                note_number(txn, databases, self._number)
        if has_record and changes is not None:
            self._held = []
            self._is_torn = False
            changes.restart()
        if self._synchronous:
            self._is_roomy = self._environment.room() >= _ROOM
        for operation in operations:
            if isinstance(operation, DropLane):
                self._seen.discard(operation.lane)

    def read(
        self, lane: int, after: int, max_messages: int, max_octets: int
    ) -> Sequence[StoredMessage]:
        """The first messages of a lane with a place above ``after``, in order."""
        with self._all() as (txn, databases):
            found = txn.get(NUMBER.pack(lane), db=databases.lanes)
            if found is None:
                return []
            delivered_place = unpack_lane(found, lane).delivered_place
            messages: list[StoredMessage] = []
            octets = 0
            cursor = txn.cursor(databases.messages)
            more = cursor.set_range(_pack_key(lane, max(after + 1, 0)))
            while more:
                key, value = cursor.item()
                number, place = KEY.unpack(key)
                octets += unpack_size(value)
                is_enough = len(messages) >= max_messages or octets > max_octets
                if number != lane or (messages and is_enough):
                    break
                deliveries = int(place <= delivered_place)
                messages.append(unpack_message(value, place, deliveries))
                more = cursor.next()
            return _marked(txn, databases, lane, messages)

    def sync(self) -> None:
        """Have everything applied so far survive the death of the machine."""
        self._environment.sync()

    def close(self) -> None:
        """Sync and close; harmless if it is not open."""
        if self._changes is None:
            return
        try:
            self._settle()
        except StoreFull as error:
            _log.warn("what is in the log of the store stays there: {error}", error=error)
        finally:
            self._close_log()
            self._environment.close()


def _has_put(operations: Sequence[Operation]) -> bool:
    return any(isinstance(operation, Put) for operation in operations)


def _no_lane(number: int) -> StoreError:
    return StoreError(f"there is no lane {number} to put a message into")


def _do(txn: Transaction, databases: Databases, operations: Sequence[Operation]) -> None:
    """Do operations within a transaction."""
    batch = _Batch(txn, databases)
    steps = batch.steps
    for operation in operations:
        steps[type(operation)](operation)
    batch.finish()


def _marked(
    txn: Transaction, databases: Databases, lane: int, messages: list[StoredMessage]
) -> list[StoredMessage]:
    """These messages, which are in order, with the deliveries that their marks tell."""
    if not messages:
        return messages
    cursor = txn.cursor(databases.marks)
    marks: dict[int, int] = {}
    more = cursor.set_range(_pack_key(lane, messages[0].place))
    while more:
        key, value = cursor.item()
        number, place = KEY.unpack(key)
        if number != lane or place > messages[-1].place:
            break
        marks[place] = NUMBER.unpack(value)[0]
        more = cursor.next()
    if not marks:
        return messages
    return [
        message._replace(deliveries=max(message.deliveries, marks.get(message.place, 0)))
        for message in messages
    ]


class _Lane:
    """A lane that a batch touches."""

    __slots__ = ("delivered_place", "last_place", "messages", "octets", "part", "queue")

    def __init__(self, state: LaneState) -> None:
        """Take what is stored of it."""
        _, self.queue, self.part, self.messages, self.octets, last, delivered = state
        self.last_place = last
        self.delivered_place = delivered

    def state(self, lane: int) -> LaneState:
        """What to store of it."""
        return LaneState(
            lane,
            self.queue,
            self.part,
            self.messages,
            self.octets,
            self.last_place,
            self.delivered_place,
        )


class _Batch:
    """Operations within one transaction.

    This is the path that every message takes. Lanes are read and written once for all of a
    batch, and a message that has a new place is written without a look for an old one.
    """

    def __init__(self, txn: Transaction, databases: Databases) -> None:
        """Begin."""
        self._txn = txn
        self._databases = databases
        self._cursor = txn.cursor(databases.messages)
        self._has_marks = txn.stat(databases.marks)["entries"] > 0
        #: The lanes that were touched and are there.
        self._lanes: dict[int, _Lane] = {}
        #: What does an operation, by its type.
        self.steps: dict[type[Operation], Callable[[Any], None]] = {
            Put: self._put,
            Remove: self._remove,
            Mark: self._mark,
            Delivered: self._delivered,
            CreateLane: self._create_lane,
            DropLane: self._drop_lane,
            SetRecord: self._set_record,
        }

    def finish(self) -> None:
        """Write the lanes."""
        for number, lane in self._lanes.items():
            key = NUMBER.pack(number)
            self._txn.put(key, pack_lane(lane.state(number)), db=self._databases.lanes)

    def _load(self, number: int) -> _Lane | None:
        """A lane that was not touched before, if there is one."""
        value = self._txn.get(NUMBER.pack(number), db=self._databases.lanes)
        if value is None:
            return None
        lane = self._lanes[number] = _Lane(unpack_lane(value, number))
        return lane

    def _put(self, message: Put) -> None:
        number = message[0]
        place = message[1]
        lane = self._lanes.get(number) or self._load(number)
        if lane is None:
            raise _no_lane(number)
        key = _pack_key(number, place)
        if place > lane.last_place:
            lane.last_place = place
        else:
            self._forget(lane, key)
        self._cursor.put(key, pack_message(message))
        lane.messages += 1
        lane.octets += message[2]

    def _remove(self, operation: Remove) -> None:
        number, place = operation
        lane = self._lanes.get(number) or self._load(number)
        if lane is not None:
            self._forget(lane, _pack_key(number, place))

    def _forget(self, lane: _Lane, key: bytes) -> None:
        """Remove a message and its mark, if it is there."""
        value = self._cursor.pop(key)
        if value is not None:
            lane.messages -= 1
            lane.octets -= unpack_size(value)
            if self._has_marks:
                self._txn.delete(key, db=self._databases.marks)

    def _mark(self, operation: Mark) -> None:
        number, place, deliveries = operation
        key = _pack_key(number, place)
        if self._cursor.set_key(key):
            self._txn.put(key, NUMBER.pack(deliveries), db=self._databases.marks)
            self._has_marks = True

    def _delivered(self, operation: Delivered) -> None:
        number, place = operation
        lane = self._lanes.get(number) or self._load(number)
        if lane is not None and place > lane.delivered_place:
            lane.delivered_place = place

    def _create_lane(self, operation: CreateLane) -> None:
        number, queue, part = operation
        if number in self._lanes or self._load(number) is not None:
            raise StoreError(f"lane {number} exists already")
        self._lanes[number] = _Lane(LaneState(number, queue, part, 0, 0, 0, 0))

    def _drop_lane(self, operation: DropLane) -> None:
        number = operation.lane
        self._lanes.pop(number, None)
        self._txn.delete(NUMBER.pack(number), db=self._databases.lanes)
        first = _pack_key(number, 0)
        for database in (self._databases.messages, self._databases.marks):
            cursor = self._txn.cursor(database)
            more = cursor.set_range(first)
            while more and KEY.unpack(cursor.key())[0] == number:
                # It is at the next one then, or at none.
                more = cursor.delete() and bool(cursor.key())

    def _set_record(self, operation: SetRecord) -> None:
        name, value = operation
        key = record_key(name)
        if value is None:
            self._txn.delete(key, db=self._databases.records)
        else:
            self._txn.put(key, pack_record(name, value), db=self._databases.records)
