"""Families of column types, independently of the database."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any, Final, Literal
from uuid import UUID

from sqlalchemy import types
from sqlalchemy.dialects import mysql, postgresql

from stompkit.replication.sql.exactness import check_of

__all__ = ["Family", "bare_type", "family_of", "plain_types"]

#: Kind of a column's values, independently of its database.
Family = Literal[
    "bool",
    "int",
    "float",
    "decimal",
    "text",
    "bytes",
    "date",
    "time",
    "datetime",
    "interval",
    "uuid",
    "json",
    "array",
    "other",
]

#: Families by base type; the first match counts, so the order matters.
_FAMILIES: Final[tuple[tuple[type[Any] | tuple[type[Any], ...], Family], ...]] = (
    (types.Boolean, "bool"),
    ((types.Integer, mysql.BIT, mysql.YEAR), "int"),
    (types.Float, "float"),
    (types.Numeric, "decimal"),
    # This includes MySQL's SET and all ENUMs.
    (types.String, "text"),
    ((types.LargeBinary, types.BINARY, types.VARBINARY), "bytes"),
    (types.DateTime, "datetime"),
    (types.Date, "date"),
    (types.Time, "time"),
    ((types.Interval, postgresql.INTERVAL), "interval"),
    (types.Uuid, "uuid"),
    (types.JSON, "json"),
    (types.ARRAY, "array"),
)


def bare_type(type_: types.TypeEngine[Any]) -> types.TypeEngine[Any]:
    """Return the base type of a domain; other types are returned unchanged."""
    while isinstance(type_, postgresql.DOMAIN):
        type_ = type_.data_type
    return type_


def family_of(type_: types.TypeEngine[Any]) -> Family:
    """Return the family of a column type."""
    type_ = bare_type(type_)
    return next((family for kinds, family in _FAMILIES if isinstance(type_, kinds)), "other")


#: Types of values that all databases accept unchanged.
_PLAIN: Final[Mapping[Family, frozenset[type]]] = {
    "bool": frozenset({bool}),
    "bytes": frozenset({bytes}),
}
#: Further types that some databases accept unchanged.
_MORE_PLAIN: Final[Mapping[tuple[str, Family], frozenset[type]]] = {
    ("postgresql", "int"): frozenset({int}),
    ("postgresql", "float"): frozenset({float}),
    ("postgresql", "date"): frozenset({date}),
    ("postgresql", "uuid"): frozenset({UUID}),
    ("mysql", "int"): frozenset({int}),
    ("mysql", "date"): frozenset({date}),
    ("sqlite", "text"): frozenset({str}),
}


def plain_types(type_: types.TypeEngine[Any], backend: str) -> frozenset[type]:
    """Return the types of values that need no conversion for a column."""
    if check_of(bare_type(type_), backend) is not None:
        return frozenset({type(None)})
    family = family_of(type_)
    plain = _PLAIN.get(family, frozenset()) | _MORE_PLAIN.get((backend, family), frozenset())
    return plain | {type(None)}
