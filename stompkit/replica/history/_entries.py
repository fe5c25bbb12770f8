"""What is said of changesets and of rows when history is asked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from stompkit.replica.store import ChangesetRecord
from stompkit.replica.vectors import Dot, dot_text
from stompkit.replication.events import RowChange
from stompkit.replication.values import Value

__all__ = ["Counts", "Entry", "RevisionProblem", "RowVersion", "entry_of"]

#: How many digits of an id are shown: ten thousand million changesets can be told apart by them.
_SHORT: Final = 12


class RevisionProblem(ValueError):
    """A revision that can't be found or shown; ``str()`` says why, and what to ask instead."""


class Counts(msgspec.Struct, frozen=True):
    """How many rows of a table a changeset has changed."""

    written: int = 0
    updated: int = 0
    deleted: int = 0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A changeset, without its changes."""

    origin: str
    sequence: int
    #: SHA-256 of its octets, in hexadecimal.
    id: str
    #: When its writer has made it, by the writer's clock.
    time: datetime
    #: The same by the hybrid clock, in microseconds since 1970: what comes after it has more.
    hlc: int
    author: str = ""
    comment: str = ""
    #: Ids of those that it was made on top of: every head that its writer had then.
    parents: tuple[str, ...] = ()
    #: By the name of the table; empty where the changes are not kept.
    tables: dict[str, Counts] = {}
    #: How many changes of rows it has.
    changes: int = 0
    #: Octets of its body.
    size: int = 0
    #: Whether nothing that is known here was made on top of it.
    is_head: bool = False
    #: The node that it came from; empty for this node's own.
    via: str = ""

    @property
    def dot(self) -> Dot:
        """Who made it, and its number."""
        return self.origin, self.sequence

    @property
    def name(self) -> str:
        """The same as text: a name that every node knows it by."""
        return dot_text(self.dot)

    @property
    def short_id(self) -> str:
        """The beginning of its id."""
        return self.id[:_SHORT]


class RowVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One row as a changeset has left it."""

    entry: Entry
    #: What its writer has done to this row.
    changes: tuple[RowChange, ...]
    #: The columns that its writer then had before it, merged from all that was known there, without
    #: those of the key; ``None`` where there was no such row.
    row: dict[str, Value] | None = None
    #: Whether ``row`` can still be said: of what its writer knew, some may be compacted together
    #: with what that writer did not know.
    is_known: bool = True


def entry_of(record: ChangesetRecord, *, is_head: bool) -> Entry:
    """Describe a changeset, in as much detail as its body is kept."""
    body = _Body() if record.body is None else _DECODER.decode(record.body)
    counts: dict[str, list[int]] = {}
    for change in body.changes:
        name = f"{change.schema}.{change.table}" if change.schema else change.table
        counts.setdefault(name, [0, 0, 0])[_ACTIONS.index(change.action)] += 1
    return Entry(
        origin=record.origin,
        sequence=record.sequence,
        id=record.id,
        time=datetime.fromtimestamp(record.time, UTC),
        hlc=record.hlc,
        author=record.author,
        comment=record.comment,
        parents=tuple(body.parents),
        tables={name: Counts(*counts[name]) for name in sorted(counts)},
        changes=record.changes,
        size=record.size,
        is_head=is_head,
        via=record.via,
    )


_ACTIONS: Final = ("write", "update", "delete")


class _Change(msgspec.Struct):
    """What a change is about, without the values."""

    table: str
    action: str
    schema: str = ""


class _Body(msgspec.Struct):
    """What a log says of a body: reading no more than that is several times as fast."""

    changes: list[_Change] = []
    parents: list[str] = []


_DECODER: Final = msgspec.json.Decoder(_Body)
