"""Spilling of staged data to disk until it is committed."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final, overload

from stompkit.spark.targets.base import Staged

__all__ = ["Spill"]


class Spill(Sequence[Staged]):
    """Staged parts in a file, of which one at a time is in memory."""

    def __init__(self, stack: ExitStack) -> None:
        """Start empty; the file is deleted when ``stack`` closes."""
        self._file: Final = stack.enter_context(tempfile.TemporaryFile(prefix="stompkit-"))
        self._places: list[int] = []

    def add(self, part: Staged) -> None:
        """Append a part."""
        self._places.append(self._write(part))

    def put_first(self, parts: Sequence[Staged]) -> None:
        """Insert parts before all others."""
        self._places[:0] = [self._write(part) for part in parts]

    def __len__(self) -> int:
        """Return the number of parts."""
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Staged: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Staged]: ...

    def __getitem__(self, index: int | slice) -> Staged | Sequence[Staged]:
        """Read one part, or a slice of parts."""
        if isinstance(index, slice):
            return [self._read(place) for place in self._places[index]]
        return self._read(self._places[index])

    def __iter__(self) -> Iterator[Staged]:
        """Iterate over the parts in order."""
        return map(self._read, self._places)

    def _write(self, part: Staged) -> int:
        place = self._file.seek(0, 2)
        pickle.dump(part, self._file, pickle.HIGHEST_PROTOCOL)
        return place

    def _read(self, place: int) -> Staged:
        self._file.seek(place)
        part = pickle.load(self._file)
        assert isinstance(part, Staged)
        return part
