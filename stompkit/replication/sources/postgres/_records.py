"""Messages of ``pgoutput`` as objects, and the transactions that they describe.

They are apart from the functions that make them: those are compiled, and these are not.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Final, Literal, TypeAlias

import msgspec

from stompkit.replication.model.events import RowChange
from stompkit.replication.sources.postgres._shapes import Shape

__all__ = [
    "UNCHANGED",
    "Begin",
    "Column",
    "Commit",
    "Delete",
    "Insert",
    "Message",
    "Origin",
    "PgoutputError",
    "Record",
    "Relation",
    "Row",
    "Transaction",
    "Truncate",
    "Type",
    "Unchanged",
    "Update",
]


class PgoutputError(ValueError):
    """Bytes that are not a message of ``pgoutput``; ``str()`` gives the reason."""


class Unchanged(Enum):
    """The type of :data:`UNCHANGED`."""

    UNCHANGED = "unchanged"


#: Placeholder for a value that was not sent because it is unchanged.
UNCHANGED: Final = Unchanged.UNCHANGED

#: Values of a row in the order of its relation's columns.
Row: TypeAlias = tuple[bytes | Literal[Unchanged.UNCHANGED] | None, ...]


class Begin(msgspec.Struct, frozen=True):
    """Begin of a transaction; all of it follows, because only committed ones are sent."""

    final_lsn: int
    commit_time: datetime
    xid: int


class Commit(msgspec.Struct, frozen=True):
    """End of a transaction. Reading can resume after it at ``end_lsn``."""

    lsn: int
    end_lsn: int
    commit_time: datetime


class Origin(msgspec.Struct, frozen=True):
    """Marks a transaction that was replicated to this server from another one."""

    lsn: int
    name: str


class Column(msgspec.Struct, frozen=True):
    """A column of a relation."""

    name: str
    type_oid: int
    #: ``atttypmod``: the length or the precision, as the type encodes it; -1 for none.
    modifier: int
    #: True if it is part of the replica identity; with ``REPLICA IDENTITY FULL`` every column is.
    is_key: bool


class Relation(msgspec.Struct, frozen=True):
    """The columns of a table's rows from here on."""

    oid: int
    schema: str
    name: str
    #: ``d`` for the primary key, ``i`` for another index, ``f`` for the whole row, ``n`` for none.
    identity: str
    columns: tuple[Column, ...]
    #: True if all names are UTF-8; other bytes stand as ``\\xNN``.
    is_readable: bool = True


class Type(msgspec.Struct, frozen=True):
    """The name of a type that is not built in."""

    oid: int
    schema: str
    name: str


class Insert(msgspec.Struct, frozen=True):
    """An inserted row."""

    relation: int
    new: Row


class Update(msgspec.Struct, frozen=True):
    """An updated row."""

    relation: int
    #: Old row or, with ``is_key``, its key and NULL elsewhere. ``None`` if the key is unchanged.
    old: Row | None
    is_key: bool
    new: Row


class Delete(msgspec.Struct, frozen=True):
    """A deleted row; ``old`` and ``is_key`` as with :class:`Update`."""

    relation: int
    old: Row
    is_key: bool


class Truncate(msgspec.Struct, frozen=True):
    """Tables that were truncated in one statement."""

    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool


class Message(msgspec.Struct, frozen=True):
    """Arguments of a call of ``pg_logical_emit_message``."""

    is_transactional: bool
    lsn: int
    prefix: str
    content: bytes


Record: TypeAlias = (
    Begin | Commit | Origin | Relation | Type | Insert | Update | Delete | Truncate | Message
)


class Transaction(msgspec.Struct, frozen=True):
    """Changes of one transaction in the selected tables; may be empty."""

    xid: int
    time: datetime
    #: Log position after the transaction.
    end_lsn: int
    changes: list[RowChange]
    #: Digests of all known tables, if they have changed.
    digests: dict[str, str] | None
    #: Shapes of all known tables, if they have changed.
    shapes: dict[str, Shape] | None = None
