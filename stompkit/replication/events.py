"""What is replicated: changes of rows, in the changesets that one transaction makes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final, Literal
from uuid import uuid4

import msgspec

from stompkit.replication.values import Row, Value, ValueProblem, from_json, row_to_json

__all__ = [
    "FORMAT",
    "Action",
    "Changeset",
    "EventProblem",
    "Revision",
    "RowChange",
    "Source",
    "decode",
    "encode",
    "encode_parts",
    "make_changeset",
    "schema",
]

#: The version of the JSON form. It is raised when a reader of the one before would misunderstand.
FORMAT: Final = 1

#: ``write``: a new row. ``read``: a row that was there when a snapshot was taken. ``truncate``: all
#: rows of the table are gone. ``schema``: the table's columns are others from now on.
Action = Literal["write", "update", "delete", "read", "truncate", "schema"]


class EventProblem(ValueError):
    """Octets that are no changeset, or one of a newer format; ``str()`` says what is wrong."""


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a changeset comes from, for people, for offsets and to tell repeats."""

    #: ``mysql``, ``postgresql``, ``sqlalchemy``, ``outbox``...
    kind: str
    #: The server or the application.
    server: str = ""
    #: Where reading can be resumed behind it, in the terms of the source: a GTID, an LSN, a number.
    position: str = ""
    transaction: str = ""
    #: When the source has made it, where that is known.
    time: datetime | None = None
    is_snapshot: bool = False


class RowChange(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of one row.

    ``before`` and ``after`` are the row's columns then and now; one that is missing was not told,
    which is not the same as NULL. ``None`` in place of all: nothing was told, or there is no row.
    """

    table: str
    action: Action
    #: The columns that identify the row; of a row that was deleted, what they were. Empty for a
    #: table without a key, and for ``truncate``.
    key: dict[str, Value]
    before: dict[str, Value] | None = None
    after: dict[str, Value] | None = None
    #: What the key was before an update that has changed it.
    old_key: dict[str, Value] | None = None
    #: The database of MySQL, the schema of PostgreSQL; empty where the table's name is enough.
    schema: str = ""

    @property
    def name(self) -> str:
        """The table with its schema, as in ``shop.orders``."""
        return f"{self.schema}.{self.table}" if self.schema else self.table

    @property
    def identity(self) -> bytes:
        """The row, as octets that are the same for the same table and key."""
        return _ENCODER.encode([self.schema, self.table, row_to_json(self.key)])


class Revision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a changeset stands in the history of data that several nodes write."""

    #: The name of these data: the same at all nodes.
    trunk: str
    #: Hybrid logical time: microseconds since 1970, or more where something later was seen.
    hlc: int
    #: What the author has come to know since its changeset before: the last sequence of each other
    #: origin that it had applied, of those where that has become more.
    context: dict[str, int]
    #: The first 16 digits of the ids of the changesets that the context names, where known.
    seen: dict[str, str] = {}
    #: The first 16 digits of the id of the origin's changeset before; empty for its first.
    previous: str = ""
    #: Other numbers under which its author has told the same before, each with the first 16 digits
    #: of that changeset's id.
    replaces: tuple[tuple[str, int, str], ...] = ()
    author: str = ""
    comment: str = ""


class Changeset(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of one transaction, in their order."""

    #: The same whenever this transaction is published again.
    id: str
    #: Who publishes: changesets of one origin are numbered by ``sequence``.
    origin: str
    sequence: int
    #: When it was made, with a zone.
    timestamp: datetime
    changes: tuple[RowChange, ...]
    source: Source
    #: Ids of the changesets that this one was made on top of, where that is tracked.
    parents: tuple[str, ...] = ()
    #: Only of data that several nodes write.
    revision: Revision | None = None

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical form, in hexadecimal: what was said, whoever says it again."""
        return hashlib.sha256(encode(self)).hexdigest()


def make_changeset(
    origin: str,
    sequence: int,
    changes: Iterable[RowChange],
    source: Source,
    *,
    id: str | None = None,
    timestamp: datetime | None = None,
    parents: Iterable[str] = (),
    revision: Revision | None = None,
) -> Changeset:
    """Make a changeset of now; ``id`` is a random one where the source has none to give."""
    return Changeset(
        id=uuid4().hex if id is None else id,
        origin=origin,
        sequence=sequence,
        timestamp=datetime.now(UTC) if timestamp is None else timestamp,
        changes=tuple(changes),
        source=source,
        parents=tuple(parents),
        revision=revision,
    )


# The form in JSON.


class _Change(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A change, its values in JSON's terms."""

    table: str
    action: Action
    key: dict[str, Any]
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    old_key: dict[str, Any] | None = None
    schema: str = ""


class _Envelope(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A changeset in JSON."""

    format: int
    id: str
    origin: str
    sequence: int
    timestamp: datetime
    source: Source
    changes: list[_Change]
    parents: tuple[str, ...] = ()
    revision: Revision | None = None


class _Format(msgspec.Struct):
    format: int


def encode(changeset: Changeset) -> bytes:
    """The canonical JSON of a changeset: equal changesets give equal octets.

    Raises :class:`~stompkit.replication.values.ValueProblem` for a value without a form in JSON.
    """
    return _ENCODER.encode(
        _envelope(changeset, [_change_to_json(each) for each in changeset.changes])
    )


def encode_parts(changeset: Changeset, most: int | None = None) -> list[bytes]:
    """The canonical JSON of changesets with some of the changes each, else equal to this one.

    Each has at most ``most`` octets, or one change that is larger; without it there is one.
    """
    if most is None:
        return [encode(changeset)]
    # No text in JSON can look like that: its quotation marks are escaped.
    before, found, after = _ENCODER.encode(_envelope(changeset, [])).partition(b'"changes":[')
    before += found
    group: list[bytes] = []
    groups = [group]
    around = size = len(before) + len(after)
    for change in changeset.changes:
        octets = _ENCODER.encode(_change_to_json(change))
        size += len(octets) + 1  # a comma
        if group and size > most + 1:
            groups.append(group := [])
            size = around + len(octets) + 1
        group.append(octets)
    return [b"".join((before, b",".join(each), after)) for each in groups]


def _envelope(changeset: Changeset, changes: list[_Change]) -> _Envelope:
    return _Envelope(
        format=FORMAT,
        id=changeset.id,
        origin=changeset.origin,
        sequence=changeset.sequence,
        timestamp=changeset.timestamp,
        source=changeset.source,
        changes=changes,
        parents=changeset.parents,
        revision=changeset.revision,
    )


_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_DECODER: Final = msgspec.json.Decoder(Changeset)
_FORMAT_DECODER: Final = msgspec.json.Decoder(_Format)


def _change_to_json(change: RowChange) -> _Change:
    try:
        return _Change(
            table=change.table,
            action=change.action,
            key=row_to_json(change.key),
            before=_optional(change.before),
            after=_optional(change.after),
            old_key=_optional(change.old_key),
            schema=change.schema,
        )
    except ValueProblem as problem:
        raise ValueProblem(f"table {change.name}: {problem}") from None


def _optional(row: Row | None) -> dict[str, object] | None:
    return None if row is None else row_to_json(row)


def decode(octets: bytes) -> Changeset:
    """Read the JSON of a changeset; raises :class:`EventProblem`."""
    try:
        number = _FORMAT_DECODER.decode(octets).format
        if number != FORMAT:
            raise EventProblem(f"this is format {number} of a changeset, and {FORMAT} is known")
        changeset = _DECODER.decode(octets)
        for change in changeset.changes:
            for row in (change.key, change.before, change.after, change.old_key):
                if row:
                    _read_values(row)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueProblem) as error:
        raise EventProblem(f"this is no changeset: {error}") from None
    return changeset


def _read_values(row: dict[str, Any]) -> None:
    """Put values in the place of what JSON has for them: most need nothing at all."""
    name = ""
    try:
        for name, value in row.items():
            kind = type(value)
            if kind is dict or kind is list:
                row[name] = from_json(value)
    except ValueProblem as problem:
        raise ValueProblem(f"column {name}: {problem}") from None


def schema() -> str:
    """The JSON Schema of a changeset."""
    return files("stompkit.replication").joinpath("changeset-schema.json").read_text("utf-8")
