"""Messages of ``pgoutput``, PostgreSQL's own plug-in for logical decoding, protocol version 1.

This module decodes bytes to messages, without I/O. The formats are those of "Logical Replication
Message Formats" in PostgreSQL's documentation of its protocol. A message is the content of one
``XLogData``; anything but exactly one whole message raises :class:`PgoutputError`.

Column values stay as the server has sent them: text in bytes, ``None`` for NULL, and
:data:`UNCHANGED` for an unchanged large value. The server stores such values apart from the row,
and an update does not send them again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from stompkit._common.moved import renamed
from stompkit.replication.sources.postgres._records import (
    UNCHANGED,
    Begin,
    Column,
    Commit,
    Delete,
    Insert,
    Message,
    Origin,
    PgoutputError,
    Record,
    Relation,
    Row,
    Truncate,
    Type,
    Unchanged,
    Update,
)

__all__ = [
    "UNCHANGED",
    "Begin",
    "Column",
    "Commit",
    "Delete",
    "Insert",
    "Message",
    "Origin",
    "PgoutputError",
    "Record",
    "Relation",
    "Row",
    "Truncate",
    "Type",
    "Unchanged",
    "Update",
    "decode",
    "relation_of",
]


#: Epoch of the server's timestamps, which are in microseconds.
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)

_INT16: Final = struct.Struct("!H")
_INT32: Final = struct.Struct("!I")
_INT64: Final = struct.Struct("!Q")
_LSN_TIME_XID: Final = struct.Struct("!QqI")
_FLAGS_LSN_LSN_TIME: Final = struct.Struct("!BQQq")
_COLUMN_END: Final = struct.Struct("!Ii")
_TRUNCATE: Final = struct.Struct("!IB")
_MESSAGE: Final = struct.Struct("!BQ")

_UNCHANGED_VALUE: Final = ord("u")
_NULL_VALUE: Final = ord("n")
_TEXT_VALUE: Final = ord("t")

#: First bytes of the messages of rows.
_ROW_MESSAGES: Final = b"IUD"
_NEW: Final = ord("N")
_KEY: Final = ord("K")
_OLD: Final = ord("O")


def decode(octets: bytes) -> Record:
    """Decode one message; raises :class:`PgoutputError`."""
    if not octets:
        raise PgoutputError("a message of pgoutput is empty")
    read = _READERS.get(octets[0])
    if read is None:
        raise PgoutputError(f"{octets[:1]!r} begins no message of pgoutput, version 1")
    try:
        record, end = read(octets, 1)
    except (struct.error, IndexError):
        raise PgoutputError(f"a message {octets[:1]!r} of pgoutput is cut off") from None
    if end != len(octets):
        raise PgoutputError(f"a message {octets[:1]!r} of pgoutput has octets behind its end")
    return record


def relation_of(octets: bytes) -> int | None:
    """Return the relation of a row message, without decoding the row; otherwise ``None``."""
    if len(octets) >= 5 and octets[0] in _ROW_MESSAGES:
        return int.from_bytes(octets[1:5], "big")
    return None


def _begin(octets: bytes, at: int) -> tuple[Begin, int]:
    lsn, time, xid = _LSN_TIME_XID.unpack_from(octets, at)
    return Begin(lsn, _time(time), xid), at + _LSN_TIME_XID.size


def _commit(octets: bytes, at: int) -> tuple[Commit, int]:
    _, lsn, end_lsn, time = _FLAGS_LSN_LSN_TIME.unpack_from(octets, at)
    return Commit(lsn, end_lsn, _time(time)), at + _FLAGS_LSN_LSN_TIME.size


def _origin(octets: bytes, at: int) -> tuple[Origin, int]:
    (lsn,) = _INT64.unpack_from(octets, at)
    name, at = _text(octets, at + 8)
    return Origin(lsn, name), at


def _relation(octets: bytes, at: int) -> tuple[Relation, int]:
    (oid,) = _INT32.unpack_from(octets, at)
    schema, end = _text(octets, at + 4)
    name, end = _text(octets, end)
    is_readable = _is_utf_8(octets[at + 4 : end])
    at = end
    identity = chr(octets[at])
    (count,) = _INT16.unpack_from(octets, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        flags = octets[at]
        column, end = _text(octets, at + 1)
        is_readable = is_readable and _is_utf_8(octets[at + 1 : end])
        at = end
        type_oid, modifier = _COLUMN_END.unpack_from(octets, at)
        at += _COLUMN_END.size
        columns.append(Column(column, type_oid, modifier, bool(flags & 1)))
    # An empty schema name stands for the server's own catalogue.
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns), is_readable), at


def _type(octets: bytes, at: int) -> tuple[Type, int]:
    (oid,) = _INT32.unpack_from(octets, at)
    schema, at = _text(octets, at + 4)
    name, at = _text(octets, at)
    return Type(oid, schema or "pg_catalog", name), at


def _insert(octets: bytes, at: int) -> tuple[Insert, int]:
    (oid,) = _INT32.unpack_from(octets, at)
    _expect(octets[at + 4], _NEW)
    new, at = _row(octets, at + 5)
    return Insert(oid, new), at


def _update(octets: bytes, at: int) -> tuple[Update, int]:
    (oid,) = _INT32.unpack_from(octets, at)
    at += 4
    old: Row | None = None
    kind = octets[at]
    if kind in (_KEY, _OLD):
        old, at = _row(octets, at + 1)
    _expect(octets[at], _NEW)
    new, at = _row(octets, at + 1)
    return Update(oid, old, kind == _KEY, new), at


def _delete(octets: bytes, at: int) -> tuple[Delete, int]:
    (oid,) = _INT32.unpack_from(octets, at)
    kind = octets[at + 4]
    if kind != _OLD:
        _expect(kind, _KEY)
    old, at = _row(octets, at + 5)
    return Delete(oid, old, kind == _KEY), at


def _truncate(octets: bytes, at: int) -> tuple[Truncate, int]:
    count, flags = _TRUNCATE.unpack_from(octets, at)
    at += _TRUNCATE.size
    end = at + 4 * count
    if end > len(octets):
        raise IndexError
    relations = tuple(oid for (oid,) in _INT32.iter_unpack(octets[at:end]))
    return Truncate(relations, bool(flags & 1), bool(flags & 2)), end


def _message(octets: bytes, at: int) -> tuple[Message, int]:
    flags, lsn = _MESSAGE.unpack_from(octets, at)
    prefix, at = _text(octets, at + _MESSAGE.size)
    content, at = _counted(octets, at)
    return Message(bool(flags & 1), lsn, prefix, content), at


_READERS: Final[dict[int, Callable[[bytes, int], tuple[Record, int]]]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("O"): _origin,
    ord("R"): _relation,
    ord("Y"): _type,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("M"): _message,
}


def _row(octets: bytes, at: int) -> tuple[Row, int]:
    (count,) = _INT16.unpack_from(octets, at)
    at += 2
    values: list[bytes | Literal[Unchanged.UNCHANGED] | None] = []
    for _ in range(count):
        kind = octets[at]
        at += 1
        if kind == _TEXT_VALUE:
            # As in _counted, without a call for each value.
            (length,) = _INT32.unpack_from(octets, at)
            at += 4
            values.append(octets[at : at + length])
            at += length
        elif kind == _NULL_VALUE:
            values.append(None)
        elif kind == _UNCHANGED_VALUE:
            values.append(UNCHANGED)
        else:
            raise PgoutputError(f"{chr(kind)!r} is no kind of value in a row of text")
    if at > len(octets):
        raise IndexError
    return tuple(values), at


def _counted(octets: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _INT32.unpack_from(octets, at)
    end = at + 4 + length
    if end > len(octets):
        raise IndexError
    return octets[at + 4 : end], end


def _text(octets: bytes, at: int) -> tuple[str, int]:
    end = octets.find(0, at)
    if end < 0:
        raise IndexError
    # Only a database in SQL_ASCII has names that are not UTF-8.
    return octets[at:end].decode(errors="backslashreplace"), end + 1


def _is_utf_8(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


def _time(microseconds: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        raise PgoutputError(f"{microseconds} µs from the year 2000 is no time") from None


def _expect(kind: int, wanted: int) -> None:
    if kind != wanted:
        raise PgoutputError(f"a row is of kind {chr(kind)!r} where {chr(wanted)!r} has to be")


renamed(
    __name__,
    PgoutputProblem="PgoutputError",
)
