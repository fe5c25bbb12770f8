"""Check that a history keeps the guarantees of the broker.

The guarantees are those of ``docs/reference/broker.rst`` and ``docs/explanation/storage.rst``. A
violation is one of these:

``lost``      a message with a receipt is gone, and no client can have acknowledged it
``undone``    a message was redelivered after the confirmation of its acknowledgement
``invented``  a message came that was never sent, or was refused, or came from another place
``torn``      a transaction, or the copies of a message, exist in part
``order``     messages overtook each other
``doubled``   a message came twice without a mark, or to two clients at once, or was drained twice

An operation without confirmation may have been applied or not. A client may read a message long
after the broker sent it. Therefore the order of reading does not order deliveries; the lives of the
broker do, and ``delivery-count`` within each life.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from tests.campaign.accounts import Connection, Copy, Operation, Sighting, Violation, excused, torn
from tests.campaign.history import (
    Asked,
    Began,
    Closed,
    Delivered,
    Done,
    Drained,
    Ended,
    Event,
    Opened,
    Refused,
    Setting,
    Staged,
    dead_letters_of,
)

__all__ = ["RULES", "Finding", "Violation", "check"]

RULES: Final = ("lost", "undone", "invented", "torn", "order", "doubled")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of checking a history."""

    violations: list[Violation]
    #: Numbers of receipted messages, of deliveries, of deliveries with a mark, of messages with a
    #: confirmed acknowledgement, of operations in doubt, and of drained messages.
    counts: Counter[str]


def check(events: Iterable[Event]) -> Finding:
    """Check a history that ends with all places drained."""
    checker = _Checker()
    for number, event in enumerate(events):
        checker.see(number, event)
    checker.finish()
    return Finding(checker.violations, checker.counts)


class _Line:
    """The order of the deliveries from one place on one connection."""

    def __init__(self) -> None:
        self._latest_asked = -1
        self._last: dict[int, Copy] = {}

    def overtaken(self, copy: Copy) -> bool:
        """Record the next delivery; return True if a message that was sent later came before it."""
        operation = copy.operation
        sender = operation.asked.connection
        last = self._last.get(sender)
        if last is not None and copy.key < last.key:
            return True
        if operation.done is not None and operation.done < self._latest_asked:
            return True
        self._latest_asked = max(self._latest_asked, operation.at)
        self._last[sender] = copy
        return False


class _Checker:
    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.counts: Counter[str] = Counter()
        self._setting = Setting({}, {})
        self._connections: dict[int, Connection] = {}
        self._operations: dict[int, Operation] = {}
        self._copies: dict[tuple[int, str], Copy] = {}
        self._alive: dict[str, str] = {}
        self._staged: set[int] = set()
        self._sightings: dict[int, Sighting] = {}
        self._durables: dict[str, list[Operation]] = {}
        self._lines: dict[tuple[int, str], _Line] = {}
        self._life = 0
        self._crashed: set[int] = set()
        self._sees: dict[type[Event], Callable[[int, Any], None]] = {
            Setting: self._set,
            Began: self._began,
            Opened: self._opened,
            Closed: self._closed,
            Ended: self._ended,
            Staged: self._stage,
            Asked: self._asked,
            Done: self._done,
            Refused: self._refused,
            Delivered: self._delivered,
            Drained: self._drained,
        }

    def see(self, number: int, event: Event) -> None:
        """Process the next event."""
        see = self._sees.get(type(event))
        if see is not None:
            see(number, event)

    def _violated(self, rule: str, text: str) -> None:
        self.violations.append(Violation(rule, text))

    # Brokers and connections.

    def _set(self, _: int, event: Setting) -> None:
        self._setting = event

    def _began(self, _: int, event: Began) -> None:
        self._life = event.life

    def _opened(self, _: int, event: Opened) -> None:
        made = Connection(event.connection, event.life, event.auto)
        self._connections[event.connection] = made

    def _closed(self, _: int, event: Closed) -> None:
        connection = self._connections[event.connection]
        connection.is_open, connection.is_clean = False, event.is_clean

    def _ended(self, _: int, event: Ended) -> None:
        if event.how == "crash":
            self._crashed.add(event.life)

    def _has_crashed(self, first: int, last: int) -> bool:
        """Return True if one of these lives, except the last, ended by a crash."""
        return any(life in self._crashed for life in range(first, last))

    # Operations.

    def _stage(self, _: int, event: Staged) -> None:
        self._staged.update(event.messages)

    def _asked(self, number: int, event: Asked) -> None:
        operation = self._operations[event.operation] = Operation(event, number)
        for position, (message, destination) in enumerate(event.sends):
            for place, is_certain in self._places(destination):
                self._alive[dead_letters_of(place)] = place
                copy = Copy(message, place, operation, position, is_certain)
                self._copies[message, place] = copy
                operation.copies.append(copy)
        for delivery in event.settles:
            sighting = self._sightings[delivery]
            sighting.is_answered = True
            sighting.copy.settlements.append(operation)
            operation.settles.append(sighting)
        for delivery in event.rejects:
            self._sightings[delivery].is_answered = True
        if event.durable:
            self._durables.setdefault(event.durable, []).append(operation)

    def _places(self, destination: str) -> list[tuple[str, bool]]:
        """Return the places to which a message is routed now, and whether each is certain."""
        if destination in self._setting.children:
            return [(child, True) for child in self._setting.children[destination]]
        topics = self._setting.topics
        if destination in topics.values():
            return [
                (place, any(each.done is not None for each in self._durables.get(place, ())))
                for place, topic in topics.items()
                if topic == destination
            ]
        return [(destination, True)]

    def _done(self, number: int, event: Done) -> None:
        operation = self._operations[event.operation]
        operation.done = number
        self.counts["receipted"] += len(operation.asked.sends)
        connection = self._connections[operation.asked.connection]
        for at, copy in connection.contested:
            if operation.at > at:
                self._violated("doubled", f"{copy} was with two clients at once")
        connection.contested = [each for each in connection.contested if each[0] >= operation.at]
        for sighting in operation.settles:
            self.counts["settled"] += 1
            sighting.is_settled = True
            if sighting.copy.came_after(sighting):
                self._violated("undone", f"{sighting.copy} came again, acknowledged as it was")

    def _refused(self, _: int, event: Refused) -> None:
        self._operations[event.operation].code = event.code
        self.counts["refused"] += 1

    # Messages.

    def _found(self, message: int, place: str) -> Copy | None:
        """Return the copy that came out of a place, if it can have been there."""
        copy = self._copies.get((message, self._alive.get(place, place)))
        if copy is None:
            why = "was never sent there"
            if message in self._staged:
                why = "was in a transaction that was not committed"
            self._violated("invented", f"message {message} came out of {place}, and {why}")
            return None
        if copy.operation.is_undone:
            self._violated("invented", f"{copy} came, and had been refused")
        if copy.place in self._setting.topics and not self._was_subscribed(copy):
            self._violated("invented", f"{copy} was kept for a subscription that was refused")
        return copy

    def _was_subscribed(self, copy: Copy) -> bool:
        done = copy.operation.done
        return any(
            not each.is_undone and (done is None or each.at < done)
            for each in self._durables.get(copy.place, ())
        )

    def _delivered(self, number: int, event: Delivered) -> None:
        self.counts["delivered"] += 1
        self.counts["redelivered"] += event.is_redelivered
        copy = self._found(event.message, event.place)
        connection = self._connections[event.connection]
        if copy is None:
            # The copy belongs to no known operation.
            nothing = Operation(Asked(-1, event.connection), number)
            copy = Copy(event.message, event.place, nothing, 0, is_certain=False)
        sighting = Sighting(copy, connection, event.is_redelivered, event.count, event.is_auto)
        self._check_repetition(copy, sighting)
        self._check_holders(number, copy, sighting)
        if not event.is_redelivered:
            line = self._lines.setdefault((event.connection, event.place), _Line())
            if line.overtaken(copy):
                self._violated("order", f"{copy} was overtaken")
        copy.sightings.append(sighting)
        self._sightings[event.delivery] = sighting

    def _check_repetition(self, copy: Copy, new: Sighting) -> None:
        if new.is_marked != (new.count > 1):
            self._violated("doubled", f"{copy} has a mark and a count that don't agree")
        for old in copy.sightings:
            if old.is_settled and new.rank > old.rank:
                self._violated("undone", f"{copy} came again, acknowledged as it was")
            first, second = sorted((old, new), key=lambda each: each.connection.life)
            since, life = first.connection.life, second.connection.life
            if self._has_crashed(since, life):
                continue  # the broker may have forgotten
            if first.is_auto:
                self._violated("doubled", f"{copy} came again, in the mode auto")
            elif first.count == second.count or (since < life and first.count > second.count):
                self._violated("doubled", f"{copy} came again, not marked as that")

    def _check_holders(self, number: int, copy: Copy, new: Sighting) -> None:
        """Record the clients that seem to hold the same message; report those still connected."""
        connection = new.connection
        for old in copy.sightings:
            other = old.connection
            if (
                other is not connection
                and other.life == connection.life
                and old.rank < new.rank
                and other.is_open
                and not (old.is_answered or old.is_auto)
            ):
                other.contested.append((number, copy))

    def _drained(self, _: int, event: Drained) -> None:
        self.counts["drained"] += 1
        copy = self._found(event.message, event.place)
        if copy is None:
            return
        copy.drained += 1
        if copy.drained > 1:
            self._violated("doubled", f"{copy} is there twice in the end")
        drain = Connection(-1, self._life, "")
        last = Sighting(copy, drain, event.is_redelivered, event.count, is_auto=False)
        if event.place != copy.place:
            if any(each.is_settled for each in copy.sightings):
                self._violated("undone", f"{copy} is dead, acknowledged as it was")
        else:
            self._check_repetition(copy, last)
            line = self._lines.setdefault((-1, event.place), _Line())
            if line.overtaken(copy):
                self._violated("order", f"{copy} was overtaken in the end")

    # The end.

    def finish(self) -> None:
        """Report the messages that are missing at the end."""
        broken = Counter(
            each.auto for each in self._connections.values() if each.auto and not each.is_clean
        )
        autos = {each.auto for each in self._connections.values()}
        missing = [
            copy
            for copy in self._copies.values()
            if copy.operation.done is not None and copy.is_certain and not copy.is_accounted_for
        ]
        in_auto = {copy.message for copy in missing if copy.place in autos}
        copies = [copy for copy in self._copies.values() if copy.place in autos]
        on_their_way = excused(in_auto, copies, broken)
        for copy in missing:
            if copy.message in on_their_way and copy.place in autos:
                self.counts["on their way in auto"] += 1
            else:
                self._violated("lost", f"{copy} is gone")
        for operation in self._operations.values():
            if operation.done is None:
                self.counts["in doubt"] += bool(operation.asked.sends)
                self.violations += torn(operation, autos)
