"""Columns that are too narrow for a value, and wider types of the same kind.

A wider type holds every value of the former one: integers become larger integers, and then
decimals; text becomes longer; numbers and times get more digits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from stompkit.replication.model.values import Interval, InvalidValueError, from_json
from stompkit.replication.sql import TargetColumn, TargetTable, UnstorableValueError
from stompkit.spark.states import State
from stompkit.spark.targets.base import NewColumn

__all__ = ["Wider", "both", "made_anew", "narrow", "other_kinds", "statement_of", "told"]

#: Sizes of integers in bytes.
_INTS: Final = {"TINYINT": 1, "SMALLINT": 2, "MEDIUMINT": 3, "INTEGER": 4, "BIGINT": 8}
#: Sizes of texts in bytes.
_TEXTS: Final = {"TINYTEXT": 2**8 - 1, "TEXT": 2**16 - 1, "MEDIUMTEXT": 2**24 - 1}
_BLOBS: Final = {"TINYBLOB": 2**8 - 1, "BLOB": 2**16 - 1, "MEDIUMBLOB": 2**24 - 1}
_LARGEST_REAL: Final = 3.4028234e38
#: Number of digits of 64-bit integers, with or without sign.
_INT64_DIGITS: Final = 19
_UINT64_DIGITS: Final = 20
#: MySQL's maximum precision and scale.
_MYSQL_DIGITS: Final = (65, 30)
#: Maximum length of a text that MySQL stores in the row.
_MYSQL_ROW: Final = 2048


class Wider(NewColumn, frozen=True):
    """The requirements of an existing column."""


def narrow(table: TargetTable, states: Iterable[State], backend: str) -> dict[str, Wider]:
    """Return the columns that are too narrow for values of rows, and can be widened."""
    made: dict[str, Wider] = {}
    if backend == "sqlite":
        # SQLite columns hold values of any size.
        return made
    for state in states:
        for name, document in {**state.key, **(state.columns or {})}.items():
            column = table.column(name)
            if column is None or column.is_generated:
                continue
            try:
                need = _need(column, from_json(document), backend)
            except InvalidValueError:
                continue
            if need is not None:
                made[column.name] = both(made.get(column.name), need)
    return made


def other_kinds(table: TargetTable, states: Iterable[State], backend: str) -> list[Wider]:
    """Return columns that reject values of another kind, with types that accept them."""
    made: dict[str, Wider] = {}
    for state in states:
        for name, document in {**state.key, **(state.columns or {})}.items():
            column = table.column(name)
            if column is None or column.is_generated:
                continue
            try:
                value = from_json(document)
                column.adapt(value)
            except UnstorableValueError:
                made[column.name] = Wider(column.name, _kind_for(column, value, backend))
            except InvalidValueError:
                continue
    return list(made.values())


def _kind_for(column: TargetColumn, value: Any, backend: str) -> str:
    """Return a kind of column for a value that this column rejects."""
    if column.family == "date" and isinstance(value, datetime):
        return "datetime"
    if backend == "postgresql":
        if isinstance(value, str) and "\0" in value:
            # PostgreSQL text of any type excludes this character.
            return "bytes"
        if isinstance(value, (timedelta, Interval)) and column.family in ("int", "time"):
            return "interval"
    return "any"


def made_anew(columns: Iterable[Wider]) -> str:
    """Return advice about columns whose types cannot be changed; empty for none."""
    names = ", ".join(repr(each.name) for each in columns)
    return names and f"recreate the table with {names} as text"


def both(one: Wider | None, other: Wider) -> Wider:
    """Return the requirements of the values of both."""
    if one is None:
        return other
    scale = max(one.scale or 0, other.scale or 0)
    whole = max((each.precision or 0) - (each.scale or 0) for each in (one, other))
    kind = "decimal" if "decimal" in (one.type, other.type) else other.type
    length = max(one.length or 0, other.length or 0)
    return Wider(other.name, kind, False, whole + scale, scale, length)


def _need(column: TargetColumn, value: Any, backend: str) -> Wider | None:
    """Return the type that a value requires; ``None`` if it fits, or is of another kind."""
    match column.family, value:
        case _, None | bool():
            return None
        case "int", int() | Decimal():
            return _need_int(column, value)
        case "decimal", int() | Decimal():
            return _need_decimal(column, Decimal(value))
        case "text", str():
            return _need_room(column, "text", value, backend)
        case "bytes", bytes():
            return _need_room(column, "bytes", value, backend)
        case "float", int() | float() | Decimal():
            if _kind(column) in ("REAL", "FLOAT") and _LARGEST_REAL < abs(float(value)) < math.inf:
                return Wider(column.name, "float")
        case "datetime" | "time" as family, datetime() | time():
            digits = getattr(column.type_, "fsp" if backend == "mysql" else "precision", None)
            digits = 0 if digits is None and backend == "mysql" else digits
            is_cut = digits is not None and value.microsecond % 10 ** (6 - digits)
            return Wider(column.name, family, precision=6) if is_cut else None
    return None


def _kind(column: TargetColumn) -> str:
    return str(column.type_.__visit_name__).upper()


def _need_int(column: TargetColumn, value: int | Decimal) -> Wider | None:
    bits = 8 * _INTS.get(_kind(column), 0)
    if not bits or (isinstance(value, Decimal) and not value.is_finite()):
        return None
    is_unsigned = bool(getattr(column.type_, "unsigned", False))
    low, high = (0, 2**bits) if is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    digits, scale = _digits(Decimal(value))
    if not scale and low <= value < high:
        return None
    if not scale and bits < 64 and -(2**63) <= value < 2**63:
        return Wider(column.name, "int", precision=_INT64_DIGITS)
    return Wider(column.name, "decimal", precision=max(digits, _UINT64_DIGITS) + scale, scale=scale)


def _need_decimal(column: TargetColumn, value: Decimal) -> Wider | None:
    precision = getattr(column.type_, "precision", None)
    if precision is None or not value.is_finite():
        return None
    own = getattr(column.type_, "scale", None) or 0
    digits, scale = _digits(value)
    if digits <= precision - own and scale <= own:
        return None
    scale = max(scale, own)
    digits = max(digits, precision - own)
    return Wider(column.name, "decimal", precision=digits + scale, scale=scale)


def _digits(value: Decimal) -> tuple[int, int]:
    """Return the digits before and after the decimal point, without insignificant zeros."""
    _, numerals, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if not any(numerals):
        return 1, 0
    while exponent < 0 and numerals[-1] == 0:
        numerals, exponent = numerals[:-1], exponent + 1
    return max(len(numerals) + exponent, 1), max(-exponent, 0)


def _need_room(column: TargetColumn, kind: str, value: Sequence[Any], backend: str) -> Wider | None:
    own = _kind(column)
    if own in ("VARCHAR", "VARBINARY"):
        room, needed = getattr(column.type_, "length", None), len(value)
    elif backend == "mysql":
        room = {**_TEXTS, **_BLOBS}.get(own)
        needed = len(value.encode(errors="replace")) if isinstance(value, str) else len(value)
    else:
        return None
    if room is None or needed <= room:
        return None
    return Wider(column.name, kind, length=needed)


def told(connection: Connection, table: TargetTable, columns: Iterable[Wider]) -> str:
    """Return advice about columns that are too narrow; empty if there is none."""
    try:
        statements = [statement_of(connection, table, each) for each in columns]
    except DBAPIError:
        # The transaction may have failed by then.
        return ""
    return "; ".join(each.replace("%%", "%") for each in statements if each is not None)


def statement_of(connection: Connection, table: TargetTable, wider: Wider) -> str | None:
    """Return the statement that widens a column; ``None`` if impossible or no longer needed."""
    column = table.columns.get(wider.name)
    if column is None:
        return None
    if connection.dialect.name == "postgresql":
        type_ = _postgresql_type(column, wider)
        return f"ALTER TABLE {table.quoted} ALTER COLUMN {column.quoted} TYPE {type_}"
    mysql_type = _mysql_type(column, wider)
    if mysql_type is None:
        return None
    definition = _definition(connection, table, column, mysql_type)
    return definition and f"ALTER TABLE {table.quoted} MODIFY COLUMN {definition}"


def _postgresql_type(column: TargetColumn, wider: Wider) -> str:
    if wider.type in ("datetime", "time"):
        zone = "WITH" if getattr(column.type_, "timezone", False) else "WITHOUT"
        return f"{'TIMESTAMP' if wider.type == 'datetime' else 'TIME'}(6) {zone} TIME ZONE"
    if wider.type == "bytes":
        return f"BYTEA USING convert_to({column.quoted}::text, 'UTF8')"
    if wider.type == "interval":
        # Integers are microseconds.
        number = f" USING {column.quoted} * INTERVAL '1 microsecond'"
        return f"INTERVAL{number if column.family == 'int' else ''}"
    return {"int": "BIGINT", "decimal": "NUMERIC", "float": "DOUBLE PRECISION"}.get(
        wider.type, "TEXT"
    )


def _mysql_type(column: TargetColumn, wider: Wider) -> str | None:
    match wider.type:
        case "decimal":
            digits, scale = wider.precision or 0, wider.scale or 0
            if digits > _MYSQL_DIGITS[0] or scale > _MYSQL_DIGITS[1]:
                return None
            return f"decimal({digits},{scale})"
        case "text" | "bytes":
            kind, large = (
                ("varchar", "longtext") if wider.type == "text" else ("varbinary", "longblob")
            )
            length = wider.length or 0
            if not _kind(column).startswith("VAR") or length > _MYSQL_ROW:
                return large
            # Twice the former length, to avoid repeated widening.
            return f"{kind}({max(length, min(2 * column.type_.length, _MYSQL_ROW))})"  # type: ignore[attr-defined]
        case "datetime" | "time":
            own = _kind(column)
            return "datetime(6)" if own == "DATE" else f"{own.lower()}(6)"
        case "any":
            return "longtext"
    return "bigint" if wider.type == "int" else "double"


def _definition(
    connection: Connection, table: TargetTable, column: TargetColumn, type_: str
) -> str | None:
    """Return MySQL's definition of a column with all attributes, and another type."""
    shown = connection.exec_driver_sql(f"SHOW CREATE TABLE {table.quoted}").one()[1]
    name = "`" + column.name.replace("`", "``") + "`"
    line = re.compile(
        rf"^\s*{re.escape(name)} \w+(?:\([^)]*\))?(?: unsigned)?(?: zerofill)?(.*?),?$",
        re.MULTILINE,
    )
    found = line.search(shown)
    # The driver would read a percent sign as a parameter: it is doubled.
    return found and f"{name} {type_}{found[1]}".replace("%", "%%")
