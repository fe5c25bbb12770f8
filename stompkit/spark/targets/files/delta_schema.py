"""Columns and features of Delta tables: those that are written, and those that are not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import deltalake
import pyarrow as pa
from deltalake import DeltaTable, Field, Schema

from stompkit.replication.sql import SchemaError

__all__ = ["add_invariants", "allow_types", "key_of", "supported", "with_key"]

#: Metadata field that marks key columns.
_KEY: Final = "stompkit.key"
#: Table properties that require more from writers than these files provide.
_REFUSED: Final = {
    "delta.appendOnly": "only takes new rows",
    "delta.enableChangeDataFeed": "keeps a feed of its changes",
    "delta.enableDeletionVectors": "has deletion vectors",
    "delta.enableRowTracking": "tracks its rows",
}
#: First writer version whose tables list their features.
_LISTS_FEATURES: Final = 7
_FEATURES: Final = frozenset({"timestampNtz", "appendOnly", "invariants", "changeDataFeed"})


def with_key(schema: pa.Schema, key: Sequence[str]) -> Schema:
    """Return the columns of a table, with marks of the key."""
    fields = [
        Field(
            each.name,
            each.type,
            nullable=each.nullable,
            metadata={_KEY: "true"} if each.name in key else None,
        )
        for each in Schema.from_arrow(schema).fields
    ]
    return Schema(fields)


def allow_types(delta: DeltaTable, columns: Iterable[pa.Field]) -> None:
    """Add the feature that times without a zone require."""
    if any(each.type == pa.timestamp("us") for each in columns):
        delta.alter.add_feature(
            deltalake.TableFeatures.TimestampWithoutTimezone,
            allow_protocol_versions_increase=True,
        )


def add_invariants(delta: DeltaTable) -> bool:
    """Add the feature ``invariants`` to a table that requires it; return True if it was missing.

    Columns without NULL are invariants. Tables of version 7 list their features, and deltalake
    omits this one. Spark's Delta refuses such a table.
    """
    protocol = delta.protocol()
    if (
        protocol.min_writer_version < _LISTS_FEATURES
        or "invariants" in (protocol.writer_features or ())
        or all(each.nullable for each in delta.schema().fields)
    ):
        return False
    delta.alter.add_feature(
        deltalake.TableFeatures.Invariants, allow_protocol_versions_increase=True
    )
    return True


def supported(name: str, delta: DeltaTable) -> list[Field]:
    """Return the columns of a table; raises SchemaError for unsupported features."""
    metadata, protocol = delta.metadata(), delta.protocol()
    settings = metadata.configuration
    reasons = [
        reason for each, reason in _REFUSED.items() if settings.get(each, "").lower() == "true"
    ]
    if metadata.partition_columns:
        reasons.append("has partitions")
    if settings.get("delta.columnMapping.mode", "none") != "none":
        reasons.append("has columns that files call otherwise")
    if any(each.startswith("delta.constraints.") for each in settings):
        reasons.append("has constraints")
    fields = delta.schema().fields
    if any(
        key in each.metadata
        for each in fields
        for key in ("delta.invariants", "delta.generationExpression", "delta.identity.start")
    ):
        reasons.append("has columns whose values are checked or made")
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if not reasons and features - _FEATURES:
        reasons.append(f"has {', '.join(sorted(features - _FEATURES))}")
    if reasons:
        raise SchemaError(
            f"the Delta table {name!r} {' and '.join(reasons)}, which is not written here."
            " To go on, make a table without that, or name another one in `table_map`"
        )
    return fields


def key_of(fields: Iterable[Field]) -> tuple[str, ...]:
    """Return the columns that are marked as those of the key."""
    return tuple(each.name for each in fields if _KEY in each.metadata)
