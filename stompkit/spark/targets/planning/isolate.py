"""Isolation of changes that a target rejects, so that all others are still applied in bulk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from stompkit.spark.states import Place

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
) -> None:
    """Process ordered changes in parts that become smaller until no change is rejected.

    Changes of keys within one message stay together. ``failed`` is the result of *attempt* for all
    changes, if it was called. One rejected change causes about as much work as all others together.
    """
    suspects = attempt(batches) if failed is None else failed
    if suspects is None:
        return
    table = pa.Table.from_batches(batches).combine_chunks()
    places = list(
        zip(
            *(table.column(name).to_pylist() for name in ("_partition", "_ordinal", "change")),
            strict=True,
        )
    )
    starts = _starts(table)
    if len(starts) <= 1:
        alone(batches)
        return
    units = [*starts, table.num_rows]
    rows = [number for number, place in enumerate(places) if place in suspects]
    for start, end in _parts(units, rows):
        part = table.slice(start, end - start).to_batches()
        is_suspect = any(start <= row < end for row in rows) and _is_unit(units, start, end)
        isolate(part, attempt, alone, failed=() if is_suspect else None)


def _starts(table: pa.Table) -> list[int]:
    """Return the rows at which changes begin that can be processed separately."""
    partitions, ordinals = (table.column(name).to_numpy() for name in ("_partition", "_ordinal"))
    if not len(ordinals):
        return []
    is_new = np.concatenate(([True], (np.diff(partitions) != 0) | (np.diff(ordinals) != 0)))
    messages = np.cumsum(is_new) - 1
    moves = np.flatnonzero(~table.column("old_key").is_null().to_numpy())
    has_moves = np.zeros(messages[-1] + 1, bool)
    has_moves[messages[moves]] = True
    found: list[int] = np.flatnonzero(is_new | ~has_moves[messages]).tolist()
    return found


def _parts(units: Sequence[int], suspects: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of smaller parts: around suspects, or of about equal size."""
    count = len(units) - 1
    if 0 < len(suspects) <= _MOST_SUSPECTS:
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
