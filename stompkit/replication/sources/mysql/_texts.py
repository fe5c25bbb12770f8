"""Column values from the text of query results, equal to those from the log."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

from stompkit.replication.model.values import Value
from stompkit.replication.sources.mysql._binlog.charsets import Decode
from stompkit.replication.sources.mysql._binlog.moments import Zero
from stompkit.replication.sources.mysql._binlog.values import document, inet4, inet6

__all__ = ["Convert", "converter", "is_ordered_by_number", "ordering", "selected"]

#: Function from the server's text or bytes to a value.
Convert = Callable[[str | bytes], Value]

#: Prefix of the kind of text that is selected as bytes.
_ENCODED: Final = "text:"
#: Kinds whose values are numbers, but shown as something else.
_NUMBERED: Final = frozenset({"enum", "set", "bit", "bool", "year(2)"})
_TIME: Final = re.compile(r"(-?)(\d+):(\d+):(\d+)(?:\.(\d+))?")


def selected(column: str, kind: str) -> str:
    """Return the lossless select expression of a column: a FLOAT is displayed with fewer digits.

    Bytes that are invalid in their character set would be question marks.
    """
    if kind.startswith(_ENCODED) or kind == "vector":
        return f"CAST({column} AS BINARY)"
    return f"CAST({column} AS DOUBLE)" if kind == "float" else column


def ordering(column: str, kind: str) -> str:
    """Return the expression by which a key column is ordered and compared: an ENUM by its number.

    A YEAR(2) is ordered from 70 to 69, but compared from 0 to 99. A FLOAT is compared with the
    digits that are displayed, and has more.
    """
    if kind == "float":
        return selected(column, kind)
    return f"{column}+0" if kind in _NUMBERED else column


def is_ordered_by_number(kind: str) -> bool:
    """Return True if the expression of :func:`ordering` is a whole number."""
    return kind in _NUMBERED or kind.endswith("int")


def converter(kind: str, *, zero: Zero, decode: Callable[[str], Decode] | None = None) -> Convert:
    """Return the function from a column's text to a value; sessions must be in UTC.

    ``decode`` returns the decoder of a character set that the server decodes.
    """
    if kind.startswith(_ENCODED) and decode is not None:
        read = decode(kind.removeprefix(_ENCODED))
        return lambda content: read(_octets(content))
    match kind:
        case "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "year" | "year(2)":
            return int
        case "float" | "double":
            return float
        case "decimal":
            return lambda text: Decimal(_text(text))
        case "bool":
            return lambda octets: _octets(octets) == b"\x01"
        case "bit":
            return lambda octets: int.from_bytes(_octets(octets), "big")
        case "date":
            return lambda text: _moment(_text(text), date.fromisoformat, zero)
        case "datetime":
            return lambda text: _moment(_text(text), datetime.fromisoformat, zero)
        case "timestamp":
            return lambda text: _moment(_text(text), _timestamp, zero)
        case "time":
            return lambda text: _time(_text(text))
        case "set":
            return lambda text: frozenset(_text(text).split(",")) if text else frozenset()
        case "json":
            return lambda text: document(_text(text))
        case "uuid":
            return lambda text: UUID(_text(text))
        case "inet4":
            return lambda text: inet4(socket.inet_pton(socket.AF_INET, _text(text)))
        case "vector":
            return _octets
        case "inet6":
            return lambda text: inet6(socket.inet_pton(socket.AF_INET6, _text(text)))
    # The driver distinguishes text and bytes as the log does.
    return lambda content: content


def _text(content: str | bytes) -> str:
    return content.decode() if isinstance(content, bytes) else content


def _octets(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode("latin-1")


def _moment(text: str, read: Callable[[str], Value], zero: Zero) -> Value:
    try:
        return read(text)
    except ValueError:
        return zero(text)


def _timestamp(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _time(text: str) -> timedelta:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no time")
    sign, hours, minutes, seconds, part = found.groups()
    length = timedelta(
        hours=int(hours),
        minutes=int(minutes),
        seconds=int(seconds),
        microseconds=int((part or "").ljust(6, "0")),
    )
    return -length if sign else length
