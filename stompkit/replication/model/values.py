"""Values of columns as JSON, without losing what they are.

Text, whole numbers of 64 bits, finite floating-point numbers, truth values and NULL are what JSON
has for them. Everything else is an object with one member, whose name says what it is::

    {"$decimal": "10.50"}                      numeric; the digits are kept
    {"$date": "2026-11-21"}                    also what MySQL has for one: 0000-00-00, 2026-02-31
    {"$time": "12:00:00.25"}                   with an offset where it has a zone
    {"$datetime": "2026-11-21T12:00:00+01:00"} without an offset where it has no zone
    {"$interval": -42000000}                   microseconds, of an interval of time only
    {"$interval": "P1M2DT0.5S"}                an interval with months or days
    {"$bytes": "AAH/"}                         base64
    {"$uuid": "0f8fad5b-d9cb-469f-a165-70867728950e"}
    {"$json": {...}}                           a document of JSON; also a list, text, a number,
                                               true, false and JSON's null
    {"$jsontext": "[0.10000000000000000001]"}  the text of a document that readers of JSON would
                                               change: long numbers, a name that comes twice
    {"$set": ["a", "b"]}                       members in order
    {"$int": "18446744073709551616"}           beyond 64 bits
    {"$float": "nan"}                          also "inf" and "-inf"

A column that is missing is not NULL: it is not there.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from stompkit._common.moved import renamed
from stompkit.replication.model._documents import (
    Json,
    document,
    document_in,
    is_faithful,
    same_document,
)
from stompkit.replication.model._nodates import NoDate
from stompkit.replication.model.intervals import Interval, interval

__all__ = [
    "Interval",
    "InvalidValueError",
    "Json",
    "NoDate",
    "Row",
    "Value",
    "document",
    "from_json",
    "interval",
    "is_carried",
    "portable",
    "row_from_json",
    "row_to_json",
    "same_document",
    "to_json",
]

#: A column value: one of the types in the module's docstring.
Value = Any
#: Values by the names of their columns.
Row = Mapping[str, Value]

_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1
_MICROSECOND: Final = timedelta(microseconds=1)
#: Most levels of lists and objects in a document, which may contain itself. Compiled functions call
#: each other without Python's check of the depth.
_MAX_LEVELS: Final = 300
#: Types with the same form in JSON, which need no conversion.
_PLAIN: Final = frozenset((str, bool, type(None)))


class InvalidValueError(ValueError):
    """A value without a JSON form, or JSON that is not a value; ``str()`` says which."""


def to_json(value: Value) -> object:
    """Return a value in a form for JSON encoders; raises InvalidValueError for other types."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if _LEAST <= value <= _MOST else {"$int": _digits(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    known = _EXACT.get(kind)
    if known is None:
        if kind is Json:
            return {"$json": value.value} if is_faithful(value) else {"$jsontext": value.text}
        if kind is NoDate:
            return {"$date" if value.is_date else "$datetime": value.text}
        known = _derived(kind)
    name, write = known
    return {name: write(value)} if name else to_json(write(value))


def portable(value: Value) -> Value:
    """Return the form of a value that SQLAlchemy's ``Interval`` reads.

    An interval without months is a ``timedelta`` with days of 24 hours, as in Python. Use this for
    columns of that type only: in PostgreSQL itself, ``1 day`` is not ``24:00:00``.
    """
    if type(value) is Interval and value.time_us is not None:
        try:
            return timedelta(microseconds=value.time_us)
        except OverflowError:
            return value
    return value


def is_carried(value: Value) -> bool:
    """Return True if a changeset can carry the value."""
    try:
        to_json(value)
    except (ValueError, RecursionError):
        return False
    return True


def _derived(kind: type) -> _Writer:
    """Return the writer for a subclass, such as a text enumeration: that of its base class."""
    for known, name, write in _WRITERS:
        if issubclass(kind, known):
            return name, write
    raise InvalidValueError(f"a column cannot be carried as JSON that holds {kind.__qualname__}")


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:
        raise InvalidValueError("a whole number has more digits than Python writes") from None


def _document(value: object, levels: int = _MAX_LEVELS) -> object:
    """Return a value inside a JSON document, of the types that an encoder knows.

    Raises :class:`InvalidValueError` for types that JSON lacks.
    """
    kind = type(value)
    if value is None or kind is int or kind is bool:
        return value
    if isinstance(value, str):
        return value if kind is str and value.isascii() else _encodable(value)
    if isinstance(value, float) and math.isfinite(value):
        return value if kind is float else float.__float__(value)
    if isinstance(value, (dict, list, tuple, Mapping)):
        if levels == 0:
            raise InvalidValueError(
                f"a JSON document has more than {_MAX_LEVELS} levels, or contains itself"
            )
        if isinstance(value, (list, tuple)):
            return [_document(each, levels - 1) for each in value]
        if not all(isinstance(name, str) for name in value):
            raise InvalidValueError("a JSON document has a name that is not text")
        return {
            name if type(name) is str and name.isascii() else _encodable(name): _document(
                each, levels - 1
            )
            for name, each in value.items()
        }
    # Encoders refuse subclasses.
    if isinstance(value, int):
        return int.__int__(value)
    raise InvalidValueError(f"a JSON document cannot hold {kind.__qualname__}")


def _encodable(text: str) -> str:
    """Return a text as ``str`` itself; raise InvalidValueError if it has no UTF-8."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidValueError("a JSON document has half of a surrogate pair") from None
    return str.__str__(text)


def _members(value: set[object] | frozenset[object]) -> list[str]:
    """Return the sorted members of a MySQL SET."""
    names = [str.__str__(each) for each in value if isinstance(each, str)]
    if len(names) < len(value):
        raise InvalidValueError("a set has a member that is not text")
    return sorted(names)


def _base64(value: bytes | bytearray) -> str:
    return binascii.b2a_base64(value, newline=False).decode()


#: Name of a type, or none for a plain JSON type, and the function that converts to it.
_Writer = tuple[str, Callable[[Any], object]]

#: ``datetime`` is a ``date``: it has to come first. Methods of the base class are named where a
#: subclass may show itself otherwise: ``str()`` of a member of an enumeration has its name.
_WRITERS: Final[tuple[tuple[type, str, Callable[[Any], object]], ...]] = (
    (Decimal, "$decimal", Decimal.__str__),
    (datetime, "$datetime", datetime.isoformat),
    (date, "$date", date.isoformat),
    (time, "$time", time.isoformat),
    (timedelta, "$interval", lambda value: value // _MICROSECOND),
    (Interval, "$interval", str),
    (bytes, "$bytes", _base64),
    (bytearray, "$bytes", _base64),
    (memoryview, "$bytes", lambda value: _base64(value.tobytes())),
    (UUID, "$uuid", UUID.__str__),
    (frozenset, "$set", _members),
    (set, "$set", _members),
    (Mapping, "$json", _document),
    (list, "$json", _document),
    (tuple, "$json", _document),
    (str, "", str.__str__),
    (int, "", int.__int__),
    (float, "", float.__float__),
)
_EXACT: Final[dict[type, _Writer]] = {
    known: (name, write) for known, name, write in _WRITERS if name and known is not Mapping
} | {dict: ("$json", _document)}


def from_json(value: object) -> Value:
    """Return the value of a JSON form; raises :class:`InvalidValueError` for an invalid form."""
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise InvalidValueError("a list stands for no value: a document is {'$json': [...]}")
        return value
    if len(value) != 1:
        raise InvalidValueError(f"an object with {len(value)} members stands for no value")
    ((name, content),) = value.items()
    if name == "$json":
        # An object or a list stands for itself; other documents are marked to differ from text.
        return content if isinstance(content, (dict, list)) else document_in(content)
    read = _READERS.get(name)
    if read is None:
        raise InvalidValueError(f"{name!r} names no type of a value")
    wanted, convert = read
    if not isinstance(content, wanted) or isinstance(content, bool):
        raise InvalidValueError(f"{name} does not hold {content!r}")
    try:
        return convert(content)
    except (ValueError, InvalidOperation, OverflowError, binascii.Error) as error:
        raise InvalidValueError(f"{name} does not hold {content!r}: {error}") from None


def _set(names: list[object]) -> frozenset[str]:
    if not all(isinstance(name, str) for name in names):
        raise ValueError("members are text")
    return frozenset(map(str, names))


def _interval(content: int | str) -> timedelta | Interval:
    if isinstance(content, int):
        return timedelta(microseconds=content)
    return Interval.parse(content)


def _datetime(text: str) -> datetime | NoDate:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return NoDate.parse(text, is_date=False)


def _date(text: str) -> date | NoDate:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return NoDate.parse(text, is_date=True)


def _float(text: str) -> float:
    if text not in ("nan", "inf", "-inf"):
        raise ValueError("only what JSON has no number for")
    return float(text)


_READERS: Final[dict[str, tuple[type | tuple[type, ...], Callable[[Any], Value]]]] = {
    "$decimal": (str, Decimal),
    "$datetime": (str, _datetime),
    "$date": (str, _date),
    "$time": (str, time.fromisoformat),
    "$interval": ((int, str), _interval),
    "$bytes": (str, lambda content: base64.b64decode(content, validate=True)),
    "$uuid": (str, UUID),
    "$set": (list, _set),
    "$jsontext": (str, document),
    "$int": (str, int),
    "$float": (str, _float),
}


def row_to_json(row: Row) -> dict[str, object]:
    """Return a row as JSON; raises :class:`InvalidValueError` that names the column."""
    made: dict[str, object] = {}
    name = ""
    try:
        for name, value in row.items():
            kind = type(value)
            # As to_json, without a call for most values.
            if kind is str or value is None or (kind is int and _LEAST <= value <= _MOST):
                made[name] = value
            elif (known := _EXACT.get(kind)) is not None:
                wrapper, write = known
                made[name] = {wrapper: write(value)}
            else:
                made[name] = to_json(value)
    except InvalidValueError as problem:
        raise InvalidValueError(f"column {name}: {problem}") from None
    return made


def row_from_json(row: Mapping[str, object]) -> dict[str, Value]:
    """Return the row for its JSON form."""
    made = {}
    name = ""
    try:
        for name, value in row.items():
            kind = type(value)
            made[name] = from_json(value) if kind is dict or kind is list else value
    except InvalidValueError as problem:
        raise InvalidValueError(f"column {name}: {problem}") from None
    return made


renamed(
    __name__,
    ValueProblem="InvalidValueError",
)
