"""How far each origin has been applied: a table in the target itself."""

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

from stompkit.replication.events import Changeset
from stompkit.replication.sinks.sql._tables import table_options
from stompkit.replication.values import ValueProblem

__all__ = ["OffsetTable", "storable"]

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
        )

    def is_there(self, connection: Connection) -> bool:
        """Whether the table has been made."""
        return inspect(connection).has_table(self.name)

    def create(self, connection: Connection) -> None:
        """Make the table."""
        table = self._table.to_metadata(MetaData())
        table.dialect_kwargs.update(table_options(connection))
        table.create(connection)

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

    def store(self, connection: Connection, changeset: Changeset) -> None:
        """Count a changeset as applied; its origin is locked."""
        values: dict[str, Any] = {
            "sequence": changeset.sequence,
            "changeset": storable(changeset.id),
            "hash": _hash(changeset),
            "applied_at": datetime.now(UTC).replace(tzinfo=None, microsecond=0),
        }
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
