"""Conversion of blocks to and from Arrow without copying columns; requires pyarrow."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from stompkit.spool.segments.blocks import TEXTS, Block, Headers, Texts

__all__ = ["SCHEMA", "batch_of", "block_of", "combined", "fixed"]

_HEADERS: Final = pa.map_(pa.string(), pa.string())
#: The columns of sealed segments.
SCHEMA: Final = pa.schema(
    [
        pa.field("ordinal", pa.int64(), nullable=False),
        pa.field("received", pa.timestamp("us", tz="UTC"), nullable=False),
        *(pa.field(name, pa.string(), nullable=False) for name in TEXTS),
        pa.field("headers", _HEADERS, nullable=False),
        pa.field("body", pa.binary(), nullable=False),
    ]
)


def batch_of(block: Block) -> pa.RecordBatch:
    """Return a block's messages as a batch with the columns of :data:`SCHEMA`."""
    count = block.count
    ordinals = array("q", range(block.first, block.end))
    names, values = block.headers.names, block.headers.values
    pairs = pa.StructArray.from_arrays(
        [_strings(pa.string(), names), _strings(pa.string(), values)],
        fields=[_HEADERS.key_field, _HEADERS.item_field],
    )
    rows = pa.py_buffer(block.headers.rows)
    columns = [
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(ordinals)]),
        pa.Array.from_buffers(SCHEMA.types[1], count, [None, pa.py_buffer(block.received)]),
        *(_strings(pa.string(), block.text(name)) for name in TEXTS),
        pa.Array.from_buffers(_HEADERS, count, [None, rows], children=[pairs]),
        _strings(pa.binary(), block.body),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def block_of(batch: pa.RecordBatch, first: int) -> Block:
    """Return the block of a batch; the reverse of :func:`batch_of`."""
    _, received, *texts, headers, body = batch.columns
    return Block(
        first,
        fixed(received, received.buffers()[1], 8, len(received)).cast("q"),
        [_texts(column) for column in texts],
        Headers(_offsets(headers), _texts(headers.keys), _texts(headers.items)),
        _texts(body),
    )


def combined(
    blocks: Iterable[Block], *, rows: int, octets: int = 16 << 20
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of blocks in batches of up to so many rows or bytes; no block is split."""
    some: list[Any] = []
    count = size = 0
    for block in blocks:
        batch = batch_of(block)
        if some and (count + block.count > rows or size + batch.nbytes > octets):
            yield _one(some)
            some, count, size = [], 0, 0
        some.append(batch)
        count += block.count
        size += batch.nbytes
    if some:
        yield _one(some)


def _one(batches: list[Any]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


def _strings(kind: pa.DataType, texts: Texts) -> pa.Array:
    buffers = [None, pa.py_buffer(texts.offsets), pa.py_buffer(texts.data)]
    return pa.Array.from_buffers(kind, len(texts.offsets) - 1, buffers)


def _texts(column: pa.Array) -> Texts:
    offsets = _offsets(column)
    data = column.buffers()[2]
    return Texts(offsets, memoryview(b"" if data is None else data).cast("B")[: offsets[-1]])


def _offsets(column: pa.Array) -> memoryview:
    if not len(column):
        return memoryview(bytes(4)).cast("I")
    return fixed(column, column.buffers()[1], 4, len(column) + 1).cast("I")


def fixed(column: pa.Array, buffer: pa.Buffer, width: int, count: int) -> memoryview:
    """Return the numbers of a buffer that belong to the column."""
    start = column.offset * width
    return memoryview(buffer).cast("B")[start : start + count * width]
