"""Transactions of two phases: their rows are in the log when they are prepared, not committed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from stompkit.replication.events import RowChange
from stompkit.replication.publishers.mysql._positions import Position

__all__ = ["Prepared", "xid_of"]

_XID: Final = re.compile(r"X'([0-9a-f]*)',\s*X'([0-9a-f]*)',\s*(\d+)", re.IGNORECASE)


def xid_of(statement: str) -> str:
    """The transaction that a statement of the log names; empty where it names none."""
    found = _XID.search(statement)
    return ",".join(found.groups()).lower() if found else ""


class Prepared:
    """What is prepared, and neither committed nor rolled back yet.

    The changes are kept in memory, and where they are in the log belongs into the checkpoint:
    whoever begins there has them read again when he needs them.
    """

    def __init__(
        self,
        places: dict[str, tuple[str, int]],
        read_again: Callable[[str, Position], list[RowChange]],
    ) -> None:
        """Begin with the files and positions of what was prepared before, by transaction."""
        self.places = {xid: (file, pos) for xid, (file, pos) in places.items()}
        self._read_again = read_again
        self._changes: dict[str, list[RowChange]] = {}

    def prepare(self, xid: str, changes: list[RowChange], begin: Position) -> None:
        """Keep what a transaction has changed, which begins at a position."""
        self.places[xid] = begin.file, begin.pos
        self._changes[xid] = changes

    def end(self, xid: str) -> list[RowChange] | None:
        """What it has changed, now that it ends; ``None`` where nobody has seen it prepared.

        Raises what reading the log raises.
        """
        place = self.places.get(xid)
        if place is None:
            return None
        changes = self._changes.pop(xid, None)
        if changes is None:
            changes = self._read_again(xid, Position(file=place[0], pos=place[1]))
        del self.places[xid]
        return changes
