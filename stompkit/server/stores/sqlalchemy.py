"""The store for SQL databases: SQLite, PostgreSQL, MariaDB. Needs the extra ``sql``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

try:
    from sqlalchemy import Connection, Select, bindparam, delete, func, insert, select, update
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "a store in an SQL database needs SQLAlchemy: pip install 'stompkit[sql]'", name=error.name
    ) from error

from stompkit.server.interfaces import LaneState, Operation, StoredMessage
from stompkit.server.stores.changes import Changes, LaneChanges, lanes_of
from stompkit.server.stores.database import Database
from stompkit.server.stores.record import pack_text, record_key, unpack_text
from stompkit.server.stores.tables import LANES, MESSAGES, RECORDS

__all__ = ["SqlAlchemyStore"]

#: Maximum number of parameters in one statement; old versions of SQLite allow 999.
_CHUNK: Final = 500

_INSERT_MESSAGES: Final = insert(MESSAGES)
_MARK_MESSAGES: Final = (
    update(MESSAGES)
    .where(MESSAGES.c.lane == bindparam("in_lane"), MESSAGES.c.place == bindparam("at_place"))
    .values(deliveries=bindparam("to_deliveries"))
)
_INSERT_LANES: Final = insert(LANES)
_UPDATE_LANES: Final = (
    update(LANES)
    .where(LANES.c.lane == bindparam("in_lane"))
    .values(
        messages=bindparam("to_messages"),
        octets=bindparam("to_octets"),
        last_place=bindparam("to_last_place"),
        delivered_place=bindparam("to_delivered_place"),
    )
)


class SqlAlchemyStore:
    """Keeps messages in tables of an SQL database whose names begin with ``stompkit_``.

    One broker may use them at a time. If two do, the first one to write continues. The other gets
    :class:`StoreError` until it reopens the store.
    """

    def __init__(self, url: str, *, synchronous: bool = True) -> None:
        """Describe a store in the database at ``url``, in the format of SQLAlchemy.

        With ``synchronous`` off, applied changes survive a crash of the machine only once
        :meth:`sync` has returned; the database stays consistent. MariaDB follows its server setting
        instead. Raises ValueError for an invalid URL.
        """
        self._database = Database(url, synchronous=synchronous)

    def open(self) -> None:
        """Open or create the store; raises StoreError for an unknown version."""
        self._database.open()

    def lanes(self) -> list[LaneState]:
        """Return all lanes, by number."""
        with self._database.transaction() as connection:
            return list(_states(connection, select(LANES).order_by(LANES.c.lane)))

    def records(self) -> Mapping[str, bytes]:
        """Return all records."""
        with self._database.transaction() as connection:
            rows = connection.execute(select(RECORDS.c.name, RECORDS.c.value))
            return {unpack_text(name): bytes(value) for name, value in rows}

    def apply(self, operations: Sequence[Operation]) -> None:
        """Apply all operations in order, or none.

        If the connection is lost during the commit and cannot be re-established, the outcome is
        unknown. The message of the :class:`StoreError` says so.
        """
        with self._database.change() as connection:
            changes = Changes(
                state
                for numbers in _chunks(lanes_of(operations))
                for state in _states(connection, select(LANES).where(LANES.c.lane.in_(numbers)))
            )
            for operation in operations:
                changes.add(operation)
            _drop_lanes(connection, changes.dropped)
            lanes = changes.lanes.values()
            states = [(lane, lane.result(*_remove(connection, lane))) for lane in lanes]
            _put(connection, lanes)
            _write_lanes(connection, states)
            _set_records(connection, changes.records)

    def read(
        self, lane: int, after: int, max_messages: int, max_octets: int
    ) -> Sequence[StoredMessage]:
        """Return the first messages of a lane with a place above ``after``, in order."""
        columns = MESSAGES.c
        wanted = (columns.lane == lane, columns.place > after)
        sizes = (
            select(columns.place, columns.size, LANES.c.delivered_place)
            .join(LANES, LANES.c.lane == columns.lane)
            .where(*wanted)
            .order_by(columns.place)
            .limit(max(max_messages, 1))
        )
        with self._database.transaction() as connection:
            first = connection.execute(sizes).all()
            if not first:
                return []
            last = first[0].place
            delivered_place = first[0].delivered_place
            octets = first[0].size
            for row in first[1:]:
                octets += row.size
                if octets > max_octets:
                    break
                last = row.place
            # The bodies are fetched last, since the first query can match more messages than are
            # needed.
            found = select(MESSAGES).where(*wanted, columns.place <= last).order_by(columns.place)
            return [
                StoredMessage(
                    row.place,
                    max(row.deliveries, int(row.place <= delivered_place)),
                    row.size,
                    row.expires_ms,
                    row.due_ms,
                    unpack_text(row.id),
                    bytes(row.header_lines),
                    bytes(row.body),
                )
                for row in connection.execute(found)
            ]

    def sync(self) -> None:
        """Flush everything applied so far, so that it survives a crash of the machine."""
        self._database.sync()

    def close(self) -> None:
        """Sync and disconnect; does nothing if not open."""
        self._database.close()


def _chunks(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield the numbers in chunks small enough for one statement."""
    for start in range(0, len(numbers), _CHUNK):
        yield numbers[start : start + _CHUNK]


def _states(connection: Connection, query: Select[Any]) -> Iterator[LaneState]:
    """Yield the lanes that a query finds."""
    for lane, queue, *numbers in connection.execute(query):
        yield LaneState(lane, unpack_text(queue), *numbers)


def _drop_lanes(connection: Connection, dropped: Iterable[int]) -> None:
    """Delete stored lanes with their messages."""
    for lane in dropped:
        connection.execute(delete(MESSAGES).where(MESSAGES.c.lane == lane))
        connection.execute(delete(LANES).where(LANES.c.lane == lane))


def _remove(connection: Connection, lane: LaneChanges) -> tuple[int, int]:
    """Remove messages of a lane; return the number of messages and bytes removed."""
    columns = MESSAGES.c
    messages = octets = 0
    for places in _chunks(sorted(lane.removed)):
        there = (columns.lane == lane.stored.lane, columns.place.in_(places))
        sums = select(func.count(), func.coalesce(func.sum(columns.size), 0)).where(*there)
        found, size = connection.execute(sums).one()
        if found:
            connection.execute(delete(MESSAGES).where(*there))
            messages += found
            # MariaDB returns the sum of integers as a decimal.
            octets += int(size)
    return messages, octets


def _put(connection: Connection, lanes: Iterable[LaneChanges]) -> None:
    """Insert messages, and update the delivery counts of stored ones."""
    rows = [
        {
            "lane": put.lane,
            "place": put.place,
            "deliveries": lane.deliveries.get(put.place, 0),
            "size": put.size,
            "expires_ms": put.expires_ms,
            "due_ms": put.due_ms,
            "id": pack_text(put.id),
            "header_lines": put.lines,
            "body": put.body,
        }
        for lane in lanes
        for put in lane.puts.values()
    ]
    if rows:
        connection.execute(_INSERT_MESSAGES, rows)
    marks = [
        {"in_lane": lane.stored.lane, "at_place": place, "to_deliveries": deliveries}
        for lane in lanes
        for place, deliveries in lane.marks.items()
    ]
    if marks:
        connection.execute(_MARK_MESSAGES, marks)


def _write_lanes(connection: Connection, states: list[tuple[LaneChanges, LaneState]]) -> None:
    """Write the new states of lanes."""
    new = [
        {**state._asdict(), "queue": pack_text(state.queue)}
        for lane, state in states
        if lane.is_new
    ]
    if new:
        connection.execute(_INSERT_LANES, new)
    changed = [
        {
            "in_lane": state.lane,
            "to_messages": state.messages,
            "to_octets": state.octets,
            "to_last_place": state.last_place,
            "to_delivered_place": state.delivered_place,
        }
        for lane, state in states
        if not lane.is_new
    ]
    if changed:
        connection.execute(_UPDATE_LANES, changed)


def _set_records(connection: Connection, records: Mapping[str, bytes | None]) -> None:
    """Write records, and delete those without a value."""
    if records:
        digests = {name: record_key(name) for name in records}
        keys = [{"old_digest": digest} for digest in digests.values()]
        there = RECORDS.c.digest == bindparam("old_digest")
        connection.execute(delete(RECORDS).where(there), keys)
    rows = [
        {"digest": digests[name], "name": pack_text(name), "value": value}
        for name, value in records.items()
        if value is not None
    ]
    if rows:
        connection.execute(insert(RECORDS), rows)
