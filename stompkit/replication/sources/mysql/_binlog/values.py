"""Column values from the bytes of the log.

=====================  ======================================================================
integers, YEAR         ``int``; the year 0000 is 0, and a YEAR(2) its two digits. TINYINT(1) is
                       an integer: it can hold 2.
BIT                    ``bool`` for BIT(1), else ``int``
DECIMAL                ``Decimal`` with the digits after the point that the column has
FLOAT, DOUBLE          ``float``; a FLOAT is the number that is kept, not the rounded one shown
CHAR, VARCHAR, TEXT    ``str``
BINARY, BLOB           ``bytes``; BINARY and the like in their whole length
ENUM                   ``str``; an invalid value is ``""``
SET                    ``frozenset``
DATE, DATETIME         ``date``, ``datetime`` without a zone
TIMESTAMP              ``datetime`` in UTC
TIME                   ``timedelta``: it can be negative, and longer than a day
JSON                   ``dict``, ``list`` or ``Json``. MariaDB's JSON is text with a check that it
                       is ``json_valid``.
UUID                   ``UUID``
INET4, INET6           ``str``
GEOMETRY               ``bytes``: the number of the reference system, then WKB
=====================  ======================================================================

An invalid date, such as 0000-00-00 or 2026-02-31, is a ``NoDate``, ``None`` or its text, as
configured.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from struct import Struct
from typing import Any, Final
from uuid import UUID

from pymysqlreplication.constants import FIELD_TYPE
from pymysqlreplication.json_binary import parse_json

from stompkit.replication.model import values
from stompkit.replication.model.values import Json, Value
from stompkit.replication.sources.mysql._binlog.charsets import Decode
from stompkit.replication.sources.mysql._binlog.moments import (
    Read,
    Zero,
    datetime_reader,
    read_date,
    time_reader,
    timestamp_reader,
)
from stompkit.replication.sources.mysql._binlog.tablemap import BINARY_COLLATION, MappedColumn

__all__ = [
    "Read",
    "binary_document",
    "document",
    "inet4",
    "inet6",
    "json_text",
    "read_octets",
    "reader",
]

_INTEGERS: Final = {
    FIELD_TYPE.TINY: ("b", "B"),
    FIELD_TYPE.SHORT: ("<h", "<H"),
    FIELD_TYPE.LONG: ("<i", "<I"),
    FIELD_TYPE.LONGLONG: ("<q", "<Q"),
}
#: Number of bytes for decimal digits, by their number.
_DIGITS: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def document(text: str) -> Value:
    """Return the value for a JSON document.

    Invalid JSON, which a session can store without checks, is returned as text.
    """
    try:
        return values.document(text)
    except ValueError:
        return text


def inet4(octets: bytes) -> str:
    """Return an IPv4 address as text."""
    return socket.inet_ntop(socket.AF_INET, octets)


def inet6(octets: bytes) -> str:
    """Return an IPv6 address as text."""
    return socket.inet_ntop(socket.AF_INET6, octets)


#: Size and decoder of special types of a fixed length, by the catalogue's type.
_SPECIAL: Final[dict[str, tuple[int, Callable[[bytes], Value]]]] = {
    "uuid": (16, lambda octets: UUID(bytes=octets)),
    "inet6": (16, inet6),
    "inet4": (4, inet4),
}


def reader(
    column: MappedColumn, special: str, decode: Callable[[int], Decode], *, zero: Zero
) -> Read:
    """Return the reader of a column's values.

    ``special`` is the part of the type that the log does not have: ``uuid``, ``inet4``, ``inet6``,
    ``json`` or ``year(2)``. ``decode`` returns the decoder of a collation. Raises ``ValueError``
    for an unknown type; the reader also raises it for invalid bytes.
    """
    kind = column.type
    if kind in _INTEGERS:
        return _fixed(_INTEGERS[kind][column.is_unsigned])
    match kind:
        case FIELD_TYPE.INT24:
            return partial(_int24, signed=not column.is_unsigned)
        case FIELD_TYPE.FLOAT:
            return _fixed("<f")
        case FIELD_TYPE.DOUBLE:
            return _fixed("<d")
        case FIELD_TYPE.YEAR if special == "year(2)":
            return lambda data, at: (data[at] % 100, at + 1)
        case FIELD_TYPE.YEAR:
            return lambda data, at: (data[at] + 1900 if data[at] else 0, at + 1)
        case FIELD_TYPE.NEWDECIMAL:
            return _decimal(column.precision, column.scale)
        case FIELD_TYPE.BIT:
            return _bit(column.size)
        case FIELD_TYPE.ENUM:
            return _enum(column, _choice_decoder(column, decode))
        case FIELD_TYPE.SET:
            return _set(column, _choice_decoder(column, decode))
        case FIELD_TYPE.DATE:
            return partial(read_date, zero=zero)
        case FIELD_TYPE.DATETIME2:
            return datetime_reader(column.size, zero=zero)
        case FIELD_TYPE.TIMESTAMP2:
            return timestamp_reader(column.size, zero=zero)
        case FIELD_TYPE.TIME2:
            return time_reader(column.size)
        case FIELD_TYPE.JSON:
            return _sized(column.size, binary_document)
        case FIELD_TYPE.GEOMETRY:
            return _sized(column.size, None)
        case FIELD_TYPE.BLOB | FIELD_TYPE.VARCHAR | FIELD_TYPE.STRING:
            return _text(column, special, decode)
        case FIELD_TYPE.DATETIME | FIELD_TYPE.TIMESTAMP | FIELD_TYPE.TIME:
            # With a fraction they take more bytes, which the log does not show.
            raise ValueError(
                "it is kept in the format of MySQL 5.5 and before: convert it by "
                "SET GLOBAL mysql56_temporal_format=ON and ALTER TABLE ... FORCE"
            )
    raise ValueError(f"its type in the log is {kind}, which is not known")


def _fixed(layout: str) -> Read:
    struct = Struct(layout)
    unpack, size = struct.unpack_from, struct.size
    return lambda data, at: (unpack(data, at)[0], at + size)


def _int24(data: bytes, at: int, *, signed: bool) -> tuple[int, int]:
    return int.from_bytes(data[at : at + 3], "little", signed=signed), at + 3


def _decimal(precision: int, scale: int) -> Read:
    """Return the reader of a DECIMAL: nine digits in four bytes each, from the point to both sides.

    The first bit is one for non-negative numbers; all bytes of a negative number are inverted.
    """
    whole = precision - scale
    lead, groups = whole % 9, whole // 9
    tail_groups, tail = divmod(scale, 9)
    parts = [(_DIGITS[lead], lead)] if lead else []
    parts += [(4, 9)] * (groups + tail_groups)
    parts += [(_DIGITS[tail], tail)] if tail else []
    size = sum(width for width, _ in parts)
    mask = (1 << size * 8) - 1
    top = 1 << size * 8 - 1
    shifts = []
    left = size * 8
    for width, digits in parts:
        left -= width * 8
        shifts.append((left, (1 << width * 8) - 1, 10**digits))

    def read(data: bytes, at: int) -> tuple[Decimal, int]:
        end = at + size
        packed = int.from_bytes(data[at:end], "big") ^ top
        sign = ""
        if packed & top:
            packed ^= mask
            sign = "-"
        number = 0
        for shift, part, factor in shifts:
            number = number * factor + (packed >> shift & part)
        # Built from text, because arithmetic would round beyond 28 digits.
        return Decimal(f"{sign}{number}e-{scale}"), end

    return read


def _bit(bits: int) -> Read:
    if bits == 1:
        return lambda data, at: (data[at] == 1, at + 1)
    size = (bits + 7) // 8
    return lambda data, at: (int.from_bytes(data[at : at + size], "big"), at + size)


# Choices.


def _choice_decoder(column: MappedColumn, decode: Callable[[int], Decode]) -> Decode:
    """Return the decoder of labels; those of the character set ``binary`` stay bytes."""
    if column.collation == BINARY_COLLATION:
        return lambda octets: octets
    return decode(column.collation)


def _enum(column: MappedColumn, decode: Decode) -> Read:
    # The number 0 stands for an invalid value that was accepted.
    none: Value = b"" if column.collation == BINARY_COLLATION else ""
    labels = [none, *map(decode, column.labels)]
    if column.size == 1:
        return lambda data, at: (labels[data[at]], at + 1)
    return lambda data, at: (labels[int.from_bytes(data[at : at + 2], "little")], at + 2)


def _set(column: MappedColumn, decode: Decode) -> Read:
    size = column.size
    labels = [decode(label) for label in column.labels]
    known: dict[bytes, Value] = {}
    is_text = all(isinstance(label, str) for label in labels)

    def read(data: bytes, at: int) -> tuple[Value, int]:
        mask = data[at : at + size]
        found = known.get(mask)
        if found is None:
            bits = int.from_bytes(mask, "little")
            present = [bit for bit in range(len(labels)) if bits >> bit & 1]
            if is_text:
                found = frozenset(labels[bit] for bit in present)
            else:
                found = b",".join(column.labels[bit] for bit in present)
            known[mask] = found
        return found, at + size

    return read


# Text and bytes.


def _sized(width: int, convert: Callable[[bytes], Value] | None) -> Read:
    """Return the reader of bytes after their length, which takes ``width`` bytes."""

    def read(data: bytes, at: int) -> tuple[Value, int]:
        start = at + width
        end = start + int.from_bytes(data[at:start], "little")
        octets = data[start:end]
        return (octets if convert is None else convert(octets)), end

    def read_short(data: bytes, at: int) -> tuple[Value, int]:
        end = at + 1 + data[at]
        octets = data[at + 1 : end]
        return (octets if convert is None else convert(octets)), end

    return read_short if width == 1 else read


#: Reads the bytes of a document unchanged.
read_octets: Final = _sized(4, None)


def _text(column: MappedColumn, special: str, decode: Callable[[int], Decode]) -> Read:
    width = column.size if column.type == FIELD_TYPE.BLOB else 1 + (column.size > 255)
    if column.collation != BINARY_COLLATION:
        to_text = decode(column.collation)
        if special == "json":
            return _sized(width, lambda octets: _document_of(to_text(octets)))
        return _sized(width, to_text)
    if column.type != FIELD_TYPE.STRING:
        return _sized(width, None)
    # The log omits trailing zeros of BINARY.
    size = column.size
    special_size, convert = _SPECIAL.get(special, (0, None))
    if convert is not None and special_size == size:
        return _sized(width, lambda octets: convert(octets.ljust(size, b"\0")))
    return _sized(width, lambda octets: octets.ljust(size, b"\0"))


def _document_of(text: Value) -> Value:
    return document(text) if isinstance(text, str) else text


def binary_document(octets: bytes) -> Value:
    """Decode MySQL's binary form of JSON; no bytes at all stand for JSON's null."""
    if not octets:
        return values.document("null")
    return values.document(json_text(parse_json(octets[0], octets[1:])))


def json_text(found: Any) -> str:
    """Return the JSON text of the library's value of a document; numbers keep their digits."""
    if isinstance(found, dict):
        members = (f"{json_text(name)}:{json_text(each)}" for name, each in found.items())
        return f"{{{','.join(members)}}}"
    if isinstance(found, list):
        return f"[{','.join(map(json_text, found))}]"
    if isinstance(found, Decimal):
        return format(found, "f")
    if isinstance(found, Json):
        return found.text
    if isinstance(found, (bytes, bytearray)):
        found = found.decode()
    is_plain = found is None or isinstance(found, (str, int, float))
    return json.dumps(found if is_plain else str(found), ensure_ascii=False)
