"""Dependency cycles: rows that swap unique values or refer to each other.

None of them can be written before the others. So the conflicting columns are first set to NULL, or,
where a column is NOT NULL, to a unique placeholder.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final
from uuid import uuid4

from stompkit.replica.data._links import Link
from stompkit.replica.data._many import Values
from stompkit.replica.data._plan import Batch, Target
from stompkit.replica.data._reasons import Reason, RefusedRowError
from stompkit.replica.data._schema import Schema
from stompkit.replica.data._writer import Writer
from stompkit.replication.sql import TargetColumn

__all__ = ["untie"]

#: Maximum length of a placeholder, in bytes or characters.
_LENGTH: Final = 32
#: Maximum magnitude of integer placeholders, which are negative: all integer columns can hold them,
#: except unsigned and one-byte ones.
_LEAST: Final = 2**15


def untie(writer: Writer, schema: Schema, refused: Sequence[Batch]) -> list[Batch]:
    """Write refused rows that form cycles; returns the rows still refused."""
    tied = _Knots(writer, schema, refused).ids()
    while tied:
        values_of = dict(writer.reasons)
        left = _write_aside(writer, schema, [batch.only(tied) for batch in refused])
        if not left:
            rest = (batch.only(set(batch.ids) - tied) for batch in refused)
            return [batch for batch in rest if batch.ids]
        writer.reasons = values_of
        tied -= left
    return list(refused)


def _write_aside(writer: Writer, schema: Schema, batches: Sequence[Batch]) -> set[bytes]:
    """Write all rows or none; returns the ids of the rows that caused a failure."""
    there = [batch for batch in batches if batch.ids and batch.shape.kind != "delete"]
    gone = [batch for batch in batches if batch.ids and batch.shape.kind == "delete"]
    left: set[bytes] = set()
    try:
        with writer.savepoint():
            aside = [_put_aside(writer, schema, batch) for batch in there]
            for step in (aside, gone, there):
                left.update(id for batch in writer.settle(step) for id in batch.ids)
            if left:
                raise RefusedRowError(
                    Reason("other", "some of the rows are refused for themselves")
                )
    except RefusedRowError:
        pass
    return left


# Detection.


class _Knots:
    """Finds rows that depend on other refused rows."""

    def __init__(self, writer: Writer, schema: Schema, refused: Sequence[Batch]) -> None:
        """Consider rows that were refused because of the state of other rows."""
        self._writer = writer
        self._schema = schema
        self._rows = [
            (batch, id, row)
            for batch in refused
            for id, row in zip(batch.ids, batch.rows, strict=True)
            if writer.kind(id) in ("unique", "reference")
        ]
        self._by_link: dict[Link, dict[Values, bytes]] = {}
        self._by_key = {
            (batch.shape.target, row[: len(batch.shape.key)]): id for batch, id, row in self._rows
        }

    def ids(self) -> set[bytes]:
        """Return the ids of these rows, and of those that they depend on."""
        found: set[bytes] = set()
        gone: set[bytes] = set()
        for batch, id, row in self._rows:
            if batch.shape.kind == "delete":
                # Rows that refer to it may move once others are out of the way.
                gone.add(id)
            elif others := {*self._holders(batch, row), *self._parents(batch, row)} - {id}:
                found |= {id, *others}
        return found | gone if found else found

    def _holders(self, batch: Batch, row: Values) -> Iterator[bytes]:
        """Yield refused rows that now hold a unique value of this row."""
        target, key = batch.shape.target, batch.shape.key
        for names in self._schema.detail(self._writer.runner.connection, target).uniques:
            columns, values = batch.values_of(row, names)
            if values is not None:
                found = self._writer.runner.find(target.table, key, columns, values)
                if found is not None and (target, found) in self._by_key:
                    yield self._by_key[target, found]

    def _parents(self, batch: Batch, row: Values) -> Iterator[bytes]:
        """Yield refused rows that this row refers to."""
        for link in self._schema.links.of(batch.shape.target.identity):
            _, values = batch.values_of(row, link.columns)
            if values is not None and values in self._referred(link):
                yield self._referred(link)[values]

    def _referred(self, link: Link) -> dict[Values, bytes]:
        """Return the rows that a foreign key can refer to, by the referred values."""
        found = self._by_link.get(link)
        if found is None:
            found = self._by_link[link] = {}
            for batch, id, row in self._rows:
                if batch.shape.target.identity == link.parent and batch.shape.kind != "delete":
                    _, values = batch.values_of(row, link.referred)
                    if values is not None:
                        found[values] = id
        return found


# Placeholders.


def _put_aside(writer: Writer, schema: Schema, batch: Batch) -> Batch:
    """Return the rows without values that can conflict with others."""
    shape = batch.shape
    target = shape.target
    detail = schema.detail(writer.runner.connection, target)
    # Referred columns must keep their values: the database may change the other rows as well.
    held = _names(target, (link.referred for link in schema.links.to(target.identity)))
    free = {
        column.name: place
        for place, column in enumerate(shape.others, len(shape.key))
        if column.name not in held
    }
    aside = _names(target, (link.columns for link in schema.links.of(target.identity)))
    aside &= detail.nullable
    given: dict[int, Callable[[], object]] = {}
    for unique in detail.uniques:
        names = sorted(unique & free.keys())
        nullable = [name for name in names if name in detail.nullable]
        if nullable:
            aside.add(nullable[0])
        elif names:
            given[free[names[0]]] = _stand_in(target.table.columns[names[0]])
    for name in aside & free.keys():
        given[free[name]] = _null
    rows = []
    for row in batch.rows:
        values = list(row)
        for place, make in given.items():
            if values[place] is not None:
                values[place] = make()
        rows.append(tuple(values))
    return Batch(shape, batch.ids, rows)


def _names(target: Target, lists: Iterable[Iterable[str]]) -> set[str]:
    """Return the column names in the spelling of the table."""
    found = (target.table.column(name) for names in lists for name in names)
    return {column.name for column in found if column is not None}


def _null() -> object:
    return None


def _stand_in(column: TargetColumn) -> Callable[[], object]:
    """Return a factory of unique placeholder values for a column, as far as its type has them."""
    length = getattr(column.type_, "length", None) or _LENGTH
    makers: dict[str, Callable[[], object]] = {
        "text": lambda: secrets.token_hex(_LENGTH)[:length],
        "bytes": lambda: secrets.token_bytes(_LENGTH)[:length],
        "int": lambda: -1 - secrets.randbelow(_LEAST),
        "uuid": lambda: column.adapt(uuid4()),
    }
    return makers.get(column.family, _null)
