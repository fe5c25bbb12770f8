"""Values of mapped columns as changesets have them: what the column's type gives the database."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Dialect,
    Enum,
    Float,
    Integer,
    Interval,
    Numeric,
    PickleType,
    Table,
    Uuid,
)
from sqlalchemy.types import TypeDecorator, TypeEngine

from stompkit.replication.values import Value

__all__ = ["Converter", "Converters", "name_of"]

Converter = Callable[[Any], Value]

#: What is not the program's own any more once it was changed: a copy is kept.
_MUTABLE: Final = (dict, list, set, bytearray)


def name_of(named: Column[Any] | Table) -> str:
    """The name in the database; SQLAlchemy has text of its own for names that it quotes."""
    return str(named.name)


def _plain(value: Any) -> Value:
    return deepcopy(value) if isinstance(value, _MUTABLE) else value


def _document(value: Any) -> Value:
    return None if value is JSON.NULL else _plain(value)


def _integer(value: Any) -> Value:
    # Also for truth values, which are integers to Python.
    return int(value) if isinstance(value, (bool, float)) else value


def _decimal(value: Any) -> Value:
    return value if isinstance(value, Decimal) else Decimal(str(value))


def _uuid(value: Any) -> Value:
    return value if isinstance(value, UUID) else UUID(str(value))


def _processor(kind: TypeEngine[Any], dialect: Dialect) -> Converter | None:
    """What makes of a value the one that a driver is given."""
    processor: Callable[[Dialect], Converter | None] = kind.bind_processor
    return processor(dialect)


class Converters:
    """Finds the converters of types; an object of its own for each that watches."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: dict[tuple[TypeEngine[Any], str], Converter] = {}

    def find(self, kind: TypeEngine[Any], dialect: Dialect) -> Converter:
        """What makes of a value of a program the value that a changeset has.

        An enumeration is the text that is stored, and what a ``TypeDecorator`` has converted is
        what it has made of it. Numbers are of the kind that the database would give back.
        """
        key = (kind, dialect.name)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._make(kind, dialect)
        return found

    def _make(self, kind: TypeEngine[Any], dialect: Dialect) -> Converter:
        if isinstance(kind, TypeDecorator) and not isinstance(kind, Interval):
            return self._of_decorator(kind, dialect)
        convert: Converter = _plain
        if isinstance(kind, Enum):
            convert = _processor(kind, dialect) or _plain
        elif isinstance(kind, Boolean):
            convert = bool
        elif isinstance(kind, Integer):
            convert = _integer
        elif isinstance(kind, (Numeric, Float)):
            convert = _decimal if kind.asdecimal else float
        elif isinstance(kind, Uuid):
            convert = _uuid
        elif isinstance(kind, JSON):
            convert = _document
        return lambda value: None if value is None else convert(value)

    def _of_decorator(self, kind: TypeDecorator[Any], dialect: Dialect) -> Converter:
        own = type(kind)
        inner = self.find(kind.load_dialect_impl(dialect), dialect)
        if own.process_bind_param is not TypeDecorator.process_bind_param:
            return lambda value: inner(kind.process_bind_param(value, dialect))
        if isinstance(kind, PickleType):
            dumps = kind.pickler.dumps
            return lambda value: None if value is None else dumps(value, kind.protocol)
        if own.bind_processor is not TypeDecorator.bind_processor:
            return _processor(kind, dialect) or inner
        return inner
