"""Merging of event store files into fewer ones, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from stompkit.spark.eventstore.files import Entry, Folder
from stompkit.spark.eventstore.rows import HISTORY, Files, Sorted, halves, outliving, write

__all__ = [
    "COMPACTED",
    "Merged",
    "compactable",
    "compacted_tier",
    "crowded",
    "find_doubles",
    "living_keys",
    "merge",
    "partitions",
]

#: Lowest tier of compacted files.
COMPACTED: Final = 100
#: Number of small files in a tier that triggers a merge when another is added.
_CROWD: Final = 32
_SMALL_OCTETS: Final = 32 * 1024 * 1024
#: A tier of up to this multiple of the newly chosen rows is compacted together with them.
_GROWTH: Final = 4
#: Approximate maximum number of rows in a merged file, which is built in memory.
_FILE_ROWS: Final = 1_000_000
_FILE_OCTETS: Final = 128 * 1024 * 1024
#: Number of sampled rows per file that determine the bounds of merged files.
_SAMPLES: Final = 64

#: Key of a partition: the namespace, and the event or None for changesets.
_Partition = tuple[str, str | None]


class Merged(NamedTuple):
    """Files that replace others."""

    files: list[Entry]
    #: Number of expired keys or changesets that no file contains any more.
    expired: int


def partitions(entries: Sequence[Entry]) -> dict[_Partition, list[Entry]]:
    """Return the files grouped by partition."""
    found: dict[_Partition, list[Entry]] = {}
    for entry in entries:
        found.setdefault((entry.namespace, entry.event), []).append(entry)
    return found


def crowded(entries: Sequence[Entry]) -> list[Entry]:
    """Return many small files of a partition that should be merged, or an empty list."""
    for tier in sorted({entry.tier for entry in entries if entry.tier < COMPACTED}):
        small: list[Entry] = []
        octets = 0
        # The smallest ones: large files must not prevent the others from being merged.
        for entry in sorted(
            (each for each in entries if each.tier == tier), key=lambda each: each.octets
        ):
            octets += entry.octets
            if octets > _SMALL_OCTETS:
                break
            small.append(entry)
        if len(small) >= _CROWD:
            return small
    return []


def compactable(entries: Sequence[Entry]) -> list[Entry]:
    """Return the files of a partition that are worth compacting."""
    chosen = [entry for entry in entries if entry.tier < COMPACTED]
    if not chosen:
        return []
    # Data compacted together forms a tier. It is compacted again when a similar amount of new data
    # exists. So each row is rewritten only a few times, and there are few tiers.
    tiers: dict[int, list[Entry]] = {}
    for entry in entries:
        if entry.tier >= COMPACTED:
            tiers.setdefault(entry.tier, []).append(entry)
    for tier in sorted(tiers.values(), key=_rows):
        if _rows(tier) > _GROWTH * _rows(chosen):
            break
        chosen += tier
    return chosen


def compacted_tier(entries: Iterable[Entry]) -> int:
    """Return the tier of the next compaction in a partition."""
    return max(COMPACTED, *(entry.tier + 1 for entry in entries))


def merge(
    folder: Folder,
    files: Files,
    entries: Sequence[Entry],
    now: float,
    tier: int,
    *,
    since: float | None = None,
) -> Merged:
    """Write the valid rows of files of one partition to new files, which are not listed yet.

    Changesets before ``since`` are dropped.
    """
    made = []
    is_history = entries[0].event is None
    doubles, expired = find_doubles(files, entries, now) if is_history else (None, 0)
    for low, high in _ranges(files, entries):
        table = _merged(files, entries, low, high)
        if doubles is None:
            table, gone = _latest(table, now)
            expired += gone
        else:
            kept = _column(table, "expires") > now
            if len(doubles):
                kept &= ~np.isin(_column(table, "number"), doubles)
            if since is not None:
                kept &= _column(table, "ts") >= since
            # Avoid a copy, which is large, if all rows are kept.
            table = table if kept.all() else table.filter(pa.array(kept))
        if table.num_rows:
            # From here on numbers are absolute.
            made.append(write(folder, table, base=0, tier=tier))
    return Merged(made, expired)


def living_keys(files: Files, entries: Sequence[Entry], now: float) -> int:
    """Return the number of unexpired keys of a partition."""
    found = 0
    for low, high in _ranges(files, entries):
        table = _merged(files, entries, low, high)
        found += _kept(table.filter(_alive(table, now)))[1]
    return found


def _latest(table: pa.Table, now: float) -> tuple[pa.Table, int]:
    """Return the valid rows among sorted times of keys, and the number of expired keys."""
    alive = table.filter(_alive(table, now))
    kept, keys = _kept(alive)
    before = keys if alive.num_rows == table.num_rows else _kept(table)[1]
    return alive.filter(pa.array(kept)), before - keys


def _kept(table: pa.Table) -> tuple[np.ndarray, int]:
    """Return a mask of the relevant rows among sorted times of keys, and the number of keys."""
    codes = table.column("key").combine_chunks().dictionary_encode()
    indices = codes.indices if isinstance(codes, pa.DictionaryArray) else _indices(codes)
    kept, is_first = outliving([indices.to_numpy(zero_copy_only=False)], _column(table, "expires"))
    return kept, int(is_first.sum())


def _indices(codes: pa.ChunkedArray) -> pa.Array:
    return pa.chunked_array([chunk.indices for chunk in codes.chunks], pa.int32()).combine_chunks()


def find_doubles(
    files: Files, entries: Sequence[Entry], now: float, *, firsts_only: bool = False
) -> tuple[np.ndarray, int]:
    """Return the numbers of duplicate changesets, and the number of fully expired changesets.

    A duplicate that expires later than an earlier one is not included, as it will be needed. With
    ``firsts_only`` it is included; the remaining changesets are then those valid now.
    """
    # Equal digests are in the same share, so that only one share must be in memory.
    shares = max(1, -(-_rows(entries) // _FILE_ROWS))
    numbers = [np.empty(0, np.int64)]
    expired = 0
    for share in range(shares):
        found, gone = _doubles_in(files, entries, now, share, shares, firsts_only=firsts_only)
        numbers.append(found)
        expired += gone
    return np.sort(np.concatenate(numbers)), expired


def _doubles_in(
    files: Files,
    entries: Sequence[Entry],
    now: float,
    share: int,
    shares: int,
    *,
    firsts_only: bool,
) -> tuple[np.ndarray, int]:
    """Return the duplicates in one of several shares of the digests."""
    columns = ["digest", "number", "expires"]
    tables = [HISTORY.empty_table().select(columns)]
    for entry in entries:
        table = files.read(entry, columns)
        if shares > 1:
            is_own = halves(table.column("digest"))[0] % np.uint64(shares) == share
            table = table.filter(pa.array(is_own))
        tables.append(table)
    table = pa.concat_tables(tables)
    numbers, expires = _column(table, "number"), _column(table, "expires")
    high, low = halves(table.column("digest"))
    order = np.lexsort((numbers, low, high))
    before = int(outliving([high[order], low[order]], expires[order])[1].sum())
    order = order[expires[order] > now]
    kept, is_first = outliving([high[order], low[order]], expires[order])
    return numbers[order][~(is_first if firsts_only else kept)], before - int(is_first.sum())


def _merged(files: Files, entries: Sequence[Entry], low: Any, high: Any) -> pa.Table:
    tables = [files.between(entry, low, high) for entry in entries]
    return pa.concat_tables(tables).sort_by(Sorted.of(entries[0].event).order).combine_chunks()


def _ranges(files: Files, entries: Sequence[Entry]) -> Iterator[tuple[Any, Any]]:
    """Yield bounds, the lower one inclusive, that contain about one file's worth of rows each."""
    column = Sorted.of(entries[0].event).column
    rows = _rows(entries)
    octets = sum(entry.octets for entry in entries)
    most = max(1, min(_FILE_ROWS, _FILE_OCTETS * rows // max(1, octets)))
    if rows <= most:
        yield None, None
        return
    samples: list[tuple[Any, int]] = []
    for entry in entries:
        step = -(-entry.rows // _SAMPLES)
        values = files.read(entry, [column]).column(column)
        samples += [
            (value, step) for value in values.take(np.arange(0, entry.rows, step)).to_pylist()
        ]
    samples.sort()
    low: Any = None
    size = 0
    for value, weight in samples:
        if size >= most and (low is None or value > low):
            yield low, value
            low, size = value, 0
        size += weight
    yield low, None


def _rows(entries: Iterable[Entry]) -> int:
    return sum(entry.rows for entry in entries)


def _alive(table: pa.Table, now: float) -> pa.Array:
    return pa.array(_column(table, "expires") > now)


def _column(table: pa.Table, name: str) -> np.ndarray:
    values: np.ndarray = table.column(name).to_numpy()
    return values
