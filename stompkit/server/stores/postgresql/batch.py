"""A batch of operations as statements with their parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from psycopg.types.numeric import Int8

from stompkit.server.interfaces import LaneState, Put
from stompkit.server.stores.changes import Changes, LaneChanges
from stompkit.server.stores.postgresql import statements
from stompkit.server.stores.postgresql.arrays import Numbers, Octets
from stompkit.server.stores.record import pack_text, record_key

__all__ = ["Statement", "statements_of"]

#: A statement and its parameters.
Statement: TypeAlias = tuple[str, Mapping[str, Any]]

#: Maximum number of messages, and of bytes of their bodies, in one statement. Arrays are limited to
#: 1 GiB, and the server holds them in memory several times.
_MOST_MESSAGES: Final = 5_000
_MOST_BYTES: Final = 32 * 1024 * 1024


def statements_of(changes: Changes) -> Iterator[Statement]:
    """Yield the statements of a batch, in the order in which they have to be executed."""
    if changes.dropped:
        dropped = {"lanes": Numbers(sorted(changes.dropped))}
        yield statements.DROP_MESSAGES, dropped
        yield statements.DROP_LANES, dropped
    lanes = changes.lanes.values()
    new = [lane.result(0, 0) for lane in lanes if lane.is_new]
    if new:
        yield statements.INSERT_LANES, _lane_columns(new)
    for lane in lanes:
        if not lane.is_new:
            yield from _update(lane)
    for some in _portions(lanes):
        yield statements.INSERT_MESSAGES, _message_columns(some)
    for lane in lanes:
        for place, deliveries in lane.marks.items():
            there = {"lane": Int8(lane.stored.lane), "place": Int8(place)}
            yield statements.MARK, {**there, "deliveries": Int8(deliveries)}
    if changes.records:
        yield from _records(changes.records)


def _lane_columns(states: Sequence[LaneState]) -> dict[str, Any]:
    return {
        "lanes": Numbers([each.lane for each in states]),
        "queues": Octets([pack_text(each.queue) for each in states]),
        "parts": Numbers([each.part for each in states]),
        "messages": Numbers([each.messages for each in states]),
        "octets": Numbers([each.octets for each in states]),
        "last": Numbers([each.last_place for each in states]),
        "delivered": Numbers([each.delivered_place for each in states]),
    }


def _update(lane: LaneChanges) -> Iterator[Statement]:
    """Yield the statement that updates a lane, and removes messages."""
    stored = lane.stored
    values: dict[str, Any] = {
        "lane": Int8(stored.lane),
        "messages": Int8(len(lane.puts)),
        "octets": Int8(sum(put.size for put in lane.puts.values())),
        "last": Int8(lane.last_place),
        "delivered": Int8(stored.delivered_place),
    }
    if not lane.removed:
        if lane.puts or lane.is_moved:
            yield statements.UPDATE_LANE, values
        return
    firsts, untils = _ranges(sorted(lane.removed))
    if len(firsts) == 1:
        ends = {"first": Int8(firsts[0]), "until": Int8(untils[0])}
        yield statements.REMOVE_RANGE, values | ends
    else:
        yield (
            statements.REMOVE_PLACES,
            values
            | {
                "firsts": Numbers(firsts),
                "untils": Numbers(untils),
            },
        )


def _ranges(places: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the first and last places of the ranges that sorted places form."""
    firsts, untils = [places[0]], [places[0]]
    for place in places[1:]:
        if place == untils[-1] + 1:
            untils[-1] = place
        else:
            firsts.append(place)
            untils.append(place)
    return firsts, untils


def _portions(lanes: Iterable[LaneChanges]) -> Iterator[list[tuple[Put, int]]]:
    """Yield the messages to insert, with their delivery counts, in portions for one statement."""
    portion: list[tuple[Put, int]] = []
    size = 0
    for lane in lanes:
        deliveries = lane.deliveries
        for place, put in lane.puts.items():
            size += len(put.body)
            if portion and (len(portion) == _MOST_MESSAGES or size > _MOST_BYTES):
                yield portion
                portion, size = [], len(put.body)
            portion.append((put, deliveries.get(place, 0)))
    if portion:
        yield portion


def _message_columns(messages: Sequence[tuple[Put, int]]) -> dict[str, Any]:
    puts = [put for put, _ in messages]
    lanes, places, sizes, expires, due, ids, lines, bodies = zip(*puts, strict=True)
    return {
        "lanes": Numbers(lanes),
        "places": Numbers(places),
        "deliveries": Numbers([deliveries for _, deliveries in messages]),
        "sizes": Numbers(sizes),
        "expires": Numbers(expires),
        "due": Numbers(due),
        "ids": Octets([pack_text(id) for id in ids]),
        "lines": Octets(lines),
        "bodies": Octets(bodies),
    }


def _records(records: Mapping[str, bytes | None]) -> Iterator[Statement]:
    digests = {name: record_key(name) for name in records}
    yield statements.DELETE_RECORDS, {"digests": Octets(list(digests.values()))}
    values = [(name, value) for name, value in records.items() if value is not None]
    if values:
        yield (
            statements.INSERT_RECORDS,
            {
                "digests": Octets([digests[name] for name, _ in values]),
                "names": Octets([pack_text(name) for name, _ in values]),
                "values": Octets([value for _, value in values]),
            },
        )
