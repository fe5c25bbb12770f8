"""Two-phase transactions, whose rows are logged when they are prepared, not committed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from stompkit.replication.model.events import RowChange
from stompkit.replication.sources.mysql._positions import Position

__all__ = ["Prepared", "xid_of"]

_XID: Final = re.compile(r"X'([0-9a-f]*)',\s*X'([0-9a-f]*)',\s*(\d+)", re.IGNORECASE)


def xid_of(statement: str) -> str:
    """Return the XA transaction id in a statement of the log; empty if there is none."""
    found = _XID.search(statement)
    return ",".join(found.groups()).lower() if found else ""


class Prepared:
    """Prepared transactions that are neither committed nor rolled back.

    The changes are kept in memory. Their positions in the log are part of the checkpoint, so that a
    restarted publisher can read them again when it needs them.
    """

    def __init__(
        self,
        places: dict[str, tuple[str, int]],
        read_again: Callable[[str, Position], list[RowChange]],
    ) -> None:
        """Start with the files and positions of earlier prepared transactions."""
        self.places = {xid: (file, pos) for xid, (file, pos) in places.items()}
        self._read_again = read_again
        self._changes: dict[str, list[RowChange]] = {}

    def prepare(self, xid: str, changes: list[RowChange], begin: Position) -> None:
        """Store the changes of a transaction that begins at a position."""
        self.places[xid] = begin.file, begin.pos
        self._changes[xid] = changes

    def end(self, xid: str) -> list[RowChange] | None:
        """Return the changes of an ending transaction; ``None`` if its prepare was not read.

        Raises the errors of reading the log.
        """
        place = self.places.get(xid)
        if place is None:
            return None
        changes = self._changes.pop(xid, None)
        if changes is None:
            changes = self._read_again(xid, Position(file=place[0], pos=place[1]))
        del self.places[xid]
        return changes
