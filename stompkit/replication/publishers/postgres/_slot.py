"""Slots: what keeps the log of a server until it was read."""

from __future__ import annotations

from typing import Final

import msgspec
from psycopg.rows import dict_row
from psycopg.sql import SQL, Identifier

from stompkit.replication.publishers.postgres._connections import Connection, parse_lsn

__all__ = ["NewSlot", "OffsetLost", "Slot", "create_slot", "find_slot", "system_of"]


class OffsetLost(Exception):
    """The log from the checkpoint on is not there any more; ``str()`` says why, and what to do.

    What was changed since can't be told. Whoever accepts that removes the checkpoint and the slot;
    the publisher then begins anew, with a snapshot.
    """


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that is there."""

    name: str
    plugin: str | None
    database: str | None
    temporary: bool
    active_pid: int | None
    #: Up to where it was read; what was committed before is not sent again.
    confirmed_lsn: int
    is_lost: bool


class NewSlot(msgspec.Struct, frozen=True):
    """A slot that was made just now."""

    #: From where on it gives changes.
    lsn: int
    #: What can be set by ``SET TRANSACTION SNAPSHOT`` while the connection does nothing else: the
    #: database as of :attr:`lsn`. Empty where it was not wanted.
    snapshot: str


_FIND: Final = b"SELECT * FROM pg_replication_slots WHERE slot_name = %s"


def find_slot(connection: Connection, name: str) -> Slot | None:
    """The slot of that name, of whatever kind; ``None`` if there is none."""
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
        # PostgreSQL says the former since 13 and the latter since 17.
        is_lost=row.get("wal_status") == "lost" or bool(row.get("invalidation_reason")),
    )


def create_slot(
    connection: Connection, name: str, *, with_snapshot: bool, is_temporary: bool = False
) -> NewSlot:
    """Make a slot, by a connection for replication, whose end is that of a temporary one.

    Returns when every transaction has ended that was running. Raises :class:`psycopg.Error`.
    """
    # Both words are taken by every version; newer ones have options in parentheses, too.
    command = SQL("CREATE_REPLICATION_SLOT {}{} LOGICAL pgoutput {}").format(
        Identifier(name),
        SQL(" TEMPORARY" if is_temporary else ""),
        SQL("EXPORT_SNAPSHOT" if with_snapshot else "NOEXPORT_SNAPSHOT"),
    )
    row = connection.execute(command).fetchone()
    assert row is not None
    return NewSlot(parse_lsn(row[1]), row[2] or "")


def system_of(connection: Connection) -> str:
    """What tells a server, with its copies, from all others; by a connection for replication."""
    row = connection.execute(b"IDENTIFY_SYSTEM").fetchone()
    assert row is not None
    return str(row[0])
