"""Forms of single values: as text, as numbers, as the databases write them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final
from uuid import UUID

from stompkit.replication._intervals import clock
from stompkit.replication.values import Interval, Json, Value

__all__ = [
    "INT64",
    "MICROSECOND",
    "CannotStore",
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
#: Numbers of more digits than databases have are not written out.
_MOST_TEXT: Final = 200_000
#: Numbers in JSON that a number of double precision may not hold: with many digits, or very small.
_LONG_NUMBER: Final = re.compile(r"[0-9][0-9.]{15,}|[0-9][eE][+-]?[0-9]{3}")
#: The whole numbers that a document of MySQL holds exactly.
_MYSQL_INTEGERS: Final = range(-(2**63), 2**64)
#: The most characters that one of them has.
_MOST_INTEGER: Final = 20
#: More than a column for whole numbers has anywhere.
_MOST_DIGITS: Final = 400


class CannotStore(ValueError):
    """A value that a column can't hold; ``str()`` says why."""


def misfit(value: Value, wanted: str) -> CannotStore:
    """A value of another kind than the column holds."""
    return CannotStore(f"{type(value).__name__} {shown(value)} is not {wanted}")


def shown(value: Value) -> str:
    """The beginning of a value."""
    if isinstance(value, int) and value not in INT64:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, Json):
        value = value.text
    said = repr(value) if isinstance(value, (str, bytes)) else str(value)
    return said if len(said) <= 40 else f"{said[:40]}..."


def number_in(value: str) -> Value:
    """The number that a text says; the text itself where it says none."""
    try:
        number = Decimal(value)
    except InvalidOperation:
        return value
    return number


def whole_number(value: float | Decimal) -> Value:
    """The whole number that it is; itself where it is none, or one that no column holds."""
    number = Decimal(value)
    if number.is_finite() and number.adjusted() < _MOST_DIGITS and number == int(number):
        return int(number)
    return value


def mysql_time(value: timedelta) -> str:
    """An interval as MySQL reads it; PyMySQL writes negative ones wrongly."""
    sign = "-" if value < timedelta() else ""
    return f"{sign}{clock(abs(value) // MICROSECOND)}"


def parsed(kind: type[datetime] | type[time], value: str, wanted: str) -> datetime | time:
    """What ISO 8601 text says."""
    try:
        return kind.fromisoformat(value)
    except ValueError:
        raise misfit(value, wanted) from None


def sqlite_number(number: Decimal) -> object:
    """A number that a column of SQLite gives back with all its digits."""
    try:
        approximate = float(number)
    except OverflowError:
        approximate = math.inf
    if math.isfinite(approximate) and Decimal(repr(approximate)) == number:
        return approximate
    if -(2**63) <= number < 2**63 and number == number.to_integral_value():
        return int(number)
    raise CannotStore(f"{shown(number)} has more digits than SQLite holds but as text")


def utf_8(value: str) -> bytes:
    """Text as octets."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise CannotStore("text with a lone surrogate") from None


def json_text(value: Value) -> str:
    """A document as text."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError):
        raise CannotStore(f"{type(value).__name__} is no JSON document") from None


def mysql_document(text: str) -> str:
    """The text of a document that MySQL's JSON keeps: numbers with a point are doubles there."""
    if _LONG_NUMBER.search(text):
        try:
            json.loads(text, parse_float=_check_double, parse_int=_check_integer)
        except (json.JSONDecodeError, RecursionError):
            # The server says what is wrong with it.
            pass
    return text


def _check_integer(text: str) -> None:
    if len(text) > _MOST_INTEGER or int(text) not in _MYSQL_INTEGERS:
        _check_double(text)


def _check_double(text: str) -> None:
    number = Decimal(text)
    if Decimal(repr(float(text))) != number:
        raise CannotStore(
            f"{shown(number)} has more digits than a number in a JSON document of MySQL holds"
        )


def text_of(value: Value, length: int | None = None) -> str:
    """The text that stands for a value, in a column of so many characters."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (int, Decimal)):
        # Python itself refuses to print whole numbers of very many digits.
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
            raise CannotStore("a set with a comma in a member")
        return ",".join(sorted(value))
    if isinstance(value, (Mapping, list, tuple)):
        return json_text(value)
    raise misfit(value, "text")
