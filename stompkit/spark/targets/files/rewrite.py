"""Copy-on-write rewriting of a table's Parquet files.

A file is never changed: its remaining rows are copied to a new file. Memory is limited by the rows
of a batch, and by a row group.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs as pa_fs

from stompkit.replication.sinks import ApplyError
from stompkit.replication.sql import SchemaError
from stompkit.spark.targets.files.row_changeset import Key, RowChangeset

__all__ = ["File", "Rewrite"]

#: Maximum number of rows in a file, and in a row group.
MOST_ROWS: Final = 250_000
_GROUP_ROWS: Final = 50_000
#: Maximum number of files below a quarter of that size before they are merged.
MOST_SMALL: Final = 8
#: Maximum length of text bounds of a file's keys.
_LONGEST_BOUND: Final = 32
#: Maximum number of characters of a row in messages.
_SHOWN: Final = 200


@dataclass(frozen=True)
class File:
    """A file of a table."""

    #: Path below the folder of the table.
    path: str
    rows: int
    #: Size in bytes.
    size: int
    #: Minimum and maximum of columns, if known.
    bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)


class Rewrite:
    """Rewrites the files of a table for a batch."""

    def __init__(self, folder: pa_fs.FileSystem, schema: pa.Schema) -> None:
        """Start with the table's folder, and the columns of its rows."""
        self._folder = folder
        self._schema = schema
        self.removed: list[File] = []
        self.added: list[File] = []

    def find(
        self, files: Iterable[File], names: tuple[str, ...], keys: set[Key]
    ) -> dict[Key, dict[str, Any] | None]:
        """Return the rows with the given keys; ``None`` for a missing row."""
        found: dict[Key, dict[str, Any] | None] = dict.fromkeys(keys)
        for file in _touched(files, names, keys):
            for batch in self._read(file):
                mask = _mask(batch, names, keys)
                if mask is not None:
                    for row in batch.filter(mask).to_pylist():
                        found[tuple(row[name] for name in names)] = row
        return found

    def rows(self, files: Iterable[File]) -> Iterator[dict[str, Any]]:
        """Yield all rows."""
        for file in files:
            for batch in self._read(file):
                yield from batch.to_pylist()

    def run(self, files: Sequence[File], overlay: RowChangeset) -> None:
        """Write new files; ``removed`` and ``added`` contain the result."""
        out = _Writer(self._folder, self._schema, overlay.names)
        try:
            if overlay.is_emptied:
                self.removed = list(files)
            else:
                self._copy(files, overlay, out)
            out.write_rows(overlay.rows())
        finally:
            self.added = out.close()

    def _copy(self, files: Sequence[File], overlay: RowChangeset, out: _Writer) -> None:
        """Copy the unchanged rows of files with changed rows, and of files that are too small."""
        small = [file for file in files if file.rows < MOST_ROWS // 4]
        merged = {file.path for file in small} if len(small) >= MOST_SMALL else set()
        names, keys = overlay.names, overlay.keys()
        touched = {file.path for file in _touched(files, names, keys)}
        for file in files:
            if file.path in merged or (file.path in touched and self._has_any(file, names, keys)):
                self.removed.append(file)
                for batch in self._read(file):
                    mask = _mask(batch, names, keys)
                    if mask is not None:
                        for row in batch.filter(mask).to_pylist():
                            overlay.meet(tuple(row[name] for name in names), row)
                        batch = batch.filter(pc.invert(mask))
                    out.write(batch)

    def _has_any(self, file: File, names: tuple[str, ...], keys: set[Key]) -> bool:
        return any(_mask(batch, names, keys) is not None for batch in self._read(file, names))

    def _read(self, file: File, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the current columns of the table, or some of them."""
        with (
            self._folder.open_input_file(file.path) as source,
            # By default these are nanoseconds, which reach from 1677 to 2262 only.
            pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as parquet,
        ):
            schema = self._schema
            if names is not None:
                schema = pa.schema([schema.field(name) for name in names])
            there = set(parquet.schema_arrow.names)
            columns = [name for name in schema.names if name in there]
            for batch in parquet.iter_batches(_GROUP_ROWS, columns=columns):
                yield _aligned(batch, schema, file)


class _Writer:
    """Writes rows to as many files as needed."""

    def __init__(self, folder: pa_fs.FileSystem, schema: pa.Schema, names: tuple[str, ...]) -> None:
        self._folder = folder
        self._schema = schema
        self._required = [each.name for each in schema if not each.nullable]
        self._names = names
        self._bounds: dict[str, tuple[Any, Any] | None] = {}
        self._path = ""
        self._sink: Any = None
        self._parquet: pq.ParquetWriter | None = None
        self._rows = 0
        self._files: list[File] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        if not batch.num_rows:
            return
        if self._parquet is None:
            self._path = f"{uuid4().hex}.parquet"
            self._sink = self._folder.open_output_stream(self._path)
            self._parquet = pq.ParquetWriter(self._sink, self._schema, compression="zstd")
        self._parquet.write_batch(batch)
        self._rows += batch.num_rows
        for name in self._names:
            self._bounds[name] = _wider_bounds(self._bounds.get(name), batch, name, self._bounds)
        if self._rows >= MOST_ROWS:
            self._end()

    def write_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows as mappings; a missing column is NULL."""
        chunk: list[Mapping[str, Any]] = []
        for row in rows:
            for name in self._required:
                if row.get(name) is None:
                    told = {each: value for each, value in row.items() if value is not None}
                    raise ApplyError(
                        f"a new row has no value for the column {name!r}, which is never NULL:"
                        f" {str(told)[:_SHOWN]}"
                    )
            chunk.append(row)
            if len(chunk) >= _GROUP_ROWS:
                self.write(self._batch(chunk))
                chunk = []
        if chunk:
            self.write(self._batch(chunk))

    def _batch(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        columns = [
            pa.array([row.get(each.name) for row in rows], each.type) for each in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _end(self) -> None:
        if self._parquet is None:
            return
        self._parquet.close()
        size = self._sink.tell()
        self._sink.close()
        bounds = {name: each for name, each in self._bounds.items() if each is not None}
        self._files.append(File(self._path, self._rows, size, bounds))
        self._parquet, self._rows, self._bounds = None, 0, {}

    def close(self) -> list[File]:
        """Finish the last file; return all files."""
        self._end()
        return self._files


def _touched(files: Iterable[File], names: tuple[str, ...], keys: Iterable[Key]) -> Iterator[File]:
    """Yield the files whose bounds contain one of the keys."""
    ordered: dict[str, list[Any]] = {}
    for at, name in enumerate(names):
        try:
            ordered[name] = sorted({key[at] for key in keys})
        except TypeError:
            continue
    for file in files:
        if all(
            _is_in(ordered[name], *file.bounds[name])
            for name in names
            if name in ordered and name in file.bounds
        ):
            yield file


def _is_in(values: Sequence[Any], low: Any, high: Any) -> bool:
    try:
        at = bisect_left(values, low)
        return at < len(values) and bool(values[at] <= high)
    except TypeError:
        return True


def _mask(batch: pa.RecordBatch, names: tuple[str, ...], keys: set[Key]) -> pa.Array | None:
    """Return a mask of the rows with one of the keys; ``None`` if there is none."""
    if not names or not keys or not batch.num_rows:
        return None
    if len(names) == 1:
        column = batch.column(names[0])
        mask = pc.is_in(column, value_set=pa.array([key[0] for key in keys], column.type))
    else:
        columns = [batch.column(name).to_pylist() for name in names]
        mask = pa.array([key in keys for key in zip(*columns, strict=True)])
    return mask if pc.any(mask).as_py() else None


def _aligned(batch: pa.RecordBatch, schema: pa.Schema, file: File) -> pa.RecordBatch:
    """Return a batch with the current columns of the table; older files may lack some.

    Raises :class:`SchemaError` for values that do not fit into a column.
    """
    arrays = []
    for each in schema:
        at = batch.schema.get_field_index(each.name)
        if at < 0:
            arrays.append(pa.nulls(batch.num_rows, each.type))
        else:
            arrays.append(_cast(batch.column(at), each, file))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(values: pa.Array, column: pa.Field, file: File) -> pa.Array:
    if values.type == column.type:
        return values
    try:
        return values.cast(column.type)
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"{file.path} holds {values.type} in {column.name!r}, and not all of it fits into"
            f" {column.type}: {error}. Write the table anew with its own types"
        ) from None


def _wider_bounds(
    known: tuple[Any, Any] | None, batch: pa.RecordBatch, name: str, all_known: Mapping[str, Any]
) -> tuple[Any, Any] | None:
    """Return the extended bounds of a column; ``None`` for types without useful bounds."""
    if name in all_known and known is None:
        return None
    column = batch.column(name)
    if not (pa.types.is_integer(column.type) or pa.types.is_string(column.type)):
        return None
    found = pc.min_max(column).as_py()
    low, high = found["min"], found["max"]
    if low is None or any(
        isinstance(each, str) and len(each) > _LONGEST_BOUND for each in (low, high)
    ):
        return None
    return (low, high) if known is None else (min(low, known[0]), max(high, known[1]))
