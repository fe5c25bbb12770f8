"""Files of sealed segments; requires pyarrow, and is imported only if there are any.

The metadata of a file name its place and the checksums of its batches. Files of earlier versions do
not name the place, and those in Parquet have no checksums besides those of their pages.
"""

from __future__ import annotations

from array import array
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
from stompkit.spool.segments.arrow import SCHEMA, block_of, fixed
from stompkit.spool.segments.blocks import Block
from stompkit.spool.segments.entries import Entry
from stompkit.spool.segments.place import Place

__all__ = ["entries", "opened", "verified", "write"]

_CRC: Final = b"crc32"
_PLACE: Final = b"stompkit-place"
#: Checksums of all batches of a file in Parquet, whose pages have checksums and whose end has none.
_CRCS: Final = b"stompkit-crc32"


def write(path: Path, place: Place, first: int, batches: Iterable[pa.RecordBatch]) -> None:
    """Write a file in the format of its suffix, and sync it; raises OSError."""
    schema = SCHEMA.with_metadata({_PLACE: _place_text(place, first)})
    with path.open("wb") as file:
        if path.suffix == ".arrow":
            with pa.ipc.new_file(file, schema) as arrow:
                for batch in batches:
                    crc = block_of(batch, 0).checksum()
                    arrow.write_batch(batch, custom_metadata={_CRC: str(crc)})
        else:
            crcs: list[str] = []
            with pq.ParquetWriter(
                file, schema, compression="zstd", write_page_checksum=True
            ) as pages:
                for batch in batches:
                    pages.write_batch(batch, row_group_size=batch.num_rows)
                    crcs.append(str(block_of(batch, 0).checksum()))
                if hasattr(pages, "add_key_value_metadata"):  # pyarrow 16
                    pages.add_key_value_metadata({_CRCS: ",".join(crcs)})
        file.flush()
        sync_data(file.fileno())


def verified(
    path: Path, place: Place, first: int, batches: Iterable[pa.RecordBatch]
) -> list[Entry]:
    """Return the index of a file after comparing it with the expected batches.

    Raises :class:`BrokenSpoolError` if the content differs, and OSError.
    """
    with _problems(path):
        file = _opened(path, place, first)
        count = 0
        for count, batch in enumerate(batches, 1):
            if count > len(file.counts) or not file.batch(count - 1).equals(batch):
                raise BrokenSpoolError(path, 0, f"its batch {count} is not what was written")
        if count < len(file.counts):
            raise BrokenSpoolError(path, 0, "it has more than what was written")
        return file.entries()


def entries(path: Path, place: Place, file: OpenFile | None = None) -> list[Entry]:
    """Return the index of a sealed segment; raises :class:`BrokenSpoolError`, and OSError.

    The segment is the file at *path*, or *file* if there is one.
    """
    with _problems(path):
        return _opened(path, place, int(path.stem), file).entries()


def opened(
    path: Path, place: Place, file: OpenFile | None = None, counts: list[int] | None = None
) -> Callable[[list[Entry]], Iterator[tuple[Block, int]]]:
    """Return a reader of a sealed segment's blocks, which takes entries and also yields sizes.

    The segment is the file at *path*, or *file* if there is one. With *counts*, the numbers of rows
    of the first batches, these are not determined from the file. Raises FileNotFoundError if the
    segment was removed, and otherwise the errors of :func:`entries`.
    """
    with _problems(path):
        return partial(_blocks, _opened(path, place, int(path.stem), file, counts))


class _File:
    """An open sealed segment."""

    def __init__(self, path: Path, first: int, counts: list[int]) -> None:
        self.path: Final = path
        #: Number of rows of each batch.
        self.counts: Final = counts
        self.firsts: Final = list(accumulate(counts, initial=first))

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """Return the metadata of the whole file."""
        raise NotImplementedError

    def batch(self, number: int) -> pa.RecordBatch:
        """Return one of the batches, checked."""
        raise NotImplementedError

    def check_place(self, place: Place, first: int) -> None:
        """Raise :class:`BrokenSpoolError` if the file was written for another place."""
        expected = _place_text(place, first)
        found = self.metadata.get(_PLACE, expected.encode()).decode("ascii", "replace")
        if found != expected:
            raise BrokenSpoolError(
                self.path,
                0,
                f"it was written as {found!r} and not {expected!r}, which are spool, partition and"
                " first ordinal. Bring the file of this place back from a copy",
            )

    def check(self, number: int, batch: pa.RecordBatch, crc: bytes | None) -> None:
        """Raise :class:`BrokenSpoolError` for a batch with other content than was written."""
        if crc is not None and crc != str(block_of(batch, 0).checksum()).encode():
            raise BrokenSpoolError(
                self.path, 0, f"the checksum of its batch {number} does not match"
            )
        first = self.firsts[number]
        if bytes(_ordinals(batch)) != array("q", range(first, first + batch.num_rows)).tobytes():
            raise BrokenSpoolError(self.path, 0, f"its batch {number} has other ordinals")

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

    @property
    def metadata(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = self._file.schema.metadata or {}
        return found

    def batch(self, number: int) -> pa.RecordBatch:
        batch, metadata = self._file.get_batch_with_custom_metadata(number)
        batch.validate()
        self.check(number, batch, metadata[_CRC])
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

    @property
    def metadata(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = self._file.metadata.metadata or {}
        return found

    def batch(self, number: int) -> pa.RecordBatch:
        table = self._file.read_row_group(number).cast(SCHEMA)
        (batch,) = table.combine_chunks().to_batches()
        crcs = self.metadata.get(_CRCS)
        self.check(number, batch, None if crcs is None else crcs.split(b",")[number])
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
    path: Path,
    place: Place,
    first: int,
    file: OpenFile | None = None,
    counts: list[int] | None = None,
) -> _File:
    kind = _Arrow if path.suffix == ".arrow" else _Parquet
    found = kind(path, first, file, counts)
    found.check_place(place, first)
    return found


def _place_text(place: Place, first: int) -> str:
    return f"{place.spool} {place.partition} {first}"


def _ordinals(batch: pa.RecordBatch) -> memoryview:
    return fixed(batch.column(0), batch.column(0).buffers()[1], 8, batch.num_rows)


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
    except (pa.ArrowException, LookupError, TypeError, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise BrokenSpoolError(path, 0, str(error)) from None
