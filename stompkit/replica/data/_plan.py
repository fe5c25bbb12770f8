"""Plans the statements for rows, many rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from stompkit.replica.data import Wanted
from stompkit.replica.data._links import Identity, Links
from stompkit.replica.data._many import Values
from stompkit.replication.model.values import Value
from stompkit.replication.sql import (
    ClashingColumnsError,
    Columns,
    TargetColumn,
    TargetTable,
    UnfitValueError,
    WriteKind,
    adapted,
    shape_of,
)

__all__ = ["Batch", "Columns", "Planner", "RowFilter", "Target"]

#: A function that returns True if a row with these columns belongs here.
RowFilter = Callable[[Mapping[str, Value]], object]

Kind = WriteKind | Literal["delete"]


@dataclass(eq=False)
class Target:
    """A table that rows are written to."""

    #: Table name as in changes.
    name: str
    table: TargetTable
    identity: Identity
    #: Writable columns.
    columns: Mapping[str, TargetColumn]
    #: Columns with a collation that treats different texts as equal, such as A and a.
    folding: frozenset[str] = frozenset()
    keeps: RowFilter | None = None
    #: Cached shapes, or reasons for refusal, by the columns of rows.
    shapes: dict[tuple[object, ...], Shape | str] = field(default_factory=dict)


@dataclass(eq=False)
class Shape:
    """The columns that rows have in common."""

    kind: Kind
    target: Target
    key_names: tuple[str, ...]
    key: Columns
    other_names: tuple[str, ...] = ()
    others: Columns = ()

    def __post_init__(self) -> None:
        """Find the parts of the key with a collation that treats different texts as equal."""
        self.folding = [n for n, each in enumerate(self.key) if each.name in self.target.folding]


@dataclass(eq=False, slots=True)
class Batch:
    """Rows of one table that need the same operation."""

    shape: Shape
    ids: list[bytes] = field(default_factory=list)
    #: Values of the key, then of the others.
    rows: list[Values] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ids)

    def part(self, start: int, stop: int) -> Batch:
        """Return a slice of the batch."""
        return Batch(self.shape, self.ids[start:stop], self.rows[start:stop])

    def only(self, ids: Collection[bytes]) -> Batch:
        """Return the batch restricted to the rows with these ids."""
        kept = [place for place, id in enumerate(self.ids) if id in ids]
        return self.ordered(kept)

    def ordered(self, places: Iterable[int]) -> Batch:
        """Return the batch restricted to the rows at these positions."""
        places = list(places)
        return Batch(self.shape, [self.ids[n] for n in places], [self.rows[n] for n in places])

    def values_of(self, row: Values, names: Iterable[str]) -> tuple[Columns, Values | None]:
        """Return columns and their values in a row; no values if one is missing or NULL."""
        table = self.shape.target.table
        by_column = dict(zip((*self.shape.key, *self.shape.others), row, strict=True))
        columns = tuple(filter(None, map(table.column, names)))
        values = tuple(by_column.get(column) for column in columns)
        return columns, None if None in values else values


class Planner:
    """Groups rows into batches, and sorts the batches by foreign keys."""

    def __init__(
        self,
        find: Callable[[str], Target | None],
        links: Links,
        unknown: dict[str, set[str]],
        backend: str,
    ) -> None:
        """Take tables from ``find``, and add their missing columns to ``unknown``."""
        self._backend = backend
        self._find = find
        self._links = links
        self._unknown = unknown
        self._batches: dict[Shape, Batch] = {}
        #: Reasons, by id, for rows that cannot be tried.
        self.reasons: dict[bytes, str] = {}

    def plan(self, rows: Iterable[Wanted]) -> list[Batch]:
        """Return the batches in execution order."""
        for row in rows:
            target = self._find(row.table)
            reason = "there is no such table here"
            if target is not None:
                reason = self._take(target, row)
            if reason:
                self.reasons[row.id] = reason
        return self._sorted()

    def _take(self, target: Target, row: Wanted) -> str:
        """Add a row to its batch; returns the reason if that is impossible."""
        values = row.values
        if values is not None and target.keeps is not None:
            try:
                if not target.keeps({**row.key, **values}):
                    values = None
            except Exception as error:
                return f"the filter of its table has failed: {type(error).__qualname__}"
        signature = (values is None, *row.key, None, *(values or ()))
        shape = target.shapes.get(signature)
        if shape is None:
            shape = self._shape(target, row.key, values)
            target.shapes[signature] = shape
        if isinstance(shape, str):
            return shape
        try:
            made = adapted(shape.key, shape.key_names, row.key)
            if None in made:
                return "its key is NULL"
            if values is not None:
                made += adapted(shape.others, shape.other_names, values)
        except UnfitValueError as problem:
            # The exception's message would contain the value.
            return f"a value does not fit its column {problem.column.name}"
        batch = self._batches.get(shape)
        if batch is None:
            batch = self._batches[shape] = Batch(shape)
        batch.ids.append(row.id)
        batch.rows.append(made)
        return ""

    def _shape(
        self, target: Target, key: Mapping[str, Value], values: Mapping[str, Value] | None
    ) -> Shape | str:
        """Return the columns of rows, or the reason why no such row is possible."""
        table = target.table
        keys = set(map(table.column, key))
        names = []
        for name in values or ():
            column = table.column(name)
            if column is None or (column.name in target.columns and column not in keys):
                names.append(name)
        try:
            found = shape_of(table, key, names, self._backend)
        except ClashingColumnsError:
            return "two of its columns are the same in the table"
        if not key or found.missing_key() is not None:
            return "the table lacks a column of its key"
        if values is None:
            return Shape("delete", target, found.key_names, found.key)
        if table.engine_without_transactions:
            return f"the table's engine {table.engine_without_transactions} has no transactions"
        if found.missing:
            self._unknown.setdefault(target.name, set()).update(found.missing)
        return Shape(
            found.kind, target, found.key_names, found.key, found.other_names, found.others
        )

    def _sorted(self) -> list[Batch]:
        """Return the batches with parents before children, followed by deletions in reverse."""
        found = list(self._batches.values())
        tables = self._links.parents_first({batch.shape.target.identity for batch in found})
        place = {table: number for number, table in enumerate(tables)}
        found.sort(key=lambda batch: place[batch.shape.target.identity])
        there = [batch for batch in found if batch.shape.kind != "delete"]
        gone = [batch for batch in reversed(found) if batch.shape.kind == "delete"]
        # Referential actions may have deleted some children together with a former parent.
        parents = {batch.shape.target.identity for batch in gone}
        again = [
            batch
            for batch in there
            if any(
                link.acts and link.parent in parents
                for link in self._links.of(batch.shape.target.identity)
            )
        ]
        return [*there, *gone, *again]
