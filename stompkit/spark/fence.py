"""How far a pipeline has applied a spool: by the ordinals of its partitions, never by batches.

A fence has for each partition the ordinal of the last message that is applied. It is stored where
the rows are stored, in the same transaction, so it survives what Spark's checkpoint does not: a
checkpoint that is deleted or lost, another size of batches, two drivers at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "Fence",
    "Point",
    "Ranges",
    "Span",
    "TargetBehind",
    "are_in_order",
    "beyond",
    "moved",
    "ranges_of",
    "sort_key",
]

#: The ordinal of the last message that is applied, by partition.
Fence = Mapping[int, int]
#: A change of a partition: the ordinal of its message, and its number in the changeset. One message
#: can have more changes than are worked on together, so an ordinal alone tells no order.
Point = tuple[int, int]
#: The first and the last change of each partition.
Ranges = Mapping[int, tuple[Point, Point]]


class TargetBehind(Exception):
    """The target ends before the batch begins: the changes in between would be missing.

    It was restored from a backup, emptied, or replaced by a server that had not all of it.
    """


@dataclass(frozen=True)
class Span:
    """Where a batch begins and ends in the spool.

    Not each message has rows. One that comes again, or the first part of a changeset, has none. So
    rows alone do not tell whether anything is missing between a fence and a batch.
    """

    #: The first ordinal, by partition. Empty where nothing was read before.
    starts: Fence = field(default_factory=dict)
    #: The ordinal after the last one, by partition.
    ends: Fence = field(default_factory=dict)

    def check(self, fence: Fence) -> None:
        """Raise :class:`TargetBehind` where the fence ends before the batch begins."""
        for partition, start in self.starts.items():
            last = fence.get(partition, -1)
            if last + 1 < start:
                has = f"ends with message {last}" if last >= 0 else "has nothing"
                raise TargetBehind(
                    f"the target {has} of partition {partition}, and the batch begins with message"
                    f" {start}: the target is older than the checkpoint"
                )

    def moved(self, fence: Fence) -> dict[int, int]:
        """The fence when the batch is applied."""
        made = dict(fence)
        for partition, end in self.ends.items():
            if end > made.get(partition, -1) + 1:
                made[partition] = end - 1
        return made


def beyond(batch: pa.RecordBatch, fence: Fence) -> pa.RecordBatch:
    """The rows of a batch that are not applied yet."""
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


def ranges_of(batches: Iterable[pa.RecordBatch]) -> tuple[dict[int, tuple[Point, Point]], bool]:
    """The changes that there are, and whether each partition's come in their order."""
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
    """What parts of a batch are sorted by, before :func:`are_in_order` looks at them."""
    return sorted((partition, first) for partition, (first, _) in ranges.items())


def are_in_order(parts: Sequence[Ranges]) -> bool:
    """Whether each part begins where no part before it has been, in every partition."""
    lasts: dict[int, Point] = {}
    for ranges in parts:
        for partition, (first, last) in ranges.items():
            if partition in lasts and first <= lasts[partition]:
                return False
            lasts[partition] = last
    return True


def moved(fence: Fence, parts: Iterable[Ranges]) -> dict[int, int]:
    """The fence when all parts are applied."""
    made = dict(fence)
    for ranges in parts:
        for partition, (_, (last, _)) in ranges.items():
            made[partition] = max(last, made.get(partition, -1))
    return made


def _places(batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    """The partitions and the ordinals of the rows."""
    partitions = pc.cast(batch.column("_partition"), pa.int64()).to_numpy(zero_copy_only=False)
    return partitions, batch.column("_ordinal").to_numpy(zero_copy_only=False)
