"""Rows that refer to each other in a circle, and so can be stored only together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlalchemy import Connection

from stompkit.replication.events import Changeset, RowChange
from stompkit.replication.sinks import ApplyProblem
from stompkit.replication.sinks.sql._database import Database
from stompkit.replication.sinks.sql._graph import parents_first
from stompkit.replication.sinks.sql._plan import problem_with
from stompkit.replication.sinks.sql._statements import Statements
from stompkit.replication.sinks.sql._tables import Catalog, ForeignKey, TablesClash, TargetTable
from stompkit.replication.sinks.sql._values import CannotStore

__all__ = ["Circles"]

_Change = tuple[Changeset, RowChange]
#: Applies a change, or nothing of it; raises ApplyProblem.
_Apply = Callable[[Connection, Changeset, RowChange], None]
#: A row by the names that the target's columns have.
_Image = Mapping[str, Any]


@dataclass(eq=False)
class _Row:
    """The changes of a row; or of several, where one takes the key of another."""

    table: TargetTable
    #: By their places, in their order.
    changes: dict[int, _Change] = field(default_factory=dict)
    #: How it was and how it becomes, as far as that is told.
    images: list[_Image] = field(default_factory=list)
    #: The numbers of the rows that each foreign key leads to.
    parents: dict[ForeignKey, set[int]] = field(default_factory=dict)

    @property
    def first(self) -> _Change:
        """The first change."""
        return next(iter(self.changes.values()))

    @property
    def is_one(self) -> bool:
        """Whether all changes are of one row, which none but the last one deletes."""
        *others, _ = [change for _, change in self.changes.values()]
        has_moved = any(each.old_key not in (None, each.key) for _, each in self.changes.values())
        return not has_moved and all(each.action != "delete" for each in others)

    @property
    def whole(self) -> _Change:
        """What all changes of one row come to."""
        changeset, last = next(reversed(self.changes.values()))
        if last.action == "delete":
            return changeset, last
        after: dict[str, Any] = {}
        for _, change in self.changes.values():
            after.update(change.after or {})
        return changeset, msgspec.structs.replace(last, before=None, after=after, old_key=None)

    def absorb(self, other: _Row) -> None:
        """Take over the changes of another row."""
        self.changes = dict(sorted({**self.changes, **other.changes}.items()))
        self.images += other.images


class Circles:
    """Stores such rows together, or none of them.

    Where foreign keys can be looked at later, they are. Else a row is written twice: with NULL in
    the columns that lead to others of the circle, and once more when all are there.
    """

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        statements: Statements,
        key_columns: Mapping[str, Sequence[str]],
        apply: _Apply,
    ) -> None:
        """Change rows by ``apply``."""
        self._database = database
        self._catalog = catalog
        self._statements = statements
        self._key_columns = key_columns
        self._apply = apply

    def store(self, connection: Connection, changes: Sequence[_Change]) -> frozenset[int]:
        """Store those changes that need nothing beside each other; return their places.

        Each of them has been refused by itself, since a row refers to another one that is not
        there. Foreign keys are looked at again after each statement when this returns.
        """
        rows = self._rows(connection, changes)
        stored: set[int] = set()
        for circle in parents_first(_references(rows)):
            members = {number: rows[number] for number in circle}
            if len(members) < 2:
                # A row that refers to itself is stored by itself.
                continue
            if self._store_unseen(connection, members) or self._store_twice(connection, members):
                stored.update(place for row in members.values() for place in row.changes)
        return frozenset(stored)

    def order(self, connection: Connection, changes: Sequence[_Change]) -> list[int]:
        """Return the places of changes so that they can be applied one after the other.

        Rows come behind those that they refer to, and go before them; all changes of a row are in
        their order. Changes of rows without a key come last.
        """
        rows = self._rows(connection, changes)
        sorted_rows = [rows[at] for group in parents_first(_references(rows)) for at in group]
        gone = [row for row in sorted_rows if row.whole[1].action == "delete"]
        there = [row for row in sorted_rows if row.whole[1].action != "delete"]
        found = dict.fromkeys(place for row in (*there, *reversed(gone)) for place in row.changes)
        return [*found, *(place for place in range(len(changes)) if place not in found)]

    def _rows(self, connection: Connection, changes: Sequence[_Change]) -> list[_Row]:
        """Sort changes by their rows."""
        rows: dict[bytes, _Row] = {}
        for place, (changeset, change) in enumerate(changes):
            try:
                table = self._catalog.known(change.schema, change.table)
            except TablesClash:
                continue
            if table is None or not change.key:
                continue
            ends = [change.identity]
            if change.old_key:
                ends.append(msgspec.structs.replace(change, key=change.old_key).identity)
            row = next((rows[end] for end in ends if end in rows), None) or _Row(table)
            for end in ends:
                other = rows.get(end, row)
                if other is not row:
                    row.absorb(other)
                    rows.update({each: row for each, held in rows.items() if held is other})
                rows[end] = row
            row.changes[place] = (changeset, change)
            if not row.images:
                row.images.append(self._image_before(connection, row))
            told = {**(change.before or {}), **change.key, **(change.after or {})}
            named = {_name(table, name): value for name, value in told.items()}
            row.images.append({**row.images[-1], **named})
        return list(dict.fromkeys(rows.values()))

    def _image_before(self, connection: Connection, row: _Row) -> _Image:
        """Return what the target has of a row that is there already: a change may not tell it."""
        if row.first[1].action in ("update", "delete"):
            with suppress(ApplyProblem):
                return self._find(connection, row) or {}
        return {}

    def _key(self, row: _Row) -> tuple[str, ...]:
        """What the source calls the columns that a row is found by."""
        _, change = row.first
        told = self._key_columns.get(change.name) or self._key_columns.get(change.table)
        return tuple(told or change.key)

    def _find(self, connection: Connection, row: _Row) -> _Image | None:
        """Return a row as the target has it; raises ApplyProblem."""
        cause = changeset, change = row.first
        image = {**(change.before or {}), **(change.after or {}), **change.key}
        columns = []
        values = []
        for name in self._key(row):
            column = row.table.column(name)
            if column is None or name not in image:
                raise problem_with(changeset, change, f"the column {name!r} of its key is missing")
            columns.append(column)
            try:
                values.append(column.adapt(image[name]))
            except CannotStore as problem:
                raise problem_with(*cause, str(problem)) from None
        query = self._statements.find(row.table, tuple(columns))
        with self._database.errors(), self._database.savepoint(connection):
            found = connection.exec_driver_sql(query, tuple(values)).mappings().first()
        return None if found is None else dict(found)

    # The two ways.

    def _store_unseen(self, connection: Connection, members: Mapping[int, _Row]) -> bool:
        """Store rows while foreign keys are not looked at; gives whether all are stored."""

        def store() -> None:
            changes: dict[int, _Change] = {}
            for row in members.values():
                changes.update(row.changes)
            for _, change in sorted(changes.items(), key=lambda item: item[0]):
                self._apply(connection, *change)

        return self._database.can_defer and self._all_or_none(connection, store)

    def _store_twice(self, connection: Connection, members: Mapping[int, _Row]) -> bool:
        """Store rows without what they refer to, and then with it; gives whether all are stored."""

        def store() -> None:
            halves = [self._half(connection, row, members) for row in members.values()]
            self._apply_all(connection, [half for half in halves if half is not None])
            self._apply_all(connection, [row.whole for row in members.values()])

        is_simple = all(row.is_one for row in members.values())
        return is_simple and self._all_or_none(connection, store)

    def _all_or_none(self, connection: Connection, store: Callable[[], None]) -> bool:
        """Do something, or nothing of it where it raises ApplyProblem; gives whether it is done.

        Meanwhile foreign keys are not looked at where that can be put off, but at the end.
        """
        try:
            with self._database.errors(), self._database.savepoint(connection):
                if self._database.can_defer:
                    self._database.defer(connection)
                store()
                if self._database.can_defer:
                    self._database.defer(connection, at_once=True)
        except ApplyProblem:
            return False
        return True

    def _half(self, connection: Connection, row: _Row, members: Collection[int]) -> _Change | None:
        """Return a change after which a row refers to nothing of the circle, as far as it can."""
        changeset, whole = row.whole
        is_there = self._find(connection, row) is not None
        key = {*row.table.primary_key, *(_name(row.table, name) for name in self._key(row))}
        names = {
            name
            for foreign, parents in row.parents.items()
            if not parents.isdisjoint(members)
            for name in foreign.nullable
            if name not in key
        }
        after: dict[str, Any]
        if whole.action == "delete":
            if not is_there:
                return None
            after = dict.fromkeys(names)
            return changeset, msgspec.structs.replace(
                whole, action="update", before=None, after=after, old_key=None
            )
        # What others refer to is not taken away from a row that is there.
        after = {
            name: None if _name(row.table, name) in names else value
            for name, value in (whole.after or {}).items()
            if not is_there or _name(row.table, name) not in names
        }
        return changeset, msgspec.structs.replace(whole, after=after)

    def _apply_all(self, connection: Connection, changes: Sequence[_Change]) -> None:
        """Apply changes in whatever order they need; raises ApplyProblem where there is none."""
        left = list(changes)
        while left:
            problems = {}
            for at, change in enumerate(left):
                try:
                    self._apply(connection, *change)
                except ApplyProblem as problem:
                    problems[at] = problem
            if len(problems) == len(left):
                raise problems[0]
            left = [left[at] for at in problems]


def _name(table: TargetTable, name: str) -> str:
    """What the target calls a column."""
    column = table.column(name)
    return name if column is None else column.name


def _references(rows: Sequence[_Row]) -> dict[int, set[int]]:
    """Note to which others each row refers, by what is told of them; gives it by their numbers.

    Values are compared loosely, as a collation may do it: what comes of a circle that is none is
    that it is refused.
    """
    wanted: defaultdict[object, set[tuple[str, ...]]] = defaultdict(set)
    for table in {row.table for row in rows}:
        for foreign in table.foreign_keys:
            wanted[_folded(foreign.parent)].add(foreign.referred)
    holders: defaultdict[object, set[int]] = defaultdict(set)
    for number, row in enumerate(rows):
        name = _folded(row.table.identity)
        for columns in wanted[name]:
            for values in _values(row, columns):
                holders[name, columns, values].add(number)
    references: dict[int, set[int]] = {}
    for number, row in enumerate(rows):
        for foreign in row.table.foreign_keys:
            parents = row.parents[foreign] = set()
            for values in _values(row, foreign.columns):
                parents |= holders.get((_folded(foreign.parent), foreign.referred, values), set())
        references[number] = set().union(*row.parents.values())
    return references


def _values(row: _Row, columns: Sequence[str]) -> Iterator[tuple[object, ...]]:
    """The values that columns have had, or will have, where all of them are told and not NULL."""
    for image in row.images:
        values = [image.get(name) for name in columns]
        if None not in values:
            yield tuple(map(_folded, values))


def _folded(value: object) -> object:
    """A value, or one for all of those that a database could take for the same."""
    if isinstance(value, str):
        return value.rstrip().casefold()
    if isinstance(value, tuple):
        return tuple(map(_folded, value))
    return repr(value) if isinstance(value, list | dict) else value
