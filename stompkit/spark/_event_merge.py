"""Merges files of an event store into fewer, in memory that does not grow with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from stompkit.spark._event_files import Entry, Folder
from stompkit.spark._event_rows import HISTORY, Files, Sorted, halves, outliving, write

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

#: The first tier of files that were compacted.
COMPACTED: Final = 100
#: So many files of a tier are merged when another is added, if they are small together.
_CROWD: Final = 32
_SMALL_OCTETS: Final = 32 * 1024 * 1024
#: By how much more has to be there for files to be compacted without it.
_GROWTH: Final = 4
#: What a merged file has, about: it is made in memory.
_FILE_ROWS: Final = 1_000_000
_FILE_OCTETS: Final = 128 * 1024 * 1024
#: By how many of its rows the bounds of merged files are chosen, of each file.
_SAMPLES: Final = 64

#: The files of a namespace and an event, or of its changesets.
_Partition = tuple[str, str | None]


class Merged(NamedTuple):
    """Files that take the place of others."""

    files: list[Entry]
    #: Keys or changesets that are in none of them, since they are past their life.
    expired: int


def partitions(entries: Sequence[Entry]) -> dict[_Partition, list[Entry]]:
    """Files by what they are merged with."""
    found: dict[_Partition, list[Entry]] = {}
    for entry in entries:
        found.setdefault((entry.namespace, entry.event), []).append(entry)
    return found


def crowded(entries: Sequence[Entry]) -> list[Entry]:
    """Of the files of a partition some that are many and small, if there are such."""
    for tier in sorted({entry.tier for entry in entries if entry.tier < COMPACTED}):
        small: list[Entry] = []
        octets = 0
        # The smallest ones: some that are large must not keep the others from being merged.
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
    """Of the files of a partition those that it is worth while to merge."""
    chosen = [entry for entry in entries if entry.tier < COMPACTED]
    if not chosen:
        return []
    # What was compacted together has a tier of its own. It is compacted again when there is about
    # as much anew: so each row is written a few times only, and there are few tiers.
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
    """The tier of what is compacted next in a partition."""
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
    """Write what counts in files of one partition at a time as others, which are not listed yet.

    Of changesets those before ``since`` do not count.
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
            # Without a copy, which is large, where nothing goes.
            table = table if kept.all() else table.filter(pa.array(kept))
        if table.num_rows:
            # Numbers are whole from now on.
            made.append(write(folder, table, base=0, tier=tier))
    return Merged(made, expired)


def living_keys(files: Files, entries: Sequence[Entry], now: float) -> int:
    """How many keys of a partition are within their life."""
    found = 0
    for low, high in _ranges(files, entries):
        table = _merged(files, entries, low, high)
        found += _kept(table.filter(_alive(table, now)))[1]
    return found


def _latest(table: pa.Table, now: float) -> tuple[pa.Table, int]:
    """Of the sorted times of keys what counts, and how many keys have nothing left."""
    alive = table.filter(_alive(table, now))
    kept, keys = _kept(alive)
    before = keys if alive.num_rows == table.num_rows else _kept(table)[1]
    return alive.filter(pa.array(kept)), before - keys


def _kept(table: pa.Table) -> tuple[np.ndarray, int]:
    """Which of the sorted times of keys matter, and of how many keys they are."""
    codes = table.column("key").combine_chunks().dictionary_encode()
    indices = codes.indices if isinstance(codes, pa.DictionaryArray) else _indices(codes)
    kept, is_first = outliving([indices.to_numpy(zero_copy_only=False)], _column(table, "expires"))
    return kept, int(is_first.sum())


def _indices(codes: pa.ChunkedArray) -> pa.Array:
    return pa.chunked_array([chunk.indices for chunk in codes.chunks], pa.int32()).combine_chunks()


def find_doubles(
    files: Files, entries: Sequence[Entry], now: float, *, firsts_only: bool = False
) -> tuple[np.ndarray, int]:
    """The numbers of changesets that another stands for, and how many have none left.

    One that outlives an earlier one is none of them, as it will be needed; with ``firsts_only`` it
    is: what is left then are those that count now.
    """
    # Equal digests are in one share of all, so that no more than that has to be in memory.
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
    """The same for one of several shares of the digests."""
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
    """Bounds, the first included, between which there is about as much as a file is to have."""
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
