"""Plans changes of the target's tables, in batches of many rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, Literal

from stompkit._common.graph import parents_first
from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.values import Row
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sql.catalog import Catalog, TablesClashError
from stompkit.replication.sql.forms import UnstorableValueError
from stompkit.replication.sql.planner.shape import (
    Columns,
    Shape,
    UnfitValueError,
    WriteKind,
    adapted,
    shape_of,
)
from stompkit.replication.sql.tables import TargetTable, groups_of

__all__ = [
    "MOST_ROWS",
    "Batch",
    "OnMissing",
    "Planner",
    "children_first",
    "key_advice",
    "problem_with",
]

#: Policy for a change of a table or column that the target lacks.
OnMissing = Literal["error", "ignore"]

#: Maximum number of rows in one batch.
MOST_ROWS: Final = 1000
#: Advice for values that a column cannot hold.
_WAYS_OUT: Final = (
    ": make the target's column one that holds it, of text for example, or leave the column out"
    " (--exclude-columns)"
)
#: Maximum number of characters of a key in a message.
_SHOWN: Final = 200

#: ``insert``, ``delete_one``, ``update_one``: of rows without a key.
Kind = WriteKind | Literal["insert", "delete", "move", "truncate", "delete_one", "update_one"]

_NO_TABLE: Final = (
    "the target has no such table. Create it there; --create does so only if the source reports"
    " its columns, which an outbox does not"
)


@dataclass
class Batch:
    """Rows of one table with the same operation, in any order."""

    kind: Kind
    table: TargetTable
    #: Columns of the key; for ``delete_one`` and ``update_one`` those of the old image.
    key: Columns
    #: Other columns; for ``truncate`` those that have to be NULL before.
    others: Columns
    #: Changeset and change of the first row.
    cause: tuple[Changeset, RowChange]
    #: Values of the key, then of the others; for ``move``, the old key comes first.
    rows: list[tuple[object, ...]] = field(default_factory=list)
    keys: set[tuple[object, ...]] = field(default_factory=set)


class Planner:
    """Sorts changes into batches whose order has the same effect as the source's.

    Batches of different tables may be reordered, unless foreign keys connect the tables.
    """

    def __init__(
        self,
        catalog: Catalog,
        key_columns: Mapping[str, Sequence[str]],
        backend: str,
        *,
        on_missing: OnMissing,
        unknown_columns: OnMissing,
        most_rows: int = MOST_ROWS,
        creates: bool = False,
    ) -> None:
        """Start empty; with ``creates``, a missing table has no rows to truncate."""
        self._creates = creates
        self._catalog = catalog
        self._key_columns = key_columns
        self._backend = backend
        self._on_missing = on_missing
        self._unknown_columns = unknown_columns
        self._most_rows = most_rows
        self._groups: dict[tuple[str | None, str], int] = {}
        self._open: dict[int, Batch] = {}
        self._shapes: dict[Any, Shape] = {}
        self.batches: list[Batch] = []

    def plan(self, changesets: Sequence[Changeset]) -> list[Batch]:
        """Return the batches of changesets; raises :class:`ApplyError`.

        The catalog must have loaded all tables of the changesets.
        """
        names = {(change.schema, change.table) for each in changesets for change in each.changes}
        found = []
        for name in names:
            # A clash is reported with the change that it prevents.
            with suppress(TablesClashError):
                found.append(self._catalog.known(*name))
        self._groups = groups_of([table for table in found if table is not None])
        for changeset in changesets:
            for change in children_first(self._catalog, changeset.changes):
                if change.action != "schema":
                    self._take(changeset, change)
        return self.batches

    def _take(self, changeset: Changeset, change: RowChange) -> None:
        try:
            table = self._catalog.known(change.schema, change.table)
        except TablesClashError as clash:
            raise problem_with(changeset, change, str(clash)) from None
        if table is None:
            is_empty = self._creates and change.action == "truncate"
            if self._on_missing == "ignore" or is_empty:
                return
            raise problem_with(changeset, change, _NO_TABLE)
        if table.engine_without_transactions:
            reason = f"the table's engine {table.engine_without_transactions} has no transactions"
            raise problem_with(changeset, change, reason)
        try:
            if change.action == "truncate":
                own = self._references_to_itself(table)
                self._add("truncate", table, (), own, (changeset, change), (), None)
            elif change.action == "delete":
                self._delete(table, changeset, change)
            else:
                self._write(table, changeset, change)
        except UnstorableValueError as problem:
            raise problem_with(changeset, change, str(problem)) from None

    def _references_to_itself(self, table: TargetTable) -> Columns:
        """Return the columns to clear first, because MySQL checks foreign keys for each row."""
        if self._backend != "mysql":
            return ()
        names = {
            name
            for foreign in table.foreign_keys
            if foreign.parent == table.identity
            for name in foreign.nullable
        }
        return tuple(
            column
            for name, column in table.columns.items()
            if name in names and not column.is_generated
        )

    def _write(self, table: TargetTable, changeset: Changeset, change: RowChange) -> None:
        """Plan a written row."""
        image = change.after or change.key
        if not change.key.keys() <= image.keys():
            image = {**change.key, **image}
        shape = self._shape(table, change, image)
        cause = changeset, change
        key = _key_values(shape, image)
        others = _values(shape.others, shape.other_names, image)
        if not shape.key:
            if change.action == "update":
                old, values = self._image(table, change)
                self._add("update_one", table, old, shape.others, cause, values + others, None)
            else:
                self._add("insert", table, (), shape.others, cause, others, None)
            return
        old_key = self._old_key(shape, change)
        if old_key is not None and old_key != key:
            row = old_key + key + others
            self._add("move", table, shape.key, shape.others, cause, row, old_key)
            return
        self._add(shape.kind, table, shape.key, shape.others, cause, key + others, key)

    def _delete(self, table: TargetTable, changeset: Changeset, change: RowChange) -> None:
        """Plan a deleted row."""
        image = {**change.before, **change.key} if change.before else change.key
        shape = self._shape(table, change, image)
        cause = changeset, change
        if shape.key:
            key = _key_values(shape, image)
            self._add("delete", table, shape.key, (), cause, key, key)
        else:
            columns, values = self._image(table, change)
            self._add("delete_one", table, columns, (), cause, values, None)

    def _old_key(self, shape: Shape, change: RowChange) -> tuple[object, ...] | None:
        """Return the key of a row before an update; ``None`` if the key is unchanged."""
        before: Row = {**(change.before or {}), **(change.old_key or {})}
        if change.action != "update" or not all(name in before for name in shape.key_names):
            return None
        return _key_values(shape, before)

    def _image(self, table: TargetTable, change: RowChange) -> tuple[Columns, tuple[object, ...]]:
        """Return the columns and values by which a row without a key is found."""
        if not change.before:
            raise UnstorableValueError(
                "neither a key nor the row before is told: key_columns can name one"
            )
        shape = self._known(shape_of(table, (), change.before, self._backend))
        return shape.others, _values(shape.others, shape.other_names, change.before)

    def _known(self, shape: Shape) -> Shape:
        """Return a shape; raises :class:`UnstorableValueError` if the target lacks columns."""
        name = shape.missing_key()
        if name is not None:
            raise UnstorableValueError(f"the target has no column {name!r}, which is of the key")
        if shape.missing and self._unknown_columns == "error":
            raise UnstorableValueError(f"the target has no column {shape.missing[0]!r}")
        return shape

    def _shape(self, table: TargetTable, change: RowChange, image: Row) -> Shape:
        """Return the shared plan of changes that report the same columns of a table."""
        signature = (
            change.schema,
            change.table,
            change.action == "delete",
            tuple(change.key),
            tuple(image),
        )
        shape = self._shapes.get(signature)
        if shape is None:
            shape = self._shapes[signature] = self._make_shape(table, change, image)
        return shape

    def _make_shape(self, table: TargetTable, change: RowChange, image: Row) -> Shape:
        configured = self._key_columns.get(change.name) or self._key_columns.get(change.table)
        names = tuple(configured or change.key)
        missing = [name for name in names if name not in image]
        if missing:
            raise UnstorableValueError(f"the column {missing[0]!r} of its key is not told")
        columns = names if change.action == "delete" else image
        return self._known(shape_of(table, names, columns, self._backend))

    def _add(
        self,
        kind: Kind,
        table: TargetTable,
        key: Columns,
        others: Columns,
        cause: tuple[Changeset, RowChange],
        row: tuple[object, ...],
        place: tuple[object, ...] | None,
    ) -> None:
        """Add a row to the open batch, or open a new one."""
        group = self._groups[table.identity]
        batch = self._open.get(group)
        if (
            batch is None
            or batch.kind != kind
            or batch.table is not table
            or batch.key != key
            or batch.others != others
            or len(batch.rows) >= self._most_rows
            or (place is not None and place in batch.keys)
            # Rows that swap their keys must be in one transaction.
            or (kind == "move" and batch.cause[0] is not cause[0])
        ):
            batch = self._open[group] = Batch(kind, table, key, others, cause)
            self.batches.append(batch)
        batch.rows.append(row)
        if place is not None:
            batch.keys.add(place)


def _key_values(shape: Shape, image: Row) -> tuple[object, ...]:
    """Return the key of a row; raises :class:`UnstorableValueError`."""
    values = _values(shape.key, shape.key_names, image)
    if None in values:
        raise UnstorableValueError("NULL in the key")
    return values


def _values(columns: Columns, names: Sequence[str], image: Row) -> tuple[object, ...]:
    """Return values for the driver; the error message names the column of an invalid value."""
    try:
        return adapted(columns, names, image)
    except UnfitValueError as problem:
        raise UnstorableValueError(f"column {problem.name!r}: {problem}{_WAYS_OUT}") from None


def children_first(catalog: Catalog, changes: Iterable[RowChange]) -> list[RowChange]:
    """Return changes with consecutive truncations in an order that foreign keys allow.

    The catalog must have loaded all their tables.
    """
    found: list[RowChange] = []
    for is_truncate, run in groupby(changes, lambda change: change.action == "truncate"):
        emptied = list(run)
        if is_truncate and len(emptied) > 1:
            tables = [_known(catalog, change) for change in emptied]
            references = {
                at: [
                    other
                    for other, parent in enumerate(tables)
                    if table and parent and parent.identity in table.parents
                ]
                for at, table in enumerate(tables)
            }
            emptied = [emptied[at] for at in parents_first(references)][::-1]
        found += emptied
    return found


def _known(catalog: Catalog, change: RowChange) -> TargetTable | None:
    with suppress(TablesClashError):
        return catalog.known(change.schema, change.table)
    return None


def key_advice(table: TargetTable, change: RowChange) -> str:
    """Return what to do about a refused row if the target has another key than the source."""
    theirs = {column.name for name in change.key if (column := table.column(name)) is not None}
    if not theirs or not table.primary_key or theirs == set(table.primary_key):
        return ""
    return (
        f". The source's key is ({', '.join(change.key)}), and the target's"
        f" ({', '.join(table.primary_key)}). To go on, give the target the same primary key"
    )


def problem_with(changeset: Changeset, change: RowChange, reason: str) -> ApplyError:
    """Return the error for a change that cannot be applied, with the reason."""
    key = f", key {change.key!r}" if change.key else ""
    key = key if len(key) <= _SHOWN else f"{key[:_SHOWN]}..."
    return ApplyError(
        f"changeset {changeset.sequence} of {changeset.origin!r}: {change.action} of the table"
        f" {change.name!r}{key}: {reason}"
    )
