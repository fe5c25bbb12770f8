"""Images: the ORM's knowledge of written rows, that is other columns and old values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Column, Dialect, Table
from sqlalchemy.orm import Mapper
from sqlalchemy.orm.attributes import get_history, instance_dict
from sqlalchemy.orm.base import PASSIVE_NO_INITIALIZE
from sqlalchemy.orm.exc import UnmappedColumnError
from sqlalchemy.sql import ClauseElement

from stompkit.replication.model.values import Value
from stompkit.replication.sources.session.values import UNKNOWN, Converters, name_of

__all__ = ["Image", "Images", "row_id"]


@dataclass(slots=True)
class Image:
    """A row of one table, with the values of the program's object."""

    after: dict[str, Value] = field(default_factory=dict)
    #: Old values of changed columns, and values of the other columns.
    changed: dict[str, Value] = field(default_factory=dict)
    unchanged: dict[str, Value] = field(default_factory=dict)


def row_id(table: Table, key: dict[str, Value]) -> tuple[Any, ...]:
    """Return a unique identifier of a row."""
    return (table, *key.values())


class Images:
    """Reads objects without loading anything."""

    def __init__(self, converters: Converters) -> None:
        """Convert values by ``converters``."""
        self._converters = converters
        self._layouts: dict[tuple[Mapper[Any], Table], list[tuple[str, Column[Any], str]]] = {}

    def read(self, mapper: Mapper[Any], target: object, dialect: Dialect) -> dict[Table, Image]:
        """Return the rows of an object, one for each table that stores it."""
        tables = (table for table in mapper.tables if isinstance(table, Table))
        return {table: self._image(mapper, table, target, dialect) for table in tables}

    def _layout(self, mapper: Mapper[Any], table: Table) -> list[tuple[str, Column[Any], str]]:
        """Return the columns of a table by their names, with the attributes that hold them."""
        found = self._layouts.get((mapper, table))
        if found is None:
            found = []
            for column in table.columns:
                try:
                    attribute = mapper.get_property_by_column(column).key
                except UnmappedColumnError:
                    continue
                found.append((name_of(column), column, attribute))
            self._layouts[mapper, table] = found
        return found

    def _image(self, mapper: Mapper[Any], table: Table, target: object, dialect: Dialect) -> Image:
        image = Image()
        # ``instance_dict`` has only loaded and unexpired attributes.
        loaded = instance_dict(target)
        for name, column, attribute in self._layout(mapper, table):
            convert = self._converters.find(column.type, dialect).loaded
            if attribute in loaded and not _is_expression(loaded[attribute]):
                _note(image.after, name, convert(loaded[attribute]))
            history = get_history(target, attribute, PASSIVE_NO_INITIALIZE)
            if history.deleted:
                _note(image.changed, name, convert(history.deleted[0]))
            elif history.unchanged and not _is_expression(history.unchanged[0]):
                _note(image.unchanged, name, convert(history.unchanged[0]))
        return image


def _note(columns: dict[str, Value], name: str, value: Value) -> None:
    """Store a value, if it is known."""
    if value is not UNKNOWN:
        columns[name] = value


def _is_expression(value: object) -> bool:
    return isinstance(value, ClauseElement) or hasattr(value, "__clause_element__")
