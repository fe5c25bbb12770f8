"""Work of tasks in a table of the target, from where the driver reads it one part at a time.

Otherwise it would pass through the driver's Java, all of a batch at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import uuid4

from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    delete,
    insert,
    inspect,
    select,
)
from sqlalchemy.dialects import mysql

from stompkit.replication.sql import create_tables
from stompkit.spark.targets.base import StagingLostError

__all__ = ["LEAST_BYTES", "StagedWork"]

#: Minimum size in bytes of work that is written to the table.
LEAST_BYTES: Final = 256 * 1024
#: Size in bytes of the rows: well below the packet limits of servers.
_ROW_BYTES: Final = 1024 * 1024
#: Age after which work is considered abandoned.
_ORPHAN: Final = timedelta(hours=6)


class StagedWork:
    """The table ``stompkit_pipeline_staged``; it has rows only while a batch is applied."""

    def __init__(self) -> None:
        """Describe the table."""
        self._table = Table(
            "stompkit_pipeline_staged",
            MetaData(),
            Column("name", String(40), primary_key=True),
            Column("part_no", Integer, primary_key=True, autoincrement=False),
            # UTC.
            Column("made_at", DateTime, nullable=False),
            Column(
                "body",
                LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb"),
                nullable=False,
            ),
        )

    def is_there(self, connection: Connection) -> bool:
        """Return True if the table exists."""
        return inspect(connection).has_table(self._table.name)

    def create(self, connection: Connection) -> None:
        """Create the table if it is missing."""
        create_tables(connection, [self._table])

    def put(self, connection: Connection, octets: bytes, owner: str) -> str:
        """Write the work of a task of an owner, of ``owner_of``; return its name."""
        name = f"{owner}_{uuid4().hex[:16]}"
        now = datetime.now(UTC).replace(tzinfo=None)
        for number, start in enumerate(range(0, len(octets), _ROW_BYTES)):
            body = octets[start : start + _ROW_BYTES]
            row = {"name": name, "part_no": number, "made_at": now, "body": body}
            connection.execute(insert(self._table), row)
        return name

    def get(self, connection: Connection, name: str, size: int) -> bytes:
        """Return the work of a task; raises :class:`StagingLostError` if it is missing."""
        column = self._table.c
        rows = select(column.body).where(column.name == name).order_by(column.part_no)
        found = b"".join(connection.execute(rows).scalars())
        if len(found) != size:
            raise StagingLostError(
                f"the work of a task in {self._table.name} is lost: there were {size} bytes, and"
                f" there are {len(found)}"
            )
        return found

    def drop(self, connection: Connection, names: Sequence[str]) -> None:
        """Remove the work of some tasks."""
        for name in names:
            connection.execute(delete(self._table).where(self._table.c.name == name))

    def of_owner(self, connection: Connection, owner: str) -> set[str]:
        """Return the names of the work of an owner. Names of earlier versions contain none."""
        column = self._table.c.name
        chosen = select(column).where(column.startswith(f"{owner}_", autoescape=True)).distinct()
        return set(connection.execute(chosen).scalars())

    def sweep(self, connection: Connection) -> int:
        """Remove work left by crashes; return the number of rows."""
        before = datetime.now(UTC).replace(tzinfo=None) - _ORPHAN
        return connection.execute(
            delete(self._table).where(self._table.c.made_at < before)
        ).rowcount
