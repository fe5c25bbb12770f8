"""Rows as documents of a search index, in the JSON that mappings accept."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

from stompkit.replication.model.values import Interval, InvalidValueError, Json, NoDate, Row, Value

__all__ = ["document", "encode"]

_MICROSECOND: Final = timedelta(microseconds=1)


def document(row: Row) -> dict[str, object]:
    """Return a row as JSON; raises :class:`~stompkit.replication.InvalidValueError`."""
    made = {}
    for name, value in row.items():
        try:
            made[name] = _plain(value)
        except InvalidValueError as problem:
            raise InvalidValueError(f"column {name}: {problem}") from None
    return made


def encode(source: object) -> bytes:
    """Return JSON in one line; raises :class:`~stompkit.replication.InvalidValueError`."""
    try:
        return json.dumps(source, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as problem:
        raise InvalidValueError(str(problem)) from None


def _plain(value: Value) -> object:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            # JSON has no non-finite numbers, and a numeric mapping accepts no text for them.
            return value if math.isfinite(value) else None
        case Decimal() | UUID():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value // _MICROSECOND
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case set() | frozenset():
            return sorted(map(str, value))
        case dict() | list() | tuple():
            return value
        case Json():
            # The index itself rounds numbers with many digits.
            return value.value
        case NoDate():
            # A date mapping accepts nothing else.
            return None
        case Interval():
            found = value.time_us
            return str(value) if found is None else found
    raise InvalidValueError(f"a document cannot hold {type(value).__qualname__}")
