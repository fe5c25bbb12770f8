"""The net effect of what a transaction does to a row, where leaving out steps can do no harm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import Engine, Table, UniqueConstraint

from stompkit.replication.events import RowChange
from stompkit.replication.publishers.session.values import name_of

__all__ = ["NetChanges", "Recorded"]


@dataclass(slots=True, frozen=True)
class Recorded:
    """A change, and the database that it was made in."""

    change: RowChange
    #: ``None`` for a change that was not seen but said.
    table: Table | None
    engine: Engine | None


class NetChanges:
    """Changes in the order of their statements, but for what comes to nothing.

    An update of a row that the same transaction has written or updated becomes part of that, and a
    row that was written and deleted was never there. Both only where that can't break a rule of the
    database when the changes are made elsewhere, one by one: an update of columns that are in a key
    or in another constraint stays where it is, and so do the steps of a row that others may refer
    to.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._changes: list[Recorded | None] = []
        #: Where the last change of a row is.
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
        """Add what comes last."""
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
    """Both as one change, where that is the same."""
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
    """The columns whose values other rows may depend on."""
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
    """Whether a foreign key leads there."""
    return any(
        key.target_fullname.rpartition(".")[0] == table.fullname
        for other in table.metadata.tables.values()
        for key in other.foreign_keys
    )
