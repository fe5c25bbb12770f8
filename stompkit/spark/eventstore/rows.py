"""Rows in the files of an event store, and the selection of valid rows across files."""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stompkit.spark.eventstore.files import FRESH, Entry, Folder

__all__ = ["EVENTS", "HISTORY", "Files", "Sorted", "digest_of", "halves", "outliving", "write"]

#: Times of keys, sorted by key. ``expires`` is infinite for data that never expires.
EVENTS: Final = pa.schema(
    [
        ("namespace", pa.string()),
        ("event", pa.string()),
        ("key", pa.string()),
        ("ts", pa.float64()),
        ("expires", pa.float64()),
    ]
)
#: Changesets, sorted by time and then by number; ``digest`` is that of the id.
HISTORY: Final = pa.schema(
    [
        ("namespace", pa.string()),
        ("id", pa.string()),
        ("digest", pa.binary(16)),
        ("number", pa.int64()),
        ("ts", pa.float64()),
        ("expires", pa.float64()),
        ("body", pa.binary()),
    ]
)
#: Maximum rows and bytes of a row group, which is read as a whole: few, to find one key cheaply.
_GROUP_ROWS: Final = 8192
_GROUP_OCTETS: Final = 4 * 1024 * 1024
#: Number of files with cached footers.
_REMEMBERED: Final = 1000


class Sorted(NamedTuple):
    """Sort order of the rows of a kind within a file."""

    column: str
    order: list[tuple[str, str]]

    @staticmethod
    def of(event: str | None) -> Sorted:
        """Return the sort order of an event, or of changesets."""
        return _HISTORY_ORDER if event is None else _EVENTS_ORDER


_EVENTS_ORDER: Final = Sorted(
    "key", [("key", "ascending"), ("ts", "descending"), ("expires", "descending")]
)
_HISTORY_ORDER: Final = Sorted("ts", [("ts", "ascending"), ("number", "ascending")])


def write(folder: Folder, table: pa.Table, *, base: int = FRESH, tier: int = 0) -> Entry:
    """Write sorted rows of one namespace and kind to a new file, which is not listed yet."""
    is_history = table.schema.equals(HISTORY)
    namespace = table.column("namespace")[0].as_py()
    event = None if is_history else table.column("event")[0].as_py()
    path = folder.new_path(namespace, event)
    octets = table.nbytes
    rows = min(_GROUP_ROWS, max(1, _GROUP_OCTETS * table.num_rows // octets))
    unfinished = path.with_suffix(".tmp")
    with open(unfinished, "xb") as file:
        pq.write_table(
            table,
            file,
            row_group_size=rows,
            compression="zstd",
            use_dictionary=["namespace", "event"],
            write_statistics=[Sorted.of(event).column],
        )
        folder.finish(file, unfinished, path)
    expiries = pc.min_max(table.column("expires")).as_py()
    return Entry(
        path.relative_to(folder.path).as_posix(),
        namespace,
        event,
        table.num_rows,
        octets,
        pc.max(table.column("ts")).as_py(),
        _finite(expiries["min"]),
        _finite(expiries["max"]),
        base,
        tier,
    )


class Files:
    """Reads files and caches their footers: files are immutable."""

    def __init__(self, folder: Path) -> None:
        """Read the files of a folder."""
        self._folder = folder
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[Any, list[tuple[Any, Any] | None]]] = OrderedDict()

    def read(self, entry: Entry, columns: list[str]) -> pa.Table:
        """Return some columns of a file; changesets have their numbers in the whole store."""
        with self._open(entry) as file:
            table = file.read(columns, use_threads=False)
        return _numbered(table, entry)

    def between(self, entry: Entry, low: Any, high: Any) -> pa.Table:
        """Return the rows from ``low`` up to ``high``, exclusive; ``None`` for no limit."""
        column = Sorted.of(entry.event).column
        _, bounds = self._directory(entry)
        groups = [
            number
            for number, bound in enumerate(bounds)
            if bound is None
            or ((low is None or bound[1] >= low) and (high is None or bound[0] < high))
        ]
        table = _numbered(self._groups(entry, groups, None), entry)
        if low is not None:
            table = table.filter(pc.greater_equal(table.column(column), low))
        if high is not None:
            table = table.filter(pc.less(table.column(column), high))
        return table

    def first(self, entry: Entry) -> float:
        """Return the earliest time of the changesets in a file."""
        _, bounds = self._directory(entry)
        if bounds[0] is not None:
            return float(bounds[0][0])
        return float(self._groups(entry, [0], ["ts"]).column("ts")[0].as_py())

    def find(self, entry: Entry, key: str) -> pa.Table:
        """Return the times of a key, and their expiry times."""
        _, bounds = self._directory(entry)
        groups = [
            number
            for number, bound in enumerate(bounds)
            if bound is None or bound[0] <= key <= bound[1]
        ]
        table = self._groups(entry, groups, ["key", "ts", "expires"])
        return table.filter(pc.equal(table.column("key"), key))

    def bodies(self, entry: Entry, rows: np.ndarray) -> list[bytes]:
        """Return the changesets in some rows of a file; *rows* are in ascending order."""
        directory, _ = self._directory(entry)
        counts = [directory.row_group(n).num_rows for n in range(directory.num_row_groups)]
        begins = np.cumsum([0, *counts])
        of = np.searchsorted(begins, rows, side="right") - 1
        found: list[bytes] = []
        for group in np.unique(of).tolist():
            table = self._groups(entry, [group], ["body"])
            found += table.column("body").take(rows[of == group] - begins[group]).to_pylist()
        return found

    def _groups(self, entry: Entry, groups: list[int], columns: list[str] | None) -> pa.Table:
        with self._open(entry) as file:
            return file.read_row_groups(groups, columns, use_threads=False)

    def _open(self, entry: Entry) -> pq.ParquetFile:
        directory, _ = self._directory(entry)
        return pq.ParquetFile(self._folder / entry.path, metadata=directory)

    def _directory(self, entry: Entry) -> tuple[Any, list[tuple[Any, Any] | None]]:
        """Return the footer of a file, and the bounds of its row groups if they are known."""
        with self._lock:
            if entry.path in self._known:
                self._known.move_to_end(entry.path)
                return self._known[entry.path]
        directory = pq.read_metadata(self._folder / entry.path)
        place = directory.schema.names.index(Sorted.of(entry.event).column)
        bounds: list[tuple[Any, Any] | None] = []
        for number in range(directory.num_row_groups):
            told = directory.row_group(number).column(place).statistics
            has_bounds = told is not None and told.has_min_max
            bounds.append((told.min, told.max) if has_bounds else None)
        with self._lock:
            self._known[entry.path] = directory, bounds
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return directory, bounds


def outliving(groups: Sequence[np.ndarray], expires: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return masks of the rows that can become valid, and of the first row of each group.

    Rows are in order of preference. ``groups`` are columns that are equal within a group; the first
    unexpired row of a group is valid. Another row therefore matters only if it expires later than
    all rows before it.
    """
    size = len(expires)
    is_first = np.ones(size, bool)
    if size:
        is_first[1:] = False
        for column in groups:
            is_first[1:] |= column[1:] != column[:-1]
    leaders = np.maximum.accumulate(np.where(is_first, np.arange(size), 0))
    kept = is_first.copy()
    longest: dict[int, float] = {}
    # Later times mostly expire later, so these rows are few.
    for row in np.flatnonzero(expires > expires[leaders]).tolist():
        leader = int(leaders[row])
        if expires[row] > longest.get(leader, -math.inf):
            longest[leader] = expires[row]
            kept[row] = True
    return kept, is_first


def digest_of(id: str) -> bytes:
    """Return a short digest that represents the id of a changeset."""
    return hashlib.blake2b(id.encode(), digest_size=16).digest()


def halves(digests: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return digests as pairs of integers, which are faster to sort."""
    parts = [
        np.frombuffer(chunk.buffers()[1], "<u8")[2 * chunk.offset :][: 2 * len(chunk)]
        for chunk in digests.chunks
        if len(chunk)
    ]
    both = np.concatenate(parts) if parts else np.empty(0, "<u8")
    return both[::2], both[1::2]


def _numbered(table: pa.Table, entry: Entry) -> pa.Table:
    if entry.event is not None or "number" not in table.column_names:
        return table
    place = table.column_names.index("number")
    return table.set_column(place, "number", pc.add(table.column("number"), entry.base))


def _finite(time: float) -> float | None:
    return None if math.isinf(time) else time
