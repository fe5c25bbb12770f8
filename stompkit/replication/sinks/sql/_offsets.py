"""Offsets of a sink: the last applied changeset of each origin, in a table of the target."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Insert,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    select,
    update,
)
from sqlalchemy import insert as generic_insert
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.schema import CreateColumn

from stompkit.replication.model.events import Changeset
from stompkit.replication.model.values import InvalidValueError
from stompkit.replication.sql.catalog import Owners, owners_from_json, owners_to_json
from stompkit.replication.sql.tables import create_tables, quote

__all__ = ["OffsetTable", "storable"]

#: Maximum length of an origin's name in characters; MySQL indexes no more.
_LONGEST: Final = 255


class OffsetTable:
    """A row for each origin, which is locked while changesets of that origin are applied."""

    def __init__(self, name: str) -> None:
        """Define the table."""
        self.name = name
        self._table = Table(
            name,
            MetaData(),
            Column("origin", String(_LONGEST), primary_key=True),
            # NULL before the first changeset.
            Column("sequence", BigInteger),
            Column("changeset", Text),
            Column("hash", String(64)),
            # UTC.
            Column("applied_at", DateTime),
            # Owners of tables, as JSON. Older versions lack it.
            Column("tables", Text().with_variant(LONGTEXT(), "mysql", "mariadb")),
        )
        self._has_owners = True

    def create(self, connection: Connection) -> None:
        """Create the table, unless it exists."""
        create_tables(connection, [self._table])

    def lacks_owners(self, connection: Connection) -> bool:
        """Return True if an older version has created the table, without a column for owners.

        Until the column is added, owners are not stored.
        """
        found = inspect(connection).get_columns(self.name)
        self._has_owners = any(column["name"] == "tables" for column in found)
        return not self._has_owners

    def add_owners(self, connection: Connection) -> None:
        """Add the column for owners."""
        column = CreateColumn(self._table.c.tables).compile(dialect=connection.dialect)
        name = quote(connection, self.name)
        connection.exec_driver_sql(f"ALTER TABLE {name} ADD COLUMN {column}")

    def owners(self, connection: Connection, origin: str) -> Owners:
        """Return the known source tables of an origin that own the target's tables."""
        if not self._has_owners:
            return {}
        found = select(self._table.c.tables).where(self._table.c.origin == storable(origin))
        return owners_from_json(connection.execute(found).scalar_one_or_none())

    def load(self, connection: Connection, origin: str) -> int | None:
        """Return the number of the last changeset in committed transactions."""
        column = self._table.c
        found = select(column.sequence).where(column.origin == storable(origin))
        number = connection.execute(found).scalar_one_or_none()
        return None if number is None else int(number)

    def lock(self, connection: Connection, origins: Iterable[str]) -> dict[str, int | None]:
        """Lock the origins for this transaction, and return their last numbers."""
        # Always in the same order, to avoid deadlocks.
        return {origin: self._lock(connection, origin) for origin in sorted(set(origins))}

    def _lock(self, connection: Connection, origin: str) -> int | None:
        column = self._table.c
        row = select(column.sequence).where(column.origin == storable(origin)).with_for_update()
        # SQLite locks the whole database, if the first statement writes.
        if connection.dialect.name != "sqlite":
            found = connection.execute(row).one_or_none()
            if found is not None:
                return None if found[0] is None else int(found[0])
        connection.execute(self._insert(connection.dialect.name), {"origin": storable(origin)})
        number = connection.execute(row).scalar_one()
        return None if number is None else int(number)

    def _insert(self, dialect: str) -> Insert:
        """Return the statement that inserts the row unless it exists."""
        if dialect == "postgresql":
            return postgresql.insert(self._table).on_conflict_do_nothing()
        if dialect == "sqlite":
            return sqlite.insert(self._table).on_conflict_do_nothing()
        return generic_insert(self._table).prefix_with("IGNORE")

    def store(
        self, connection: Connection, changeset: Changeset, owners: Owners | None = None
    ) -> None:
        """Record a changeset as applied, and store owners of tables; its origin must be locked."""
        values: dict[str, Any] = {
            "sequence": changeset.sequence,
            "changeset": storable(changeset.id),
            "hash": _hash(changeset),
            "applied_at": datetime.now(UTC).replace(tzinfo=None, microsecond=0),
        }
        if owners is not None and self._has_owners:
            values["tables"] = owners_to_json(owners)
        row = self._table.c.origin == storable(changeset.origin)
        connection.execute(update(self._table).where(row).values(values))


def storable(name: str) -> str:
    """Return a distinct form of a received name that any database can store."""
    if len(name) <= _LONGEST and "\0" not in name and not name.startswith("sha256:"):
        try:
            name.encode()
        except UnicodeEncodeError:
            pass
        else:
            return name
    return f"sha256:{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _hash(changeset: Changeset) -> str | None:
    """Return the changeset's hash; ``None`` if it has values without a JSON form."""
    try:
        return changeset.hash
    except (InvalidValueError, UnicodeError):
        return None
