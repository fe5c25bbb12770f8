"""Takes files from the list of an event store: merged, pruned or cleared."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from stompkit.spark._event_files import Entry, Folder
from stompkit.spark._event_merge import (
    Merged,
    compactable,
    compacted_tier,
    crowded,
    living_keys,
    merge,
    partitions,
)
from stompkit.spark._event_rows import Files

__all__ = ["Compacted", "Stored", "Upkeep"]

_log: Final = logging.getLogger(__name__)


class Compacted(NamedTuple):
    """What compaction has done."""

    #: Files that were merged, and those that have taken their place.
    merged: int
    made: int


class Stored(NamedTuple):
    """What a store has on the disk, but for files that are to be removed."""

    files: int
    octets: int


class Upkeep:
    """Whoever does any of it has the right to merge, so nobody else takes files from the list."""

    def __init__(self, folder: Folder, files: Files, problems: tuple[type[Exception], ...]) -> None:
        """``problems`` are what can be left to the next one who tidies."""
        self._folder: Final = folder
        self._files: Final = files
        self._problems: Final = problems

    def clear(self, chosen: Callable[[], list[Entry]]) -> int:
        """Drop files with keys; gives how many keys were within their life."""
        with self._folder.merging(waits=True):
            entries = chosen()
            now = time.time()
            count = sum(living_keys(self._files, own, now) for own in partitions(entries).values())
            if entries:
                self._folder.commit([], entries)
            return count

    def prune(self) -> int:
        """Drop what is past its life; gives how many keys and changesets it was."""
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
        """Merge wherever it is worth while."""
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
        """Drop changesets that are older than some time, of the files that are chosen."""
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
        """Merge files where there have come to be too many, of the kinds that were added."""
        touched = partitions(list(added)).keys()

        def many() -> list[list[Entry]]:
            there = partitions(self._folder.listing().files)
            return [some for each in touched if (some := crowded(there.get(each, [])))]

        if not many():
            return
        try:
            with self._folder.merging(waits=False) as is_held:
                # Where somebody else is at it, the next addition sees to it.
                while is_held and (found := many()):
                    for entries in found:
                        tier = entries[0].tier + 1
                        merged = merge(self._folder, self._files, entries, time.time(), tier)
                        self._replace(entries, merged)
                        self._folder.sweep({(self._folder.path / entries[0].path).parent})
        except self._problems as error:
            # What was added is stored all the same.
            _log.warning("small files are not merged: %s", error)

    def _replace(self, entries: Sequence[Entry], merged: Merged) -> None:
        """List what files of one partition were merged into in their place."""
        has_lost = merged.expired and entries[0].event is None
        namespaces = [entries[0].namespace] if has_lost else []
        self._folder.commit(merged.files, entries, incomplete=namespaces)
