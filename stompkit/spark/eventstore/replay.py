"""Replay of the changesets of an event store in the order in which they were added."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from stompkit.spark.eventstore.files import Entry
from stompkit.spark.eventstore.merge import find_doubles
from stompkit.spark.eventstore.rows import Files

__all__ = ["Replay"]

#: Approximate maximum number of changesets in memory, and their size in bytes.
_MOST: Final = 50_000
_MOST_OCTETS: Final = 64 * 1024 * 1024


class Replay:
    """The unexpired changesets in some files, each once."""

    def __init__(self, files: Files, entries: Sequence[Entry], now: float) -> None:
        """Read the numbers of the changesets; raises ``FileNotFoundError``."""
        self._files: Final = files
        self._entries: Final = entries
        self._now: Final = now
        by_namespace: dict[str, list[Entry]] = {}
        for entry in entries:
            by_namespace.setdefault(entry.namespace, []).append(entry)
        found = [
            find_doubles(files, own, now, firsts_only=True)[0] for own in by_namespace.values()
        ]
        self._doubles = np.sort(np.concatenate([np.empty(0, np.int64), *found]))
        numbers = [self._column(entry, "number") for entry in entries]
        self._bounds = [(int(each.min()), int(each.max())) for each in numbers]
        whole = np.sort(np.concatenate([np.empty(0, np.int64), *numbers]))
        octets = sum(entry.octets for entry in entries)
        step = max(1, min(_MOST, _MOST_OCTETS * len(whole) // max(1, octets)))
        #: First number of each chunk, and the end of all.
        self._starts: Final[list[int]] = whole[::step].tolist()
        self._end: Final = int(whole[-1]) + 1 if len(whole) else 0

    def beyond(self, after: int, until: float | None) -> Iterator[tuple[int, bytes]]:
        """Yield numbers and changesets with numbers after ``after``, and times up to ``until``."""
        for low, high in zip(self._starts, [*self._starts[1:], self._end], strict=True):
            if high > after + 1:
                yield from self._between(max(low, after + 1), high, until)

    def _between(self, low: int, high: int, until: float | None) -> Iterator[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        for entry, (first, last) in zip(self._entries, self._bounds, strict=True):
            if first >= high or last < low:
                continue
            table = self._files.read(entry, ["number", "ts", "expires"])
            numbers, times, expires = (
                table.column(name).to_numpy() for name in ("number", "ts", "expires")
            )
            chosen = (numbers >= low) & (numbers < high) & (expires > self._now)
            if until is not None:
                chosen &= times <= until
            chosen &= ~np.isin(numbers, self._doubles)
            rows = np.flatnonzero(chosen)
            if len(rows):
                bodies = self._files.bodies(entry, rows)
                found += zip(numbers[rows].tolist(), bodies, strict=True)
        found.sort()
        yield from found

    def _column(self, entry: Entry, name: str) -> np.ndarray:
        values: np.ndarray = self._files.read(entry, [name]).column(name).to_numpy()
        return values
