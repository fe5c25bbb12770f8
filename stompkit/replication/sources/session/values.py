"""Values of mapped columns in changesets: the values that the column's type gives the database.

A program's value is used if the database stores exactly this value. Otherwise, or if only the
database knows the form of a type, the value is :data:`UNKNOWN` until it is read. It is read as text
in PostgreSQL, and in the driver's form elsewhere. All types are therefore supported.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    ColumnElement,
    Dialect,
    Enum,
    Float,
    Interval,
    Numeric,
    PickleType,
    String,
    Table,
    Text,
    cast,
    type_coerce,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.types import NullType, TypeDecorator, TypeEngine

from stompkit.replication.model.values import Value, is_carried
from stompkit.replication.sources.session._conversion import (
    UNKNOWN,
    ColumnValues,
    Converter,
    careful,
    found,
    plain,
    unchanged,
    unknown,
)
from stompkit.replication.sources.session._intervals import intervals, portable_intervals
from stompkit.replication.sources.session._json_values import documents
from stompkit.replication.sources.session._program_values import converter

__all__ = ["UNKNOWN", "ColumnValues", "Converter", "Converters", "name_of"]


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
        values = self._known.get(key)
        if values is None:
            values = self._known[key] = self._make(kind, dialect)
        return values

    def _make(self, kind: TypeEngine[Any], dialect: Dialect) -> ColumnValues:
        if isinstance(kind, TypeDecorator) and not isinstance(kind, Interval):
            return self._of_decorator(kind, dialect)
        implementation = kind.dialect_impl(dialect)
        if isinstance(kind, Enum):
            return _stored_as(_processor(kind, dialect) or plain, String())
        if isinstance(implementation, TypeDecorator) and not isinstance(kind, Interval):
            # A variant for this database.
            return self.find(implementation, dialect)
        if isinstance(kind, JSON) or isinstance(implementation, JSON):
            none_as_null = bool(getattr(kind, "none_as_null", False))
            return documents(dialect, none_as_null=none_as_null)
        if isinstance(implementation, postgresql.INTERVAL):
            is_portable = self._of_programs and isinstance(kind, Interval)
            return portable_intervals() if is_portable else intervals()
        if isinstance(kind, mysql.TIME):
            # SQLAlchemy would return a time of day, but the value may be negative, or longer than a
            # day.
            digits = kind.fsp or 0
            return _stored_as(lambda value: _clock(value, digits), NullType())
        convert = converter(kind, implementation, dialect)
        if convert is None:
            return _read_only(dialect)
        given = careful(convert)
        if dialect.name == "sqlite" and isinstance(kind, (Numeric, Float)) and kind.asdecimal:
            # SQLAlchemy rounds results, and SQLite stores exact parameters.
            return ColumnValues(
                given, unknown, found(given), lambda column: type_coerce(column, NullType())
            )
        return ColumnValues(given, given, found(given), unchanged)

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
            given = careful(_processor(kind, dialect) or inner.given)
        else:
            given = inner.given
        if kind._has_bind_expression:
            # The statement transforms the value.
            given = unknown
        return ColumnValues(
            given,
            inner.loaded if given is inner.given else given,
            inner.read,
            lambda column: inner.expression(type_coerce(column, bare)),
        )


def _processor(kind: TypeEngine[Any], dialect: Dialect) -> Converter | None:
    """Return the function from a value to the driver's parameter, if any."""
    processor: Callable[[Dialect], Converter | None] = kind.bind_processor
    return processor(dialect)


def _stored_as(convert: Converter, kind: TypeEngine[Any]) -> ColumnValues:
    """Return the conversions of a type that is stored and read as another one."""
    given = careful(convert)
    return ColumnValues(
        given, given, found(careful(plain)), lambda column: type_coerce(column, kind)
    )


def _read_only(dialect: Dialect) -> ColumnValues:
    """Return the conversions of a type whose form only the database knows."""

    def expression(column: ColumnElement[Any]) -> ColumnElement[Any]:
        return (
            cast(column, Text) if dialect.name == "postgresql" else type_coerce(column, NullType())
        )

    def read(value: Any) -> Value:
        return value if is_carried(value) else str(value)

    return ColumnValues(unknown, unknown, read, expression)


def _clock(value: Any, digits: int) -> Value:
    """Return a TIME of MySQL, whose seconds have that many fractional digits."""
    is_exact = isinstance(value, timedelta) and not value.microseconds % 10 ** (6 - digits)
    return value if is_exact else UNKNOWN
