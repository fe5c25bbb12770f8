"""Combines the application's tables and the documents."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from collections.abc import Set as AbstractSet

from sqlalchemy import Connection, Engine

from stompkit.replica.data import Data, Wanted
from stompkit.replication.model.values import Value

__all__ = ["CombinedData"]


class _Names(Container[str]):
    """The union of several containers of names."""

    def __init__(self, parts: Sequence[Data]) -> None:
        self._parts = parts

    def __contains__(self, name: object) -> bool:
        """Return True if one of the parts contains the name."""
        return any(name in part.names for part in self._parts)


class CombinedData:
    """Several parts as one :class:`~stompkit.replica.data.Data`; the first with a table has it."""

    def __init__(self, *parts: Data) -> None:
        """Combine the parts."""
        self._parts = parts
        self._names = _Names(parts)

    @property
    def names(self) -> Container[str]:
        """Tables of all parts."""
        return self._names

    @property
    def unknown(self) -> Mapping[str, AbstractSet[str]]:
        """Received columns that are missing here, by table."""
        return {table: names for part in self._parts for table, names in part.unknown.items()}

    def create(self, engine: Engine) -> None:
        """Create missing tables that are not the application's."""
        for part in self._parts:
            part.create(engine)

    def forget(self) -> None:
        """Reload the table definitions before their next use."""
        for part in self._parts:
            part.forget()

    def prepare(self, connection: Connection) -> None:
        """Lock the rows for which the last transaction gave way."""
        for part in self._parts:
            part.prepare(connection)

    def write(self, connection: Connection, rows: Sequence[Wanted]) -> dict[bytes, str]:
        """Write rows; returns the reasons, by id, for refused rows."""
        groups: dict[Data, list[Wanted]] = {}
        reasons = {}
        for row in rows:
            part = self._part(row.table)
            if part is None:
                reasons[row.id] = "there is no such table here"
            else:
                groups.setdefault(part, []).append(row)
        for part, group in groups.items():
            reasons |= part.write(connection, group)
        return reasons

    def read(
        self,
        connection: Connection,
        table: str,
        after: Mapping[str, Value] | None = None,
        limit: int = 1000,
    ) -> list[tuple[dict[str, Value], dict[str, Value]]]:
        """Return keys and other columns of rows in key order, after a given key."""
        return self._of(table).read(connection, table, after, limit)

    def read_one(
        self, connection: Connection, table: str, key: Mapping[str, Value]
    ) -> dict[str, Value] | None:
        """Return the columns of a row beside its key; ``None`` if it does not exist."""
        return self._of(table).read_one(connection, table, key)

    def tables(self, connection: Connection) -> list[str]:
        """Return the sorted names of the existing tables."""
        return sorted({name for part in self._parts for name in part.tables(connection)})

    def _part(self, table: str) -> Data | None:
        return next((part for part in self._parts if table in part.names), None)

    def _of(self, table: str) -> Data:
        part = self._part(table)
        if part is None:
            raise KeyError(table)
        return part
