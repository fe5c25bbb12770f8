"""Conversion of column values, and the placeholder for values that only the database knows."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
)

from stompkit.replication.model.values import Interval as Lapse
from stompkit.replication.model.values import Json, Value, is_carried

__all__ = [
    "UNKNOWN",
    "ColumnValues",
    "Converter",
    "careful",
    "found",
    "plain",
    "unchanged",
    "unknown",
]

Converter = Callable[[Any], Value]


class _Unknown:
    """The type of :data:`UNKNOWN`."""

    def __repr__(self) -> str:
        return "UNKNOWN"


#: Placeholder for a value that only the database knows.
UNKNOWN: Final = _Unknown()

#: Types whose values can always be carried.
_CARRIED: Final = frozenset(
    (bool, int, float, str, bytes, Decimal, date, datetime, time, timedelta, UUID, Json, Lapse)
)
#: Mutable types, whose values are copied.
_MUTABLE: Final = (dict, list, set, bytearray)


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """Conversions of the values of one type of column."""

    #: Converts the program's parameter; may return :data:`UNKNOWN`.
    given: Converter
    #: Converts an object's attribute, which may have been loaded; may return :data:`UNKNOWN`.
    loaded: Converter
    #: Converts the result of :attr:`expression`.
    read: Converter
    #: Returns the lossless select expression of a column.
    expression: Callable[[ColumnElement[Any]], ColumnElement[Any]]


def plain(value: Any) -> Value:
    """Return a value as it is, but a copy of a mutable one."""
    return deepcopy(value) if isinstance(value, _MUTABLE) else value


def unchanged(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the column itself as its select expression."""
    return column


def unknown(value: Any) -> Value:
    """Return UNKNOWN, but ``None`` for NULL."""
    return None if value is None else UNKNOWN


def careful(convert: Converter) -> Converter:
    """Return a converter that returns UNKNOWN for values that cannot be converted or carried."""

    def convert_known(value: Any) -> Value:
        if value is None:
            return None
        try:
            made = convert(value)
        except (TypeError, ValueError, ArithmeticError, AttributeError):
            return UNKNOWN
        is_known = type(made) in _CARRIED or made is None or made is UNKNOWN or is_carried(made)
        return made if is_known else UNKNOWN

    return convert_known


def found(given: Converter) -> Converter:
    """Return a converter for the database's values, which are always known."""

    def convert_found(value: Any) -> Value:
        made = given(value)
        if made is not UNKNOWN:
            return made
        return value if is_carried(value) else str(value)

    return convert_found
