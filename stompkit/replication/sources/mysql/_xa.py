"""Two-phase transactions, whose rows are logged when they are prepared, not committed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from pymysqlreplication.event import BinLogEvent, QueryEvent, RotateEvent, XAPrepareEvent

from stompkit.replication.model.events import RowChange
from stompkit.replication.sources.mysql._binlog import events
from stompkit.replication.sources.mysql._binlog.events import LogEvent
from stompkit.replication.sources.mysql._positions import Position

__all__ = ["Prepared", "prepared_place", "xid_in", "xid_of"]

_XID: Final = re.compile(r"X'([0-9a-f]*)',\s*X'([0-9a-f]*)',\s*(\d+)", re.IGNORECASE)


def xid_of(statement: str) -> str:
    """Return the XA transaction id in a statement of the log; empty if there is none."""
    found = _XID.search(statement)
    return ",".join(found.groups()).lower() if found else ""


def xid_in(event: XAPrepareEvent) -> str:
    """Return the XA transaction id of an event that prepares a transaction."""
    return f"{event.xid_gtrid.hex()},{event.xid_bqual.hex()},{event.xid_format_id}"


class Prepared:
    """Prepared transactions that are neither committed nor rolled back.

    The changes are kept in memory. Their positions in the log are part of the checkpoint, so that a
    restarted publisher can read them again when it needs them. Those that were prepared before
    reading began are searched for in the older log.
    """

    def __init__(
        self,
        places: dict[str, tuple[str, int]],
        read_again: Callable[[str, Position], list[RowChange]],
        search: Callable[[str, Position], list[RowChange] | None],
    ) -> None:
        """Start with the files and positions of earlier prepared transactions.

        ``search`` returns the changes of a transaction prepared before a position, if the log still
        has them.
        """
        self.places = {xid: (file, pos) for xid, (file, pos) in places.items()}
        self._read_again = read_again
        self._search = search
        self._changes: dict[str, list[RowChange]] = {}

    def prepare(self, xid: str, changes: list[RowChange], begin: Position) -> None:
        """Store the changes of a transaction that begins at a position."""
        self.places[xid] = begin.file, begin.pos
        self._changes[xid] = changes

    def roll_back(self, xid: str) -> None:
        """Forget a transaction."""
        self.places.pop(xid, None)
        self._changes.pop(xid, None)

    def commit(self, xid: str, position: Position) -> list[RowChange] | None:
        """Return the changes of a transaction that is committed at a position.

        ``None`` if the log does not have them any more.

        Raises the errors of reading the log.
        """
        place = self.places.get(xid)
        if place is None:
            return self._search(xid, position)
        changes = self._changes.pop(xid, None)
        if changes is None:
            changes = self._read_again(xid, Position(file=place[0], pos=place[1]))
        del self.places[xid]
        return changes


def prepared_place(
    found: Iterable[LogEvent | BinLogEvent], file: str, end: int, xid: str
) -> int | None:
    """Return where a transaction begins that is prepared in a file, before the offset ``end``.

    ``found`` has the events of the file from its beginning. ``None`` if there is none.
    """
    begin = last = 0
    has_gtid = False
    place = None
    for event in found:
        if isinstance(event, RotateEvent) and event.next_binlog != file:
            break
        if isinstance(event, LogEvent):
            if event.log_pos > end:
                break
            has_gtid = event.kind in (events.MARIADB_GTID, events.MYSQL_GTID)
            if has_gtid:
                begin = last
            last = event.log_pos
            continue
        if event.packet.log_pos > end:
            break
        if isinstance(event, XAPrepareEvent):
            if not event.one_phase and xid_in(event) == xid:
                place = begin
        elif isinstance(event, QueryEvent) and event.query.startswith("XA "):
            if event.query.startswith("XA START"):
                # MySQL logs this statement, also if its transactions have no GTID.
                begin = begin if has_gtid else last
            elif xid_of(event.query) == xid and not event.query.startswith("XA END"):
                # The number was used before.
                place = None
        has_gtid = False
        last = event.packet.log_pos
    return place
