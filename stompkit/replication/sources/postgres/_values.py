"""Column values from PostgreSQL's text.

Values that neither Python nor :mod:`stompkit.replication.model.values` can represent stay text: a
date BC or ``infinity``, a time of 24:00, arrays, ranges, enumerations and every type that is not
listed here. Text that is not UTF-8, as a database in ``SQL_ASCII`` may hold, is bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Final
from uuid import UUID

from stompkit.replication.model.values import Interval, Value, document

__all__ = ["SETTINGS", "Convert", "converter", "described"]

Convert = Callable[[bytes], Value]

#: Settings of a session, mainly for the text forms of values that this module parses.
SETTINGS: Final = (
    "SET datestyle = 'ISO'",
    "SET intervalstyle = 'iso_8601'",
    "SET timezone = 'UTC'",
    "SET bytea_output = 'hex'",
    "SET extra_float_digits = 1",
    # A slow broker must not abort a snapshot.
    "SET statement_timeout = 0",
    "SET idle_in_transaction_session_timeout = 0",
)


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
    # Newer versions of Python read 24:00 as midnight, which is different.
    return text if text.startswith("24") else _or_text(time.fromisoformat, text)


def _or_text(read: Callable[[str], Value], text: str) -> Value:
    try:
        return read(text)
    except ValueError:
        return text


def _interval(octets: bytes) -> Value:
    text = octets.decode()
    try:
        return Interval.parse(text)
    except ValueError:
        # It may be infinite.
        return text


def _uuid(octets: bytes) -> Value:
    return UUID(octets.decode())


def _json(octets: bytes) -> Value:
    text = _text(octets)
    return document(text) if isinstance(text, str) else text


#: Parsers of built-in types and their names in a schema, by OID.
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
    """Return the function from the text of a non-NULL value to the value."""
    return _TYPES.get(type_oid, (_text, "text"))[0]


#: Names of types beyond their name in a schema, by OID, for creating a table in another PostgreSQL.
#: VARBIT stands for BIT(n), because it needs no length.
_NATIVE: Final[dict[int, str]] = {
    114: "json",
    600: "point",
    601: "lseg",
    602: "path",
    603: "box",
    604: "polygon",
    628: "line",
    650: "cidr",
    718: "circle",
    774: "macaddr8",
    829: "macaddr",
    869: "inet",
    1186: "interval",
    1266: "timetz",
    1560: "varbit",
    1562: "varbit",
    3220: "pg_lsn",
    3614: "tsvector",
    3615: "tsquery",
    3802: "jsonb",
    3904: "int4range",
    3906: "numrange",
    3908: "tsrange",
    3910: "tstzrange",
    3912: "daterange",
    3926: "int8range",
    4451: "int4multirange",
    4532: "nummultirange",
    4533: "tsmultirange",
    4534: "tstzmultirange",
    4535: "datemultirange",
    4536: "int8multirange",
    # Arrays.
    199: "json[]",
    1000: "bool[]",
    1001: "bytea[]",
    1005: "int2[]",
    1007: "int4[]",
    1009: "text[]",
    1015: "varchar[]",
    1016: "int8[]",
    1017: "point[]",
    1021: "float4[]",
    1022: "float8[]",
    1028: "oid[]",
    1040: "macaddr[]",
    1041: "inet[]",
    651: "cidr[]",
    1115: "timestamp[]",
    1182: "date[]",
    1183: "time[]",
    1185: "timestamptz[]",
    1187: "interval[]",
    1231: "numeric[]",
    1270: "timetz[]",
    1561: "varbit[]",
    1563: "varbit[]",
    2951: "uuid[]",
    3643: "tsvector[]",
    3807: "jsonb[]",
    3905: "int4range[]",
    3907: "numrange[]",
    3909: "tsrange[]",
    3911: "tstzrange[]",
    3913: "daterange[]",
    3927: "int8range[]",
}


def described(type_oid: int, modifier: int) -> dict[str, str | int]:
    """Return the type of a column for an action ``schema``."""
    made: dict[str, str | int] = {"type": _TYPES.get(type_oid, (_text, "text"))[1]}
    # A modifier includes the four header bytes of values of variable length.
    size = modifier - 4
    if size >= 0 and type_oid == _NUMERIC:
        # The scale is a signed number of eleven bits.
        scale = (size & 0x7FF) - 0x800 if size & 0x400 else size & 0x7FF
        made |= {"precision": size >> 16, "scale": scale}
    elif size >= 0 and type_oid in _WITH_LENGTH:
        made["length"] = size
    if type_oid in _NATIVE:
        made["native"] = _NATIVE[type_oid]
    return made
