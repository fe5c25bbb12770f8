"""The state of a checker: operations, and the copies of messages that they have created."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

from tests.campaign.history import Asked

__all__ = ["Connection", "Copy", "Operation", "Sighting", "Violation", "excused", "torn"]


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken guarantee."""

    #: ``lost``, ``undone``, ``invented``, ``torn``, ``order`` or ``doubled``.
    rule: str
    text: str


@dataclass(slots=True)
class Connection:
    """A client's connection."""

    number: int
    life: int
    #: The place from which it consumes in the mode auto, if any.
    auto: str
    is_open: bool = True
    is_clean: bool = False
    #: Deliveries of this client's unacknowledged messages to others, each with its event number.
    contested: list[tuple[int, Copy]] = field(default_factory=list)


@dataclass(slots=True)
class Operation:
    """A requested operation; ``at`` and ``done`` are the numbers of events."""

    asked: Asked
    at: int
    done: int | None = None
    code: str = ""
    copies: list[Copy] = field(default_factory=list)
    settles: list[Sighting] = field(default_factory=list)

    @property
    def is_undone(self) -> bool:
        """Return True if the broker has reported that no part of the operation was applied.

        A failed acknowledgement outside of a transaction stays in effect.
        """
        asked = self.asked
        return self.code == "store-full" and bool(
            asked.sends or asked.durable or asked.is_transaction
        )


@dataclass(slots=True)
class Copy:
    """A message in one of the places to which it was routed."""

    message: int
    place: str
    operation: Operation
    #: The position among the messages of its operation.
    position: int
    #: True if it certainly belongs there; a subscription may have come too late for it.
    is_certain: bool
    sightings: list[Sighting] = field(default_factory=list)
    #: Operations that acknowledge or reject it.
    settlements: list[Operation] = field(default_factory=list)
    #: Number of times it was drained at the end, from the dead letters or not.
    drained: int = 0

    @property
    def key(self) -> tuple[int, int]:
        """Sort key for the copies of one connection's messages."""
        return self.operation.at, self.position

    @property
    def is_seen(self) -> bool:
        """True if it was delivered or drained."""
        return bool(self.sightings or self.drained)

    @property
    def is_accounted_for(self) -> bool:
        """True if it was drained, or a client may have acknowledged it."""
        return (
            bool(self.drained)
            or any(sighting.is_auto for sighting in self.sightings)
            or any(not operation.is_undone for operation in self.settlements)
        )

    def came_after(self, earlier: Sighting) -> bool:
        """Return True if the broker delivered it again after that delivery."""
        return bool(self.drained) or any(each.rank > earlier.rank for each in self.sightings)

    def __str__(self) -> str:
        """Return the name of the message and its place."""
        return f"message {self.message} of {self.place}"


@dataclass(slots=True)
class Sighting:
    """A delivery."""

    copy: Copy
    connection: Connection
    is_marked: bool
    #: Delivery count of the broker.
    count: int
    is_auto: bool
    #: True if its client has acknowledged or rejected it; and true if that was confirmed.
    is_answered: bool = False
    is_settled: bool = False

    @property
    def rank(self) -> tuple[int, int]:
        """Sort key for the deliveries of a copy, independent of the order of reading."""
        return self.connection.life, self.count


def torn(operation: Operation, autos: Iterable[str]) -> Iterator[Violation]:
    """Yield the violations of an operation in doubt that was applied in part."""
    copies = [each for each in operation.copies if each.is_certain and each.place not in autos]
    seen = [copy for copy in copies if copy.is_seen]
    unseen = [copy for copy in copies if not copy.is_seen]
    name = f"operation {operation.asked.operation}, in doubt,"
    if seen and unseen:
        yield Violation("torn", f"{name} left {seen[0]}, and not {unseen[0]}")
    if not operation.asked.is_transaction:
        return
    again = [each.copy for each in operation.settles if each.copy.came_after(each)]
    gone = [each.copy for each in operation.settles if not each.copy.came_after(each)]
    if seen and again:
        yield Violation("torn", f"{name} left {seen[0]}, and {again[0]} came again")
    elif unseen and gone:
        yield Violation("torn", f"{name} left no {unseen[0]}, and {gone[0]} is gone")
    elif again and gone:
        yield Violation("torn", f"{name} took {gone[0]}, and not {again[0]}")


def excused(missing: set[int], copies: Iterable[Copy], broken: Counter[str]) -> set[int]:
    """Return the messages that may be missing because they were in flight when a connection broke.

    In the mode auto these are lost, as documented. They are the next ones in their queue. Therefore
    one sender has at most as many gaps as broken connections.
    """
    found: set[int] = set()
    kept = [each for each in copies if each.is_certain and each.operation.done is not None]

    def sender(copy: Copy) -> tuple[str, int]:
        return copy.place, copy.operation.asked.connection

    for (place, _), group in groupby(sorted(kept, key=lambda c: (*sender(c), c.key)), sender):
        gaps = [
            [copy.message for copy in run]
            for is_missing, run in groupby(group, lambda copy: copy.message in missing)
            if is_missing
        ]
        if len(gaps) <= broken[place]:
            found.update(message for gap in gaps for message in gap)
    return found
