"""From rows as they have to be to what is done to tables, many rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from stompkit.replica.data import Wanted
from stompkit.replica.data._links import Identity, Links
from stompkit.replica.data._many import Values
from stompkit.replication.sinks.sql.parts import CannotStore, TargetColumn, TargetTable
from stompkit.replication.values import Value

__all__ = ["Batch", "Columns", "Planner", "RowFilter", "Target"]

#: Whether a row is to be here, by all its columns.
RowFilter = Callable[[Mapping[str, Value]], object]

#: ``upsert``: in one statement; ``merge``: an update, and where there was no row an insert.
Kind = Literal["upsert", "merge", "delete"]
Columns = tuple[TargetColumn, ...]


@dataclass(eq=False)
class Target:
    """A table that rows are written to."""

    #: As changes call it.
    name: str
    table: TargetTable
    identity: Identity
    #: What may be written to.
    columns: Mapping[str, TargetColumn]
    #: Columns that are compared by a collation, to which A may be a.
    folding: frozenset[str] = frozenset()
    keeps: RowFilter | None = None
    #: Whether a statement that inserts or updates a row may update another one than it names.
    mixes_keys: bool = False
    #: What was found out about rows, by the columns that they have.
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
        """Find out which parts of the key are compared by a collation that takes A for a."""
        self.folding = [n for n, each in enumerate(self.key) if each.name in self.target.folding]


@dataclass(eq=False, slots=True)
class Batch:
    """Rows of one table to which the same is done."""

    shape: Shape
    ids: list[bytes] = field(default_factory=list)
    #: Values of the key, then of the others.
    rows: list[Values] = field(default_factory=list)

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.ids)

    def part(self, start: int, stop: int) -> Batch:
        """Some of the rows."""
        return Batch(self.shape, self.ids[start:stop], self.rows[start:stop])

    def only(self, ids: Collection[bytes]) -> Batch:
        """The rows with these ids."""
        kept = [place for place, id in enumerate(self.ids) if id in ids]
        return self.ordered(kept)

    def ordered(self, places: Iterable[int]) -> Batch:
        """The rows at these places."""
        places = list(places)
        return Batch(self.shape, [self.ids[n] for n in places], [self.rows[n] for n in places])

    def told(self, row: Values, names: Iterable[str]) -> tuple[Columns, Values | None]:
        """Columns and their values in a row; none where one of them is not told, or NULL."""
        table = self.shape.target.table
        told = dict(zip((*self.shape.key, *self.shape.others), row, strict=True))
        columns = tuple(filter(None, map(table.column, names)))
        values = tuple(told.get(column) for column in columns)
        return columns, None if None in values else values


class Planner:
    """Sorts rows into batches, and those into the order that foreign keys ask for."""

    def __init__(
        self, find: Callable[[str], Target | None], links: Links, unknown: dict[str, set[str]]
    ) -> None:
        """Take tables from ``find``, and tell ``unknown`` the columns that they lack."""
        self._find = find
        self._links = links
        self._unknown = unknown
        self._batches: dict[Shape, Batch] = {}
        #: Why some rows can't even be tried, by their ids.
        self.reasons: dict[bytes, str] = {}

    def plan(self, rows: Iterable[Wanted]) -> list[Batch]:
        """What has to be done, in order."""
        for row in rows:
            target = self._find(row.table)
            reason = "there is no such table here"
            if target is not None:
                reason = self._take(target, row)
            if reason:
                self.reasons[row.id] = reason
        return self._sorted()

    def _take(self, target: Target, row: Wanted) -> str:
        """Add a row to its batch; gives the reason why that can't be."""
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
        adapted: list[object] = []
        reason = _adapt(shape.key, shape.key_names, row.key, adapted)
        if not reason and None in adapted:
            reason = "its key is NULL"
        if not reason and values is not None:
            reason = _adapt(shape.others, shape.other_names, values, adapted)
        if reason:
            return reason
        batch = self._batches.get(shape)
        if batch is None:
            batch = self._batches[shape] = Batch(shape)
        batch.ids.append(row.id)
        batch.rows.append(tuple(adapted))
        return ""

    def _shape(
        self, target: Target, key: Mapping[str, Value], values: Mapping[str, Value] | None
    ) -> Shape | str:
        """The columns of rows; or the reason why there can't be any such."""
        table = target.table
        found = [table.column(name) for name in key]
        columns = tuple(column for column in found if column is not None)
        if not key or len(columns) < len(key):
            return "the table lacks a column of its key"
        if values is None:
            return Shape("delete", target, tuple(key), columns)
        if table.engine_without_transactions:
            return f"the table's engine {table.engine_without_transactions} has no transactions"
        names = []
        others = []
        for name in values:
            column = table.column(name)
            if column is None:
                self._unknown.setdefault(target.name, set()).add(name)
            elif column.name in target.columns and column not in columns:
                names.append(name)
                others.append(column)
        written = {column.name for column in (*columns, *others)}
        if len(written) < len(columns) + len(others):
            return "two of its columns are the same in the table"
        lacks = any(
            column.is_required and not column.is_generated and column.name not in written
            for column in table.columns.values()
        )
        goes_by_key = frozenset(column.name for column in columns) in table.uniques
        # All databases look at what a new row lacks before they find that it is there already.
        kind: Kind = "upsert" if goes_by_key and not lacks and not target.mixes_keys else "merge"
        return Shape(kind, target, tuple(key), columns, tuple(names), tuple(others))

    def _sorted(self) -> list[Batch]:
        """Parents before their children, and behind them what goes, in reverse."""
        found = list(self._batches.values())
        tables = self._links.parents_first({batch.shape.target.identity for batch in found})
        place = {table: number for number, table in enumerate(tables)}
        found.sort(key=lambda batch: place[batch.shape.target.identity])
        there = [batch for batch in found if batch.shape.kind != "delete"]
        gone = [batch for batch in reversed(found) if batch.shape.kind == "delete"]
        # Where the database itself acts on children, some may have gone with an old parent.
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


def _adapt(
    columns: Columns, names: Sequence[str], row: Mapping[str, Value], adapted: list[object]
) -> str:
    """Add values as the driver takes them; gives the reason why a column can't have its own."""
    for column, name in zip(columns, names, strict=True):
        value = row[name]
        if type(value) not in column.plain:
            try:
                value = column.adapt(value)
            except (CannotStore, ArithmeticError, ValueError):
                # What is said there has the value in it.
                return f"a value does not fit its column {column.name}"
        adapted.append(value)
    return ""
