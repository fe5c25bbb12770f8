"""Isolation of changes that a target rejects, so that all others are still applied in bulk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stompkit.spark.states import Place
from stompkit.spark.targets.planning.bulk import by_table

__all__ = ["Alone", "Attempt", "isolate"]

#: Processes changes together. Returns None, or the suspects if it has rejected them and processed
#: none: positions of the rejected changes, empty if they are unknown.
Attempt = Callable[[Sequence[pa.RecordBatch]], Collection[Place] | None]
#: Processes changes one by one.
Alone = Callable[[Sequence[pa.RecordBatch]], None]

#: Maximum number of suspects between which changes are processed together.
_MOST_SUSPECTS: Final = 64
#: Number of parts otherwise.
_PARTS: Final = 8


def isolate(
    batches: Sequence[pa.RecordBatch],
    attempt: Attempt,
    alone: Alone,
    *,
    failed: Collection[Place] | None = None,
    is_between: bool = False,
) -> None:
    """Process ordered changes in parts that become smaller until no change is rejected.

    Consecutive changes of keys within one message stay together. ``failed`` is the result of
    *attempt* for all changes, if it was called. One rejected change causes about as much work as
    all others together. ``is_between`` is true for changes between suspects: if they are rejected
    as well, the suspects were not the cause.
    """
    suspects = attempt(batches) if failed is None else failed
    if suspects is None:
        return
    batch = pa.concat_batches(batches)
    starts = _starts(batch)
    if len(starts) <= 1:
        alone(batches)
        return
    units = [*starts, batch.num_rows]
    rows = [] if is_between else _rows_of(batch, suspects)
    is_cut = 0 < len(rows) <= _MOST_SUSPECTS
    for start, end in _parts(units, rows if is_cut else ()):
        part = [batch.slice(start, end - start)]
        is_suspect = any(start <= row < end for row in rows) and _is_unit(units, start, end)
        isolate(part, attempt, alone, failed=() if is_suspect else None, is_between=is_cut)


def _rows_of(batch: pa.RecordBatch, suspects: Collection[Place]) -> list[int]:
    """Return all changes of the rows that suspects change, as row numbers.

    A suspect is the last change of a row, and an earlier one may have the rejected value.
    """
    names = ("_partition", "_ordinal", "change")
    places = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    found = [number for number, place in enumerate(places) if place in suspects]
    if not 0 < len(found) <= _MOST_SUSPECTS:
        return found
    schemas, tables, keys = (
        pc.fill_null(batch.column(name), "") for name in ("schema", "table", "key")
    )
    rows = pc.binary_join_element_wise(schemas, tables, keys, "\0")
    own = pc.take(rows, pa.array(found))
    # Rows without a key are not told apart.
    own = own.filter(pc.greater(pc.binary_length(pc.take(keys, pa.array(found))), len("{}")))
    same = np.flatnonzero(pc.is_in(rows, value_set=own).to_numpy(zero_copy_only=False))
    return sorted({*found, *same.tolist()})


def _starts(batch: pa.RecordBatch) -> list[int]:
    """Return the rows at which changes begin that can be processed separately."""
    partitions, ordinals = (batch.column(name).to_numpy() for name in ("_partition", "_ordinal"))
    if not len(ordinals):
        return []
    is_new = np.concatenate(([True], (np.diff(partitions) != 0) | (np.diff(ordinals) != 0)))
    messages = np.cumsum(is_new)
    is_move = batch.column("old_key").is_valid().to_numpy(zero_copy_only=False)
    opened = np.zeros(len(is_new) + 1, np.int64)
    for _, own in by_table(batch) if is_move.any() else ():
        # Two changes of keys in a message, with no other change of the table between them.
        are_together = is_move[own[:-1]] & is_move[own[1:]] & (np.diff(messages[own]) == 0)
        opened[own[:-1][are_together] + 1] += 1
        opened[own[1:][are_together] + 1] -= 1
    found: list[int] = np.flatnonzero(np.cumsum(opened[:-1]) == 0).tolist()
    return found


def _parts(units: Sequence[int], suspects: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of smaller parts: around suspects, or of about equal size."""
    count = len(units) - 1
    if suspects:
        own = {int(np.searchsorted(units, row, side="right")) - 1 for row in suspects}
        cuts = {0, count, *own, *(number + 1 for number in own)}
    else:
        cuts = {round(count * number / _PARTS) for number in range(_PARTS + 1)}
    for first, last in pairwise(sorted(cuts)):
        yield units[first], units[last]


def _is_unit(units: Sequence[int], start: int, end: int) -> bool:
    """Return True if a part cannot be divided."""
    at = int(np.searchsorted(units, start))
    return units[at + 1] == end
