"""How far each origin has been applied: a table in the target itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
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

from stompkit.replication.events import Changeset
from stompkit.replication.sinks.sql._tables import quote, table_options
from stompkit.replication.values import ValueProblem

__all__ = ["OffsetTable", "Owners", "storable"]

#: By schemas and names of the target's tables, those of the source's.
Owners = Mapping[tuple[str | None, str], tuple[str, str]]

#: How long the name of an origin may be, in characters; MySQL indexes no more.
_LONGEST: Final = 255


class OffsetTable:
    """A row for each origin, which is locked while changesets of that origin are applied."""

    def __init__(self, name: str) -> None:
        """Describe the table."""
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
            # As JSON: target's schema, target's table, source's schema, source's table. Targets of
            # older versions lack it.
            Column("tables", Text().with_variant(LONGTEXT(), "mysql", "mariadb")),
        )
        self._has_owners = True

    def is_there(self, connection: Connection) -> bool:
        """Whether the table has been made."""
        return inspect(connection).has_table(self.name)

    def create(self, connection: Connection) -> None:
        """Make the table."""
        table = self._table.to_metadata(MetaData())
        table.dialect_kwargs.update(table_options(connection))
        table.create(connection)
        self._has_owners = True

    def lacks_owners(self, connection: Connection) -> bool:
        """Whether an older version has made the table, without a column for the owners of tables.

        As long as that is so, owners are not stored.
        """
        found = inspect(connection).get_columns(self.name)
        self._has_owners = any(column["name"] == "tables" for column in found)
        return not self._has_owners

    def add_owners(self, connection: Connection) -> None:
        """Add that column."""
        column = CreateColumn(self._table.c.tables).compile(dialect=connection.dialect)
        name = quote(connection, self.name)
        connection.exec_driver_sql(f"ALTER TABLE {name} ADD COLUMN {column}")

    def owners(self, connection: Connection, origin: str) -> Owners:
        """Return which tables of an origin own the tables of the target, as far as it is known."""
        if not self._has_owners:
            return {}
        found = select(self._table.c.tables).where(self._table.c.origin == storable(origin))
        text = connection.execute(found).scalar_one_or_none()
        if not text:
            return {}
        rows = msgspec.json.decode(text, type=list[tuple[str | None, str, str, str]])
        return {row[:2]: row[2:] for row in rows}

    def load(self, connection: Connection, origin: str) -> int | None:
        """The number of the last changeset, as far as transactions are committed."""
        column = self._table.c
        found = select(column.sequence).where(column.origin == storable(origin))
        number = connection.execute(found).scalar_one_or_none()
        return None if number is None else int(number)

    def lock(self, connection: Connection, origins: Iterable[str]) -> dict[str, int | None]:
        """The same, where nobody else changes it before the end of this transaction."""
        # Always in the same order, so that no two wait for one another.
        return {origin: self._lock(connection, origin) for origin in sorted(set(origins))}

    def _lock(self, connection: Connection, origin: str) -> int | None:
        column = self._table.c
        row = select(column.sequence).where(column.origin == storable(origin)).with_for_update()
        # SQLite locks the whole database, when the first statement is one that writes.
        if connection.dialect.name != "sqlite":
            found = connection.execute(row).one_or_none()
            if found is not None:
                return None if found[0] is None else int(found[0])
        connection.execute(self._insert(connection.dialect.name), {"origin": storable(origin)})
        number = connection.execute(row).scalar_one()
        return None if number is None else int(number)

    def _insert(self, dialect: str) -> Insert:
        """Makes the row unless it is there."""
        if dialect == "postgresql":
            return postgresql.insert(self._table).on_conflict_do_nothing()
        if dialect == "sqlite":
            return sqlite.insert(self._table).on_conflict_do_nothing()
        return generic_insert(self._table).prefix_with("IGNORE")

    def store(
        self, connection: Connection, changeset: Changeset, owners: Owners | None = None
    ) -> None:
        """Count a changeset as applied, and store owners of tables; its origin is locked."""
        values: dict[str, Any] = {
            "sequence": changeset.sequence,
            "changeset": storable(changeset.id),
            "hash": _hash(changeset),
            "applied_at": datetime.now(UTC).replace(tzinfo=None, microsecond=0),
        }
        if owners is not None and self._has_owners:
            rows = [(*target, *source) for target, source in owners.items()]
            values["tables"] = msgspec.json.encode(rows).decode()
        row = self._table.c.origin == storable(changeset.origin)
        connection.execute(update(self._table).where(row).values(values))


def storable(name: str) -> str:
    """A name from the wire as what any database can hold, another one for each."""
    if len(name) <= _LONGEST and "\0" not in name and not name.startswith("sha256:"):
        try:
            name.encode()
        except UnicodeEncodeError:
            pass
        else:
            return name
    return f"sha256:{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _hash(changeset: Changeset) -> str | None:
    """The changeset's hash; ``None`` where it has values that have no JSON."""
    try:
        return changeset.hash
    except (ValueProblem, UnicodeError):
        return None
