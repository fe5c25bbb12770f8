"""Adapters of values to the types of an SQL database's columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from sqlalchemy import types
from sqlalchemy.dialects import mysql

from stompkit.replication.model.values import Json, NoDate, Value
from stompkit.replication.sql.conversion import ColumnConversion
from stompkit.replication.sql.exactness import Check, check_of, numbers_in
from stompkit.replication.sql.families import Family, bare_type, family_of
from stompkit.replication.sql.forms import UnstorableValueError, misfit, utf_8

__all__ = ["Adapt", "UnstorableValueError", "adapter"]

#: Function from a value to the driver's parameter; raises :class:`UnstorableValueError`.
Adapt = Callable[[Value], object]

#: Families that hold a document as its text.
_TEXTUAL: Final[frozenset[Family]] = frozenset({"json", "text", "bytes", "other"})

#: Families of numbers; the items of their arrays are checked.
_NUMBERS: Final[frozenset[Family]] = frozenset({"int", "float", "decimal"})


def _members_text(places: Mapping[str, int], adapt: Adapt, value: Value) -> object:
    """Return a set in the order of its column, as the database writes it."""
    if isinstance(value, (set, frozenset)) and value <= places.keys():
        return ",".join(sorted(value, key=places.__getitem__))
    return adapt(value)


def _checked(check: Check, adapt: Adapt, value: Value) -> object:
    """Return the driver's parameter for a value that the database stores unchanged."""
    made = adapt(value)
    check(made)
    return made


def _items_checked(check: Adapt, adapt: Adapt, value: Value) -> object:
    """Return the driver's parameter for an array, each number of which is stored unchanged."""
    for number in numbers_in(value):
        check(number)
    return adapt(value)


def _encodable(made: object) -> object:
    """Return the driver's parameter; a driver would refuse its text without the column's name."""
    if isinstance(made, str):
        if not made.isascii():
            utf_8(made)
    elif isinstance(made, (list, tuple)):
        for each in made:
            _encodable(each)
    return made


def _scalar(value: Json) -> Value:
    """Return the scalar value of a document, for a column of another type."""
    found = value.value
    if isinstance(found, (bool, str)):
        return found
    if isinstance(found, (int, float)):
        # As text, to keep all digits.
        return value.text
    raise misfit(value, "what the column holds")


def adapter(type_: types.TypeEngine[Any], backend: str, *, lossy: bool) -> Adapt:
    """Return the conversion for a column of that type; NULL stays NULL."""
    type_ = bare_type(type_)
    digits = getattr(type_, "fsp", None)
    family = family_of(type_)
    if family == "decimal":
        digits = getattr(type_, "scale", None)
    elif backend == "mysql" and digits is None:
        digits = 0
    elif backend == "postgresql":
        digits = getattr(type_, "precision", None)
    length = getattr(type_, "length", None)
    column = ColumnConversion(
        backend,
        lossy,
        # An enumeration's length has another meaning.
        length
        if isinstance(length, int) and not isinstance(type_, (types.Enum, mysql.SET))
        else None,
        digits,
        fields=getattr(type_, "fields", None),
        has_zone=bool(getattr(type_, "timezone", False)) and backend in ("postgresql", "arrow"),
    )
    adapt: Adapt = getattr(column, f"to_{family}")
    if isinstance(type_, mysql.SET):
        places = {name: place for place, name in enumerate(type_.values)}
        adapt = partial(_members_text, places, adapt)
    if isinstance(type_, types.ARRAY) and family_of(type_.item_type) in _NUMBERS and not lossy:
        adapt = partial(_items_checked, adapter(type_.item_type, backend, lossy=False), adapt)
    if isinstance(type_, mysql.TEXT):
        # The length is in bytes, and the server checks it.
        adapt = ColumnConversion(backend, lossy).to_text
    check = None if lossy else check_of(type_, backend)
    if check is not None:
        adapt = partial(_checked, check, adapt)

    def convert(value: Value) -> object:
        if type(value) is Json and family not in _TEXTUAL:
            value = _scalar(value)
        elif type(value) is NoDate:
            # Other databases store NULL for it.
            is_kept = backend == "mysql" or family in _TEXTUAL
            value = value.text if is_kept else None
        return None if value is None else _encodable(adapt(value))

    return convert
