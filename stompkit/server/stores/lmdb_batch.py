"""Operations and reads of the store within one transaction of LMDB."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

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
)
from stompkit.server.stores.environment import Databases, Transaction
from stompkit.server.stores.record import (
    KEY,
    NUMBER,
    pack_lane,
    pack_message,
    pack_record,
    record_key,
    unpack_lane,
    unpack_message,
    unpack_size,
)

__all__ = ["apply_operations", "no_lane", "read_messages"]

_pack_key: Final = KEY.pack


def no_lane(number: int) -> StoreError:
    """Return the error for a message whose lane does not exist."""
    return StoreError(f"there is no lane {number} to put a message into")


def apply_operations(
    txn: Transaction, databases: Databases, operations: Sequence[Operation]
) -> None:
    """Apply operations within a transaction."""
    batch = _Batch(txn, databases)
    steps = batch.steps
    for operation in operations:
        steps[type(operation)](operation)
    batch.finish()


class _Lane:
    """A lane that a batch changes."""

    __slots__ = ("delivered_place", "last_place", "messages", "octets", "part", "queue")

    def __init__(self, state: LaneState) -> None:
        """Start from the stored state."""
        _, self.queue, self.part, self.messages, self.octets, last, delivered = state
        self.last_place = last
        self.delivered_place = delivered

    def state(self, lane: int) -> LaneState:
        """Return the state to store."""
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

    Every message takes this path. Each lane is read and written once for a batch. A message at a
    new place is written without a look-up of an old one.
    """

    def __init__(self, txn: Transaction, databases: Databases) -> None:
        """Start an empty batch."""
        self._txn = txn
        self._databases = databases
        self._cursor = txn.cursor(databases.messages)
        self._has_marks = txn.stat(databases.marks)["entries"] > 0
        #: The existing lanes that this batch changes.
        self._lanes: dict[int, _Lane] = {}
        #: The handler of each operation, by its type.
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
        """Write the changed lanes."""
        for number, lane in self._lanes.items():
            key = NUMBER.pack(number)
            self._txn.put(key, pack_lane(lane.state(number)), db=self._databases.lanes)

    def _load(self, number: int) -> _Lane | None:
        """Return a lane on its first use, or None if it does not exist."""
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
            raise no_lane(number)
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
        """Remove a message and its mark, if it exists."""
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
                # The cursor is then at the next message, or at none.
                more = cursor.delete() and bool(cursor.key())

    def _set_record(self, operation: SetRecord) -> None:
        name, value = operation
        key = record_key(name)
        if value is None:
            self._txn.delete(key, db=self._databases.records)
        else:
            self._txn.put(key, pack_record(name, value), db=self._databases.records)


def read_messages(
    txn: Transaction,
    databases: Databases,
    lane: int,
    after: int,
    max_messages: int,
    max_octets: int,
) -> list[StoredMessage]:
    """Return the first messages of a lane with a place above ``after``, in order."""
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


def _marked(
    txn: Transaction, databases: Databases, lane: int, messages: list[StoredMessage]
) -> list[StoredMessage]:
    """Return these ordered messages with the delivery counts of their marks."""
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
