"""Tables in files, described like database tables: the types of their columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
from sqlalchemy import types

from stompkit.replication.model.values import Value
from stompkit.replication.sql import (
    SchemaError,
    TargetColumn,
    TargetTable,
    UnstorableValueError,
    adapter,
)
from stompkit.replication.sql.exactness import check_single
from stompkit.spark.targets.base import NewColumn

__all__ = ["BACKEND", "arrow_type", "described", "field_of"]

#: Backend name of these tables.
BACKEND: Final = "arrow"

#: Default precision and scale of a decimal.
_DIGITS: Final = (38, 18)
#: Arrow types by the type names of schema changes. Types unknown to files become text.
_TYPES: Final[dict[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "datetimez": pa.timestamp("us", "UTC"),
}


def arrow_type(column: NewColumn) -> pa.DataType:
    """Return the type of a new column; raises SchemaError for too many digits."""
    precision = column.precision
    if column.type == "decimal" or (column.type == "int" and (precision or 0) > 18):
        if precision is None:
            return pa.decimal128(*_DIGITS)
        scale = (column.scale or 0) if column.type == "decimal" else 0
        if not 0 < precision <= 38 or not 0 <= scale <= precision:
            raise SchemaError(
                f"the column {column.name!r} has {precision} digits, and files hold 38."
                " To go on, name it in `except_column_list`"
            )
        return pa.decimal128(precision, scale)
    if column.type == "interval" and column.is_clock:
        # Microseconds. Other intervals have months, or days, which are not always 24 hours.
        return pa.int64()
    return _TYPES.get(column.type, pa.string())


def field_of(column: NewColumn) -> pa.Field:
    """Return a new column; key columns are never NULL."""
    return pa.field(column.name, arrow_type(column), nullable=not column.key)


def described(name: str, schema: pa.Schema, key: Iterable[str] = ()) -> TargetTable:
    """Return the description of a table for planning changes."""
    primary_key = tuple(key)
    table = TargetTable(
        None,
        name,
        name,
        {field.name: _column(field) for field in schema},
        primary_key,
        frozenset({frozenset(primary_key)} if primary_key else ()),
        False,
        frozenset(),
    )
    for column in table.columns:
        folded = column.casefold()
        table._folded[folded] = None if folded in table._folded else column
    return table


def _column(field: pa.Field) -> TargetColumn:
    kind = field.type
    type_, backend, plain = _sql_type(kind)
    convert = adapter(type_, backend, lossy=False)
    is_required = not field.nullable

    def adapt(value: Value) -> object:
        if value is None:
            if is_required:
                raise UnstorableValueError("NULL, and it has to have a value")
            return None
        if not _is_known(kind):
            raise UnstorableValueError(f"columns of the type {kind} cannot be written")
        return _checked(convert(value), kind)

    kinds = frozenset(plain if is_required else {*plain, type(None)})
    return TargetColumn(field.name, field.name, type_, adapt, kinds, is_required, False)


def _sql_type(kind: pa.DataType) -> tuple[types.TypeEngine[Any], str, set[type]]:
    """Return the adapter type of values, its backend, and Python types that need no adapter."""
    if pa.types.is_boolean(kind):
        return types.Boolean(), "postgresql", {bool}
    if pa.types.is_integer(kind):
        return types.BigInteger(), "postgresql", {int} if kind == pa.int64() else set()
    if pa.types.is_floating(kind):
        return types.Double(), "postgresql", {float} if kind == pa.float64() else set()
    if pa.types.is_decimal(kind):
        return types.Numeric(kind.precision, kind.scale), BACKEND, set()
    if _is_octets(kind):
        return types.LargeBinary(), BACKEND, {bytes}
    if pa.types.is_date(kind):
        return types.Date(), BACKEND, set()
    if pa.types.is_timestamp(kind):
        return types.DateTime(timezone=kind.tz is not None), BACKEND, set()
    return types.Text(), BACKEND, {str}


def _is_octets(kind: pa.DataType) -> bool:
    return any(
        of(kind) for of in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    )


def _is_known(kind: pa.DataType) -> bool:
    return _is_octets(kind) or any(
        of(kind)
        for of in (
            pa.types.is_boolean,
            pa.types.is_integer,
            pa.types.is_floating,
            pa.types.is_decimal,
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_date,
            pa.types.is_timestamp,
        )
    )


def _checked(value: Any, kind: pa.DataType) -> object:
    """Return a value if the type represents it exactly; no database checks it later."""
    try:
        held = pa.scalar(value, kind).as_py()
    except (pa.ArrowInvalid, OverflowError):
        raise UnstorableValueError(f"{str(value)[:40]} does not fit into {kind}") from None
    if pa.types.is_float32(kind):
        check_single(value)
    elif held != value and value == value:
        raise UnstorableValueError(f"{str(value)[:40]} has more digits than {kind} holds")
    return held
