"""Retention: removing old segments that no registered reader needs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from heapq import merge
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

from stompkit._common.files import sync_path
from stompkit.spool import readers
from stompkit.spool._changesets import uncut
from stompkit.spool._clock import trusted_time
from stompkit.spool._files import Segment, files_of, part_folder, segments
from stompkit.spool._head import raise_floor
from stompkit.spool._identity import identity_of
from stompkit.spool._reading import SpoolReader
from stompkit.spool._storage import FolderStorage
from stompkit.spool._write_access import Where, right_to
from stompkit.spool.segments.index import Index
from stompkit.spool.segments.place import Place

__all__ = ["Removed", "retain"]


#: The year 2020, in microseconds since 1970. A machine without a clock starts in 1970.
_EARLIEST_US: Final = 1_577_836_800_000_000


class Removed(NamedTuple):
    """Result of a retention run."""

    segments: int
    #: Total size of the removed segments in bytes.
    octets: int
    #: Number of segments old enough to remove but kept, by the names of the readers that need them.
    kept_for: dict[str, int]
    #: Number of segments kept only because a changeset in several messages begins in them and ends
    #: after them.
    kept_whole: int = 0


class _Old(NamedTuple):
    """A segment that is no longer written to."""

    partition: int
    segment: Segment
    #: The ordinal after its last message.
    end: int
    octets: int
    #: Reception times of its first and its last message, in microseconds since 1970.
    since_us: int
    until_us: int


def retain(
    where: Where,
    *,
    max_age_s: float | None = None,
    max_bytes: int | None = None,
    readers_expire_s: float | None = None,
    whole_changesets: bool = True,
    clock: Callable[[], float] = time.time,
) -> Removed:
    """Remove segments, oldest first.

    With ``max_age_s`` it removes segments whose messages are all older than that, in seconds. With
    ``max_bytes`` it removes segments until the spool has at most that many bytes. The newest
    segment of each partition stays. Readers that have not reported for ``readers_expire_s`` seconds
    are ignored. If the clock is later than at the last run by more than these ages, they only apply
    after an hour, because the clock may be ahead.

    A changeset in several messages is kept from its first part on until all of it can be removed,
    regardless of age and size. It is also kept while it is incomplete. ``whole_changesets=False``
    disables this.

    ``where`` is the writer of this process, which may append concurrently in another thread, or a
    folder. Raises :class:`~stompkit.spool.SpoolInUseError` if another process writes to the folder,
    :class:`~stompkit.spool.BrokenSpoolError`, and OSError.
    """
    with right_to(where) as folder:
        known = readers.listed(folder)
        now_s = _now(folder, clock(), max_age_s, readers_expire_s)
        spool, partitions = identity_of(folder)
        old = [_closed(folder, Place(spool, number)) for number in range(partitions)]
        wanted = [_aged(part, max_age_s, now_s) for part in old]
        if max_bytes is not None:
            _add_excess(wanted, old, _octets(folder, len(old)) - max_bytes)
        needed = {
            name: reader.positions
            for name, reader in known.items()
            if readers_expire_s is None or reader.updated_s >= now_s - readers_expire_s
        }
        kept_for: dict[str, int] = {}
        free = [
            _unneeded(part[:count], needed, kept_for)
            for part, count in zip(old, wanted, strict=True)
        ]
        going = [_whole(folder, part) for part in free] if whole_changesets else free
        kept_whole = sum(map(len, free)) - sum(map(len, going))
        raise_floor(folder, tuple(part[-1].end if part else 0 for part in going))
        return _remove(going, Removed(0, 0, kept_for, kept_whole))


def _now(folder: Path, now_s: float, *ages_s: float | None) -> float:
    """Return the time by which ages are measured."""
    given = [age_s for age_s in ages_s if age_s is not None]
    if not given:
        return now_s
    parts = (
        segments(part_folder(folder, number)) for number in range(identity_of(folder).partitions)
    )
    newest = [part[-1].path for part in parts if part]
    return trusted_time(folder, now_s, newest, min(given))


def _closed(folder: Path, place: Place) -> list[_Old]:
    listed = segments(part_folder(folder, place.partition))
    return [_described(place, segment, following.first) for segment, following in pairwise(listed)]


def _described(place: Place, segment: Segment, end: int) -> _Old:
    octets = segment.path.stat().st_size
    entries = Index(segment, FolderStorage(segment.path.parents[1]), place).upto(end)
    since_us = min((entry.since_us for entry in entries), default=0)
    until_us = max((entry.until_us for entry in entries), default=0)
    return _Old(place.partition, segment, end, octets, since_us, until_us)


def _octets(folder: Path, partitions: int) -> int:
    return sum(
        segment.path.stat().st_size
        for number in range(partitions)
        for segment in segments(part_folder(folder, number))
    )


def _aged(part: list[_Old], max_age_s: float | None, now_s: float) -> int:
    """Return the number of oldest segments whose messages are all too old."""
    if max_age_s is None:
        return 0
    oldest_us = (now_s - max_age_s) * 1e6
    times_us = _plausible(part, now_s * 1e6)
    return next((i for i, time_us in enumerate(times_us) if time_us >= oldest_us), len(part))


def _plausible(part: list[_Old], now_us: float) -> list[float]:
    """Return the reception times of the last messages of segments.

    The clock may have been wrong when a message came. Those of later segments came later, so a time
    beyond theirs is wrong, and one before stompkit existed is taken to be as late as possible.
    """
    times_us: list[float] = []
    bound_us = now_us
    for old in reversed(part):
        time_us = old.until_us if old.until_us >= _EARLIEST_US else bound_us
        times_us.append(min(time_us, bound_us))
        if old.since_us >= _EARLIEST_US:
            bound_us = min(bound_us, old.since_us)
    return times_us[::-1]


def _add_excess(wanted: list[int], parts: list[list[_Old]], excess: int) -> None:
    """Increase the numbers of segments to remove, by reception time, until *excess* is removed."""
    for part, count in zip(parts, wanted, strict=True):
        excess -= sum(old.octets for old in part[:count])
    left = (
        [(old.since_us, old) for old in part[count:]]
        for part, count in zip(parts, wanted, strict=True)
    )
    for _, old in merge(*left, key=itemgetter(0)):
        if excess <= 0:
            return
        wanted[old.partition] += 1
        excess -= old.octets


def _unneeded(
    part: list[_Old], needed: dict[str, tuple[int, ...]], kept_for: dict[str, int]
) -> list[_Old]:
    """Return the segments that no reader needs; count the others."""
    free = []
    for old in part:
        holding = [name for name, at in needed.items() if at[old.partition] < old.end]
        for name in holding:
            kept_for[name] = kept_for.get(name, 0) + 1
        if not holding:
            free.append(old)
    return free


def _whole(folder: Path, part: list[_Old]) -> list[_Old]:
    """Return the oldest segments that can be removed without splitting a changeset."""
    if not part:
        return part
    bounds = [part[0].segment.first, *(old.end for old in part)]
    return part[: uncut(SpoolReader(folder), part[0].partition, bounds)]


def _remove(parts: list[list[_Old]], kept: Removed) -> Removed:
    going = [old for part in parts for old in part]
    for old in going:
        _unlink(old.segment)
    return kept._replace(segments=len(going), octets=sum(old.octets for old in going))


def _unlink(segment: Segment) -> None:
    # A crash in between leaves a segment without index, which can still be read. Of several forms,
    # another one than the present one would follow as a segment that should have been removed.
    for path in files_of(segment):
        with suppress(FileNotFoundError):
            os.unlink(path)
    sync_path(segment.path.parent)
