"""Reads rows of a table, with values in the form that changes have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Enum,
    Interval,
    MetaData,
    Select,
    String,
    Table,
    and_,
    inspect,
    literal,
    or_,
    select,
    tuple_,
)
from sqlalchemy.types import TypeDecorator, TypeEngine

from stompkit.replica.data._schema import Source
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.tables import Tables
from stompkit.replication.model.values import Interval as Lapse
from stompkit.replication.model.values import Value
from stompkit.replication.sources.session.values import Converters, name_of

__all__ = ["TableReader"]

#: Number of rows in one statement.
_CHUNK: Final = 100

Row = tuple[dict[str, Value], dict[str, Value]]


class TableReader:
    """Reads one table."""

    def __init__(self, connection: Connection, source: Source, select: Tables) -> None:
        """Determine the columns, from the application's table definition if there is one."""
        self._source = source
        self._select = select
        dialect = connection.dialect
        found = source.table
        if found is None:
            found = _reflected(connection, source)
        keys = {name_of(column) for column in found.primary_key}
        #: Types without the application's conversions.
        self._table = Table(
            source.name,
            MetaData(),
            *(
                Column(name_of(column), _bare(column.type, dialect), quote=True)
                for column in found.columns
            ),
            schema=source.schema or None,
            quote=True,
        )
        self._keys = [column for column in self._table.columns if column.name in keys]
        converters = Converters(of_programs=True)
        self._converters = [
            (name_of(column), name_of(column) in keys, converters.find(column.type, dialect).read)
            for column in self._table.columns
        ]
        #: Select expression of each column.
        self._columns = [
            converters.find(column.type, dialect).expression(column)
            for column in self._table.columns
        ]

    def page(
        self, connection: Connection, after: Mapping[str, Value] | None, limit: int
    ) -> list[Row]:
        """Return rows in key order, after a given key."""
        query: Select[Any] = select(*self._columns).order_by(*self._keys).limit(limit)
        if after is not None:
            query = query.where(self._behind(after))
        return [self._row(values) for values in connection.execute(query)]

    def find(self, connection: Connection, key: Mapping[str, Value]) -> dict[str, Value] | None:
        """Return the columns of a row beside its key; ``None`` if it does not exist."""
        same = (column == _given(column, key) for column in self._keys)
        query: Select[Any] = select(*self._columns).where(*same)
        found = connection.execute(query).first()
        return None if found is None else self._row(found)[1]

    def lock(self, connection: Connection, keys: Sequence[Mapping[str, Value]]) -> None:
        """Lock the existing rows, in key order."""
        columns = tuple_(*self._keys)
        for first in range(0, len(keys), _CHUNK):
            chunk = [
                tuple(_text_of(key[column.name]) for column in self._keys)
                for key in keys[first : first + _CHUNK]
            ]
            query = select(literal(1)).select_from(self._table).where(columns.in_(chunk))
            connection.execute(query.order_by(*self._keys).with_for_update())

    def _behind(self, key: Mapping[str, Value]) -> ColumnElement[bool]:
        """Return the condition that a row's key is greater."""
        choices = []
        for place, column in enumerate(self._keys):
            same = (each == _given(each, key) for each in self._keys[:place])
            choices.append(and_(*same, column > _given(column, key)))
        return or_(*choices)

    def _row(self, values: Sequence[Any]) -> Row:
        key = {}
        others = {}
        for (name, is_key, convert), value in zip(self._converters, values, strict=True):
            if is_key:
                key[name] = convert(value)
            else:
                others[name] = convert(value)
        change = RowChange(
            table=self._source.name,
            schema=self._source.schema,
            action="read",
            key=key,
            after=others,
        )
        shaped = self._select.shape(change)
        return shaped.key, shaped.after or {}


def _given(column: Column[Any], key: Mapping[str, Value]) -> Any:
    """Return the value of a key column as a statement parameter."""
    value = key[column.name]
    return literal(_text_of(value), column.type) if isinstance(value, Lapse) else value


def _text_of(value: Value) -> object:
    """Return a key value in the driver's type."""
    return value.in_words if isinstance(value, Lapse) else value


def _bare(kind: TypeEngine[Any], dialect: Dialect) -> TypeEngine[Any]:
    """Return the type without the application's conversions, so that values are as in changes."""
    while isinstance(kind, TypeDecorator) and not isinstance(kind, Interval):
        kind = kind.load_dialect_impl(dialect)
    if isinstance(kind, Enum):
        # The stored value, even if the program has no name for it.
        return String() if dialect.name != "postgresql" else kind
    return kind


def _reflected(connection: Connection, source: Source) -> Table:
    """Return the table definition as reflected from the database."""
    schema = source.schema or None
    inspector = inspect(connection)
    keys = inspector.get_pk_constraint(source.name, schema)["constrained_columns"]
    return Table(
        source.name,
        MetaData(),
        *(
            Column(each["name"], each["type"], primary_key=each["name"] in keys)
            for each in inspector.get_columns(source.name, schema)
        ),
        schema=schema,
    )
