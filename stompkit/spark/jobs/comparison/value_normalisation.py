"""Normalisation of values from different databases for comparison."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from typing import Any, Final, Literal
from uuid import UUID

from sqlalchemy import types
from sqlalchemy.dialects import mysql

from stompkit.replication.model.values import Interval
from stompkit.replication.sql import TargetColumn
from stompkit.replication.sql.moments import postgresql_moment, time_of_text
from stompkit.spark.jobs.comparison.arrays import array_text, has_numbers
from stompkit.spark.jobs.comparison.json_numbers import parsed, written

__all__ = ["Meaning", "Read", "is_single", "meaning_of", "reader"]

#: Common type of two columns, independent of the databases' type names.
Meaning = Literal[
    "interval",
    "uuid",
    "documents",
    "document",
    "array",
    "numbers",
    "datetime",
    "date",
    "time",
    "bool",
    "number",
    "single",
    "bytes",
    "set",
    "char",
    "text",
]
#: Function that converts a driver's value to a normalised one: equal values have equal texts.
Read = Callable[[Any], Any]

_MICROSECOND: Final = timedelta(microseconds=1)
_DAY_US: Final = timedelta(days=1) // _MICROSECOND
_MIDNIGHT: Final = " 00:00:00+00"
#: Precision above that of databases, which is more than the decimal default.
_EXACT: Final = Context(prec=200_000)
#: Numbers with more digits are compared as text.
_MOST_DIGITS: Final = 400
_TRUTH: Final = {"true": 1, "false": 0}
#: Common types by column family; the first family of either column decides.
_BY_FAMILY: Final[tuple[tuple[str, Meaning], ...]] = (
    ("interval", "interval"),
    ("uuid", "uuid"),
    ("json", "document"),
    ("datetime", "datetime"),
    ("date", "date"),
    ("time", "time"),
    ("bool", "bool"),
    ("decimal", "number"),
    ("float", "number"),
    ("int", "number"),
    ("bytes", "bytes"),
)


def is_single(column: TargetColumn, backend: str) -> bool:
    """Return whether a column holds numbers of single precision."""
    if backend == "postgresql":
        return isinstance(column.type_, types.REAL)
    return isinstance(column.type_, mysql.FLOAT)


def meaning_of(source: TargetColumn, target: TargetColumn, backend: str) -> Meaning:
    """Return the type as which two columns are compared; *backend* is that of the source."""
    columns = (source, target)
    families = {column.family for column in columns}
    if families <= {"json", "array"}:
        return "documents"
    for column in columns:
        if column.family == "array":
            return "numbers" if has_numbers(column) else "array"
    if is_single(source, backend) and families <= {"float", "decimal", "int"}:
        # A database may show fewer digits than it stores, and another one stores what was shown.
        return "single"
    for family, meaning in _BY_FAMILY:
        if family in families:
            return meaning
    if any(isinstance(column.type_, mysql.SET) for column in columns):
        return "set"
    # Some databases pad values with blanks, and others remove the blanks.
    if any(type(column.type_).__name__ == "CHAR" for column in columns):
        return "char"
    return "text"


def reader(meaning: Meaning, family: str, backend: str) -> Read:
    """Return the conversion of a column's values; a value of another type becomes text."""
    if meaning in ("document", "documents"):
        convert = _document(
            is_text=family not in ("json", "array"),
            is_mixed=meaning == "document",
        )
    else:
        convert = _READ[meaning]

    def read(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except (ValueError, TypeError, InvalidOperation, OverflowError):
            return str(value)

    return read


def _number(value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return value
    if kind is float:
        value = repr(value)
    elif kind is bytes:
        # MySQL's BIT.
        return int.from_bytes(value, "big")
    elif isinstance(value, timedelta):
        return value // _MICROSECOND
    number = Decimal(value)
    if not number.is_finite():
        return str(number).lower()
    if number.adjusted() < _MOST_DIGITS and number == number.to_integral_value():
        return int(number)
    return str(number.normalize(_EXACT))


def _single(value: Any) -> Any:
    """Return the nearest single-precision number."""
    if not isinstance(value, (int, float, Decimal, str)):
        raise TypeError
    (single,) = struct.unpack("f", struct.pack("f", float(value)))
    return _number(single)


def _bool(value: Any) -> Any:
    if isinstance(value, str) and value.lower() in _TRUTH:
        return _TRUTH[value.lower()]
    return _number(value)


def _far(text: str) -> str:
    """Return a time that Python has no type for, as PostgreSQL writes it in UTC."""
    found = postgresql_moment(text, has_zone=True, digits=None)
    if found is None:
        raise ValueError
    return found


def _datetime(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return _far(value)
    elif not isinstance(value, datetime):
        value = datetime.combine(value, time())
    # A time without zone is in UTC, like all replicated times.
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return value.isoformat()


def _date(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return _far(value).replace(_MIDNIGHT, "")
    if isinstance(value, datetime):
        value = value.date() if value.time() == time() else value
    if not isinstance(value, date):
        raise TypeError
    return value.isoformat()


def _time(value: Any) -> Any:
    """Return microseconds since midnight, in UTC if there is a zone."""
    if isinstance(value, str):
        # Newer versions of Python read 24:00 as midnight, which is different.
        if time_of_text(value) is not None:
            return _DAY_US if time_of_text(value) in ("", "+00") else value
        value = time.fromisoformat(value)
    if isinstance(value, timedelta):
        return value // _MICROSECOND
    if not isinstance(value, time):
        # A database without a time type stores microseconds.
        return int(value)
    since = timedelta(
        hours=value.hour,
        minutes=value.minute,
        seconds=value.second,
        microseconds=value.microsecond,
    )
    offset = value.utcoffset()
    if offset is None:
        return since // _MICROSECOND
    return ((since - offset) // _MICROSECOND) % _DAY_US


def _interval(value: Any) -> Any:
    """Return microseconds of a pure time interval; text if it has months or days."""
    if isinstance(value, str) and value.startswith("P"):
        value = Interval.parse(value)
    if isinstance(value, Interval):
        return str(value)
    return value // _MICROSECOND if isinstance(value, timedelta) else int(value)


def _uuid(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    return str(UUID(bytes=_octets(value)) if not isinstance(value, str) else UUID(value))


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else _octets(value)


def _octets(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        # For a number, bytes() would create as many zeros.
        raise TypeError
    return bytes(value)


def _set(value: Any) -> Any:
    members = value.split(",") if isinstance(value, str) else value
    return ",".join(sorted(members))


def _char(value: Any) -> Any:
    return str(value).rstrip(" ")


def _document(*, is_text: bool, is_mixed: bool) -> Read:
    def read(value: Any) -> Any:
        if isinstance(value, bytes):
            value = value.decode()
        text = value.strip() if isinstance(value, str) else ""
        if text and (not is_text or text[0] in "{["):
            value = parsed(text)
        if is_mixed and isinstance(value, str):
            return value
        if is_mixed and isinstance(value, Decimal):
            # A copy of text has the digits as they are written.
            return text
        return written(value, _number)

    return read


_READ: Final[dict[Meaning, Read]] = {
    "interval": _interval,
    "uuid": _uuid,
    "datetime": _datetime,
    "date": _date,
    "time": _time,
    "bool": _bool,
    "number": _number,
    "single": _single,
    "array": partial(array_text, item=str),
    "numbers": partial(array_text, item=_number),
    "bytes": _bytes,
    "set": _set,
    "char": _char,
    "text": str,
}
