"""Tables of the application and documents as one."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from collections.abc import Set as AbstractSet

from sqlalchemy import Connection, Engine

from stompkit.replica.data import Data, Wanted
from stompkit.replication.values import Value

__all__ = ["CombinedData"]


class _Names(Container[str]):
    """What is in one of several."""

    def __init__(self, parts: Sequence[Data]) -> None:
        self._parts = parts

    def __contains__(self, name: object) -> bool:
        """Whether it is."""
        return any(name in part.names for part in self._parts)


class CombinedData:
    """Several as one :class:`~stompkit.replica.data.Data`: the first has a table."""

    def __init__(self, *parts: Data) -> None:
        """Combine them."""
        self._parts = parts
        self._names = _Names(parts)

    @property
    def names(self) -> Container[str]:
        """The tables of all."""
        return self._names

    @property
    def unknown(self) -> Mapping[str, AbstractSet[str]]:
        """Columns, by the names of tables, that were told and left out."""
        return {table: names for part in self._parts for table, names in part.unknown.items()}

    def create(self, engine: Engine) -> None:
        """Make what is not the application's own, where it is missing."""
        for part in self._parts:
            part.create(engine)

    def forget(self) -> None:
        """Look at the tables again before they are used."""
        for part in self._parts:
            part.forget()

    def prepare(self, connection: Connection) -> None:
        """Lock first what the last transaction had to give way for."""
        for part in self._parts:
            part.prepare(connection)

    def write(self, connection: Connection, rows: Sequence[Wanted]) -> dict[bytes, str]:
        """Make the tables so; return why not, by the ids of rows that are refused."""
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
        """Keys and other columns of rows, in the order of keys, behind the one with a key."""
        return self._of(table).read(connection, table, after, limit)

    def read_one(
        self, connection: Connection, table: str, key: Mapping[str, Value]
    ) -> dict[str, Value] | None:
        """The columns of a row beside its key; ``None`` where there is no such row."""
        return self._of(table).read_one(connection, table, key)

    def tables(self, connection: Connection) -> list[str]:
        """The names of the tables that are there now, in order."""
        return sorted({name for part in self._parts for name in part.tables(connection)})

    def _part(self, table: str) -> Data | None:
        return next((part for part in self._parts if table in part.names), None)

    def _of(self, table: str) -> Data:
        part = self._part(table)
        if part is None:
            raise KeyError(table)
        return part
