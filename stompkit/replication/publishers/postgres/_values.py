"""Values of columns, from the text that PostgreSQL writes them in.

What Python or :mod:`stompkit.replication.values` has no value for stays that text: a date BC or
``infinity``, an interval of months, a time of 24:00, arrays, ranges, enumerations and every type
that is not named here; and a JSON document that is no object or list, or that has numbers which
JSON in Python would round. Text that is not UTF-8, as a database in ``SQL_ASCII`` may hold, is
bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from stompkit.replication.values import Value

__all__ = ["SETTINGS", "Convert", "converter", "described"]

Convert = Callable[[bytes], Value]

#: What a session is set to, above all so that values are written in the forms that are read here.
SETTINGS: Final = (
    "SET datestyle = 'ISO'",
    "SET intervalstyle = 'iso_8601'",
    "SET timezone = 'UTC'",
    "SET bytea_output = 'hex'",
    "SET extra_float_digits = 1",
    # A slow broker is no reason to end a snapshot.
    "SET statement_timeout = 0",
    "SET idle_in_transaction_session_timeout = 0",
)

#: Deeper documents stay text: readers of JSON give up at some depth.
_MAX_DEPTH: Final = 100
_INT64: Final = range(-(2**63), 2**63)
_INTERVAL: Final = re.compile(
    r"P(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?)(\d+)(?:\.(\d{1,6}))?S)?)?"
)


class _Unfaithful(ValueError):
    """A document that would not be the same in Python."""


def _text(octets: bytes) -> Value:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets


def _bool(octets: bytes) -> Value:
    return octets == b"t"


def _decimal(octets: bytes) -> Value:
    return Decimal(octets.decode())


def _bytes(octets: bytes) -> Value:
    return bytes.fromhex(octets[2:].decode())


def _date(octets: bytes) -> Value:
    return _or_text(date.fromisoformat, octets.decode())


def _datetime(octets: bytes) -> Value:
    return _or_text(datetime.fromisoformat, octets.decode())


def _time(octets: bytes) -> Value:
    text = octets.decode()
    # Newer versions of Python take 24:00 for midnight, which it is not the same as.
    return text if text.startswith("24") else _or_text(time.fromisoformat, text)


def _or_text(read: Callable[[str], Value], text: str) -> Value:
    try:
        return read(text)
    except ValueError:
        return text


def _interval(octets: bytes) -> Value:
    text = octets.decode()
    found = _INTERVAL.fullmatch(text)
    if found is None:
        return text
    days, hours, minutes, sign, seconds, fraction = found.groups(default="0")
    small = timedelta(seconds=int(seconds), microseconds=int(fraction.ljust(6, "0")))
    try:
        return timedelta(days=int(days), hours=int(hours), minutes=int(minutes)) + (
            -small if sign == "-" else small
        )
    except OverflowError:
        return text


def _uuid(octets: bytes) -> Value:
    return UUID(octets.decode())


def _json(octets: bytes) -> Value:
    text = octets.decode()
    # Otherwise a JSON null would be taken for NULL, and a JSON string for the text of a document.
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        document = json.loads(
            text, parse_int=_whole, parse_float=_fractional, parse_constant=_refuse
        )
        if "\\ud" in text or "\\uD" in text:
            # Half of a pair of surrogates is no character; the server does not mind.
            json.dumps(document, ensure_ascii=False).encode()
    except (_Unfaithful, RecursionError, UnicodeEncodeError):
        return text
    return document if _is_shallow(document, _MAX_DEPTH) else text


def _whole(text: str) -> int:
    # A number of thousands of digits is not even read.
    if len(text) > 20 or (value := int(text)) not in _INT64:
        raise _Unfaithful
    return value


def _fractional(text: str) -> float:
    value = float(text)
    if Decimal(text) != Decimal(repr(value)):
        raise _Unfaithful
    return value


def _refuse(text: str) -> float:
    raise _Unfaithful


def _is_shallow(document: Any, depth: int) -> bool:
    if isinstance(document, dict):
        inner = list(document.values())
    elif isinstance(document, list):
        inner = document
    else:
        return True
    return depth > 0 and all(_is_shallow(each, depth - 1) for each in inner)


#: By the OIDs of types that are built in: what reads them, and their names in a schema.
_TYPES: Final[dict[int, tuple[Convert, str]]] = {
    16: (_bool, "bool"),
    17: (_bytes, "bytes"),
    18: (_text, "text"),  # "char"
    19: (_text, "text"),  # name
    20: (int, "int"),  # bigint
    21: (int, "int"),  # smallint
    23: (int, "int"),  # integer
    25: (_text, "text"),
    26: (int, "int"),  # oid
    114: (_json, "json"),
    700: (float, "float"),  # real
    701: (float, "float"),  # double precision
    1042: (_text, "text"),  # char(n)
    1043: (_text, "text"),  # varchar(n)
    1082: (_date, "date"),
    1083: (_time, "time"),
    1114: (_datetime, "datetime"),
    1184: (_datetime, "datetimez"),
    1186: (_interval, "interval"),
    1266: (_time, "time"),  # with time zone
    1700: (_decimal, "decimal"),
    2950: (_uuid, "uuid"),
    3802: (_json, "json"),  # jsonb
}
_NUMERIC: Final = 1700
_WITH_LENGTH: Final = (1042, 1043)


def converter(type_oid: int) -> Convert:
    """What makes a value of the text of one that is not NULL."""
    return _TYPES.get(type_oid, (_text, "text"))[0]


def described(type_oid: int, modifier: int) -> dict[str, str | int]:
    """The type of a column, as an action ``schema`` tells it."""
    told: dict[str, str | int] = {"type": _TYPES.get(type_oid, (_text, "text"))[1]}
    # A modifier counts the four octets of the header that values of variable length have.
    size = modifier - 4
    if size >= 0 and type_oid == _NUMERIC:
        # The scale is a signed number of eleven bits.
        scale = (size & 0x7FF) - 0x800 if size & 0x400 else size & 0x7FF
        told |= {"precision": size >> 16, "scale": scale}
    elif size >= 0 and type_oid in _WITH_LENGTH:
        told["length"] = size
    return told
