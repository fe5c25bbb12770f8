"""Shared parts of reading the log, created once for all connections."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import msgspec
import pymysql
from pymysqlreplication.event import FormatDescriptionEvent

from stompkit.replication.model.events import RowChange
from stompkit.replication.sources.mysql._ahead import LaterStatements
from stompkit.replication.sources.mysql._binlog.rows import Decoding
from stompkit.replication.sources.mysql._dsn import Dsn
from stompkit.replication.sources.mysql._errors import OffsetLostError
from stompkit.replication.sources.mysql._grouping import Grouping, OnProblem
from stompkit.replication.sources.mysql._positions import Position, is_behind
from stompkit.replication.sources.mysql._reader import Stream, problem_of
from stompkit.replication.sources.mysql._server import FIRST_POS, log_end, log_files
from stompkit.replication.sources.mysql._tables.catalogue import Catalogue
from stompkit.replication.sources.mysql._tables.definitions import Definitions
from stompkit.replication.sources.mysql._tables.statements import Name
from stompkit.replication.sources.mysql._xa import Prepared, prepared_place

__all__ = ["LogReading", "random_server_id"]

_log: Final = logging.getLogger(__name__)

#: Meepo's range of reader numbers: far from those of typical server configurations.
_SERVER_IDS: Final = (1_000_000_000, 4_294_967_295)


def random_server_id() -> int:
    """Return a number that is unlikely to be used by another reader."""
    return random.SystemRandom().randint(*_SERVER_IDS)


@dataclass(frozen=True)
class LogReading:
    """Creates the streams of a server's log, and the groupings of their events."""

    dsn: Dsn
    is_mariadb: bool
    catalogue: Catalogue
    decoding: Decoding
    wants: Callable[[str, str], bool]
    announce: bool
    on_problem: OnProblem
    heartbeat_s: float

    def grouping(
        self,
        position: Position,
        prepared: Prepared,
        definitions: Definitions | None = None,
        copied: Mapping[Name, tuple[str, int]] | None = None,
        *,
        can_copy: bool = True,
    ) -> Grouping:
        """Return the grouping of the events from a position on into transactions.

        Raises the errors of reading.
        """
        definitions = definitions or Definitions(None)
        try:
            definitions.load(self.catalogue, self.wants)
        except (pymysql.Error, OSError) as error:
            raise problem_of(error, str(position)) from None
        return Grouping(
            position,
            wants=self.wants,
            catalogue=self.catalogue,
            decoding=self.decoding,
            prepared=prepared,
            is_mariadb=self.is_mariadb,
            announce=self.announce,
            on_problem=self.on_problem,
            definitions=definitions,
            later=LaterStatements(self._rest, self._log_end),
            # Files of another server have other numbers.
            copied=(copied or {}) if position.file else {},
            can_copy=can_copy,
        )

    def stream(self, position: Position, server_id: int, *, is_blocking: bool) -> Stream:
        """Return the events from a position on."""
        return Stream(
            self.dsn,
            position,
            is_mariadb=self.is_mariadb,
            server_id=server_id,
            is_blocking=is_blocking,
            heartbeat_s=self.heartbeat_s,
        )

    def _rest(self, position: Position) -> Stream:
        """Return the events from a position to the end of the log."""
        return self.stream(position, random_server_id(), is_blocking=False)

    def _log_end(self) -> tuple[str, int]:
        with self.dsn.connect() as connection:
            file, pos, _ = log_end(connection)
        return file, pos

    def dated(self, position: Position) -> Position:
        """Return the position with the creation time of its file; raises the errors of reading."""
        by_place = msgspec.structs.replace(position, by_place=True)
        with closing(self._rest(by_place)) as stream:
            for event in stream.events():
                if isinstance(event, FormatDescriptionEvent):
                    return msgspec.structs.replace(position, made=event.timestamp)
        return position

    def prepared(self, places: dict[str, tuple[str, int]]) -> Prepared:
        """Return the prepared transactions of a checkpoint, by their files and positions."""
        return Prepared(places, self.read_again, self.search)

    def read_again(self, xid: str, position: Position) -> list[RowChange]:
        """Return the changes of the XA transaction that begins at a position.

        Raises :class:`OffsetLostError` if another transaction is there, and the errors of reading.
        """
        prepared = Prepared({}, lambda xid, position: [], lambda xid, position: None)
        grouping = self.grouping(position, prepared)
        # Use a separate number: the server disconnects the older of two readers with the same one.
        with closing(self._rest(position)) as stream:
            for event in stream.events():
                if grouping.feed(event) is not None:
                    break
        changes = prepared.commit(xid, position)
        if changes is None:
            raise OffsetLostError(
                f"at {position} a transaction was prepared by XA, and now there is something else: "
                "take a new snapshot with empty offsets"
            )
        return changes

    def search(self, xid: str, position: Position) -> list[RowChange] | None:
        """Return the changes of the XA transaction that was prepared last before a position.

        ``None`` if the log does not have it. Raises the errors of reading.
        """
        _log.warning(
            "%s: a transaction is committed at %s that was prepared by XA before reading began: the"
            " older log is searched for its rows",
            self.dsn.server,
            position,
        )
        with self.dsn.connect() as connection:
            files = log_files(connection)
        while files:
            file, end = files.popitem()
            begin = Position(file=file, pos=FIRST_POS)
            if is_behind((file, FIRST_POS), (position.file, position.pos)):
                continue
            if file == position.file:
                end = position.pos
            with closing(self._rest(begin)) as stream:
                found = prepared_place(stream.events(), file, end, xid)
            if found is not None:
                return self.read_again(xid, Position(file=file, pos=found))
        return None
