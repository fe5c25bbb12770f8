"""Rows that refer to each other in a circle, and so can be stored only together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Connection, Inspector, inspect

from stompkit.replication.events import Changeset, RowChange
from stompkit.replication.sinks import ApplyProblem
from stompkit.replication.sinks.sql._database import Database, Rejected
from stompkit.replication.sinks.sql._tables import Catalog, TablesClash, TargetTable, quote

__all__ = ["Circles"]

#: How often those are left out that refer to nothing; each time others may do so then.
_MOST: Final = 20

#: Applies a change, or nothing of it; raises ApplyProblem.
_Apply = Callable[[Connection, Changeset, RowChange], None]


class Circles:
    """Stores such rows in a PostgreSQL whose foreign keys can be looked at later."""

    def __init__(self, database: Database, catalog: Catalog, apply: _Apply) -> None:
        """Change rows by ``apply``."""
        self._database = database
        self._catalog = catalog
        self._apply = apply

    def store(
        self, connection: Connection, changes: Sequence[tuple[Changeset, RowChange]]
    ) -> frozenset[int]:
        """Store those changes that need nothing beside each other; return their places.

        Each of them has been refused by itself, since it refers to a row that is not there.
        Foreign keys are looked at again after each statement when this returns.
        """
        left = list(range(len(changes)))
        for _ in range(_MOST if self._database.can_defer else 0):
            # A row that refers to itself is stored by itself.
            if len(left) < 2:
                break
            lost = self._try(connection, changes, left)
            if not lost:
                return frozenset(left)
            left = [place for place in left if place not in lost]
        return frozenset()

    def _try(
        self,
        connection: Connection,
        changes: Sequence[tuple[Changeset, RowChange]],
        places: Sequence[int],
    ) -> frozenset[int]:
        """Store changes together; where that can't be, store none and return why not."""
        savepoint = connection.begin_nested()
        self._database.defer(connection)
        lost = set()
        for place in places:
            try:
                self._apply(connection, *changes[place])
            except ApplyProblem:
                lost.add(place)
        inspector = inspect(connection)
        stored = [place for place in places if place not in lost]
        lost.update(
            place for place in stored if self._is_lost(connection, inspector, changes[place][1])
        )
        if not lost:
            try:
                with self._database.errors():
                    self._database.defer(connection, at_once=True)
            except Rejected:
                lost.update(places)
        if lost:
            savepoint.rollback()
        else:
            savepoint.commit()
        return frozenset(lost)

    def _is_lost(self, connection: Connection, inspector: Inspector, change: RowChange) -> bool:
        """Whether the row of a change refers to another one that is not there."""
        try:
            table = self._catalog.known(change.schema, change.table)
        except TablesClash:
            return True
        if change.action == "delete":
            # Whether others refer to it is seen at the end.
            return False
        if table is None or not change.key:
            return True
        found = _place(table, change)
        if found is None:
            return True
        where, values = found
        for foreign in inspector.get_foreign_keys(table.name, table.schema):
            own = [f"c.{quote(connection, name)}" for name in foreign["constrained_columns"]]
            theirs = [f"p.{quote(connection, name)}" for name in foreign["referred_columns"]]
            names = filter(None, (foreign["referred_schema"], foreign["referred_table"]))
            parent = ".".join(quote(connection, name) for name in names)
            same = " AND ".join(f"{one} = {other}" for one, other in zip(own, theirs, strict=True))
            told = " AND ".join(f"{each} IS NOT NULL" for each in own)
            query = (
                f"SELECT 1 FROM {table.quoted} c WHERE {where} AND {told}"
                f" AND NOT EXISTS (SELECT 1 FROM {parent} p WHERE {same})"
            )
            if connection.exec_driver_sql(query, values).first() is not None:
                return True
        return False


def _place(table: TargetTable, change: RowChange) -> tuple[str, tuple[object, ...]] | None:
    """A condition that a row is found by, and its values."""
    conditions = []
    values = []
    for name, value in change.key.items():
        column = table.column(name)
        if column is None:
            return None
        conditions.append(f"c.{column.quoted} = %s")
        values.append(column.adapt(value))
    return " AND ".join(conditions), tuple(values)
