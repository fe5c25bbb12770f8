"""Headers of all messages of a block at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stompkit.spool import Block, Texts

__all__ = ["CHANGESET", "as_array", "first_values", "header_values", "several_parts"]

#: Header with the id of a changeset.
CHANGESET: Final = "stompkit-changeset"
_NUMBER: Final = "stompkit-part"
_PARTS: Final = "stompkit-parts"


def several_parts(block: Block) -> Mapping[int, tuple[str, str]]:
    """Return the messages of a block that are parts, with number and count from their headers."""
    headers = block.headers
    names = as_array(headers.names, pa.string())
    has_counts = pc.equal(names, _PARTS)
    values = as_array(headers.values, pa.string())
    if pc.all(pc.equal(values.filter(has_counts), "1"), min_count=0).as_py():
        return {}
    counts = _by_message(block, values, has_counts)
    numbers = _by_message(block, values, pc.equal(names, _NUMBER))
    return {row: (numbers.get(row, "1"), of) for row, of in counts.items() if of != "1"}


def header_values(block: Block, name: str) -> tuple[np.ndarray, pa.Array]:
    """Return the rows of a block that have a header, and the values."""
    headers = block.headers
    places = np.flatnonzero(pc.equal(as_array(headers.names, pa.string()), name))
    rows = np.frombuffer(headers.rows, np.uint32)
    owners = np.searchsorted(rows, places, side="right") - 1
    # A sliced block has more headers than messages.
    own = (owners >= 0) & (owners < block.count)
    return owners[own], as_array(headers.values, pa.string()).take(pa.array(places[own]))


def first_values(block: Block, name: str) -> dict[int, str]:
    """Return the values of a header by row; of several values of one message, the first."""
    rows, values = header_values(block, name)
    return dict(reversed(list(zip(rows.tolist(), values.to_pylist(), strict=True))))


def _by_message(block: Block, values: pa.Array, are_wanted: pa.Array) -> dict[int, str]:
    """Return selected header values by message; the first of several."""
    places = np.flatnonzero(are_wanted)
    rows = np.frombuffer(block.headers.rows, np.uint32)
    owners = np.searchsorted(rows, places, side="right") - 1
    found: dict[int, str] = {}
    for row, value in zip(owners.tolist(), values.take(places).to_pylist(), strict=True):
        # A sliced block has more headers than messages.
        if 0 <= row < block.count:
            found.setdefault(row, value)
    return found


def as_array(texts: Texts, kind: pa.DataType) -> pa.Array:
    """Return texts as an Arrow array; the layout is the same."""
    buffers = [None, pa.py_buffer(texts.offsets), pa.py_buffer(texts.data)]
    return pa.Array.from_buffers(kind, len(texts.offsets) - 1, buffers)
