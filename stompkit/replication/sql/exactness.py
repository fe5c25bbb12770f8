"""Checks of values that MySQL, MariaDB or PostgreSQL would store as other values without an error.

Strict modes of databases refuse values that are too long or out of range. They still round numbers,
complete years, pad bytes, and take similar text for a member of an enumeration.

``CHAR`` is an exception: all databases ignore blanks at its end, and so do these checks.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, Final

from sqlalchemy import types
from sqlalchemy.dialects import mysql, postgresql

from stompkit.replication.model.values import Interval
from stompkit.replication.sql.forms import UnstorableValueError, check_digits, number_in, shown

__all__ = ["Check", "check_of", "check_single", "is_multiple", "numbers_in"]

#: Function that raises :class:`UnstorableValueError` for a driver's value that would be changed.
Check = Callable[[Any], None]

_SINGLE: Final = struct.Struct("<f")
#: Largest binary precision of a single-precision number.
_SINGLE_BITS: Final = 24
#: Numbers of digits of which one restores a single-precision number.
_SINGLE_DIGITS: Final = range(1, 10)
#: Years of four digits, and those of ``YEAR(2)``.
_YEARS: Final = frozenset({0, *range(1901, 2156)})
_SHORT_YEARS: Final = frozenset(range(100))
#: Digits behind the point of most currencies.
_MONEY_DIGITS: Final = 2
#: Escape sequences in which MySQL lists the values of a column.
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final[Mapping[str, str]] = {"0": "\0", "n": "\n", "r": "\r"}
#: Items in the text of an array of numbers of PostgreSQL.
_ITEM: Final = re.compile(r'[^{},"\s]+')
#: Smallest units of PostgreSQL's intervals with fields, in microseconds.
_UNITS_US: Final[Mapping[str, int]] = {"HOUR": 3_600_000_000, "MINUTE": 60_000_000}


def check_of(type_: types.TypeEngine[Any], backend: str) -> Check | None:
    """Return the check for columns of a type; ``None`` if the database stores values exactly."""
    if backend == "postgresql":
        if isinstance(type_, postgresql.MONEY):
            return _check_money
        return check_single if _is_single(type_) else None
    if backend != "mysql":
        return None
    if isinstance(type_, types.Float):
        scale = type_.scale if isinstance(type_, (mysql.FLOAT, mysql.DOUBLE)) else None
        if scale is not None:
            return partial(_check_rounded, scale, is_single=_is_single(type_))
        return check_single if _is_single(type_) else None
    if isinstance(type_, mysql.ENUM):
        return partial(_check_member, _members(type_.enums))
    if isinstance(type_, mysql.SET):
        return partial(_check_members, _members(type_.values))
    if isinstance(type_, mysql.YEAR):
        years = _SHORT_YEARS if type_.display_width == 2 else _YEARS
        return partial(_check_year, years)
    if isinstance(type_, types.BINARY) and type_.length is not None:
        return partial(_check_length, type_.length)
    return None


def _members(listed: Iterable[str | None]) -> frozenset[str]:
    """Return the values of a column; SQLAlchemy keeps the escape sequences of some servers."""
    found = [each for each in listed if each is not None]
    plain = [_ESCAPED.sub(lambda one: _ESCAPES.get(one[1], one[1]), each) for each in found]
    return frozenset([*found, *plain])


def is_multiple(value: Interval, fields: str) -> bool:
    """Return True if PostgreSQL cuts nothing off an interval for a column with these fields."""
    last = fields.upper().split()[-1]
    if last.startswith("SECOND"):
        return True
    if last in _UNITS_US:
        return value.microseconds % _UNITS_US[last] == 0
    is_short = value.microseconds == 0 and (value.days == 0 or last == "DAY")
    return is_short and (last != "YEAR" or value.months % 12 == 0)


def numbers_in(value: object) -> Iterator[Any]:
    """Return the numbers in an array: a list, or PostgreSQL's text."""
    if isinstance(value, list):
        for each in value:
            yield from numbers_in(each) if isinstance(each, (list, str)) else (each,)
    elif isinstance(value, str):
        # The text may begin with bounds: [0:1]={1,2}.
        for text in _ITEM.findall(value[value.find("{") + 1 :]):
            if isinstance(number_in(text), Decimal):
                yield text


def _is_single(type_: types.TypeEngine[Any]) -> bool:
    """Return True for a column of single-precision numbers."""
    if type_.__visit_name__ == "REAL":
        return True
    if type_.__visit_name__ != "FLOAT":
        return False
    if getattr(type_, "scale", None) is not None:
        return True
    precision = getattr(type_, "precision", None)
    return precision is None or precision <= _SINGLE_BITS


def _single(value: float) -> float:
    """Return the nearest single-precision number; raises UnstorableValueError if there is none."""
    try:
        (found,) = _SINGLE.unpack(_SINGLE.pack(value))
    except OverflowError:
        raise UnstorableValueError(f"{shown(value)} is too large") from None
    return float(found)


def check_single(value: float) -> None:
    """Raise :class:`UnstorableValueError` for a number that single precision would change."""
    found = _single(value)
    # A source writes such a number with the digits that restore it.
    if found != value and value == value:
        if not any(float(f"{found:.{digits}g}") == value for digits in _SINGLE_DIGITS):
            raise UnstorableValueError(f"{shown(value)} has more digits than it holds")


def _check_rounded(scale: int, value: float, *, is_single: bool) -> None:
    rounded = round(value, scale)
    if not is_single:
        is_held = rounded == value
    elif rounded == value:
        # The database writes the stored number with this number of digits.
        is_held = round(_single(value), scale) == value
    else:
        is_held = _single(rounded) == value
    if not is_held:
        raise UnstorableValueError(f"{shown(value)} has more digits than it holds")


def _check_member(members: frozenset[str], value: str) -> None:
    if value not in members:
        raise UnstorableValueError(f"{shown(value)} is none of the column's values")


def _check_members(members: frozenset[str], value: str) -> None:
    unknown = set(value.split(",") if value else ()) - members
    if unknown:
        raise UnstorableValueError(f"{shown(min(unknown))} is none of the column's values")


def _check_year(years: frozenset[int], value: int) -> None:
    if value not in years:
        raise UnstorableValueError(f"{shown(value)} is not a year that it has")


def _check_money(value: object) -> None:
    number = number_in(value) if isinstance(value, str) else value
    if isinstance(number, (float, Decimal)):
        check_digits(Decimal(str(number)), _MONEY_DIGITS)


def _check_length(length: int, value: bytes) -> None:
    if len(value) < length:
        raise UnstorableValueError(f"{len(value)} bytes, and it pads them to {length}")
