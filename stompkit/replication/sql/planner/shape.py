"""Target columns of rows: keys, other columns, and the statements that write them.

The planners of sinks, replicas and Spark targets share these decisions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from stompkit.replication.model.values import Value
from stompkit.replication.sql.forms import UnstorableValueError
from stompkit.replication.sql.tables import TargetColumn, TargetTable

__all__ = [
    "ClashingColumnsError",
    "Columns",
    "Shape",
    "UnfitValueError",
    "WriteKind",
    "adapted",
    "shape_of",
]

Columns = tuple[TargetColumn, ...]
#: ``upsert``: in one statement; ``merge``: an update, and where there was no row an insert.
WriteKind = Literal["upsert", "merge"]


class ClashingColumnsError(UnstorableValueError):
    """Two columns of a row are the same in the target, which ignores case."""


class UnfitValueError(UnstorableValueError):
    """A value that its column cannot hold; ``str()`` gives the reason, without the column."""

    def __init__(self, reason: str, name: str, column: TargetColumn) -> None:
        """Store the column, and its name in the source."""
        super().__init__(reason)
        self.name = name
        self.column = column


@dataclass(frozen=True, eq=False, slots=True)
class Shape:
    """The target columns of rows with the same columns."""

    #: The statements that write such rows.
    kind: WriteKind
    #: Column names in the source, in the order of the columns.
    key_names: tuple[str, ...]
    key: Columns
    other_names: tuple[str, ...]
    #: Columns outside of the key, without those that the database generates.
    others: Columns
    #: Names in the source that the target lacks.
    missing: tuple[str, ...]

    def missing_key(self) -> str | None:
        """Return a name of the key that the target lacks."""
        return next((name for name in self.missing if name in self.key_names), None)


def shape_of(
    table: TargetTable, key_names: Collection[str], names: Iterable[str], backend: str
) -> Shape:
    """Return the target columns of rows whose columns have these names in the source.

    ``key_names`` may be among ``names``. Missing columns are listed in the result, so callers must
    check ``missing_key()`` before they use the key. Raises :class:`ClashingColumnsError`.
    """
    missing = []
    key = []
    for name in key_names:
        column = table.column(name)
        if column is None:
            missing.append(name)
        else:
            key.append(column)
    others = []
    other_names = []
    for name in names:
        if name in key_names:
            continue
        column = table.column(name)
        if column is None:
            missing.append(name)
        elif not column.is_generated:
            others.append(column)
            other_names.append(name)
    written = {column.name for column in (*key, *others)}
    if len(written) < len(key) + len(others):
        raise ClashingColumnsError("two of its columns are the same in the target")
    return Shape(
        _kind(table, frozenset(column.name for column in key), written, backend),
        tuple(key_names),
        tuple(key),
        tuple(other_names),
        tuple(others),
        tuple(missing),
    )


def _kind(
    table: TargetTable, key: frozenset[str], written: Collection[str], backend: str
) -> WriteKind:
    """Return ``upsert`` if one statement writes rows with these columns, existing or not."""
    if key not in table.uniques:
        return "merge"
    if backend == "mysql" and table.has_more_keys:
        # MySQL updates the row with any clashing key.
        return "merge"
    # All databases check the missing columns of a new row before they find the existing row.
    lacks = any(
        column.is_required and not column.is_generated and column.name not in written
        for column in table.columns.values()
    )
    return "merge" if lacks else "upsert"


def adapted(
    columns: Iterable[TargetColumn], names: Iterable[str], row: Mapping[str, Value]
) -> tuple[object, ...]:
    """Return a row's values for the driver, in the order of the columns.

    Raises :class:`UnfitValueError`.
    """
    values = []
    for column, name in zip(columns, names, strict=True):
        value = row[name]
        # Text that is not ASCII can have a lone surrogate, which no driver sends.
        if type(value) in column.plain and (type(value) is not str or value.isascii()):
            values.append(value)
            continue
        try:
            values.append(column.adapt(value))
        except (ArithmeticError, ValueError) as problem:
            raise UnfitValueError(str(problem), name, column) from None
    return tuple(values)
