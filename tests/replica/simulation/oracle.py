"""The meaning of a set of changesets, computed in the simplest way: an independent implementation.

It compares every pair of changes of a row. It is therefore slow, and independent of replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stompkit.replication.model.events import Changeset
from stompkit.replication.model.values import to_json

__all__ = ["Expected", "Place", "clocks_of", "expected_of"]

#: A table and the id of a document in it.
Place = tuple[str, str]
_Dot = tuple[str, int]
_Clock = Mapping[str, int]


@dataclass(slots=True)
class Expected:
    """The expected state of a row."""

    #: ``None`` if there is no row.
    visible: dict[str, Any] | None
    #: Values that were written concurrently with the visible ones and lost, by column.
    losers: dict[str, list[Any]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Event:
    """One change of a row."""

    dot: _Dot
    place: int
    stamp: tuple[int, str, int]
    clock: _Clock
    action: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    def is_after(self, other: _Event) -> bool:
        """Return True if the author of this change knew the other."""
        if self.dot == other.dot:
            return self.place > other.place
        return self.clock.get(other.dot[0], 0) >= other.dot[1]

    def writes(self, column: str) -> bool:
        """Return True if this change sets a column; a new row sets all columns."""
        return self.action == "write" or column in self.after


def clocks_of(changesets: Iterable[Changeset]) -> dict[_Dot, _Clock]:
    """Return for each changeset the vector of those that its author knew, itself included."""
    known: dict[_Dot, _Clock] = {}
    changesets = list(changesets)
    became = {
        old: (each.origin, each.sequence)
        for each in changesets
        if each.revision is not None
        for old in each.revision.replaces
    }
    for each in sorted(changesets, key=lambda each: (each.origin, each.sequence)):
        assert each.revision is not None
        clock = dict(known.get((each.origin, each.sequence - 1), {}))
        for origin, number in each.revision.context.items():
            new = became.get((origin, number, each.revision.seen.get(origin, "")))
            if new is None:
                clock[origin] = number
            else:
                # The author has known it under another number.
                clock[origin] = max(clock.get(origin, 0), number - new[1])
                clock[new[0]] = max(clock.get(new[0], 0), new[1])
        clock[each.origin] = each.sequence
        known[each.origin, each.sequence] = clock
    return known


def expected_of(
    changesets: Sequence[Changeset], kinds: Mapping[str, Mapping[str, str]]
) -> dict[Place, Expected]:
    """Return the expected state of each row after all of these.

    ``kinds`` gives, by table, the kinds of its columns: ``counter``, ``members``, ``first``,
    ``priority B A``, else the last writer's value is right; and for the column ``""`` the rule for
    deletes.
    """
    clocks = clocks_of(changesets)
    rows: dict[Place, list[_Event]] = {}
    for changeset in changesets:
        assert changeset.revision is not None
        dot = changeset.origin, changeset.sequence
        for number, change in enumerate(changeset.changes):
            events = rows.setdefault((change.name, str(change.key["id"])), [])
            events.append(
                _Event(
                    dot,
                    number,
                    (changeset.revision.hlc, *dot),
                    clocks[dot],
                    change.action,
                    change.before or {},
                    change.after or {},
                )
            )
    return {place: _expected(events, kinds.get(place[0], {})) for place, events in rows.items()}


def _expected(events: list[_Event], kinds: Mapping[str, str]) -> Expected:
    last = [each for each in events if not any(other.is_after(each) for other in events)]
    is_there = [each.action != "delete" for each in last]
    match kinds.get("", "update-wins"):
        case "delete-wins":
            is_live = all(is_there)
        case "last-writer":
            is_live = max(last, key=lambda each: each.stamp).action != "delete"
        case _:
            is_live = any(is_there)
    if not is_live:
        return Expected(None)
    living = _living(events)
    found = Expected({})
    assert found.visible is not None
    for column in sorted({name for each in events for name in each.after}):
        match kinds.get(column, "").split():
            case ["counter"]:
                found.visible[column] = _count(events, living, column)
            case ["members"]:
                found.visible[column] = _members(events, living, column)
            case rule:
                candidates = _candidates(events, living, column)
                if candidates:
                    value = _winner(candidates, rule).after[column]
                    found.visible[column] = value
                    losers = _others(candidates, column, value)
                    if losers:
                        found.losers[column] = losers
    return found


def _births(events: list[_Event]) -> list[_Event]:
    """Return the insertions that no other insertion has replaced knowingly."""
    writes = [each for each in events if each.action == "write"]
    return [each for each in writes if not any(other.is_after(each) for other in writes)]


def _living(events: list[_Event]) -> list[_Event]:
    """Return the events that no deletion knew; all events if no insertion is among these."""
    left = [
        each
        for each in events
        if not any(other.is_after(each) and other.action == "delete" for other in events)
    ]
    return left if any(each in left for each in _births(events)) else events


def _candidates(events: list[_Event], living: list[_Event], column: str) -> list[_Event]:
    """Return the writes of a column that no later writer knew."""
    return [
        each
        for each in living
        if column in each.after
        and not any(other.is_after(each) and other.writes(column) for other in events)
    ]


def _winner(candidates: list[_Event], rule: list[str]) -> _Event:
    match rule:
        case ["first"]:
            return min(candidates, key=lambda each: each.stamp)
        case ["priority", *branches]:

            def rank(each: _Event) -> int:
                branch = each.dot[0].partition("~")[0]
                return branches.index(branch) if branch in branches else len(branches)

            best = min(map(rank, candidates))
            candidates = [each for each in candidates if rank(each) == best]
    return max(candidates, key=lambda each: each.stamp)


def _others(candidates: list[_Event], column: str, value: Any) -> list[Any]:
    seen = [to_json(value)]
    losers = []
    for each in candidates:
        form = to_json(each.after[column])
        if form not in seen:
            seen.append(form)
            losers.append(each.after[column])
    return losers


def _count(events: list[_Event], living: list[_Event], column: str) -> Any:
    """Return the start value, and the increments of all rows that were not replaced knowingly."""
    births = [each for each in _births(events) if each in living]
    total = max(births, key=lambda each: each.stamp).after.get(column) or 0
    for each in events:
        if each.action == "update" and column in each.after:
            if any(each.is_after(birth) for birth in births):
                total += each.after[column] - (each.before.get(column) or 0)
    return total


def _members(events: list[_Event], living: list[_Event], column: str) -> list[Any]:
    """Return the members that were added and not removed by an author who knew that."""
    found = set()
    for each in living:
        added = set(each.after.get(column) or ())
        if each.action == "update":
            added -= set(each.before.get(column) or ())
        for member in added if column in each.after else ():
            if not any(
                other.is_after(each) and _removes(other, column, member) for other in events
            ):
                found.add(member)
    return sorted(found)


def _removes(event: _Event, column: str, member: Any) -> bool:
    if event.action == "write":
        return member not in (event.after.get(column) or ())
    if column not in event.after:
        return False
    before, after = event.before.get(column) or (), event.after[column] or ()
    return member in before and member not in after
