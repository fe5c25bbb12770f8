"""Values of columns as JSON, without losing what they are.

Text, whole numbers of 64 bits, finite floating-point numbers, truth values and NULL are what JSON
has for them. Everything else is an object with one member, whose name says what it is::

    {"$decimal": "10.50"}                      numeric; the digits are kept
    {"$date": "2026-11-21"}
    {"$time": "12:00:00.25"}                   with an offset where it has a zone
    {"$datetime": "2026-11-21T12:00:00+01:00"} without an offset where it has no zone
    {"$interval": -42000000}                   microseconds
    {"$bytes": "AAH/"}                         base64
    {"$uuid": "0f8fad5b-d9cb-469f-a165-70867728950e"}
    {"$json": {...}}                           a document; also lists
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

__all__ = ["Row", "Value", "ValueProblem", "from_json", "row_from_json", "row_to_json", "to_json"]

#: What a column may hold: one of the types that the module's docstring names.
Value = Any
#: Values by the names of their columns.
Row = Mapping[str, Value]

_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1
_MICROSECOND: Final = timedelta(microseconds=1)
#: What JSON has, and needs no look at the value.
_PLAIN: Final = frozenset((str, bool, type(None)))


class ValueProblem(ValueError):
    """A value that has no form in JSON, or JSON that is no value; ``str()`` says which."""


def to_json(value: Value) -> object:
    """A value as what a JSON encoder takes; raises :class:`ValueProblem` for any other type."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if _LEAST <= value <= _MOST else {"$int": str(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    name, write = _EXACT.get(kind) or _derived(kind)
    return {name: write(value)} if name else to_json(write(value))


def _derived(kind: type) -> _Writer:
    """How to write a subclass, such as an enumeration's text: as what it is derived from."""
    for known, name, write in _WRITERS:
        if issubclass(kind, known):
            return name, write
    raise ValueProblem(f"a column can't be carried as JSON that holds {kind.__qualname__}")


def _document(value: object) -> object:
    """What stands in a JSON document: nothing that JSON does not have."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise ValueProblem("a JSON document has a name that is not text")
        return {name: _document(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_document(each) for each in value]
    raise ValueProblem(f"a JSON document can't hold {type(value).__qualname__}")


def _members(value: set[object] | frozenset[object]) -> list[str]:
    """What MySQL's SET holds."""
    names = [each for each in value if isinstance(each, str)]
    if len(names) < len(value):
        raise ValueProblem("a set has a member that is not text")
    return sorted(names)


#: The name of a type, or none for what JSON has, and what makes it that.
_Writer = tuple[str, Callable[[Any], object]]

#: ``datetime`` is a ``date``: it has to come first.
_WRITERS: Final[tuple[tuple[type, str, Callable[[Any], object]], ...]] = (
    (Decimal, "$decimal", str),
    (datetime, "$datetime", datetime.isoformat),
    (date, "$date", date.isoformat),
    (time, "$time", time.isoformat),
    (timedelta, "$interval", lambda value: value // _MICROSECOND),
    (bytes, "$bytes", lambda value: base64.b64encode(value).decode()),
    (bytearray, "$bytes", lambda value: base64.b64encode(value).decode()),
    (memoryview, "$bytes", lambda value: base64.b64encode(value).decode()),
    (UUID, "$uuid", str),
    (frozenset, "$set", _members),
    (set, "$set", _members),
    (Mapping, "$json", _document),
    (list, "$json", _document),
    (tuple, "$json", _document),
    (str, "", str),
    (bool, "", bool),
    (int, "", int),
    (float, "", float),
)
_EXACT: Final[dict[type, _Writer]] = {
    known: (name, write) for known, name, write in _WRITERS if name and known is not Mapping
} | {dict: ("$json", _document)}


def from_json(value: object) -> Value:
    """The reverse of :func:`to_json`; raises :class:`ValueProblem` for what that never gives."""
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise ValueProblem("a list stands for no value: a document is {'$json': [...]}")
        return value
    if len(value) != 1:
        raise ValueProblem(f"an object with {len(value)} members stands for no value")
    ((name, content),) = value.items()
    read = _READERS.get(name)
    if read is None:
        raise ValueProblem(f"{name!r} names no type of a value")
    wanted, convert = read
    if not isinstance(content, wanted) or isinstance(content, bool):
        raise ValueProblem(f"{name} does not hold {content!r}")
    try:
        return convert(content)
    except (ValueError, InvalidOperation, OverflowError, binascii.Error) as error:
        raise ValueProblem(f"{name} does not hold {content!r}: {error}") from None


def _set(names: list[object]) -> frozenset[str]:
    if not all(isinstance(name, str) for name in names):
        raise ValueError("members are text")
    return frozenset(map(str, names))


def _float(text: str) -> float:
    if text not in ("nan", "inf", "-inf"):
        raise ValueError("only what JSON has no number for")
    return float(text)


_READERS: Final[dict[str, tuple[type | tuple[type, ...], Callable[[Any], Value]]]] = {
    "$decimal": (str, Decimal),
    "$datetime": (str, datetime.fromisoformat),
    "$date": (str, date.fromisoformat),
    "$time": (str, time.fromisoformat),
    "$interval": (int, lambda content: timedelta(microseconds=content)),
    "$bytes": (str, lambda content: base64.b64decode(content, validate=True)),
    "$uuid": (str, UUID),
    "$set": (list, _set),
    "$json": ((dict, list), lambda content: content),
    "$int": (str, int),
    "$float": (str, _float),
}


def row_to_json(row: Row) -> dict[str, object]:
    """A row as JSON; raises :class:`ValueProblem` that names the column."""
    made = {}
    name = ""
    try:
        for name, value in row.items():
            made[name] = value if type(value) in _PLAIN else to_json(value)
    except ValueProblem as problem:
        raise ValueProblem(f"column {name}: {problem}") from None
    return made


def row_from_json(row: Mapping[str, object]) -> dict[str, Value]:
    """The reverse of :func:`row_to_json`."""
    made = {}
    name = ""
    try:
        for name, value in row.items():
            kind = type(value)
            made[name] = from_json(value) if kind is dict or kind is list else value
    except ValueProblem as problem:
        raise ValueProblem(f"column {name}: {problem}") from None
    return made
