"""Waiting rows: snapshot rows that reference missing rows, in a table of the target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.dialects.mysql import LONGTEXT

from stompkit.replication.model.events import Changeset, RowChange, decode, encode
from stompkit.replication.sinks.sql._offsets import storable
from stompkit.replication.sql.tables import create_tables

__all__ = ["WaitingRows", "encode_one"]


class WaitingRows:
    """Stores waiting changes, in the transactions of their changesets."""

    def __init__(self, name: str) -> None:
        """Define the table."""
        self.name = name
        self._table = Table(
            name,
            MetaData(),
            Column("origin", String(255), primary_key=True),
            Column("sequence", BigInteger, primary_key=True, autoincrement=False),
            Column("number", Integer, primary_key=True, autoincrement=False),
            Column("changeset", Text().with_variant(LONGTEXT(), "mysql", "mariadb")),
        )

    def create(self, connection: Connection) -> None:
        """Create the table, unless it exists."""
        create_tables(connection, [self._table])

    def counts(self, connection: Connection) -> dict[str, int]:
        """Return the number of waiting rows by origin."""
        if not inspect(connection).has_table(self.name):
            return {}
        column = self._table.c
        found = connection.execute(select(column.origin, func.count()).group_by(column.origin))
        return {origin: int(count) for origin, count in found}

    def add(self, connection: Connection, changeset: Changeset, changes: Sequence[bytes]) -> None:
        """Store waiting changes; each is a changeset with this change only, as JSON."""
        rows = [
            {
                "origin": storable(changeset.origin),
                "sequence": changeset.sequence,
                "number": number,
                "changeset": text.decode(),
            }
            for number, text in enumerate(changes)
        ]
        connection.execute(insert(self._table), rows)

    def load(self, connection: Connection, origin: str) -> list[tuple[int, int, Changeset]]:
        """Return the waiting changes of an origin in order: sequence, number, and the changeset."""
        column = self._table.c
        found = connection.execute(
            select(column.sequence, column.number, column.changeset)
            .where(column.origin == storable(origin))
            .order_by(column.sequence, column.number)
        )
        return [(int(row[0]), int(row[1]), decode(row[2].encode())) for row in found]

    def replace(self, connection: Connection, place: tuple[str, int, int], text: bytes) -> None:
        """Store another text for a waiting change: its origin, sequence, number, and the text."""
        column = self._table.c
        origin, sequence, number = place
        connection.execute(
            update(self._table)
            .where(
                column.origin == storable(origin),
                column.sequence == sequence,
                column.number == number,
            )
            .values(changeset=text.decode())
        )

    def remove(
        self, connection: Connection, origin: str, places: Iterable[tuple[int, int]]
    ) -> None:
        """Remove rows from the waiting ones."""
        column = self._table.c
        for sequence, number in places:
            connection.execute(
                delete(self._table).where(
                    column.origin == storable(origin),
                    column.sequence == sequence,
                    column.number == number,
                )
            )


def encode_one(changeset: Changeset, change: RowChange) -> bytes:
    """Return a changeset with one of its changes, as JSON."""
    return encode(msgspec.structs.replace(changeset, changes=(change,)))
