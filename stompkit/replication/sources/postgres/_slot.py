"""Replication slots, which keep a server's log until it was read."""

from __future__ import annotations

from typing import Final

import msgspec
from psycopg.rows import dict_row
from psycopg.sql import SQL, Identifier

from stompkit.replication.sources.postgres._connections import Connection, parse_lsn

__all__ = ["NewSlot", "OffsetLostError", "Slot", "create_slot", "find_slot", "system_of"]


class OffsetLostError(Exception):
    """The log is not available from the checkpoint on; ``str()`` gives the reason and the remedy.

    Changes since then cannot be published. To accept that, remove the checkpoint and the slot; the
    publisher then starts again with a snapshot.
    """


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """An existing slot."""

    name: str
    plugin: str | None
    database: str | None
    temporary: bool
    active_pid: int | None
    #: Position up to which it was read; earlier commits are not sent again.
    confirmed_lsn: int
    is_lost: bool


class NewSlot(msgspec.Struct, frozen=True):
    """A newly created slot."""

    #: Position from which it returns changes.
    lsn: int
    #: Name for ``SET TRANSACTION SNAPSHOT``, valid while the connection is idle: the database as of
    #: :attr:`lsn`. Empty if it was not requested.
    snapshot: str


_FIND: Final = b"SELECT * FROM pg_replication_slots WHERE slot_name = %s"


def find_slot(connection: Connection, name: str) -> Slot | None:
    """Return the slot of that name, of any kind; ``None`` if there is none."""
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(_FIND, [name]).fetchone()
    if row is None:
        return None
    return Slot(
        name=name,
        plugin=row["plugin"],
        database=row["database"],
        temporary=row["temporary"],
        active_pid=row["active_pid"],
        confirmed_lsn=parse_lsn(row["confirmed_flush_lsn"] or "0/0"),
        # PostgreSQL reports the former since 13 and the latter since 17.
        is_lost=row.get("wal_status") == "lost" or bool(row.get("invalidation_reason")),
    )


def create_slot(
    connection: Connection, name: str, *, with_snapshot: bool, is_temporary: bool = False
) -> NewSlot:
    """Create a slot over a replication connection; a temporary slot ends with the connection.

    Returns when every transaction that was running has ended. Raises :class:`psycopg.Error`.
    """
    # Every version accepts both words; newer ones also have options in parentheses.
    command = SQL("CREATE_REPLICATION_SLOT {}{} LOGICAL pgoutput {}").format(
        Identifier(name),
        SQL(" TEMPORARY" if is_temporary else ""),
        SQL("EXPORT_SNAPSHOT" if with_snapshot else "NOEXPORT_SNAPSHOT"),
    )
    row = connection.execute(command).fetchone()
    assert row is not None
    return NewSlot(parse_lsn(row[1]), row[2] or "")


def system_of(connection: Connection) -> str:
    """Return the system identifier of a server and its standbys, over a replication connection."""
    row = connection.execute(b"IDENTIFY_SYSTEM").fetchone()
    assert row is not None
    return str(row[0])
