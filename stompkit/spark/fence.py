"""Fences: the progress of a pipeline in a spool, by ordinals of partitions, not by batches.

A fence contains for each partition the ordinal of the last applied message. It is stored with the
rows, in the same transaction. Therefore it remains correct if Spark's checkpoint is deleted or
lost, if the batch size changes, and if two drivers run at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stompkit._common.moved import renamed

__all__ = [
    "Fence",
    "Point",
    "Ranges",
    "Span",
    "TargetBehindError",
    "are_in_order",
    "beyond",
    "moved",
    "moved_elsewhere",
    "ranges_of",
    "sort_key",
    "within",
]

#: Ordinal of the last applied message, by partition.
Fence = Mapping[int, int]
#: Position of a change in a partition: the ordinal of its message, and its number in the changeset.
#: One message can have more changes than are processed together, so an ordinal alone is not
#: sufficient.
Point = tuple[int, int]
#: Positions of the first and the last change of each partition.
Ranges = Mapping[int, tuple[Point, Point]]


class TargetBehindError(Exception):
    """The target ends before the batch begins, so the changes in between would be missing.

    It was restored from a backup, emptied, or replaced by a server with older data.
    """


@dataclass(frozen=True)
class Span:
    """The bounds of a batch in the spool.

    Some messages have no rows: a duplicate, or the first part of a changeset. Therefore the rows
    alone do not show whether changes are missing between a fence and a batch.
    """

    #: First ordinal by partition; empty if no batch precedes.
    starts: Fence = field(default_factory=dict)
    #: Ordinal after the last message, by partition.
    ends: Fence = field(default_factory=dict)
    #: Both bounds as offsets of Spark's checkpoint, in JSON; empty if no batch precedes.
    offsets: tuple[str, str] = ("", "")

    def check(self, fence: Fence) -> None:
        """Raise :class:`TargetBehindError` if the fence ends before the batch begins."""
        for partition, start in self.starts.items():
            last = fence.get(partition, -1)
            if last + 1 < start:
                has = f"ends with message {last}" if last >= 0 else "has nothing"
                raise TargetBehindError(
                    f"the target {has} of partition {partition}, and the batch begins with message"
                    f" {start}: the target is older than the checkpoint"
                )

    def moved(self, fence: Fence) -> dict[int, int]:
        """Return the fence after the batch is applied."""
        made = dict(fence)
        for partition, end in self.ends.items():
            if end > made.get(partition, -1) + 1:
                made[partition] = end - 1
        return made


def beyond(batch: pa.RecordBatch, fence: Fence) -> pa.RecordBatch:
    """Return the rows of a batch that are not applied yet."""
    partitions, ordinals = _places(batch)
    if not fence or not len(partitions):
        return batch
    known = np.fromiter(fence.keys(), np.int64, len(fence))
    lasts = np.fromiter(fence.values(), np.int64, len(fence))
    order = np.argsort(known)
    known, lasts = known[order], lasts[order]
    at = np.minimum(np.searchsorted(known, partitions), len(known) - 1)
    is_new = (known[at] != partitions) | (ordinals > lasts[at])
    return batch if is_new.all() else batch.filter(pa.array(is_new))


def within(batch: pa.RecordBatch, ranges: Ranges) -> pa.RecordBatch:
    """Return the rows of a batch in the given ranges."""
    partitions, ordinals = _places(batch)
    numbers = batch.column("change").to_numpy(zero_copy_only=False)
    chosen = np.zeros(batch.num_rows, bool)
    for partition, ((first, first_change), (last, last_change)) in ranges.items():
        is_from = (ordinals > first) | ((ordinals == first) & (numbers >= first_change))
        is_to = (ordinals < last) | ((ordinals == last) & (numbers <= last_change))
        chosen |= (partitions == partition) & is_from & is_to
    return batch.filter(pa.array(chosen))


def ranges_of(batches: Iterable[pa.RecordBatch]) -> tuple[dict[int, tuple[Point, Point]], bool]:
    """Return the ranges of changes, and True if those of each partition are in order."""
    ranges: dict[int, tuple[Point, Point]] = {}
    in_order = True
    for batch in batches:
        partitions, ordinals = _places(batch)
        numbers = batch.column("change").to_numpy(zero_copy_only=False)
        for partition in np.unique(partitions).tolist():
            chosen = partitions == partition
            own, steps = ordinals[chosen], numbers[chosen]
            ahead = np.diff(own)
            in_order = in_order and bool(
                ((ahead > 0) | ((ahead == 0) & (np.diff(steps) > 0))).all()
            )
            order = np.lexsort((steps, own)) if not in_order else (0, -1)
            first, last = ((int(own[at]), int(steps[at])) for at in (order[0], order[-1]))
            if partition in ranges:
                before = ranges[partition]
                in_order = in_order and first > before[1]
                first, last = min(first, before[0]), max(last, before[1])
            ranges[partition] = (first, last)
    return ranges, in_order


def sort_key(ranges: Ranges) -> list[tuple[int, Point]]:
    """Return the sort key for parts of a batch, before :func:`are_in_order` checks them."""
    return sorted((partition, first) for partition, (first, _) in ranges.items())


def are_in_order(parts: Sequence[Ranges]) -> bool:
    """Return True if each part begins after all earlier parts, in every partition."""
    lasts: dict[int, Point] = {}
    for ranges in parts:
        for partition, (first, last) in ranges.items():
            if partition in lasts and first <= lasts[partition]:
                return False
            lasts[partition] = last
    return True


def moved(fence: Fence, parts: Iterable[Ranges]) -> dict[int, int]:
    """Return the fence after all parts are applied."""
    made = dict(fence)
    for ranges in parts:
        for partition, (_, (last, _)) in ranges.items():
            made[partition] = max(last, made.get(partition, -1))
    return made


def moved_elsewhere(spool: str) -> RuntimeError:
    """Return the error for a fence that others move whenever a batch is stored."""
    return RuntimeError(
        f"what is stored of the spool {spool!r} changes all the time: is it stored more than once?"
    )


def _places(batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    """Return the partitions and the ordinals of the rows."""
    partitions = pc.cast(batch.column("_partition"), pa.int64()).to_numpy(zero_copy_only=False)
    return partitions, batch.column("_ordinal").to_numpy(zero_copy_only=False)


renamed(
    __name__,
    TargetBehind="TargetBehindError",
)
