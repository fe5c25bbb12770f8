"""Columns of changes, and their JSON documents, as Python values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stompkit.spark.states import Document, StateError

__all__ = ["COLUMNS", "by_table", "document", "documents", "identity_of", "problem_of", "values"]

#: Columns of a batch that are read, besides the position.
COLUMNS: Final = ("operation", "schema", "table", "key", "before", "after", "old_key")
_DOCUMENTS: Final = frozenset({"key", "before", "after", "old_key"})
_SEPARATOR: Final = "\0"
_DECODER: Final = msgspec.json.Decoder(dict[str, Any] | None)
_MANY: Final = msgspec.json.Decoder(list[dict[str, Any] | None])


def by_table(batch: pa.RecordBatch) -> list[tuple[tuple[str, str], np.ndarray]]:
    """Return the tables of the changes, with the row numbers of each."""
    filled = [pc.fill_null(batch.column(name), "") for name in ("schema", "table")]
    names = pc.binary_join_element_wise(*filled, _SEPARATOR).dictionary_encode()
    numbers = names.indices.to_numpy()
    found = []
    for number, name in enumerate(names.dictionary.to_pylist()):
        schema, _, table = name.partition(_SEPARATOR)
        found.append(((schema, table), np.flatnonzero(numbers == number)))
    return found


def values(batch: pa.RecordBatch, name: str) -> Sequence[Any]:
    """Return the values of a column; documents are decoded if all of them are valid."""
    column = batch.column(name)
    if name in _DOCUMENTS:
        decoded = documents(column)
        if decoded is not None:
            return decoded
        column = pc.cast(column, pa.binary())
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def documents(column: pa.Array) -> list[Document | None] | None:
    """Return a decoded column of documents; ``None`` if one of them is invalid."""
    if column.null_count == len(column):
        return [None] * len(column)
    octets = pc.cast(column.fill_null("null"), pa.binary())
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(octets)], octets), b",")
    try:
        decoded = _MANY.decode(b"[" + joined[0].as_py() + b"]")
    except (msgspec.DecodeError, RecursionError):
        return None
    # One invalid document can look like two.
    return decoded if len(decoded) == len(column) else None


def document(value: Any) -> Document | None:
    """Return a document; raises an error for one that could not be decoded with the others."""
    if type(value) is not bytes:
        found: Document | None = value
        return found
    try:
        decoded: Document | None = _DECODER.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise StateError(f"this is no row: {error}") from None
    return decoded


def identity_of(key: tuple[Any, ...]) -> Any:
    """Return a hashable identity of a row for the values of its key."""
    try:
        hash(key)
    except TypeError:
        return msgspec.json.encode(key, order="deterministic")
    return key


def problem_of(batch: pa.RecordBatch, number: int) -> str:
    """Return the error of a message that is not a changeset."""
    told = batch.column("problem")[number].as_py() if "problem" in batch.schema.names else None
    return told or "this is no changeset"
