"""Rows with circular references, which can only be stored together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlalchemy import Connection

from stompkit._common.graph import components, parents_first
from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sql.catalog import Catalog, TablesClashError
from stompkit.replication.sql.database import Database
from stompkit.replication.sql.planner import problem_with
from stompkit.replication.sql.statements import Statements
from stompkit.replication.sql.tables import ForeignKey, TargetTable
from stompkit.replication.sql.values import UnstorableValueError

__all__ = ["Circles"]

_Change = tuple[Changeset, RowChange]
#: Function that applies a change completely, or not at all; raises ApplyError.
_Apply = Callable[[Connection, Changeset, RowChange], None]
#: A row by the names of the target's columns.
_Image = Mapping[str, Any]


@dataclass(eq=False)
class _Row:
    """The changes of a row; or of several, if one takes the key of another."""

    table: TargetTable
    #: Changes by their places, in order.
    changes: dict[int, _Change] = field(default_factory=dict)
    #: Known states of the row before and after.
    images: list[_Image] = field(default_factory=list)
    #: Numbers of the rows that each foreign key references.
    parents: dict[ForeignKey, set[int]] = field(default_factory=dict)

    @property
    def first(self) -> _Change:
        """First change."""
        return next(iter(self.changes.values()))

    @property
    def is_one(self) -> bool:
        """True if all changes are of one row, which only the last one may delete."""
        *others, _ = [change for _, change in self.changes.values()]
        has_moved = any(each.old_key not in (None, each.key) for _, each in self.changes.values())
        return not has_moved and all(each.action != "delete" for each in others)

    @property
    def whole(self) -> _Change:
        """The net effect of all changes of one row."""
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
    """Stores rows with circular references together, or none of them.

    Foreign key checks are deferred if possible. Otherwise a row is written twice: with NULL in the
    columns that reference others of the cycle, and again when all rows exist.
    """

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        statements: Statements,
        key_columns: Mapping[str, Sequence[str]],
        apply: _Apply,
    ) -> None:
        """Apply the changes of rows by ``apply``."""
        self._database = database
        self._catalog = catalog
        self._statements = statements
        self._key_columns = key_columns
        self._apply = apply

    def store(self, connection: Connection, changes: Sequence[_Change]) -> frozenset[int]:
        """Store those changes that need only each other; return their places.

        Each of them was refused by itself because of a missing referenced row. On return, foreign
        keys are again checked after each statement.
        """
        rows = self._rows(connection, changes)
        stored: set[int] = set()
        for circle in components(_references(rows)):
            members = {number: rows[number] for number in circle}
            if len(members) < 2:
                # A row that references itself is stored by itself.
                continue
            if self._store_unseen(connection, members) or self._store_twice(connection, members):
                stored.update(place for row in members.values() for place in row.changes)
        return frozenset(stored)

    def order(self, connection: Connection, changes: Sequence[_Change]) -> list[int]:
        """Return the places of changes in an order in which they can be applied.

        Rows are written after those that they reference, and deleted before them; all changes of a
        row are in order. Changes of rows without a key come last.
        """
        rows = self._rows(connection, changes)
        sorted_rows = [rows[at] for at in parents_first(_references(rows))]
        gone = [row for row in sorted_rows if row.whole[1].action == "delete"]
        there = [row for row in sorted_rows if row.whole[1].action != "delete"]
        found = dict.fromkeys(place for row in (*there, *reversed(gone)) for place in row.changes)
        return [*found, *(place for place in range(len(changes)) if place not in found)]

    def _rows(self, connection: Connection, changes: Sequence[_Change]) -> list[_Row]:
        """Group changes by their rows."""
        rows: dict[bytes, _Row] = {}
        for place, (changeset, change) in enumerate(changes):
            try:
                table = self._catalog.known(change.schema, change.table)
            except TablesClashError:
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
            reported = {**(change.before or {}), **change.key, **(change.after or {})}
            named = {_name(table, name): value for name, value in reported.items()}
            row.images.append({**row.images[-1], **named})
        return list(dict.fromkeys(rows.values()))

    def _image_before(self, connection: Connection, row: _Row) -> _Image:
        """Return the target's existing row, because a change may not report all columns."""
        if row.first[1].action in ("update", "delete"):
            with suppress(ApplyError):
                return self._find(connection, row) or {}
        return {}

    def _key(self, row: _Row) -> tuple[str, ...]:
        """Return the source's names of the columns by which a row is found."""
        _, change = row.first
        reported = self._key_columns.get(change.name) or self._key_columns.get(change.table)
        return tuple(reported or change.key)

    def _find(self, connection: Connection, row: _Row) -> _Image | None:
        """Return the target's row; raises ApplyError."""
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
            except UnstorableValueError as problem:
                raise problem_with(*cause, str(problem)) from None
        query = self._statements.find(row.table, tuple(columns))
        with self._database.errors(), self._database.savepoint(connection):
            found = connection.exec_driver_sql(query, tuple(values)).mappings().first()
        return None if found is None else dict(found)

    # The two methods.

    def _store_unseen(self, connection: Connection, members: Mapping[int, _Row]) -> bool:
        """Store rows with deferred foreign key checks; return True if all are stored."""

        def store() -> None:
            changes: dict[int, _Change] = {}
            for row in members.values():
                changes.update(row.changes)
            for _, change in sorted(changes.items(), key=lambda item: item[0]):
                self._apply(connection, *change)

        return self._database.can_defer and self._all_or_none(connection, store)

    def _store_twice(self, connection: Connection, members: Mapping[int, _Row]) -> bool:
        """Store rows without and then with their references; return True if all are stored."""

        def store() -> None:
            halves = [self._half(connection, row, members) for row in members.values()]
            self._apply_all(connection, [half for half in halves if half is not None])
            self._apply_all(connection, [row.whole for row in members.values()])

        is_simple = all(row.is_one for row in members.values())
        return is_simple and self._all_or_none(connection, store)

    def _all_or_none(self, connection: Connection, store: Callable[[], None]) -> bool:
        """Run *store* atomically with respect to ApplyError; return True on success.

        Foreign key checks are deferred to its end if possible.
        """
        try:
            with self._database.errors(), self._database.savepoint(connection):
                if self._database.can_defer:
                    self._database.defer(connection)
                store()
                if self._database.can_defer:
                    self._database.defer(connection, at_once=True)
        except ApplyError:
            return False
        return True

    def _half(self, connection: Connection, row: _Row, members: Collection[int]) -> _Change | None:
        """Return a change after which a row references nothing of the cycle, if possible."""
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
        # Values that others reference are kept in an existing row.
        after = {
            name: None if _name(row.table, name) in names else value
            for name, value in (whole.after or {}).items()
            if not is_there or _name(row.table, name) not in names
        }
        return changeset, msgspec.structs.replace(whole, after=after)

    def _apply_all(self, connection: Connection, changes: Sequence[_Change]) -> None:
        """Apply changes in any order that works; raises ApplyError if there is none."""
        left = list(changes)
        while left:
            problems = {}
            for at, change in enumerate(left):
                try:
                    self._apply(connection, *change)
                except ApplyError as problem:
                    problems[at] = problem
            if len(problems) == len(left):
                raise problems[0]
            left = [left[at] for at in problems]


def _name(table: TargetTable, name: str) -> str:
    """Return the target's name of a column."""
    column = table.column(name)
    return name if column is None else column.name


def _references(rows: Sequence[_Row]) -> dict[int, set[int]]:
    """Return the numbers of the rows that each row references, by the known values.

    Values are compared loosely, as a collation may do; a false cycle is only refused.
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
    """Yield the old and new values of columns, if all of them are known and not NULL."""
    for image in row.images:
        values = [image.get(name) for name in columns]
        if None not in values:
            yield tuple(map(_folded, values))


def _folded(value: object) -> object:
    """Return a normal form, equal for all values that a database could consider equal."""
    if isinstance(value, str):
        return value.rstrip().casefold()
    if isinstance(value, tuple):
        return tuple(map(_folded, value))
    return repr(value) if isinstance(value, list | dict) else value
