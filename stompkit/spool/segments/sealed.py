"""Files of sealed segments; requires pyarrow, and is imported only if there are any."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from stompkit.spool._errors import BrokenSpoolError
from stompkit.spool._files import sync_data
from stompkit.spool._storage import OpenFile
from stompkit.spool.segments.arrow import SCHEMA, block_of
from stompkit.spool.segments.blocks import Block
from stompkit.spool.segments.entries import Entry

__all__ = ["entries", "opened", "verified", "write"]

_CRC: Final = b"crc32"


def write(path: Path, batches: Iterable[pa.RecordBatch]) -> None:
    """Write a file in the format of its suffix, and sync it; raises OSError."""
    with path.open("wb") as file:
        if path.suffix == ".arrow":
            with pa.ipc.new_file(file, SCHEMA) as arrow:
                for batch in batches:
                    crc = block_of(batch, 0).checksum()
                    arrow.write_batch(batch, custom_metadata={_CRC: str(crc)})
        else:
            with pq.ParquetWriter(
                file, SCHEMA, compression="zstd", write_page_checksum=True
            ) as pages:
                for batch in batches:
                    pages.write_batch(batch, row_group_size=batch.num_rows)
        file.flush()
        sync_data(file.fileno())


def verified(path: Path, first: int, batches: Iterable[pa.RecordBatch]) -> list[Entry]:
    """Return the index of a file after comparing it with the expected batches.

    Raises :class:`BrokenSpoolError` if the content differs, and OSError.
    """
    with _problems(path):
        file = _opened(path, first)
        count = 0
        for count, batch in enumerate(batches, 1):
            if count > len(file.counts) or not file.batch(count - 1).equals(batch):
                raise BrokenSpoolError(path, 0, f"its batch {count} is not what was written")
        if count < len(file.counts):
            raise BrokenSpoolError(path, 0, "it has more than what was written")
        return file.entries()


def entries(path: Path, file: OpenFile | None = None) -> list[Entry]:
    """Return the index of a sealed segment; raises :class:`BrokenSpoolError`, and OSError.

    The segment is the file at *path*, or *file* if there is one.
    """
    with _problems(path):
        return _opened(path, int(path.stem), file).entries()


def opened(
    path: Path, file: OpenFile | None = None, counts: list[int] | None = None
) -> Callable[[list[Entry]], Iterator[tuple[Block, int]]]:
    """Return a reader of a sealed segment's blocks, which takes entries and also yields sizes.

    The segment is the file at *path*, or *file* if there is one. With *counts*, the numbers of rows
    of the first batches, these are not determined from the file. Raises FileNotFoundError if the
    segment was removed, and otherwise the errors of :func:`entries`.
    """
    with _problems(path):
        return partial(_blocks, _opened(path, int(path.stem), file, counts))


class _File:
    """An open sealed segment."""

    def __init__(self, path: Path, first: int, counts: list[int]) -> None:
        self.path: Final = path
        #: Number of rows of each batch.
        self.counts: Final = counts
        self.firsts: Final = list(accumulate(counts, initial=first))

    def batch(self, number: int) -> pa.RecordBatch:
        """Return one of the batches."""
        raise NotImplementedError

    def entries(self) -> list[Entry]:
        """Return the index entries of the segment."""
        found: list[Entry] = []
        offset = 0
        for number, (first, count) in enumerate(zip(self.firsts, self.counts, strict=False)):
            block = block_of(self.batch(number), first)
            length, received = block.octets, block.received
            found.append(Entry(first, offset, count, length, received[0], received[-1]))
            offset += length
        return found


class _Arrow(_File):
    """An Arrow IPC file, whose columns are used in place."""

    def __init__(
        self, path: Path, first: int, file: OpenFile | None, counts: list[int] | None
    ) -> None:
        self._file = pa.ipc.open_file(pa.memory_map(str(path)) if file is None else _seekable(file))
        batches = range(self._file.num_record_batches)
        if counts is None:
            counts = [self._file.get_batch(i).num_rows for i in batches]
        super().__init__(path, first, counts)

    def batch(self, number: int) -> pa.RecordBatch:
        batch, metadata = self._file.get_batch_with_custom_metadata(number)
        batch.validate()
        if metadata[_CRC] != str(block_of(batch, 0).checksum()).encode():
            raise BrokenSpoolError(
                self.path, 0, f"the checksum of its batch {number} does not match"
            )
        return batch


class _Parquet(_File):
    """A Parquet file, which contains its own checksums."""

    def __init__(
        self, path: Path, first: int, file: OpenFile | None, counts: list[int] | None
    ) -> None:
        source = path if file is None else _seekable(file)
        self._file = pq.ParquetFile(source, page_checksum_verification=True)
        groups = range(self._file.num_row_groups)
        if counts is None:
            counts = [self._file.metadata.row_group(i).num_rows for i in groups]
        super().__init__(path, first, counts)

    def batch(self, number: int) -> pa.RecordBatch:
        table = self._file.read_row_group(number).cast(SCHEMA)
        (batch,) = table.combine_chunks().to_batches()
        return batch


class _Seekable:
    """A file with a position, as Arrow reads files of Python."""

    closed = False

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._size = file.size()
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def read(self, length: int = -1) -> bytes:
        left = max(self._size - self._at, 0)
        octets = self._file.read_at(left if length < 0 else min(length, left), self._at)
        self._at += len(octets)
        return octets

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Do nothing: the file is only read."""

    def close(self) -> None:
        """Leave the file open: whoever has opened it closes it."""


def _seekable(file: OpenFile) -> pa.PythonFile:
    return pa.PythonFile(_Seekable(file), mode="r")


def _opened(
    path: Path, first: int, file: OpenFile | None = None, counts: list[int] | None = None
) -> _File:
    kind = _Arrow if path.suffix == ".arrow" else _Parquet
    return kind(path, first, file, counts)


def _blocks(file: _File, wanted: list[Entry]) -> Iterator[tuple[Block, int]]:
    for entry in wanted:
        with _problems(file.path):
            number = bisect_left(file.firsts, entry.first)
            if file.firsts[number] != entry.first or file.counts[number] != entry.messages:
                raise BrokenSpoolError(file.path, 0, f"it has no batch of ordinal {entry.first}")
            block = block_of(file.batch(number), entry.first)
            if block.count != entry.messages:
                raise BrokenSpoolError(file.path, 0, f"its batch {number} has {block.count} rows")
        yield block, entry.length


@contextmanager
def _problems(path: Path) -> Iterator[None]:
    """Convert read errors of a file to :class:`BrokenSpoolError`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, KeyError, TypeError, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise BrokenSpoolError(path, 0, str(error)) from None
