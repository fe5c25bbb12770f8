"""The place in the log that reading has reached."""

from __future__ import annotations

from stompkit.replication.sources.mysql._binlog.gtids import GtidSet
from stompkit.replication.sources.mysql._errors import OffsetLostError
from stompkit.replication.sources.mysql._positions import Position, gtid_set, parse_gtids

__all__ = ["LogPlace"]


class LogPlace:
    """The current file, and the position after the last complete transaction."""

    def __init__(self, position: Position, *, is_mariadb: bool) -> None:
        """Start at a position."""
        self.position = position
        """Position after the last complete transaction."""
        self.file = position.file
        """Name of the current file."""
        self._made = position.made
        self._gtids = parse_gtids(position.gtid)
        self._executed = None if position.executed is None else GtidSet(position.executed)
        self._is_mariadb = is_mariadb

    @property
    def end(self) -> tuple[str, int]:
        """File and offset after the last complete transaction."""
        return self.position.file, self.position.pos

    def at(self, pos: int) -> Position:
        """Return a position in the current file."""
        return Position(
            file=self.file,
            pos=pos,
            gtid=gtid_set(self._gtids) if self._gtids else "",
            executed=None if self._executed is None else str(self._executed),
            server_id=self.position.server_id,
            server=self.position.server,
            made=self._made,
        )

    def rotate(self, file: str) -> None:
        """Go on to another file, unless it is the current one."""
        if file != self.file:
            self.file = file
            self._made = 0

    def check_file(self, made: int) -> None:
        """Note when the current file was created; raises :class:`OffsetLostError` for another."""
        known = self.position
        if known.made and known.file == self.file and known.made != made:
            raise OffsetLostError(
                f"{self.file} is not the file of that name that {known} is in: the log was reset; "
                "take a new snapshot with empty offsets"
            )
        self._made = made

    def end_transaction(self, gtid: str, pos: int) -> Position:
        """Return the position after a complete transaction."""
        if gtid and self._is_mariadb:
            self._gtids[int(gtid.partition("-")[0])] = gtid
        elif self._executed is not None:
            if gtid:
                self._executed.add(gtid)
            else:
                # No GTID, or one with a tag, which the log library does not parse.
                self._executed = None
        self.position = self.at(pos)
        return self.position
