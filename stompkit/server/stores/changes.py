"""Group a batch of operations by kind, for stores that execute many of one kind at a time.

The order of the operations is resolved here, so that the result can be executed kind by kind: first
lanes are dropped, then messages are removed, then messages are put, then the rest.
"""

from __future__ import annotations

from collections.abc import Iterable

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
    StoreError,
)

__all__ = ["Changes", "LaneChanges", "lanes_of"]


def lanes_of(operations: Iterable[Operation]) -> list[int]:
    """Return the lanes that the operations concern, in ascending order."""
    return sorted({each.lane for each in operations if not isinstance(each, SetRecord)})


class LaneChanges:
    """Pending changes of one lane."""

    __slots__ = (
        "deliveries",
        "is_moved",
        "is_new",
        "last_place",
        "marks",
        "puts",
        "removed",
        "stored",
    )

    def __init__(self, stored: LaneState, *, is_new: bool) -> None:
        """Start from the stored state, or, for a lane that ``is_new``, from its initial state."""
        self.stored = stored
        self.is_new = is_new
        #: True if the delivered place has changed.
        self.is_moved = False
        self.last_place = stored.last_place
        #: The stored places where a message may have to be removed.
        self.removed: set[int] = set()
        #: The messages to put, and the delivery counts of some of them, by their places.
        self.puts: dict[int, Put] = {}
        self.deliveries: dict[int, int] = {}
        #: The delivery counts to set on stored messages, if they exist, by their places.
        self.marks: dict[int, int] = {}

    def put(self, message: Put) -> None:
        """Put a message, replacing any message at its place."""
        place = message.place
        self.remove(place)
        self.puts[place] = message
        self.last_place = max(self.last_place, place)

    def remove(self, place: int) -> None:
        """Remove the message at a place."""
        self.puts.pop(place, None)
        self.deliveries.pop(place, None)
        self.marks.pop(place, None)
        if place <= self.stored.last_place:
            self.removed.add(place)

    def mark(self, place: int, deliveries: int) -> None:
        """Set the delivery count of the message at a place."""
        if place in self.puts:
            self.deliveries[place] = deliveries
        elif place <= self.stored.last_place and place not in self.removed:
            self.marks[place] = deliveries

    def deliver(self, place: int) -> None:
        """Record that every message up to a place has been delivered."""
        if place > self.stored.delivered_place:
            self.stored = self.stored._replace(delivered_place=place)
            self.is_moved = True

    def result(self, removed_messages: int, removed_octets: int) -> LaneState:
        """Return the new state of the lane, given the messages and bytes actually removed."""
        stored = self.stored
        return stored._replace(
            messages=stored.messages - removed_messages + len(self.puts),
            octets=stored.octets - removed_octets + sum(put.size for put in self.puts.values()),
            last_place=self.last_place,
        )


class Changes:
    """Pending changes of all lanes and records."""

    def __init__(self, stored: Iterable[LaneState]) -> None:
        """Start from the stored states of those lanes that the operations concern."""
        #: Stored lanes to drop before anything else.
        self.dropped: set[int] = set()
        self.lanes = {state.lane: LaneChanges(state, is_new=False) for state in stored}
        #: New values of records; ``None`` to delete the record.
        self.records: dict[str, bytes | None] = {}

    def add(self, operation: Operation) -> None:
        """Add one operation; raises :class:`StoreError` if it cannot be done."""
        if isinstance(operation, SetRecord):
            self.records[operation.key] = operation.value
            return
        number = operation.lane
        lane = self.lanes.get(number)
        if isinstance(operation, CreateLane):
            if lane is not None:
                raise StoreError(f"lane {number} exists already")
            state = LaneState(number, operation.queue, operation.part, 0, 0, 0, 0)
            self.lanes[number] = LaneChanges(state, is_new=True)
        elif lane is None:
            if isinstance(operation, Put):
                raise StoreError(f"there is no lane {number} to put a message into")
        else:
            match operation:
                case Put():
                    lane.put(operation)
                case Remove(_, place):
                    lane.remove(place)
                case Mark(_, place, deliveries):
                    lane.mark(place, deliveries)
                case Delivered(_, place):
                    lane.deliver(place)
                case DropLane():
                    del self.lanes[number]
                    if not lane.is_new:
                        self.dropped.add(number)
