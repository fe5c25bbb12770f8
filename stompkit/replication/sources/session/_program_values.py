"""Values of programs, as the database stores them."""

from __future__ import annotations

from copy import deepcopy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    Boolean,
    Date,
    DateTime,
    Dialect,
    Enum,
    Float,
    Integer,
    Interval,
    LargeBinary,
    Numeric,
    String,
    Time,
    Uuid,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

from stompkit.replication.model.values import Value
from stompkit.replication.sources.session._conversion import (
    UNKNOWN,
    Converter,
    plain,
)

__all__ = ["converter"]


def converter(
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
        return plain
    if isinstance(kind, String):
        return lambda value: str.__str__(value) if isinstance(value, str) else UNKNOWN
    if isinstance(kind, LargeBinary) or kind.__visit_name__ in ("BINARY", "VARBINARY"):
        return plain
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
