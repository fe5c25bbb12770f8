"""Changes as rows of batches, in the form of the source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.values import row_to_json

__all__ = ["SCHEMA", "batch_of", "changes_of", "row_of"]

#: The relevant columns of the source.
SCHEMA = pa.schema(
    [
        ("_partition", pa.int32()),
        ("_ordinal", pa.int64()),
        ("_received", pa.timestamp("us", "UTC")),
        ("sequence", pa.int64()),
        ("change", pa.int32()),
        ("operation", pa.string()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("key", pa.string()),
        ("before", pa.string()),
        ("after", pa.string()),
        ("old_key", pa.string()),
        ("committed", pa.timestamp("us", "UTC")),
        ("problem", pa.string()),
    ]
)


def row_of(
    change: RowChange, ordinal: int, number: int = 0, *, partition: int = 0, sequence: int = 0
) -> dict[str, Any]:
    """Return a change as a row."""
    at = datetime(2026, 11, 22, tzinfo=UTC)
    return {
        "_partition": partition,
        "_ordinal": ordinal,
        "_received": at,
        "sequence": sequence,
        "change": number,
        "operation": change.action,
        "schema": change.schema,
        "table": change.table,
        "key": _json(change.key),
        "before": _json(change.before),
        "after": _json(change.after),
        "old_key": _json(change.old_key),
        "committed": at,
        "problem": None,
    }


def changes_of(changesets: Iterable[Changeset], *, partition: int = 0) -> list[dict[str, Any]]:
    """Return the changes of changesets, whose numbers are their ordinals."""
    return [
        row_of(change, each.sequence, number, partition=partition, sequence=each.sequence)
        for each in changesets
        for number, change in enumerate(each.changes)
    ]


def batch_of(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Return rows as a batch."""
    return pa.RecordBatch.from_pylist(list(rows), SCHEMA)


def _json(row: dict[str, Any] | None) -> str | None:
    return None if row is None else msgspec.json.encode(row_to_json(row)).decode()
