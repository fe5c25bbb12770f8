"""Maintenance of an event store: merging, pruning and clearing of its files."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from stompkit.spark.eventstore.files import Entry, Folder
from stompkit.spark.eventstore.merge import (
    Merged,
    compactable,
    compacted_tier,
    crowded,
    living_keys,
    merge,
    partitions,
)
from stompkit.spark.eventstore.rows import Files

__all__ = ["Compacted", "Stored", "Upkeep"]

_log: Final = logging.getLogger(__name__)


class Compacted(NamedTuple):
    """Result of a compaction."""

    #: Numbers of merged files, and of new files.
    merged: int
    made: int


class Stored(NamedTuple):
    """Size of a store on disk, without files to be removed."""

    files: int
    octets: int

    @classmethod
    def of(cls, folder: Path, files: Sequence[Entry]) -> Stored:
        """Return the size of listed files; raises ``FileNotFoundError`` for merged ones."""
        sizes = [(folder / entry.path).stat().st_size for entry in files]
        return cls(len(sizes), sum(sizes))


class Upkeep:
    """Maintenance of an event store; every task holds the right to remove files from the list."""

    def __init__(self, folder: Folder, files: Files, problems: tuple[type[Exception], ...]) -> None:
        """Set up the maintenance; *problems* are errors of a merge that the next one retries."""
        self._folder: Final = folder
        self._files: Final = files
        self._problems: Final = problems

    def clear(self, chosen: Callable[[], list[Entry]]) -> int:
        """Remove files with keys; return the number of keys that had not expired."""
        with self._folder.merging(waits=True):
            entries = chosen()
            now = time.time()
            count = sum(living_keys(self._files, own, now) for own in partitions(entries).values())
            if entries:
                self._folder.commit([], entries)
            return count

    def prune(self) -> int:
        """Remove expired data; return the number of removed keys and changesets."""
        now = time.time()
        expired = 0
        with self._folder.merging(waits=True):
            for entries in partitions(self._folder.listing().files).values():
                if any(entry.has_expired(now) for entry in entries):
                    tier = compacted_tier(entries)
                    merged = merge(self._folder, self._files, entries, now, tier)
                    self._replace(entries, merged)
                    expired += merged.expired
            self._folder.sweep()
        return expired

    def compact(self) -> Compacted:
        """Merge files wherever that is worthwhile."""
        now = time.time()
        count = made = 0
        with self._folder.merging(waits=True):
            for each in partitions(self._folder.listing().files).values():
                entries = compactable(each)
                if entries:
                    merged = merge(self._folder, self._files, entries, now, compacted_tier(each))
                    self._replace(entries, merged)
                    count += len(entries)
                    made += len(merged.files)
            self._folder.sweep()
        return Compacted(count, made)

    def forget_history(self, before: float, chosen: Callable[[], list[Entry]]) -> None:
        """Remove changesets before a time from the selected files."""
        with self._folder.merging(waits=True):
            now = time.time()
            for entry in chosen():
                if self._files.first(entry) >= before:
                    continue
                merged = Merged([], 0)
                if entry.last >= before:
                    merged = merge(
                        self._folder, self._files, [entry], now, entry.tier, since=before
                    )
                self._folder.commit(merged.files, [entry], incomplete=[entry.namespace])
            self._folder.sweep()

    def tidy(self, added: Iterable[Entry]) -> None:
        """Merge the files of the added kinds if there are too many."""
        touched = partitions(list(added)).keys()

        def many() -> list[list[Entry]]:
            there = partitions(self._folder.listing().files)
            return [some for each in touched if (some := crowded(there.get(each, [])))]

        if not many():
            return
        try:
            with self._folder.merging(waits=False) as is_held:
                # If another process is merging, the next addition merges these files.
                while is_held and (found := many()):
                    for entries in found:
                        tier = entries[0].tier + 1
                        merged = merge(self._folder, self._files, entries, time.time(), tier)
                        self._replace(entries, merged)
                        self._folder.sweep({(self._folder.path / entries[0].path).parent})
        except self._problems as error:
            # The added data is stored nevertheless.
            _log.warning("small files are not merged: %s", error)

    def _replace(self, entries: Sequence[Entry], merged: Merged) -> None:
        """Replace files of one partition in the list by the merged files."""
        has_lost = merged.expired and entries[0].event is None
        namespaces = [entries[0].namespace] if has_lost else []
        self._folder.commit(merged.files, entries, incomplete=namespaces)
