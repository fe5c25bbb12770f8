"""Events on the path of each row, parsed from their bytes without objects of the log library.

These are the GTIDs, BEGIN, the description of a table, its rows, and the commit. The library parses
all other events, which are rare.
"""

from __future__ import annotations

import struct
from typing import Final
from uuid import UUID

import msgspec
from pymysqlreplication.constants import BINLOG

from stompkit.replication.sources.mysql._binlog.numbers import number_at

__all__ = [
    "BEGIN",
    "BODY_AT",
    "COMMIT",
    "DELETES",
    "MARIADB_GTID",
    "MYSQL_GTID",
    "PARTIAL_UPDATES",
    "ROWS",
    "TABLE_MAP",
    "UPDATES",
    "WRITES",
    "LogEvent",
    "is_standalone",
    "mariadb_gtid",
    "mysql_gtid",
    "parse_event",
    "rows_in",
    "table_in",
    "table_number",
]

# Types of events.
BEGIN: Final = BINLOG.QUERY_EVENT
COMMIT: Final = BINLOG.XID_EVENT
TABLE_MAP: Final = BINLOG.TABLE_MAP_EVENT
MYSQL_GTID: Final = BINLOG.GTID_LOG_EVENT
MARIADB_GTID: Final = BINLOG.MARIADB_GTID_EVENT
WRITES: Final = (BINLOG.WRITE_ROWS_EVENT_V1, BINLOG.WRITE_ROWS_EVENT_V2)
UPDATES: Final = (BINLOG.UPDATE_ROWS_EVENT_V1, BINLOG.UPDATE_ROWS_EVENT_V2)
DELETES: Final = (BINLOG.DELETE_ROWS_EVENT_V1, BINLOG.DELETE_ROWS_EVENT_V2)
PARTIAL_UPDATES: Final = BINLOG.PARTIAL_UPDATE_ROWS_EVENT

ROWS: Final = (*WRITES, *UPDATES, *DELETES, PARTIAL_UPDATES)

_PARSED: Final = frozenset({COMMIT, TABLE_MAP, MYSQL_GTID, MARIADB_GTID, *ROWS})
#: Types with the columns of rows after an update.
_WITH_AFTER: Final = frozenset({PARTIAL_UPDATES, *UPDATES})
#: Types with extra data before the columns.
_WITH_EXTRA: Final = frozenset({WRITES[1], UPDATES[1], DELETES[1], PARTIAL_UPDATES})

#: Status byte of the protocol, time, type, server id, size, end position, and flags.
_HEADER: Final = struct.Struct("<xIBIIIH")
#: Indexes after the status byte.
_TYPE_AT: Final = 5
BODY_AT: Final = _HEADER.size
#: Index of the schema's length in the body of a statement's event, and of its variables' length.
_SCHEMA_AT: Final = BODY_AT + 8
_VARIABLES_AT: Final = BODY_AT + 11
#: Flag of MariaDB's GTID: the transaction is one statement without an end event.
_STANDALONE: Final = 1

_sources: Final[dict[bytes, str]] = {}


class LogEvent(msgspec.Struct, frozen=True, gc=False):
    """An event whose body is parsed when it is needed."""

    kind: int
    #: Time in seconds since 1970.
    timestamp: int
    server_id: int
    #: Position in the file after the event.
    log_pos: int
    #: Bytes of the event, after the status byte of the protocol.
    data: bytes
    #: Index in ``data`` after the body; a checksum may follow.
    end: int


def parse_event(data: bytes, checksum: int) -> LogEvent | None:
    """Return an event with the status byte before it; ``None`` if the library has to parse it.

    ``checksum`` is the number of checksum bytes at its end.
    """
    kind = data[_TYPE_AT]
    if kind not in _PARSED and kind != BEGIN:
        return None
    timestamp, kind, server_id, size, log_pos, _ = _HEADER.unpack_from(data)
    end = size + 1 - checksum
    if kind == BEGIN and not _is_begin(data, end):
        return None
    return LogEvent(kind, timestamp, server_id, log_pos, data, end)


def _is_begin(data: bytes, end: int) -> bool:
    """Return True if the event of a statement has the statement BEGIN."""
    variables = data[_VARIABLES_AT] | data[_VARIABLES_AT + 1] << 8
    # The schema is followed by a NUL.
    at = _VARIABLES_AT + 2 + variables + data[_SCHEMA_AT] + 1
    return data[at:end] == b"BEGIN"


def mysql_gtid(event: LogEvent) -> str:
    """Return the GTID of MySQL's transaction: ``UUID:NUMBER``."""
    at = BODY_AT + 1
    source = event.data[at : at + 16]
    name = _sources.get(source)
    if name is None:
        name = _sources[source] = str(UUID(bytes=source))
    return f"{name}:{int.from_bytes(event.data[at + 16 : at + 24], 'little')}"


def mariadb_gtid(event: LogEvent) -> str:
    """Return the GTID of MariaDB's transaction: ``DOMAIN-SERVER-NUMBER``."""
    number, domain = struct.unpack_from("<QI", event.data, BODY_AT)
    return f"{domain}-{event.server_id}-{number}"


def is_standalone(event: LogEvent) -> bool:
    """Return True if MariaDB's transaction is one statement without an end event."""
    return bool(event.data[BODY_AT + 12] & _STANDALONE)


def table_number(event: LogEvent) -> int:
    """Return the table's number in the file, for a description or rows."""
    return int.from_bytes(event.data[BODY_AT : BODY_AT + 6], "little")


def table_in(body: bytes) -> tuple[str, str]:
    """Return the schema and the name of the table in the body of a description."""
    begin = 9
    end = begin + body[begin - 1]
    schema = body[begin:end].decode()
    begin = end + 2
    return schema, body[begin : begin + body[begin - 1]].decode()


def rows_in(event: LogEvent) -> tuple[int, bytes, bytes, int]:
    """Return the layout of the rows of an event.

    This is the number of the table's columns, the bit set of those that rows have, the same for
    rows after an update, and the index of the first row. Raises ``LookupError`` and ``ValueError``.
    """
    data = event.data
    at = BODY_AT + 8
    if event.kind in _WITH_EXTRA:
        # The length of the extra data includes itself.
        at += data[at] | data[at + 1] << 8
    count, at = number_at(data, at)
    width = (count + 7) // 8
    present = after = data[at : at + width]
    at += width
    if event.kind in _WITH_AFTER:
        after = data[at : at + width]
        at += width
    return count, present, after, at
