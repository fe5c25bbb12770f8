"""Write order of rows of one table that refer to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stompkit._common.graph import parents_first
from stompkit.replica.data._links import Link
from stompkit.replica.data._many import Values
from stompkit.replica.data._plan import Batch

__all__ = ["children_last"]


def children_last(
    batch: Batch, links: Sequence[Link], fetch: Callable[[Link], list[Values | None]]
) -> Batch:
    """Return the batch with referred rows before those that refer to them.

    ``fetch`` returns the current references of the rows, one for each in the batch. They determine
    the order of deletions, which is the reverse.
    """
    parents: dict[int, list[int]] = {place: [] for place in range(len(batch))}
    is_delete = batch.shape.kind == "delete"
    for link in links:
        own = (batch.values_of(row, link.referred)[1] for row in batch.rows)
        places = {values: place for place, values in enumerate(own) if values is not None}
        referring = (batch.values_of(row, link.columns)[1] for row in batch.rows)
        for place, values in enumerate(fetch(link) if is_delete else referring):
            parent = None if values is None else places.get(values)
            if parent is not None:
                parents[place].append(parent)
    order = parents_first(parents)
    return batch.ordered(reversed(order) if is_delete else order)
