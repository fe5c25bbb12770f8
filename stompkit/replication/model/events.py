"""Replicated events: row changes, in one changeset for each transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final, Literal
from uuid import uuid4

import msgspec

from stompkit._common.moved import renamed
from stompkit.replication.model.values import InvalidValueError, Row, Value, from_json, row_to_json

__all__ = [
    "FORMAT",
    "Action",
    "Changeset",
    "EncodedChangeset",
    "EventError",
    "Revision",
    "RowChange",
    "Source",
    "decode",
    "encode",
    "encode_parts",
    "make_changeset",
    "schema",
]

#: Version of the JSON format. It is raised when an older reader would misread the new format.
FORMAT: Final = 1

#: ``write``: a new row. ``read``: a row that was there when a snapshot was taken. ``truncate``: all
#: rows of the table were deleted. ``schema``: the table's columns have changed.
Action = Literal["write", "update", "delete", "read", "truncate", "schema"]


class EventError(ValueError):
    """Bytes that are not a changeset, or have a newer format; ``str()`` gives the reason."""


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Source of a changeset, for display, for offsets and to detect duplicates."""

    #: ``mysql``, ``postgresql``, ``sqlalchemy``, ``outbox``...
    kind: str
    #: Name of the server or the application.
    server: str = ""
    #: Position from which the source can be read on: a GTID, an LSN or a number.
    position: str = ""
    transaction: str = ""
    #: Time of the transaction at the source, if known.
    time: datetime | None = None
    is_snapshot: bool = False


class RowChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one row.

    ``before`` and ``after`` are the row's columns before and after the change. A missing column was
    not reported, which is different from NULL. If ``before`` or ``after`` is ``None``, either no
    column was reported or there is no such row.
    """

    table: str
    action: Action
    #: Columns that identify the row; for a deleted row, their last values. Empty for a table
    #: without a key, and for ``truncate``.
    key: dict[str, Value]
    before: dict[str, Value] | None = None
    after: dict[str, Value] | None = None
    #: Key before an update that changed it.
    old_key: dict[str, Value] | None = None
    #: Database in MySQL, schema in PostgreSQL; empty if the table's name is sufficient.
    schema: str = ""

    @property
    def name(self) -> str:
        """Table with its schema, as in ``shop.orders``."""
        return f"{self.schema}.{self.table}" if self.schema else self.table

    @property
    def identity(self) -> bytes:
        """Bytes that identify the row: equal for the same table and key."""
        return _ENCODER.encode([self.schema, self.table, row_to_json(self.key)])


class Revision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Position of a changeset in the history of data with several writers."""

    #: Name of the data set; the same at all nodes.
    trunk: str
    #: Hybrid logical clock: microseconds since 1970, or more if a later time was received.
    hlc: int
    #: Causal context: the last applied sequence of each other origin, only for origins that have
    #: advanced since the author's previous changeset.
    context: dict[str, int]
    #: First 16 digits of the ids of the changesets in the context, if known.
    seen: dict[str, str] = {}
    #: First 16 digits of the id of the origin's previous changeset; empty for the first.
    previous: str = ""
    #: Earlier sequence numbers under which the author published the same changes, each with the
    #: first 16 digits of that changeset's id.
    replaces: tuple[tuple[str, int, str], ...] = ()
    author: str = ""
    comment: str = ""


class Changeset(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of one transaction, in their order."""

    #: Id of the changeset; the same each time the transaction is published.
    id: str
    #: Publisher of the changeset; ``sequence`` numbers the changesets of one origin.
    origin: str
    sequence: int
    #: Time of creation, with a time zone.
    timestamp: datetime
    changes: tuple[RowChange, ...]
    source: Source
    #: Ids of the changesets that this one is based on, if tracked.
    parents: tuple[str, ...] = ()
    #: Set only for data with several writers.
    revision: Revision | None = None

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical form, in hexadecimal; independent of the publisher."""
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
    """Return a changeset with the current time; ``id`` is random by default."""
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
    """A change, with its values as JSON types."""

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


class EncodedChangeset(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A changeset with its changes still in JSON, to be passed on without decoding them."""

    format: int
    id: str
    origin: str
    sequence: int
    timestamp: datetime
    source: Source
    #: List of the changes in JSON.
    changes: msgspec.Raw
    parents: tuple[str, ...] = ()
    revision: Revision | None = None

    @property
    def count(self) -> int:
        """Number of changes."""
        return len(_LIST_DECODER.decode(self.changes))

    def decoded(self) -> Changeset:
        """Return the changeset; raises :class:`EventError` for an invalid change."""
        return Changeset(
            id=self.id,
            origin=self.origin,
            sequence=self.sequence,
            timestamp=self.timestamp,
            changes=_decode_changes(self.changes),
            source=self.source,
            parents=self.parents,
            revision=self.revision,
        )


class _Format(msgspec.Struct):
    format: int


def encode(changeset: Changeset) -> bytes:
    """Return the canonical JSON of a changeset: equal changesets give equal bytes.

    Raises :class:`~stompkit.replication.InvalidValueError` for a value without a JSON form.
    """
    return _ENCODER.encode(
        _envelope(changeset, [_change_to_json(each) for each in changeset.changes])
    )


def encode_parts(changeset: Changeset | EncodedChangeset, most: int | None = None) -> list[bytes]:
    """Return the canonical JSON of a changeset, split by changes into smaller changesets.

    Each has at most ``most`` bytes, or a single larger change; without ``most`` there is one. An
    :class:`EncodedChangeset` keeps the JSON of its changes.
    """
    if isinstance(changeset, EncodedChangeset):
        whole = _ENCODER.encode(changeset)
        if most is None or len(whole) <= most:
            return [whole]
        empty = msgspec.structs.replace(changeset, changes=_NO_CHANGES)
        raw = map(bytes, _LIST_DECODER.decode(changeset.changes))
        return _split(_ENCODER.encode(empty), raw, most)
    if most is None or len(changeset.changes) == 1:
        return [encode(changeset)]
    changes = (_ENCODER.encode(_change_to_json(change)) for change in changeset.changes)
    return _split(_ENCODER.encode(_envelope(changeset, [])), changes, most)


def _split(envelope: bytes, changes: Iterable[bytes], most: int) -> list[bytes]:
    """Insert changes into copies of a changeset without any."""
    # No JSON text can contain this sequence, because its quotation marks are escaped.
    before, found, after = envelope.partition(b'"changes":[')
    before += found
    group: list[bytes] = []
    groups = [group]
    around = size = len(before) + len(after)
    for octets in changes:
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
_HEAD_DECODER: Final = msgspec.json.Decoder(EncodedChangeset)
_CHANGES_DECODER: Final = msgspec.json.Decoder(tuple[RowChange, ...])
_LIST_DECODER: Final = msgspec.json.Decoder(list[msgspec.Raw])
_NO_CHANGES: Final = msgspec.Raw(b"[]")
#: Errors of decoders of JSON.
_INVALID: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidValueError)


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
    except InvalidValueError as problem:
        raise InvalidValueError(f"table {change.name}: {problem}") from None


def _optional(row: Row | None) -> dict[str, object] | None:
    return None if row is None else row_to_json(row)


def decode(octets: bytes) -> Changeset:
    """Decode the JSON of a changeset; raises :class:`EventError`."""
    try:
        _check_format(_FORMAT_DECODER.decode(octets).format)
        changeset = _DECODER.decode(octets)
        _read_changes(changeset.changes)
    except _INVALID as error:
        raise _no_changeset(error) from None
    return changeset


def decode_head(octets: bytes) -> EncodedChangeset:
    """Decode the JSON of a changeset without its changes; raises :class:`EventError`.

    The changes are checked for valid JSON only.
    """
    try:
        changeset = _HEAD_DECODER.decode(octets)
    except _INVALID as error:
        # Another format may lack what this one has.
        with suppress(*_INVALID):
            _check_format(_FORMAT_DECODER.decode(octets).format)
        raise _no_changeset(error) from None
    _check_format(changeset.format)
    return changeset


def _decode_changes(octets: msgspec.Raw) -> tuple[RowChange, ...]:
    try:
        changes = _CHANGES_DECODER.decode(octets)
        _read_changes(changes)
    except _INVALID as error:
        raise _no_changeset(error) from None
    return changes


def _check_format(number: int) -> None:
    if number != FORMAT:
        raise EventError(f"this is format {number} of a changeset, and {FORMAT} is known")


def _no_changeset(error: Exception) -> EventError:
    return EventError(f"this is no changeset: {error}")


def _read_changes(changes: Iterable[RowChange]) -> None:
    for change in changes:
        for row in (change.key, change.before, change.after, change.old_key):
            if row:
                _read_values(row)


def _read_values(row: dict[str, Any]) -> None:
    """Replace JSON values with column values in place; most need no conversion."""
    name = ""
    try:
        for name, value in row.items():
            kind = type(value)
            if kind is dict or kind is list:
                row[name] = from_json(value)
    except InvalidValueError as problem:
        raise InvalidValueError(f"column {name}: {problem}") from None


def schema() -> str:
    """Return the JSON Schema of a changeset."""
    return files("stompkit.replication.model").joinpath("changeset-schema.json").read_text("utf-8")


renamed(
    __name__,
    EventProblem="EventError",
)
