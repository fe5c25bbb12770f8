"""Rows that wait for each other: two that change names, two that refer to each other.

None of them can be written as it is to be before the others are. So what they are in each other's
way with is put aside first: NULL where a column takes it, else a value that nobody has.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final
from uuid import uuid4

from stompkit.replica.data._links import Link
from stompkit.replica.data._many import Values
from stompkit.replica.data._plan import Batch, Target
from stompkit.replica.data._reasons import Reason, Refused
from stompkit.replica.data._schema import Schema
from stompkit.replica.data._writer import Writer
from stompkit.replication.sinks.sql.parts import TargetColumn

__all__ = ["untie"]

#: How many octets or characters stand for others, at most.
_LENGTH: Final = 32
#: The least whole number that may stand for another one: any column has room for it but those
#: without a sign, and the smallest.
_LEAST: Final = 2**15


def untie(writer: Writer, schema: Schema, refused: Sequence[Batch]) -> list[Batch]:
    """Write those of refused rows that wait for each other; gives what is still refused."""
    tied = _Knots(writer, schema, refused).ids()
    while tied:
        told = dict(writer.reasons)
        left = _write_aside(writer, schema, [batch.only(tied) for batch in refused])
        if not left:
            rest = (batch.only(set(batch.ids) - tied) for batch in refused)
            return [batch for batch in rest if batch.ids]
        writer.reasons = told
        tied -= left
    return list(refused)


def _write_aside(writer: Writer, schema: Schema, batches: Sequence[Batch]) -> set[bytes]:
    """Write all, or nothing; gives the ids of the rows that it is due to."""
    there = [batch for batch in batches if batch.ids and batch.shape.kind != "delete"]
    gone = [batch for batch in batches if batch.ids and batch.shape.kind == "delete"]
    left: set[bytes] = set()
    try:
        with writer.savepoint():
            aside = [_put_aside(writer, schema, batch) for batch in there]
            for step in (aside, gone, there):
                left.update(id for batch in writer.settle(step) for id in batch.ids)
            if left:
                raise Refused(Reason("other", "some of the rows are refused for themselves"))
    except Refused:
        pass
    return left


# Which rows wait for each other.


class _Knots:
    """Finds rows that wait for one of the others that are refused."""

    def __init__(self, writer: Writer, schema: Schema, refused: Sequence[Batch]) -> None:
        """Consider what is refused for what other rows are."""
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
        """The ids of such rows, and of those that they wait for."""
        found: set[bytes] = set()
        gone: set[bytes] = set()
        for batch, id, row in self._rows:
            if batch.shape.kind == "delete":
                # What refers to it may go elsewhere once others are out of the way.
                gone.add(id)
            elif others := {*self._holders(batch, row), *self._parents(batch, row)} - {id}:
                found |= {id, *others}
        return found | gone if found else found

    def _holders(self, batch: Batch, row: Values) -> Iterator[bytes]:
        """Those of the rows that have now what this one is to have."""
        target, key = batch.shape.target, batch.shape.key
        for names in self._schema.detail(self._writer.runner.connection, target).uniques:
            columns, values = batch.told(row, names)
            if values is not None:
                found = self._writer.runner.find(target.table, key, columns, values)
                if found is not None and (target, found) in self._by_key:
                    yield self._by_key[target, found]

    def _parents(self, batch: Batch, row: Values) -> Iterator[bytes]:
        """Those of the rows that this one is to refer to."""
        for link in self._schema.links.of(batch.shape.target.identity):
            _, values = batch.told(row, link.columns)
            if values is not None and values in self._referred(link):
                yield self._referred(link)[values]

    def _referred(self, link: Link) -> dict[Values, bytes]:
        """The rows that a foreign key can lead to, by what it leads by."""
        found = self._by_link.get(link)
        if found is None:
            found = self._by_link[link] = {}
            for batch, id, row in self._rows:
                if batch.shape.target.identity == link.parent and batch.shape.kind != "delete":
                    _, values = batch.told(row, link.referred)
                    if values is not None:
                        found[values] = id
        return found


# What stands in for a value.


def _put_aside(writer: Writer, schema: Schema, batch: Batch) -> Batch:
    """The rows without what can be in the way of others."""
    shape = batch.shape
    target = shape.target
    detail = schema.detail(writer.runner.connection, target)
    # What others refer to by these has to stay: the database may change the others as well.
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
    """Columns as the table calls them."""
    found = (target.table.column(name) for names in lists for name in names)
    return {column.name for column in found if column is not None}


def _null() -> object:
    return None


def _stand_in(column: TargetColumn) -> Callable[[], object]:
    """What makes values that no row has, as far as the column has such."""
    length = getattr(column.type_, "length", None) or _LENGTH
    makers: dict[str, Callable[[], object]] = {
        "text": lambda: secrets.token_hex(_LENGTH)[:length],
        "bytes": lambda: secrets.token_bytes(_LENGTH)[:length],
        "int": lambda: -1 - secrets.randbelow(_LEAST),
        "uuid": lambda: column.adapt(uuid4()),
    }
    return makers.get(column.family, _null)
