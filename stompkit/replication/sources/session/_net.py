"""The net effect of a transaction on a row, where merging steps is safe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import Engine, Table, UniqueConstraint

from stompkit.replication.model.events import RowChange
from stompkit.replication.sources.session.values import name_of

__all__ = ["NetChanges", "Recorded"]


@dataclass(slots=True, frozen=True)
class Recorded:
    """A change, and the database that it was made in."""

    change: RowChange
    #: ``None`` for a change that the program has specified.
    table: Table | None
    engine: Engine | None


class NetChanges:
    """Changes in the order of their statements, without those that cancel out.

    An update of a row that the same transaction has written or updated is merged into that change.
    A row that was written and deleted is omitted. Both apply only where replicas that make the
    changes one by one cannot violate a constraint. An update of columns in a key or in another
    constraint stays a separate step, and so do the steps of a row that others may reference.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._changes: list[Recorded | None] = []
        #: Index of the last change of a row.
        self._last: dict[tuple[Any, ...], int] = {}

    def __bool__(self) -> bool:
        return any(each is not None for each in self._changes)

    def __iter__(self) -> Iterator[Recorded]:
        return (each for each in self._changes if each is not None)

    def extend(self, changes: Iterable[Recorded]) -> None:
        """Add changes in their order."""
        for each in changes:
            self.add(each)

    def add(self, recorded: Recorded) -> None:
        """Add the latest change."""
        change = recorded.change
        if recorded.table is None or not change.key:
            self._changes.append(recorded)
            return
        if change.old_key is not None:
            self._last.pop(_row(recorded, change.old_key), None)
        row = _row(recorded, change.key)
        place = self._last.get(row)
        last = None if place is None else self._changes[place]
        if place is not None and last is not None:
            if _comes_to_nothing(last, recorded):
                self._changes[place] = None
                del self._last[row]
                return
            merged = _merged(last, recorded)
            if merged is not None:
                self._changes[place] = merged
                return
        self._last[row] = len(self._changes)
        self._changes.append(recorded)


def _row(recorded: Recorded, key: dict[str, Any]) -> tuple[Any, ...]:
    return (recorded.engine, recorded.table, *key.values())


def _comes_to_nothing(last: Recorded, then: Recorded) -> bool:
    assert then.table is not None
    return (
        last.change.action == "write"
        and then.change.action == "delete"
        and not _is_referred_to(then.table)
    )


def _merged(last: Recorded, then: Recorded) -> Recorded | None:
    """Return both changes merged into one, if that is equivalent; otherwise None."""
    before, change, table = last.change, then.change, then.table
    assert table is not None
    if change.action != "update" or change.old_key is not None:
        return None
    if before.action not in ("write", "update") or before.after is None or change.after is None:
        return None
    changed = {
        name
        for name, value in change.after.items()
        if name not in before.after or before.after[name] != value
    }
    if changed & _constrained(table):
        return None
    after = {**before.after, **change.after}
    return Recorded(msgspec.structs.replace(before, after=after), table, then.engine)


@lru_cache(maxsize=1000)
def _constrained(table: Table) -> frozenset[str]:
    """Return the columns whose values other rows may depend on."""
    constrained = (each for each in table.columns if each.primary_key or each.foreign_keys)
    names = {name_of(column) for column in constrained}
    for constraint in table.constraints:
        if isinstance(constraint, UniqueConstraint):
            names.update(name_of(column) for column in constraint.columns)
    for index in table.indexes:
        if index.unique:
            names.update(name_of(column) for column in index.columns)
    return frozenset(names)


@lru_cache(maxsize=1000)
def _is_referred_to(table: Table) -> bool:
    """Return True if a foreign key references the table."""
    return any(
        key.target_fullname.rpartition(".")[0] == table.fullname
        for other in table.metadata.tables.values()
        for key in other.foreign_keys
    )
