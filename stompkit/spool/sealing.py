"""Sealing segments: rewriting them once as Arrow IPC or Parquet, which other programs can read.

Requires the extra ``spark``, as does reading sealed segments.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa

from stompkit._common.files import sync_path
from stompkit.spool._files import Segment, part_folder, replace_octets, segments, unfinished_path
from stompkit.spool._identity import identity_of
from stompkit.spool._partition import Partition
from stompkit.spool._reading import SpoolReader
from stompkit.spool._storage import FolderStorage
from stompkit.spool._write_access import Where, right_to
from stompkit.spool.segments.arrow import SCHEMA, batch_of, combined
from stompkit.spool.segments.index import packed, seed_of
from stompkit.spool.segments.place import Place
from stompkit.spool.segments.sealed import verified, write

__all__ = ["SCHEMA", "Form", "arrow_batches", "batch_of", "seal", "unsealed"]

#: File format of a sealed segment.
Form = Literal["arrow", "parquet"]

#: Number of rows of a batch, which is read as a whole.
_ROWS: Final = 1 << 14


def arrow_batches(
    reader: SpoolReader, partition: int, start: int, end: int, *, rows: int = _ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range in batches with the columns of :data:`SCHEMA`.

    Small blocks are combined until there are *rows* rows; a batch from a single block shares its
    memory. Raises the errors of :meth:`~stompkit.spool.SpoolReader.blocks`.
    """
    return combined(reader.blocks(partition, start, end), rows=rows)


def unsealed(folder: str | os.PathLike[str]) -> list[tuple[int, int]]:
    """Return the segments that can be sealed, as partition and first ordinal, oldest first.

    Raises :class:`~stompkit.spool.SpoolError` if the folder contains no spool, and OSError.
    """
    path = Path(folder)
    return [
        (number, segment.first)
        for number in range(identity_of(path).partitions)
        for segment in segments(part_folder(path, number))[:-1]
        if segment.is_log
    ]


def seal(where: Where, partition: int, segment: int, *, form: Form = "arrow") -> Path:
    """Rewrite the segment that begins with an ordinal, and return the path of the new file.

    The new file is compared with the segment before the segment is removed. A sealed segment is
    left unchanged. ``where`` is the writer of this process, which may append concurrently in
    another thread, or a folder. No other caller may seal or retain at the same time.

    Raises ValueError if there is no such segment or it is still written to,
    :class:`~stompkit.spool.SpoolInUseError` if another process writes to the folder,
    :class:`~stompkit.spool.BrokenSpoolError`, and OSError.
    """
    with right_to(where) as folder:
        listed = segments(part_folder(folder, partition))
        ends = {one.first: (one, following.first) for one, following in pairwise(listed)}
        if segment not in ends:
            raise ValueError(
                f"no segment of partition {partition} begins with {segment}, or it is the newest"
            )
        log, end = ends[segment]
        return _sealed(folder, partition, log, end, form) if log.is_log else log.path


def _sealed(folder: Path, partition: int, log: Segment, end: int, form: Form) -> Path:
    sealed = Segment(log.first, log.path.with_suffix(f".{form}"))
    unfinished = unfinished_path(log, form)
    place = Place(identity_of(folder).id, partition)

    def batches() -> Iterator[pa.RecordBatch]:
        blocks = (
            block for block, _ in Partition(FolderStorage(folder), place).blocks(log.first, end)
        )
        return combined(blocks, rows=_ROWS)

    try:
        write(unfinished, place, log.first, batches())
        index = verified(unfinished, place, log.first, batches())
        replace_octets(sealed.index_path, packed(index, seed_of(place, sealed)))
        os.replace(unfinished, sealed.path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    sync_path(sealed.path.parent)
    with suppress(FileNotFoundError):
        log.index_path.unlink()
    log.path.unlink()
    return sealed.path
