"""Changes of existing rows that the source does not publish again.

A statement such as ``ALTER TABLE`` can change rows that are there. A source with snapshots copies
them. Without snapshots it reports what has changed, and a target must not go on with other values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from stompkit.replication.sql.schema import ColumnChanges, SchemaError, SourceColumn
from stompkit.replication.sql.tables import TargetTable

__all__ = [
    "EXCHANGED",
    "both_names",
    "check_unpublished",
    "exchanged_names",
    "rows_changed",
    "without_exchanged",
]

EXCHANGED: Final = "columns have exchanged their names"
_LEAVE_OUT: Final = (
    "leave out this changeset with --dead-letter, if it comes from a broker; or publish with"
    " --snapshot initial, which copies such tables"
)


def exchanged_names(renamed: Mapping[str, str]) -> set[str]:
    """Return the new names that another column had, which is renamed as well."""
    return {*renamed.keys()}.intersection(renamed.values())


def without_exchanged(renamed: Mapping[str, str]) -> dict[str, str]:
    """Return the columns whose new name, and old name, no other renamed column has or had."""
    exchanged = exchanged_names(renamed)
    return {old: new for old, new in renamed.items() if exchanged.isdisjoint((old, new))}


def rows_changed(statement: object) -> str:
    """Return the reason for a stop after a statement that has changed rows."""
    told = f" ({statement[:200]})" if isinstance(statement, str) else ""
    return (
        f"rows that were there have become others by a statement{told}, and the source takes no"
        " snapshots, so that they are not told again"
    )


def both_names(table: str, old: str, new: str) -> str:
    """Return the error for a renamed column where the target has both names."""
    return (
        f"the source calls the column {old!r} of the table {table!r} {new!r} now, and the target"
        f" has both. To go on, have {new!r} there the values of both, and drop {old!r}"
    )


def check_unpublished(
    table: TargetTable,
    name: str,
    changes: ColumnChanges,
    columns: Iterable[SourceColumn],
    statement: object,
) -> None:
    """Raise :class:`SchemaError` if rows of a table would keep values that the source has changed.

    ``columns`` are those that the source has now.
    """
    if not changes.untold:
        return
    if exchanged_names(changes.renamed):
        raise SchemaError(f"{EXCHANGED}. To go on, do the same in the target, and {_LEAVE_OUT}")
    if changes.untold == "values":
        raise SchemaError(
            f"{rows_changed(statement)}. To go on, copy the table by other means, and {_LEAVE_OUT}"
        )
    current = {column.name for column in columns}
    for old, new in changes.renamed.items():
        has_both = table.column(old) is not None and table.column(new) is not None
        if has_both and old not in current:
            raise SchemaError(both_names(name, old, new))
