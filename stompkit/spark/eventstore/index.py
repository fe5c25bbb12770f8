"""An index of the changesets in an event store, in the order of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Self

import numpy as np
import pyarrow as pa

from stompkit.spark.eventstore.files import Entry
from stompkit.spark.eventstore.rows import Files, halves, outliving

__all__ = ["Index"]


class Index:
    """The unexpired changesets in some files, each once."""

    def __init__(self, files: Files, entries: Sequence[Entry], now: float) -> None:
        """Read the index columns of all files, without the bodies."""
        self._files: Final = files
        self._entries: Final = entries
        self._now: Final = now
        namespaces = {entry.namespace: code for code, entry in enumerate(entries)}
        columns = ["digest", "number", "ts", "expires"]
        tables = [files.read(entry, columns) for entry in entries]
        counts = [table.num_rows for table in tables]
        self._of = np.repeat(np.arange(len(tables)), counts)
        self._row = np.concatenate([np.arange(0), *map(np.arange, counts)])
        if not tables:
            self._ts = self._expires = np.empty(0)
            self._number = np.empty(0, np.int64)
            return
        whole = pa.concat_tables(tables)
        self._ts, self._expires, self._number = (
            whole.column(name).to_numpy() for name in ("ts", "expires", "number")
        )
        codes = np.repeat([namespaces[entry.namespace] for entry in entries], counts)
        high, low = halves(whole.column("digest"))
        order = np.lexsort((self._number, low, high, codes))
        order = order[self._expires[order] > now]
        _, is_first = outliving([codes[order], high[order], low[order]], self._expires[order])
        self._select(order[is_first])

    def between(self, after: tuple[float, int], until: float) -> Self:
        """Keep the changesets after a time and number, up to a time; sorted from now on."""
        ts, number = after
        is_after = (self._ts > ts) | ((self._ts == ts) & (self._number > number))
        self._select(np.flatnonzero(is_after & (self._ts <= until)))
        self._select(np.lexsort((self._number, self._ts)))
        return self

    def chunks(self, most: int) -> Iterator[list[tuple[float, int, bytes]]]:
        """Yield times, numbers and changesets in order, in chunks of at most *most*."""
        for start in range(0, len(self._ts), most):
            places = np.arange(start, min(start + most, len(self._ts)))
            bodies: dict[int, bytes] = {}
            for file in np.unique(self._of[places]).tolist():
                own = places[self._of[places] == file]
                # A file is sorted by time and number, and so are these.
                found = self._files.bodies(self._entries[file], self._row[own])
                bodies.update(zip(own.tolist(), found, strict=True))
            yield [
                (float(self._ts[place]), int(self._number[place]), bodies[place])
                for place in places.tolist()
            ]

    def _select(self, places: np.ndarray) -> None:
        self._of, self._row = self._of[places], self._row[places]
        self._ts, self._expires = self._ts[places], self._expires[places]
        self._number = self._number[places]
