"""Documents of JSON columns."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Dialect,
    Text,
    cast,
    type_coerce,
)
from sqlalchemy.types import NullType

from stompkit.replication.model.values import Value, document
from stompkit.replication.sources.session._conversion import (
    UNKNOWN,
    ColumnValues,
    careful,
)

__all__ = ["documents"]


def documents(dialect: Dialect, *, none_as_null: bool) -> ColumnValues:
    """Return the conversions of JSON, whose ``null`` is ``None`` in programs, as NULL is."""
    serialize = getattr(dialect, "_json_serializer", None) or json.dumps
    null = document("null")

    def text_of(value: Any) -> Value:
        return document(serialize(value))

    convert = careful(text_of)

    def given(value: Any) -> Value:
        if value is JSON.NULL:
            return null
        if value is None:
            return None if none_as_null else null
        return convert(value)

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
