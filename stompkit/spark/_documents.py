"""The columns of changes, and the documents in them, as values of Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from stompkit.spark._states import Broken, Document

__all__ = ["COLUMNS", "document", "documents", "identity_of", "problem_of", "values"]

#: The columns of a batch that are read, beside the place.
COLUMNS: Final = ("operation", "schema", "table", "key", "before", "after", "old_key")
_DOCUMENTS: Final = frozenset({"key", "before", "after", "old_key"})
_DECODER: Final = msgspec.json.Decoder(dict[str, Any] | None)
_MANY: Final = msgspec.json.Decoder(list[dict[str, Any] | None])


def values(batch: pa.RecordBatch, name: str) -> Sequence[Any]:
    """A column's values; documents are decoded if all of them can be."""
    column = batch.column(name)
    if name in _DOCUMENTS:
        decoded = documents(column)
        if decoded is not None:
            return decoded
        column = pc.cast(column, pa.binary())
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def documents(column: pa.Array) -> list[Document | None] | None:
    """A column of documents; ``None`` where one of them can't be decoded."""
    if column.null_count == len(column):
        return [None] * len(column)
    octets = pc.cast(column.fill_null("null"), pa.binary())
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(octets)], octets), b",")
    try:
        decoded = _MANY.decode(b"[" + joined[0].as_py() + b"]")
    except (msgspec.DecodeError, RecursionError):
        return None
    # One that is none can look like two.
    return decoded if len(decoded) == len(column) else None


def document(value: Any) -> Document | None:
    """A document; of one that could not be decoded with the others, what is wrong with it."""
    if type(value) is not bytes:
        found: Document | None = value
        return found
    try:
        decoded: Document | None = _DECODER.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Broken(f"this is no row: {error}") from None
    return decoded


def identity_of(key: tuple[Any, ...]) -> Any:
    """Something to find a row by, by the values of its key."""
    try:
        hash(key)
    except TypeError:
        return msgspec.json.encode(key, order="deterministic")
    return key


def problem_of(batch: pa.RecordBatch, number: int) -> str:
    """What is wrong with a message that is no changeset."""
    told = batch.column("problem")[number].as_py() if "problem" in batch.schema.names else None
    return told or "this is no changeset"
