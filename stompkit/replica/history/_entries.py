"""Results of history queries."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from stompkit.replica.store import ChangesetRecord
from stompkit.replica.vectors import Dot, dot_text
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import Value

__all__ = ["Counts", "Entry", "RevisionError", "RowVersion", "entry_of"]

#: Number of shown digits of an id: enough for ten thousand million changesets.
_SHORT: Final = 12


class RevisionError(ValueError):
    """A revision that cannot be found or shown; ``str()`` says why, and what to ask instead."""


class Counts(msgspec.Struct, frozen=True):
    """Numbers of rows of a table that a changeset has changed."""

    written: int = 0
    updated: int = 0
    deleted: int = 0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A changeset without its changes."""

    origin: str
    sequence: int
    #: SHA-256 of the body, in hexadecimal.
    id: str
    #: Creation time by the writer's clock.
    time: datetime
    #: Hybrid timestamp in microseconds since 1970; successors have greater ones.
    hlc: int
    author: str = ""
    comment: str = ""
    #: Ids of the parents: all heads that the writer had.
    parents: tuple[str, ...] = ()
    #: Counts by table name; empty if the changes are no longer kept.
    tables: dict[str, Counts] = {}
    #: Number of row changes.
    changes: int = 0
    #: Size of the body in bytes.
    size: int = 0
    #: True if no known changeset was made on top of it.
    is_head: bool = False
    #: Node that it came from; empty for this node's own.
    via: str = ""

    @property
    def dot(self) -> Dot:
        """Origin and sequence number."""
        return self.origin, self.sequence

    @property
    def name(self) -> str:
        """Origin and sequence number as text, the same on every node."""
        return dot_text(self.dot)

    @property
    def short_id(self) -> str:
        """Prefix of the id for display."""
        return self.id[:_SHORT]


class RowVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A row as a changeset has left it."""

    entry: Entry
    #: The changeset's changes to this row.
    changes: tuple[RowChange, ...]
    #: Merged columns that the writer saw afterwards, without those of the key; ``None`` if the row
    #: did not exist.
    row: dict[str, Value] | None = None
    #: True if ``row`` can still be computed: compaction may have merged what the writer knew with
    #: what it did not know.
    is_known: bool = True


def entry_of(record: ChangesetRecord, *, is_head: bool) -> Entry:
    """Return the entry of a changeset, as detailed as its kept body permits."""
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
    """Action and table of a change, without the values."""

    table: str
    action: str
    schema: str = ""


class _Body(msgspec.Struct):
    """The parts of a body that a log needs: decoding only these is several times as fast."""

    changes: list[_Change] = []
    parents: list[str] = []


_DECODER: Final = msgspec.json.Decoder(_Body)
