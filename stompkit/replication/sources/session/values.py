"""Values of mapped columns in changesets: the values that the column's type gives the database.

A program's value is used if the database stores exactly this value. Otherwise, or if only the
database knows the form of a type, the value is :data:`UNKNOWN` until it is read. It is read as text
in PostgreSQL, and in the driver's form elsewhere. All types are therefore supported.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    JSON,
    Boolean,
    Column,
    ColumnElement,
    Date,
    DateTime,
    Dialect,
    Enum,
    Float,
    Integer,
    Interval,
    LargeBinary,
    Numeric,
    PickleType,
    String,
    Table,
    Text,
    Time,
    Uuid,
    cast,
    extract,
    func,
    type_coerce,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.types import NullType, TypeDecorator, TypeEngine

from stompkit.replication.model.values import Interval as Lapse
from stompkit.replication.model.values import Json, Value, document, interval, is_carried, portable

__all__ = ["UNKNOWN", "ColumnValues", "Converter", "Converters", "name_of"]

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
_SECOND_US: Final = 1_000_000
#: PostgreSQL's fields of an interval, in their order.
_FIELDS: Final = ("year", "month", "day", "hour", "minute", "microseconds")


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


def name_of(named: Column[Any] | Table) -> str:
    """Return the name in the database as plain str; SQLAlchemy uses a subclass for quoted names."""
    return str(named.name)


class Converters:
    """Finds and caches the converters of types; one object for each watch."""

    def __init__(self, *, of_programs: bool = False) -> None:
        """Start empty.

        With ``of_programs``, intervals of SQLAlchemy's ``Interval`` have the program's form, the
        same in all databases: PostgreSQL's days are 24 hours then.
        """
        self._of_programs = of_programs
        self._known: dict[tuple[TypeEngine[Any], str], ColumnValues] = {}

    def find(self, kind: TypeEngine[Any], dialect: Dialect) -> ColumnValues:
        """Return the conversions of a type's values, from the program and from the database.

        An enumeration is its stored text. A ``TypeDecorator``'s value is its converted value.
        Numbers have the type that the database would return.
        """
        key = (kind, dialect.name)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._make(kind, dialect)
        return found

    def _make(self, kind: TypeEngine[Any], dialect: Dialect) -> ColumnValues:
        if isinstance(kind, TypeDecorator) and not isinstance(kind, Interval):
            return self._of_decorator(kind, dialect)
        implementation = kind.dialect_impl(dialect)
        if isinstance(kind, Enum):
            return _stored_as(_processor(kind, dialect) or _plain, String())
        if isinstance(implementation, TypeDecorator) and not isinstance(kind, Interval):
            # A variant for this database.
            return self.find(implementation, dialect)
        if isinstance(kind, JSON) or isinstance(implementation, JSON):
            none_as_null = bool(getattr(kind, "none_as_null", False))
            return _documents(dialect, none_as_null=none_as_null)
        if isinstance(implementation, postgresql.INTERVAL):
            is_portable = self._of_programs and isinstance(kind, Interval)
            return _portable_lapses() if is_portable else _lapses()
        if isinstance(kind, mysql.TIME):
            # SQLAlchemy would return a time of day, but the value may be negative, or longer than a
            # day.
            digits = kind.fsp or 0
            return _stored_as(lambda value: _clock(value, digits), NullType())
        convert = _converter(kind, implementation, dialect)
        if convert is None:
            return _read_only(dialect)
        given = _careful(convert)
        if dialect.name == "sqlite" and isinstance(kind, (Numeric, Float)) and kind.asdecimal:
            # SQLAlchemy rounds results, and SQLite stores exact parameters.
            return ColumnValues(
                given, _unknown, _found(given), lambda column: type_coerce(column, NullType())
            )
        return ColumnValues(given, given, _found(given), _as_it_is)

    def _of_decorator(self, kind: TypeDecorator[Any], dialect: Dialect) -> ColumnValues:
        own = type(kind)
        inner = self.find(kind.load_dialect_impl(dialect), dialect)
        bare = kind.load_dialect_impl(dialect)
        given: Converter
        if own.process_bind_param is not TypeDecorator.process_bind_param:
            given = lambda value: inner.given(kind.process_bind_param(value, dialect))  # noqa: E731
        elif isinstance(kind, PickleType):
            dumps = kind.pickler.dumps
            given = lambda value: None if value is None else dumps(value, kind.protocol)  # noqa: E731
        elif own.bind_processor is not TypeDecorator.bind_processor:
            given = _careful(_processor(kind, dialect) or inner.given)
        else:
            given = inner.given
        if kind._has_bind_expression:
            # The statement transforms the value.
            given = _unknown
        return ColumnValues(
            given,
            inner.loaded if given is inner.given else given,
            inner.read,
            lambda column: inner.expression(type_coerce(column, bare)),
        )


# The program's values.


def _plain(value: Any) -> Value:
    return deepcopy(value) if isinstance(value, _MUTABLE) else value


def _as_it_is(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return column


def _unknown(value: Any) -> Value:
    return None if value is None else UNKNOWN


def _careful(convert: Converter) -> Converter:
    """Return a converter that returns UNKNOWN for values that cannot be converted or carried."""

    def careful(value: Any) -> Value:
        if value is None:
            return None
        try:
            made = convert(value)
        except (TypeError, ValueError, ArithmeticError, AttributeError):
            return UNKNOWN
        is_known = type(made) in _CARRIED or made is None or made is UNKNOWN or is_carried(made)
        return made if is_known else UNKNOWN

    return careful


def _found(given: Converter) -> Converter:
    """Return a converter for the database's values, which are always known."""

    def found(value: Any) -> Value:
        made = given(value)
        if made is not UNKNOWN:
            return made
        return value if is_carried(value) else str(value)

    return found


def _processor(kind: TypeEngine[Any], dialect: Dialect) -> Converter | None:
    """Return the function from a value to the driver's parameter, if any."""
    processor: Callable[[Dialect], Converter | None] = kind.bind_processor
    return processor(dialect)


def _stored_as(convert: Converter, kind: TypeEngine[Any]) -> ColumnValues:
    """Return the conversions of a type that is stored and read as another one."""
    given = _careful(convert)
    return ColumnValues(
        given, given, _found(_careful(_plain)), lambda column: type_coerce(column, kind)
    )


def _converter(
    kind: TypeEngine[Any], implementation: TypeEngine[Any], dialect: Dialect
) -> Converter | None:
    """Return the converter from a program's value to the stored one; None if unknown."""
    of = dialect.name if dialect.name != "mariadb" else "mysql"
    if kind._has_bind_expression:
        return None
    if isinstance(kind, Boolean):
        return bool
    if isinstance(kind, Integer):
        return _integer
    if isinstance(kind, (Numeric, Float)):
        return _number(kind, of)
    if isinstance(kind, Uuid):
        return lambda value: value if isinstance(value, UUID) else UUID(str(value))
    if isinstance(kind, Interval):
        return lambda value: _span(value, of)
    if isinstance(kind, DateTime):
        return lambda value: _moment(value, datetime, implementation, of)
    if isinstance(kind, Date):
        return _date
    if isinstance(kind, Time):
        return lambda value: _moment(value, time, implementation, of)
    if isinstance(kind, mysql.SET):
        return _plain
    if isinstance(kind, String):
        return lambda value: str.__str__(value) if isinstance(value, str) else UNKNOWN
    if isinstance(kind, LargeBinary) or kind.__visit_name__ in ("BINARY", "VARBINARY"):
        return _plain
    if isinstance(kind, (mysql.BIT, mysql.YEAR)):
        return lambda value: value if isinstance(value, int) else UNKNOWN
    if isinstance(kind, ARRAY) and _is_plain_item(kind.item_type):
        return lambda value: deepcopy(value) if isinstance(value, list) else UNKNOWN
    return None


def _is_plain_item(kind: TypeEngine[Any]) -> bool:
    """Return True if lists of such values have the same form in JSON."""
    return isinstance(kind, (Integer, Boolean)) or (
        isinstance(kind, String) and not isinstance(kind, Enum)
    )


def _integer(value: Any) -> Value:
    # Also for booleans, which are integers in Python.
    return int(value) if isinstance(value, (bool, int, float)) else UNKNOWN


def _number(kind: Numeric[Any] | Float[Any], of: str) -> Converter:
    if not kind.asdecimal:
        return float
    scale = None if isinstance(kind, Float) or of == "sqlite" else kind.scale

    def convert(value: Any) -> Value:
        number = value if isinstance(value, Decimal) else Decimal(str(value))
        if scale is not None and number.is_finite():
            _, numerals, exponent = number.as_tuple()
            assert isinstance(exponent, int)
            beyond = -exponent - scale
            if beyond > 0 and any(numerals[-beyond:]):
                # The database rounds it, by its own rules.
                return UNKNOWN
        return number

    return convert


def _clock(value: Any, digits: int) -> Value:
    """Return a TIME of MySQL, whose seconds have that many fractional digits."""
    is_exact = isinstance(value, timedelta) and not value.microseconds % 10 ** (6 - digits)
    return value if is_exact else UNKNOWN


def _span(value: Any, of: str) -> Value:
    """Return an interval in a time column, whose seconds have no fractional digits in MySQL."""
    is_exact = isinstance(value, timedelta) and not (of == "mysql" and value.microseconds)
    return value if is_exact else UNKNOWN


def _date(value: Any) -> Value:
    if isinstance(value, datetime):
        return value.date() if value.tzinfo is None else UNKNOWN
    return value if isinstance(value, date) else UNKNOWN


def _moment(
    value: Any, wanted: type[datetime] | type[time], implementation: TypeEngine[Any], of: str
) -> Value:
    """Return a time as it is stored; databases handle zones and fractional digits differently."""
    if not isinstance(value, wanted):
        return UNKNOWN
    if of == "postgresql":
        has_zone = bool(getattr(implementation, "timezone", False))
        digits = getattr(implementation, "precision", None)
        if has_zone is not (value.tzinfo is not None):
            # The zone of the session applies.
            return UNKNOWN
    else:
        digits = (getattr(implementation, "fsp", None) or 0) if of == "mysql" else None
        # The driver omits the zone.
        value = value.replace(tzinfo=None)
    if digits is not None and value.microsecond % 10 ** (6 - digits):
        return UNKNOWN
    return value


# Documents.


def _documents(dialect: Dialect, *, none_as_null: bool) -> ColumnValues:
    """Return the conversions of JSON, whose ``null`` is ``None`` in programs, as NULL is."""
    serialize = getattr(dialect, "_json_serializer", None) or json.dumps
    null = document("null")

    def text_of(value: Any) -> Value:
        return document(serialize(value))

    careful = _careful(text_of)

    def given(value: Any) -> Value:
        if value is JSON.NULL:
            return null
        if value is None:
            return None if none_as_null else null
        return careful(value)

    def loaded(value: Any) -> Value:
        return UNKNOWN if value is None else given(value)

    def expression(column: ColumnElement[Any]) -> ColumnElement[Any]:
        if dialect.name == "postgresql":
            # The driver would parse it, and returns the same value for both.
            return cast(column, Text)
        return type_coerce(column, NullType())

    return ColumnValues(given, loaded, _document, expression)


def _document(stored: Any) -> Value:
    if stored is None:
        return None
    if isinstance(stored, (bytes, bytearray)):
        stored = bytes(stored).decode()
    try:
        # SQLite converts text that looks like a number.
        return document(stored if isinstance(stored, str) else json.dumps(stored))
    except ValueError:
        # The contents of a text column are unchecked.
        return str(stored)


# Types that only the database knows.


def _read_only(dialect: Dialect) -> ColumnValues:
    """Return the conversions of a type whose form only the database knows."""

    def expression(column: ColumnElement[Any]) -> ColumnElement[Any]:
        return (
            cast(column, Text) if dialect.name == "postgresql" else type_coerce(column, NullType())
        )

    def read(value: Any) -> Value:
        return value if is_carried(value) else str(value)

    return ColumnValues(_unknown, _unknown, read, expression)


def _lapses() -> ColumnValues:
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

    return ColumnValues(given, loaded, _lapse, expression)


def _portable_lapses() -> ColumnValues:
    """Return the conversions of intervals in the program's form, with days of 24 hours."""
    exact = _lapses()
    return ColumnValues(
        lambda value: portable(exact.given(value)),
        lambda value: portable(exact.loaded(value)),
        lambda value: portable(exact.read(value)),
        exact.expression,
    )


def _lapse(stored: Any) -> Value:
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
