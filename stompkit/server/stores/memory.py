"""A store in memory, and the reference for the behaviour of every other store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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

__all__ = ["MemoryStore"]


class _Lane:
    """The content of one lane."""

    __slots__ = (
        "delivered_place",
        "deliveries",
        "last_place",
        "messages",
        "octets",
        "part",
        "queue",
    )

    def __init__(self, queue: str, part: int) -> None:
        """Create an empty lane."""
        self.queue = queue
        self.part = part
        self.messages: dict[int, Put] = {}
        self.deliveries: dict[int, int] = {}
        self.octets = 0
        self.last_place = 0
        self.delivered_place = 0

    def put(self, message: Put) -> None:
        """Store a message, replacing any message at its place."""
        self.remove(message.place)
        self.messages[message.place] = message
        self.octets += message.size
        self.last_place = max(self.last_place, message.place)

    def remove(self, place: int) -> None:
        """Delete the message at a place, if there is one."""
        message = self.messages.pop(place, None)
        if message is not None:
            self.octets -= message.size
            self.deliveries.pop(place, None)

    def mark(self, place: int, deliveries: int) -> None:
        """Set the delivery count of the message at a place, if there is one."""
        if place in self.messages:
            self.deliveries[place] = deliveries

    def stored(self, place: int) -> StoredMessage:
        """Return the message at a place."""
        message = self.messages[place]
        deliveries = max(self.deliveries.get(place, 0), int(place <= self.delivered_place))
        return StoredMessage(place, deliveries, *message[2:])


class MemoryStore:
    """Keeps everything in dictionaries; the content survives :meth:`close`, but not the object."""

    def __init__(self) -> None:
        """Start empty and closed."""
        self._lanes: dict[int, _Lane] = {}
        self._records: dict[str, bytes] = {}
        self._is_open = False

    def open(self) -> None:
        """Open the store; raises :class:`StoreError` if it is open."""
        if self._is_open:
            raise StoreError("the store is open already")
        self._is_open = True

    def lanes(self) -> list[LaneState]:
        """Return all lanes, by number."""
        self._check_open()
        return [
            LaneState(
                number,
                lane.queue,
                lane.part,
                len(lane.messages),
                lane.octets,
                lane.last_place,
                lane.delivered_place,
            )
            for number, lane in sorted(self._lanes.items())
        ]

    def records(self) -> Mapping[str, bytes]:
        """Return all records."""
        self._check_open()
        return dict(self._records)

    def apply(self, operations: Sequence[Operation]) -> None:
        """Apply all operations in order, or none."""
        self._check_open()
        self._check(operations)
        for operation in operations:
            self._do(operation)

    def read(
        self, lane: int, after: int, max_messages: int, max_octets: int
    ) -> Sequence[StoredMessage]:
        """Return the first messages of a lane with a place above ``after``, in order."""
        self._check_open()
        found = self._lanes.get(lane)
        if found is None:
            return []
        messages: list[StoredMessage] = []
        octets = 0
        for place in sorted(place for place in found.messages if place > after):
            message = found.stored(place)
            octets += message.size
            if messages and (len(messages) >= max_messages or octets > max_octets):
                break
            messages.append(message)
        return messages

    def sync(self) -> None:
        """Do nothing: a memory store is never durable."""
        self._check_open()

    def close(self) -> None:
        """Close the store; does nothing if not open."""
        self._is_open = False

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError("the store is not open")

    def _check(self, operations: Sequence[Operation]) -> None:
        """Raise :class:`StoreError` for operations that cannot be applied, before applying any."""
        lanes = set(self._lanes)
        for operation in operations:
            if isinstance(operation, CreateLane):
                if operation.lane in lanes:
                    raise StoreError(f"lane {operation.lane} exists already")
                lanes.add(operation.lane)
            elif isinstance(operation, DropLane):
                lanes.discard(operation.lane)
            elif isinstance(operation, Put) and operation.lane not in lanes:
                raise StoreError(f"there is no lane {operation.lane} to put a message into")

    def _do(self, operation: Operation) -> None:
        """Apply one valid operation; a missing message or record is ignored."""
        if isinstance(operation, SetRecord):
            if operation.value is None:
                self._records.pop(operation.key, None)
            else:
                self._records[operation.key] = operation.value
        elif isinstance(operation, CreateLane):
            self._lanes[operation.lane] = _Lane(operation.queue, operation.part)
        elif isinstance(operation, DropLane):
            self._lanes.pop(operation.lane, None)
        elif (lane := self._lanes.get(operation.lane)) is not None:
            match operation:
                case Put():
                    lane.put(operation)
                case Remove(_, place):
                    lane.remove(place)
                case Mark(_, place, deliveries):
                    lane.mark(place, deliveries)
                case Delivered(_, place):
                    lane.delivered_place = max(lane.delivered_place, place)
