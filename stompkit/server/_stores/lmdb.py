"""The durable store: LMDB, a B-tree in one file, whose commits are whole or have not happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from stompkit.server._stores._environment import Databases, Environment, Transaction
from stompkit.server._stores._record import (
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

__all__ = ["LmdbStore"]

_MAX_OCTETS: Final = 64 * 1024 * 1024 * 1024
_TURN_KEY: Final = b"turn"
_pack_key: Final = KEY.pack


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
        #: Whether something may have been freed that has not become usable yet.
        self._may_have_freed = True

    def open(self) -> None:
        """Open or make the store; refuses one of a version that it does not know."""
        self._environment.open()

    def lanes(self) -> list[LaneState]:
        """All lanes, by their numbers."""
        with self._environment.transaction() as (txn, databases):
            return [
                unpack_lane(value, NUMBER.unpack(key)[0])
                for key, value in txn.cursor(databases.lanes)
            ]

    def records(self) -> Mapping[str, bytes]:
        """All records."""
        with self._environment.transaction() as (txn, databases):
            cursor = txn.cursor(databases.records)
            return dict(unpack_record(bytes(value)) for _, value in cursor)

    def apply(self, operations: Sequence[Operation]) -> None:
        """Do all of it, in order, or nothing."""
        try:
            self._apply(operations)
        except StoreFull:
            if not any(isinstance(operation, Put) for operation in operations):
                # What makes room, or needs hardly any, must be possible in a full store.
                with self._environment.extended():
                    self._apply(operations)
            elif self._may_have_freed:
                self._may_have_freed = False
                self._turn_over()
                self._apply(operations)
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

    def _apply(self, operations: Sequence[Operation]) -> None:
        with self._environment.transaction(write=True) as (txn, databases):
            batch = _Batch(txn, databases)
            steps = batch.steps
            for operation in operations:
                steps[type(operation)](operation)
            batch.finish()

    def read(
        self, lane: int, after: int, max_messages: int, max_octets: int
    ) -> Sequence[StoredMessage]:
        """The first messages of a lane with a place above ``after``, in order."""
        with self._environment.transaction() as (txn, databases):
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
        self._environment.close()


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
            raise StoreError(f"there is no lane {number} to put a message into")
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
