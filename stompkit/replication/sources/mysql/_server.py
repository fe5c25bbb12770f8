"""Queries of a server's variables and of its log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
import pymysql
from pymysql.connections import Connection

from stompkit.replication.sources.mysql._errors import MysqlError, OffsetLostError
from stompkit.replication.sources.mysql._positions import Position, gtid_set, parse_gtids

__all__ = [
    "Server",
    "Start",
    "begin_position",
    "check_position",
    "log_end",
    "log_files",
    "place",
    "read_server",
    "text_of",
]

#: Start position without a checkpoint: the oldest file, the current file, the end of the log, or a
#: file and a position.
Start = Literal["oldest", "file", "now"] | tuple[str, int]

#: First position of a file.
FIRST_POS: Final = 4
_SYNTAX_ERROR: Final = 1064
#: Index of the GTIDs in MySQL's description of the log's end.
_EXECUTED_AT: Final = 4
_NUMBER: Final = re.compile(r"\.(\d+)$")


@dataclass(frozen=True)
class Server:
    """A server and its variables."""

    version: tuple[int, ...]
    is_mariadb: bool
    #: Global variables, by names in lower case.
    variables: Mapping[str, str] = field(repr=False)

    @property
    def id(self) -> int:
        """The server's number in the replication."""
        return int(self.variables.get("server_id", "0"))

    @property
    def uid(self) -> str:
        """The server's own id; empty if it has none."""
        return self.variables.get("server_uuid", self.variables.get("server_uid", ""))

    def is_on(self, name: str) -> bool:
        """Return True if a variable is on."""
        return self.variables.get(name, "").upper() in ("ON", "1")


def text_of(value: object) -> str:
    """Return a driver's text, which may be bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def read_server(connection: Connection[Any]) -> Server:
    """Query a server; raises the errors of PyMySQL."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL VARIABLES")
        variables = {text_of(row[0]).lower(): text_of(row[1]) for row in cursor.fetchall()}
    found = re.match(r"\d+(?:\.\d+)*", variables["version"])
    version = tuple(map(int, found.group().split("."))) if found else ()
    return Server(version, "mariadb" in variables["version"].lower(), variables)


def log_end(connection: Connection[Any]) -> tuple[str, int, str]:
    """Return the current file, its length in bytes, and, for MySQL, the GTIDs up to there."""
    with connection.cursor() as cursor:
        try:
            cursor.execute("SHOW MASTER STATUS")
        except pymysql.err.ProgrammingError as error:
            if error.args[0] != _SYNTAX_ERROR:
                raise
            cursor.execute("SHOW BINARY LOG STATUS")
        row = cursor.fetchone()
    if row is None:
        raise MysqlError("the server writes no binary log: start it with log_bin")
    return text_of(row[0]), int(row[1]), text_of(row[4]) if len(row) > _EXECUTED_AT else ""


def _gtids_before(connection: Connection[Any], file: str) -> str | None:
    """Return the GTIDs of all transactions before a file, for MySQL."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW BINLOG EVENTS IN %s LIMIT 3", (file,))
        for row in cursor.fetchall():
            if text_of(row[2]) == "Previous_gtids":
                return text_of(row[5])
    return None


def log_files(connection: Connection[Any]) -> dict[str, int]:
    """Return the files of the log, oldest first, with their sizes in bytes."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        return {text_of(row[0]): int(row[1]) for row in cursor.fetchall()}


def _gtids_at(connection: Connection[Any], file: str, pos: int) -> dict[int, str] | None:
    """Return the last transaction of each domain at a position; ``None`` if unknown."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT BINLOG_GTID_POS(%s, %s)", (file, pos))
        row = cursor.fetchone()
    return None if row is None or row[0] is None else parse_gtids(text_of(row[0]))


def place(
    connection: Connection[Any],
    server: Server,
    file: str,
    pos: int,
    *,
    executed: str | None = None,
) -> Position:
    """Return a position in this server's log; ``executed`` are MySQL's GTIDs up to there."""
    gtids = _gtids_at(connection, file, pos) if server.is_mariadb else None
    return Position(
        file=file,
        pos=pos,
        gtid=gtid_set(gtids or {}),
        executed=executed if _has_gtids(server) else None,
        server_id=server.id,
        server=server.uid,
    )


def _has_gtids(server: Server) -> bool:
    """Return True for a MySQL server all of whose transactions have GTIDs."""
    return not server.is_mariadb and server.is_on("gtid_mode")


def begin_position(connection: Connection[Any], server: Server, start: Start) -> Position:
    """Return the start position without a checkpoint."""
    if isinstance(start, tuple):
        return place(connection, server, *start)
    file, end, executed = log_end(connection)
    if start == "now":
        return place(connection, server, file, end, executed=executed)
    if start == "oldest":
        file = next(iter(log_files(connection)))
    before = None if server.is_mariadb else _gtids_before(connection, file)
    return place(connection, server, file, FIRST_POS, executed=before)


def check_position(
    connection: Connection[Any], server: Server, position: Position, *, same_server: bool
) -> Position:
    """Check that a position is in this server's log; raises :class:`OffsetLostError` if it is not.

    A log that was reset, or restored from elsewhere, reuses file names and soon transaction
    numbers. The event at the position must therefore be the same. For another server, if that is
    allowed, only the transactions are compared. Its files differ, so the returned position has its
    file names.
    """
    again = "take a new snapshot with empty offsets"
    is_other = server.id != position.server_id or (
        server.uid and position.server and server.uid != position.server
    )
    if is_other and (same_server or not position.gtid):
        raise OffsetLostError(
            f"the checkpoint is of server {position.server_id} {position.server}, and this is "
            f"server {server.id} {server.uid}: connect to the former, or {again}"
        )
    if is_other:
        return Position(file="", pos=0, gtid=position.gtid, server_id=server.id, server=server.uid)
    files = log_files(connection)
    last = list(files)[-1]
    if position.file in files:
        if server.is_mariadb and position.gtid:
            found = _gtids_at(connection, position.file, position.pos)
            if found is None and position.pos <= files[position.file]:
                # After an event larger than max_allowed_packet, the server cannot map the position.
                # The file itself is read then, which must be the same one.
                return msgspec.structs.replace(position, by_place=True)
            if found != parse_gtids(position.gtid):
                raise OffsetLostError(
                    f"at {position} there were the transactions {position.gtid}, and now there is "
                    f"something else: the log was reset or restored; {again}"
                )
        if _has_gtids(server) and not _is_within(connection, position.executed, "gtid_executed"):
            raise OffsetLostError(
                f"at {position} there were the transactions {position.executed}, and now there "
                f"are fewer: the log was reset or restored; {again}"
            )
    elif _number(position.file) > _number(last) or _stem(position.file) != _stem(last):
        raise OffsetLostError(f"the log has no {position.file} any more: it was reset; {again}")
    elif not (server.is_mariadb and position.gtid):
        first = next(iter(files))
        # If more files are missing, purged ones might contain transactions without GTIDs.
        is_next = _number(first) == _number(position.file) + 1
        if is_next and _has_gtids(server) and position.executed is not None:
            purged = _variable(connection, "gtid_purged")
            if _is_subset(connection, purged, position.executed):
                return msgspec.structs.replace(position, file=first, pos=FIRST_POS, made=0)
        raise OffsetLostError(f"the log has no {position.file} any more: it was purged; {again}")
    return position


def _is_within(connection: Connection[Any], gtids: str | None, variable: str) -> bool:
    """Return True if all given GTIDs, if known, are among those of a variable."""
    return gtids is None or _is_subset(connection, gtids, _variable(connection, variable))


def _is_subset(connection: Connection[Any], gtids: str, others: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT GTID_SUBSET(%s, %s)", (gtids, others))
        row = cursor.fetchone()
    return row is not None and bool(row[0])


def _variable(connection: Connection[Any], name: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT @@GLOBAL.{name}")
        row = cursor.fetchone()
    return "" if row is None else text_of(row[0])


def _number(file: str) -> int:
    found = _NUMBER.search(file)
    return int(found[1]) if found else 0


def _stem(file: str) -> str:
    return _NUMBER.sub("", file)
