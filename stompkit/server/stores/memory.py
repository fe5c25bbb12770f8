"""A store that is gone with its object: what every other store has to behave like."""

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
    """What there is of one lane."""

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
        """Make an empty lane."""
        self.queue = queue
        self.part = part
        self.messages: dict[int, Put] = {}
        self.deliveries: dict[int, int] = {}
        self.octets = 0
        self.last_place = 0
        self.delivered_place = 0

    def put(self, message: Put) -> None:
        """Keep a message, instead of what is in its place."""
        self.remove(message.place)
        self.messages[message.place] = message
        self.octets += message.size
        self.last_place = max(self.last_place, message.place)

    def remove(self, place: int) -> None:
        """Forget the message at a place, if there is one."""
        message = self.messages.pop(place, None)
        if message is not None:
            self.octets -= message.size
            self.deliveries.pop(place, None)

    def mark(self, place: int, deliveries: int) -> None:
        """Note how often the message at a place has been delivered, if there is one."""
        if place in self.messages:
            self.deliveries[place] = deliveries

    def stored(self, place: int) -> StoredMessage:
        """The message at a place."""
        message = self.messages[place]
        deliveries = max(self.deliveries.get(place, 0), int(place <= self.delivered_place))
        return StoredMessage(place, deliveries, *message[2:])


class MemoryStore:
    """Keeps everything in dictionaries; what it has survives :meth:`close`, but not the object."""

    def __init__(self) -> None:
        """Begin with nothing, and closed."""
        self._lanes: dict[int, _Lane] = {}
        self._records: dict[str, bytes] = {}
        self._is_open = False

    def open(self) -> None:
        """Open the store; :class:`StoreError` if it is open."""
        if self._is_open:
            raise StoreError("the store is open already")
        self._is_open = True

    def lanes(self) -> list[LaneState]:
        """All lanes, by their numbers."""
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
        """All records."""
        self._check_open()
        return dict(self._records)

    def apply(self, operations: Sequence[Operation]) -> None:
        """Do all of it, in order, or nothing."""
        self._check_open()
        self._check(operations)
        for operation in operations:
            self._do(operation)

    def read(
        self, lane: int, after: int, max_messages: int, max_octets: int
    ) -> Sequence[StoredMessage]:
        """The first messages of a lane with a place above ``after``, in order."""
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
        """Do nothing: there is nothing that could survive."""
        self._check_open()

    def close(self) -> None:
        """Close the store; harmless if it is not open."""
        self._is_open = False

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError("the store is not open")

    def _check(self, operations: Sequence[Operation]) -> None:
        """Raise :class:`StoreError` for what can't be done, before anything has been."""
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
        """Do one operation that can be done; what is not there is left alone."""
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
