"""Conversion of change batches for an event store: keys with times, and changesets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stompkit.replication.model.events import FORMAT, Source
from stompkit.spark.documents import document, values
from stompkit.spark.eventstore.rows import EVENTS, HISTORY, digest_of
from stompkit.spark.fence import Fence, beyond, moved, ranges_of

__all__ = ["COLUMNS", "HISTORY_COLUMNS", "Intake"]

#: Columns that identify a changeset, those shared by its changes, and the others.
_PLACE: Final = ("_partition", "_ordinal", "changeset_id")
_SHARED: Final = (
    "origin",
    "sequence",
    "committed",
    "changes",
    "source_kind",
    "source_position",
    "transaction",
    "is_snapshot",
)
_CHANGE: Final = ("table", "operation", "key", "before", "after", "old_key", "schema")
_DOCUMENTS: Final = frozenset({"key", "before", "after", "old_key"})
#: Columns of changes that are required for keys, and those for changesets.
COLUMNS: Final = (
    "_partition",
    "_ordinal",
    "change",
    "operation",
    "schema",
    "table",
    "key",
    "old_key",
    "committed",
)
HISTORY_COLUMNS: Final = tuple(dict.fromkeys((*COLUMNS, *_PLACE, *_SHARED, *_CHANGE)))
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_UNREADABLE: Final = "unreadable"


class _Change(msgspec.Struct, omit_defaults=True):
    """A change whose values remain JSON."""

    table: str
    action: str
    key: msgspec.Raw
    before: msgspec.Raw | None = None
    after: msgspec.Raw | None = None
    old_key: msgspec.Raw | None = None
    schema: str = ""


class _Envelope(msgspec.Struct):
    """A changeset in the format that :func:`stompkit.replication.model.events.decode` reads."""

    format: int
    id: str
    origin: str
    sequence: int
    timestamp: datetime
    source: Source
    changes: list[_Change]


@dataclass
class _Open:
    """A changeset that may receive more changes."""

    place: tuple[Any, ...]
    envelope: _Envelope
    #: Number of changes received, and expected.
    seen: int
    changes: int


@dataclass
class Intake:
    """Takes batches of changes in the order of their ordinals; changesets are contiguous."""

    fence: Fence
    #: Function that returns the namespace of a time.
    name: Callable[[float], str]
    has_history: bool
    #: Names of the selected tables, with or without schema; ``None`` for all.
    tables: frozenset[str] | None
    #: Expiry time of the stored data.
    expires: float
    #: Number of rows beyond the fence.
    rows: int = 0
    #: True if all changesets were contiguous.
    is_whole: bool = True
    #: New position of the fence.
    reached: Fence = field(default_factory=dict)
    _times: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    _open: _Open | None = None
    _done: list[_Open] = field(default_factory=list)

    def take(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Process the changes beyond the fence."""
        for whole in batches:
            batch = beyond(whole, self.fence)
            if not batch.num_rows:
                continue
            self.rows += batch.num_rows
            self.reached = moved(self.reached, [ranges_of([batch])[0]])
            batch = batch.filter(pc.not_equal(batch.column("operation"), _UNREADABLE))
            if batch.num_rows:
                self._note(batch)
                if self.has_history:
                    self._keep(batch)

    def events(self) -> pa.Table:
        """Return the latest time of each key."""
        tables = [EVENTS.empty_table()]
        for (namespace, event), times in self._times.items():
            columns = {
                "namespace": pa.repeat(namespace, len(times)),
                "event": pa.repeat(event, len(times)),
                "key": list(times),
                "ts": list(times.values()),
                "expires": np.full(len(times), self.expires),
            }
            tables.append(pa.Table.from_pydict(columns, EVENTS))
        return pa.concat_tables(tables)

    def history(self) -> Iterator[pa.Table]:
        """Yield the changesets of each namespace, in the order of their times."""
        if self._open is not None:
            self._finish(self._open)
            self._open = None
        found: dict[str, list[tuple[float, int, _Envelope]]] = {}
        for number, each in enumerate(self._done):
            ts = each.envelope.timestamp.timestamp()
            found.setdefault(self.name(ts), []).append((ts, number, each.envelope))
        for namespace, own in found.items():
            # Numbers follow the order of arrival, rows that of times.
            own.sort(key=lambda each: each[:2])
            columns = {
                "namespace": pa.repeat(namespace, len(own)),
                "id": [envelope.id for *_, envelope in own],
                "digest": [digest_of(envelope.id) for *_, envelope in own],
                "number": [number for _, number, _ in own],
                "ts": [ts for ts, *_ in own],
                "expires": np.full(len(own), self.expires),
                "body": [_ENCODER.encode(envelope) for *_, envelope in own],
            }
            yield pa.Table.from_pydict(columns, HISTORY)

    def _note(self, batch: pa.RecordBatch) -> None:
        times = (pc.cast(batch.column("committed"), pa.int64()).to_numpy() / 1e6).tolist()
        columns = (values(batch, name) for name in ("operation", "schema", "table"))
        documents = (values(batch, name) for name in ("key", "old_key"))
        for ts, operation, schema, table, key, old_key in zip(
            times, *columns, *documents, strict=True
        ):
            for name in self._names(schema, table):
                match operation:
                    case "write" | "read":
                        self._add(f"{name}_write", key, ts)
                    case "update" if old_key is not None:
                        self._add(f"{name}_delete", old_key, ts)
                        self._add(f"{name}_write", key, ts)
                    case "update" | "delete":
                        self._add(f"{name}_{operation}", key, ts)

    def _names(self, schema: str, table: str) -> Iterable[str]:
        if self.tables is None:
            return (table,)
        return self.tables.intersection((table, f"{schema}.{table}"))

    def _add(self, event: str, value: Any, ts: float) -> None:
        key = document(value)
        if not key:
            return
        # Format of signals: the value of one column, or those of several.
        told = [*key.values()]
        text = _ENCODER.encode(told[0] if len(told) == 1 else told).decode()
        times = self._times.setdefault((self.name(ts), event), {})
        if ts >= times.get(text, ts):
            times[text] = ts

    def _keep(self, batch: pa.RecordBatch) -> None:
        places = zip(*(_plain(batch, name) for name in _PLACE), strict=True)
        shared = zip(*(_plain(batch, name) for name in _SHARED), strict=True)
        changes = zip(*(_plain(batch, name) for name in _CHANGE), strict=True)
        for place, common, (table, operation, key, before, after, old_key, schema) in zip(
            places, shared, changes, strict=True
        ):
            known = self._open
            if known is None or known.place != place:
                if known is not None:
                    self._finish(known)
                known = self._open = _opened(place, common)
            known.seen += 1
            if self._names(schema, table):
                known.envelope.changes.append(
                    _Change(
                        table,
                        operation,
                        msgspec.Raw(key),
                        None if before is None else msgspec.Raw(before),
                        None if after is None else msgspec.Raw(after),
                        None if old_key is None else msgspec.Raw(old_key),
                        schema,
                    )
                )

    def _finish(self, known: _Open) -> None:
        self.is_whole = self.is_whole and known.seen == known.changes
        if known.envelope.changes:
            self._done.append(known)


def _opened(place: tuple[Any, ...], common: tuple[Any, ...]) -> _Open:
    origin, sequence, committed_us, changes, kind, position, transaction, is_snapshot = common
    source = Source(
        kind=kind,
        position=position or "",
        transaction=transaction or "",
        is_snapshot=bool(is_snapshot),
    )
    at = datetime.fromtimestamp(committed_us / 1e6, UTC)
    return _Open(place, _Envelope(FORMAT, place[2], origin, sequence, at, source, []), 0, changes)


def _plain(batch: pa.RecordBatch, name: str) -> list[Any]:
    """Return the values of a column: bytes for documents, and microseconds for times."""
    column = batch.column(name)
    if name in _DOCUMENTS:
        column = pc.cast(column, pa.binary())
    elif name == "committed":
        column = pc.cast(column, pa.int64())
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found
