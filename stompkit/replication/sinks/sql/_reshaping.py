"""Rows from before a column was renamed or got another type, for the table as it is afterwards.

Tables are altered before rows are written, because MySQL cannot alter a table in a transaction.
Only additions may overtake rows of earlier changesets. A changeset that renames or replaces columns
therefore begins a new transaction, and its own earlier rows are adapted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.values import Row
from stompkit.replication.sql.schema import ColumnChanges, SchemaError, changes_of
from stompkit.replication.sql.tables import TargetTable

__all__ = ["Adapted", "Reshape", "adapted", "is_reshaping", "reshapes_of", "runs_of"]

#: Schema and name of a source's table.
_Source = tuple[str, str]
#: Function that returns the target of a source's table, if there is one.
Find = Callable[[str, str], TargetTable | None]


class Reshape:
    """Renamed and replaced columns of a table, by one ``schema`` change or several."""

    def __init__(self, renamed: Mapping[str, str], replaced: frozenset[str]) -> None:
        """Map old names to the current ones; *replaced* has current names."""
        self._renamed = renamed
        self._replaced = replaced

    def preceded_by(self, changes: ColumnChanges, *, replaces: bool) -> Reshape:
        """Return this after another one; *replaces*: columns of other types lose their values."""
        later = self._renamed
        renamed = {old: new for old, new in later.items() if old not in changes.renamed.values()}
        renamed |= {old: later.get(new, new) for old, new in changes.renamed.items()}
        # Rows that are not published again keep their columns.
        retyped = changes.retyped if replaces and not changes.untold else frozenset()
        again = {later.get(name, name) for name in retyped}
        return Reshape(renamed, self._replaced | again)

    def adapt(self, change: RowChange, table: TargetTable) -> RowChange:
        """Return an earlier change of a row with the current columns of its table.

        Columns that the target does not have by their new names keep the old ones. Replaced columns
        have no value until the row is published again.
        """
        names = {old: new for old, new in self._renamed.items() if table.column(new) is not None}
        replaced = {name for name in self._replaced if _is_free(table, name)}

        def adapt(row: Row | None) -> Row | None:
            if row is None:
                return None
            # A renamed column takes precedence over a former one with its name.
            kept = {name: value for name, value in row.items() if name not in names}
            kept |= {new: row[old] for old, new in names.items() if old in row}
            return {name: value for name, value in kept.items() if name not in replaced}

        return msgspec.structs.replace(
            change,
            key=adapt(change.key) or {},
            before=adapt(change.before),
            after=adapt(change.after),
            old_key=adapt(change.old_key),
        )


def _is_free(table: TargetTable, name: str) -> bool:
    """Return True if a column may have been replaced, and a row may be without it."""
    own = table.column(name)
    return own is None or not (
        own.is_required or any(own.name in unique for unique in table.uniques)
    )


def is_reshaping(changeset: Changeset) -> bool:
    """Return True if a changeset renames columns, or gives them other types."""
    return any(
        change.action == "schema"
        and change.after is not None
        and bool(change.after.get("renamed") or change.after.get("retyped"))
        for change in changeset.changes
    )


def runs_of(changesets: Sequence[Changeset]) -> Iterator[Sequence[Changeset]]:
    """Yield the changesets that can be applied in one transaction after the tables are altered."""
    begin = 0
    for at, changeset in enumerate(changesets):
        if at > begin and is_reshaping(changeset):
            yield changesets[begin:at]
            begin = at
    yield changesets[begin:]


def reshapes_of(changeset: Changeset, *, replaces: bool) -> dict[_Source, Reshape]:
    """Return the effect of a changeset on rows of earlier changesets, by table."""
    found: dict[_Source, Reshape] = {}
    for change in reversed(changeset.changes):
        if change.action == "schema":
            _precede(found, change, replaces=replaces)
    return found


def _precede(found: dict[_Source, Reshape], change: RowChange, *, replaces: bool) -> None:
    """Add an earlier ``schema`` change to the effects of later ones."""
    # An invalid change has altered nothing.
    with suppress(SchemaError):
        source = change.schema, change.table
        later = found.get(source) or Reshape({}, frozenset())
        found[source] = later.preceded_by(changes_of(change), replaces=replaces)


class Adapted(msgspec.Struct, frozen=True):
    """A changeset whose rows have the current columns, and the original changes."""

    changeset: Changeset
    #: Original changes by the identity of the adapted ones.
    originals: Mapping[int, RowChange]

    def original(self, change: RowChange) -> RowChange:
        """Return the change as it was received."""
        return self.originals.get(id(change), change)


def adapted(changeset: Changeset, find: Find, *, replaces: bool) -> Adapted:
    """Return a changeset with the columns that the tables have after its ``schema`` changes."""
    if not is_reshaping(changeset):
        return Adapted(changeset, {})
    later: dict[_Source, Reshape] = {}
    changes: list[RowChange] = []
    originals = {}
    for change in reversed(changeset.changes):
        changes.append(change)
        source = change.schema, change.table
        if change.action == "schema":
            _precede(later, change, replaces=replaces)
        elif source in later and (table := find(*source)) is not None:
            changes[-1] = later[source].adapt(change, table)
            originals[id(changes[-1])] = change
    return Adapted(msgspec.structs.replace(changeset, changes=tuple(reversed(changes))), originals)
