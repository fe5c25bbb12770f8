"""Destinations of a replica's merged rows: the application's tables, or documents.

The merged state of a row is written, whatever its history. A database can refuse it: two replicas
have each taken the last free name, or a row refers to one that another replica has deleted. Such a
row is reported with its reason, and can be written again when the cause has gone; all others are
written.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Protocol

from sqlalchemy import Connection, Engine

from stompkit.replication.model.values import Value

__all__ = ["Data", "Wanted"]


class Wanted(NamedTuple):
    """The desired state of a row."""

    #: Identifier of the row for the caller.
    id: bytes
    #: Table name as in :attr:`~stompkit.replication.model.events.RowChange.name`.
    table: str
    key: dict[str, Value]
    #: All columns beside the key that were ever written; ``None`` for no row.
    values: dict[str, Value] | None


class Data(Protocol):
    """The tables that a replica reads and writes; applications use them at the same time."""

    @property
    def names(self) -> Container[str]:
        """Tables that are replicated here."""

    @property
    def unknown(self) -> Mapping[str, AbstractSet[str]]:
        """Received columns that are missing here, by table."""

    def create(self, engine: Engine) -> None:
        """Create missing tables that are not the application's."""

    def forget(self) -> None:
        """Reload the table definitions before their next use, because they may have changed."""

    def prepare(self, connection: Connection) -> None:
        """Prepare a transaction that may write, before it takes the replica's lock.

        If the last transaction gave way to an application that held some of its rows, these are
        locked first. Waiting for them with the replica's lock, which the application needs to
        commit, would fail each time. Raises as :meth:`write` does.
        """

    def write(self, connection: Connection, rows: Sequence[Wanted]) -> dict[bytes, str]:
        """Write rows; returns the reasons, by id, for rows that the database refuses.

        It uses the current transaction of the connection, which continues after refusals. Of
        several rows with one id, the last one counts. A reason names columns, constraints and
        types, but no values. Transient errors, such as a held lock or a lost connection, are raised
        as by SQLAlchemy.
        """

    def read(
        self,
        connection: Connection,
        table: str,
        after: Mapping[str, Value] | None = None,
        limit: int = 1000,
    ) -> list[tuple[dict[str, Value], dict[str, Value]]]:
        """Return keys and other columns of rows in key order, after a given key.

        Raises ``KeyError`` for an unknown table.
        """

    def read_one(
        self, connection: Connection, table: str, key: Mapping[str, Value]
    ) -> dict[str, Value] | None:
        """Return the columns of a row beside its key; ``None`` if it does not exist.

        Raises ``KeyError`` for an unknown table.
        """

    def tables(self, connection: Connection) -> list[str]:
        """Return the sorted names of the existing tables."""
