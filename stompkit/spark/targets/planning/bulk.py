"""Bulk processing of changes of one table: rows written or deleted under an unchanged key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stompkit.spark.documents import by_table, documents
from stompkit.spark.states import Choice, Document, State, Step, TableRules

__all__ = ["OpenTable", "by_table", "take"]

_PLAIN: Final = pa.array(["update", "write", "read", "delete"])
#: Number of rows decoded at a time, so that the data of one step fits into the processor's cache.
_STEP: Final = 1000


@dataclass(slots=True)
class OpenTable:
    """The open step of a table."""

    schema: str
    name: str
    rules: TableRules
    key_names: tuple[str, ...]
    #: True if a change of the table requires no data but its own.
    is_simple: bool
    states: dict[Any, State] = field(default_factory=dict)
    #: Key columns in the first change.
    told_key: tuple[str, ...] = ()
    #: The open step, if it changes keys.
    moves: Step | None = None

    @classmethod
    def make(
        cls, source: tuple[str, str], rules: TableRules, choice: Choice, *, is_alone: bool
    ) -> OpenTable:
        """Create an open table; ``is_alone`` disables bulk processing of its changes."""
        key_names = choice.key_of(*source)
        is_simple = (
            rules.group is None
            and not key_names
            and not is_alone
            and not choice.is_partial
            and not choice.ignores_null_updates
        )
        return cls(*source, rules, key_names, is_simple)


def take(table: OpenTable, batch: pa.RecordBatch) -> bool:
    """Process changes of one table if all are simple; otherwise return False and process none."""
    key = batch.column("key")
    if (
        table.moves is not None
        or key.null_count
        or batch.column("old_key").null_count < batch.num_rows
        or not pc.all(pc.is_in(batch.column("operation"), _PLAIN)).as_py()
    ):
        return False
    encoded = key.dictionary_encode()
    keys = documents(encoded.dictionary)
    identities = None if keys is None else _identities(table, keys)
    if keys is None or identities is None:
        return False
    numbers = encoded.indices.to_numpy()
    rows = np.arange(len(numbers))
    deletes = np.flatnonzero(pc.equal(batch.column("operation"), "delete"))
    gone = np.full(len(keys), -1)
    # Of several rows with the same number the last one stays.
    gone[numbers[deletes]] = deletes
    chosen = np.flatnonzero(rows > gone[numbers])
    told = _told(len(keys), numbers[chosen], batch.column("after").take(pa.array(chosen)))
    if told is None:
        return False
    table.told_key = tuple(keys[0] or ())
    lasts = np.zeros(len(keys), np.int64)
    lasts[numbers] = rows
    _put(table, keys, identities, told, (gone >= 0).tolist(), _places(batch, lasts))
    return True


def _identities(
    table: OpenTable, keys: Sequence[Document | None]
) -> list[tuple[object, ...]] | None:
    """Return the key values; ``None`` for duplicates, NULLs, or differing columns."""
    there = [key for key in keys if key]
    names = tuple(there[0]) if len(there) == len(keys) else ()
    if not names or table.told_key not in ((), names):
        return None
    if any(tuple(key) != names for key in there):
        return None
    identities = [tuple(key.values()) for key in there]
    try:
        are_different = len(set(identities)) == len(keys)
    except TypeError:
        return None
    if not are_different or any(None in identity for identity in identities):
        return None
    return identities


def _told(count: int, numbers: np.ndarray, column: pa.Array) -> list[Document | None] | None:
    """Return the final content of each row by number; ``None`` if it cannot be decoded."""
    told: list[Document | None] = [None] * count
    for at in range(0, len(column), _STEP):
        afters = documents(column.slice(at, _STEP))
        if afters is None:
            return None
        for number, after in zip(numbers[at : at + _STEP].tolist(), afters, strict=True):
            before = told[number]
            if before is None:
                told[number] = after or {}
            elif after:
                before.update(after)
    return told


def _places(batch: pa.RecordBatch, rows: np.ndarray) -> list[tuple[int, int, int]]:
    columns = [
        batch.column(name).to_numpy()[rows].tolist()
        for name in ("_partition", "_ordinal", "change")
    ]
    return list(zip(*columns, strict=True))


def _put(
    table: OpenTable,
    keys: Sequence[Any],
    identities: Sequence[tuple[object, ...]],
    told: Sequence[Document | None],
    were_deleted: Sequence[bool],
    places: Sequence[tuple[int, int, int]],
) -> None:
    """Merge the new contents of rows into the former ones."""
    states, names = table.states, table.told_key
    for identity, key, columns, was_deleted, place in zip(
        identities, keys, told, were_deleted, places, strict=True
    ):
        if columns is None:
            states[identity] = State(key, None, True, place)
            continue
        state = states.get(identity)
        if was_deleted or state is None or state.columns is None:
            for name in names:
                if name not in columns:
                    columns = {**key, **columns}
                    break
            states[identity] = State(key, columns, was_deleted or state is not None, place)
        else:
            state.columns.update(columns)
            state.place = place
