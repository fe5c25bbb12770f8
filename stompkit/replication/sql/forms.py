"""Text, number and database forms of single values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final
from uuid import UUID

from stompkit.replication.model.intervals import clock
from stompkit.replication.model.values import Interval, Json, Value

__all__ = [
    "INT64",
    "MICROSECOND",
    "UnstorableValueError",
    "check_digits",
    "json_text",
    "misfit",
    "mysql_document",
    "mysql_time",
    "number_in",
    "parsed",
    "shown",
    "sqlite_number",
    "text_of",
    "utf_8",
    "whole_number",
]

INT64: Final = range(-(2**63), 2**63)
MICROSECOND: Final = timedelta(microseconds=1)
#: Maximum number of digits to write out; databases have fewer.
_MOST_TEXT: Final = 200_000
#: Numbers in JSON that may exceed double precision: with many digits, or very small.
_LONG_NUMBER: Final = re.compile(r"[0-9][0-9.]{15,}|[0-9][eE][+-]?[0-9]{3}")
#: Text of a number, as in JSON, or as PostgreSQL has those that are not finite. Other text, such as
#: 007, would not be returned as it was.
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|NaN|-?Infinity")
#: Integers that a document of MySQL holds exactly.
_MYSQL_INTEGERS: Final = range(-(2**63), 2**64)
#: Maximum number of characters of such an integer.
_MOST_INTEGER: Final = 20
#: More digits than an integer column of any database has.
_MOST_DIGITS: Final = 400


class UnstorableValueError(ValueError):
    """A value that a column cannot hold; ``str()`` gives the reason."""


def misfit(value: Value, wanted: str) -> UnstorableValueError:
    """Return the error for a value of another kind than the column holds."""
    return UnstorableValueError(f"{type(value).__name__} {shown(value)} is not {wanted}")


def shown(value: Value) -> str:
    """Return the beginning of a value, for a message."""
    if isinstance(value, int) and value not in INT64:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, Json):
        value = value.text
    said = repr(value) if isinstance(value, (str, bytes)) else str(value)
    return said if len(said) <= 40 else f"{said[:40]}..."


def number_in(value: str) -> Value:
    """Return the number in a text; the text itself if it is not a number, or not only that."""
    if _NUMBER.fullmatch(value) is None:
        return value
    try:
        return Decimal(value)
    except InvalidOperation:
        # Its exponent is too large.
        return value


def check_digits(number: Decimal, most: int) -> None:
    """Raise UnstorableValueError for a number with more than *most* digits behind the point."""
    _, numerals, exponent = number.as_tuple()
    # Trailing zeros can be dropped without loss.
    if isinstance(exponent, int) and -exponent > most and any(numerals[exponent + most :]):
        raise UnstorableValueError(f"{shown(number)} has more than {most} digits behind the point")


def whole_number(value: float | Decimal) -> Value:
    """Return the integer value of a number; the number itself if it is none, or is too large."""
    number = Decimal(value)
    if number.is_finite() and number.adjusted() < _MOST_DIGITS and number == int(number):
        return int(number)
    return value


def mysql_time(value: timedelta) -> str:
    """Return an interval as MySQL reads it; PyMySQL writes negative ones incorrectly."""
    sign = "-" if value < timedelta() else ""
    return f"{sign}{clock(abs(value) // MICROSECOND)}"


def parsed(kind: type[datetime] | type[time], value: str, wanted: str) -> datetime | time:
    """Return the value of ISO 8601 text."""
    try:
        return kind.fromisoformat(value)
    except ValueError:
        raise misfit(value, wanted) from None


def sqlite_number(number: Decimal) -> object:
    """Return a number in a form that SQLite returns with all its digits."""
    try:
        approximate = float(number)
    except OverflowError:
        approximate = math.inf
    if math.isfinite(approximate) and Decimal(repr(approximate)) == number:
        return approximate
    if -(2**63) <= number < 2**63 and number == number.to_integral_value():
        return int(number)
    raise UnstorableValueError(f"{shown(number)} has more digits than SQLite holds but as text")


def utf_8(value: str) -> bytes:
    """Return text as bytes."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise UnstorableValueError("text with a lone surrogate") from None


def json_text(value: Value) -> str:
    """Return a document as text."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError):
        raise UnstorableValueError(f"{type(value).__name__} is no JSON document") from None


def mysql_document(text: str) -> str:
    """Return the text of a document for MySQL's JSON, in which numbers with a point are doubles."""
    if _LONG_NUMBER.search(text):
        try:
            json.loads(text, parse_float=_check_double, parse_int=_check_integer)
        except (json.JSONDecodeError, RecursionError):
            # The server reports the error.
            pass
    return text


def _check_integer(text: str) -> None:
    if len(text) > _MOST_INTEGER or int(text) not in _MYSQL_INTEGERS:
        _check_double(text)


def _check_double(text: str) -> None:
    number = Decimal(text)
    if Decimal(repr(float(text))) != number:
        raise UnstorableValueError(
            f"{shown(number)} has more digits than a number in a JSON document of MySQL holds"
        )


def text_of(value: Value, length: int | None = None) -> str:
    """Return the text form of a value, for a column of at most *length* characters."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (int, Decimal)):
        # Python itself refuses to print integers of very many digits.
        number = Decimal(value)
        is_plain = number.is_finite() and abs(number.adjusted()) < _MOST_TEXT
        return format(number, "f") if is_plain else str(number)
    if isinstance(value, Json):
        return value.text
    if isinstance(value, Interval):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, UUID):
        return value.hex if length == 32 else str(value)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(Interval(microseconds=value // MICROSECOND))
    if isinstance(value, (set, frozenset)):
        if any("," in each for each in value):
            raise UnstorableValueError("a set with a comma in a member")
        return ",".join(sorted(value))
    if isinstance(value, (Mapping, list, tuple)):
        return json_text(value)
    raise misfit(value, "text")
