"""Progress of a sink: which changesets are applied, and which source tables own the target's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from sqlalchemy import Connection

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.sinks.sql._offsets import OffsetTable
from stompkit.replication.sql.catalog import Catalog, Owners
from stompkit.replication.sql.database import (
    Database,
    RejectedRowError,
    SinkDeniedError,
)

__all__ = ["Progress", "StoredOwners"]

#: Owners of tables, with the sequence number at which they were stored.
StoredOwners = tuple[int | None, Owners]


class Progress:
    """Last numbers of origins and owners of tables, in the offsets table."""

    def __init__(self, database: Database, catalog: Catalog, table: str) -> None:
        """Use the offsets table of that name."""
        self._database = database
        self._catalog = catalog
        self._table = OffsetTable(table)
        self._owners: dict[str, StoredOwners] = {}

    def open(self) -> None:
        """Create the offsets table, unless it exists."""
        with self._database.transaction() as connection:
            self._table.create(connection)
        with suppress(RejectedRowError, SinkDeniedError):
            # If the column cannot be added, owners are known only while the process runs.
            self._add_owners()
        self._owners = {}

    def last(self, origin: str) -> int | None:
        """Return the number of the last changeset of an origin."""
        with self._database.transaction() as connection:
            return self._table.load(connection, origin)

    def lock(self, connection: Connection, origins: Iterable[str]) -> dict[str, int | None]:
        """Lock the origins for this transaction, and return their last numbers."""
        return self._table.lock(connection, origins)

    def skip(self, changeset: Changeset) -> None:
        """Store the number of a changeset, unless it is not above the last one."""
        with self._database.transaction() as connection:
            last = self.lock(connection, [changeset.origin])[changeset.origin]
            if last is None or last < changeset.sequence:
                self._table.store(connection, changeset)

    def committed(self, owners: Mapping[str, StoredOwners]) -> None:
        """Remember the owners that :meth:`store` returned, after its transaction."""
        self._owners.update(owners)

    def new_ones(
        self, changesets: Sequence[Changeset]
    ) -> tuple[dict[str, int | None], list[Changeset]]:
        """Return the last numbers, and the changesets above them."""
        with self._database.transaction() as connection:
            known = {
                origin: self._table.load(connection, origin)
                for origin in {changeset.origin for changeset in changesets}
            }
            self.adopt_owners(connection, known)
        new = []
        lasts = dict(known)
        for changeset in changesets:
            last = lasts[changeset.origin]
            if last is None or changeset.sequence > last:
                lasts[changeset.origin] = changeset.sequence
                new.append(changeset)
        return known, new

    def store(
        self, connection: Connection, changeset: Changeset, changes: Iterable[RowChange]
    ) -> StoredOwners:
        """Store a number, and the owners of tables that are used first; return both."""
        _, stored = self._owners.get(changeset.origin, (None, {}))
        new = self._catalog.owned({(change.schema, change.table) for change in changes})
        owners = {**stored, **new}
        self._table.store(connection, changeset, None if owners == stored else owners)
        return changeset.sequence, owners

    def adopt_owners(self, connection: Connection, lasts: Mapping[str, int | None]) -> None:
        """Load the owners of tables, which others may have stored since they were read."""
        for origin, last in lasts.items():
            if origin not in self._owners or self._owners[origin][0] != last:
                stored = self._table.owners(connection, origin)
                self._owners[origin] = last, stored
                self._catalog.adopt(stored)

    def _add_owners(self) -> None:
        """Add the missing column of an older version's offsets table."""
        with self._database.transaction() as connection:
            is_old = self._table.lacks_owners(connection)
        if is_old:
            try:
                with self._database.transaction() as connection:
                    self._table.add_owners(connection)
            finally:
                with self._database.transaction() as connection:
                    self._table.lacks_owners(connection)
