"""Intervals of PostgreSQL, which have months, days and microseconds."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Text,
    cast,
    extract,
    func,
)

from stompkit.replication.model.values import Value, interval, portable
from stompkit.replication.sources.session._conversion import (
    UNKNOWN,
    ColumnValues,
)

__all__ = ["intervals", "portable_intervals"]

_SECOND_US: Final = 1_000_000
#: PostgreSQL's fields of an interval, in their order.
_FIELDS: Final = ("year", "month", "day", "hour", "minute", "microseconds")


def intervals() -> ColumnValues:
    """Return the conversions of PostgreSQL's intervals, whose months drivers convert to days."""

    def given(value: Any) -> Value:
        if value is None:
            return None
        if not isinstance(value, timedelta):
            return UNKNOWN
        # Drivers write it in this form: days are not hours.
        return interval(0, value.days, value.seconds * _SECOND_US + value.microseconds)

    def loaded(value: Any) -> Value:
        # It may have had months.
        return UNKNOWN if isinstance(value, timedelta) and value.days else given(value)

    def expression(column: ColumnElement[Any]) -> ColumnElement[Any]:
        fields = (cast(extract(field, column), Text) for field in _FIELDS)
        return func.concat_ws(" ", *fields, type_=Text())

    return ColumnValues(given, loaded, _interval, expression)


def portable_intervals() -> ColumnValues:
    """Return the conversions of intervals in the program's form, with days of 24 hours."""
    exact = intervals()
    return ColumnValues(
        lambda value: portable(exact.given(value)),
        lambda value: portable(exact.loaded(value)),
        lambda value: portable(exact.read(value)),
        exact.expression,
    )


def _interval(stored: Any) -> Value:
    """Return the interval for its selected fields."""
    if not stored:
        return None
    fields = str(stored).split()
    if "Infinity" in fields[0]:
        return fields[0].lower()
    years, months, days, hours, minutes, microseconds = (int(Decimal(each)) for each in fields)
    return interval(
        12 * years + months, days, (60 * hours + minutes) * 60 * _SECOND_US + microseconds
    )
