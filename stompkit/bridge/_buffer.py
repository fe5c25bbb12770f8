"""The buffer of a route: a spool, which is filled by the source and emptied to the destination."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from twisted.internet.defer import Deferred

from stompkit.spool import Record, SpoolReader, SpoolWriter
from stompkit.spool.readers import progress, register
from stompkit.spool.retention import retain

__all__ = ["Buffer", "InThread"]

_READER: Final = "bridge"
_SEGMENT_BYTES: Final = 8 << 20
#: After how many confirmed messages it is looked what of the disk can be freed.
_RETAIN_EVERY: Final = 10_000

_T = TypeVar("_T")


class InThread:
    """What runs functions that block, one after the other."""

    def __init__(self, run: Callable[[Callable[[], object]], Deferred[object]]) -> None:
        """Take a function such as Twisted's ``deferToThread``."""
        self._run = run
        self._last: Deferred[None] | None = None

    async def __call__(self, work: Callable[[], _T]) -> _T:
        """Run it when all that came before has run; gives and raises what it does."""
        before, mine = self._last, Deferred[None]()
        self._last = mine
        if before is not None:
            await before
        try:
            found: list[_T] = []
            await self._run(lambda: found.append(work()))
            return found[0]
        finally:
            if self._last is mine:
                self._last = None
            mine.callback(None)


class Buffer:
    """Messages on disk, and up to which of them the destination has confirmed all.

    The methods block; call one at a time, in any thread. They raise OSError and SpoolProblem.
    """

    def __init__(self, folder: Path, remembered: int) -> None:
        """Open or make it; ``remembered`` messages are known again when they come once more."""
        self._writer = SpoolWriter(
            folder, partitions=1, segment_bytes=_SEGMENT_BYTES, remembered=remembered
        )
        self._reader = SpoolReader(folder)
        self._folder = folder
        (self.position,) = register(folder, _READER, (0,)).positions
        self._retained = self.position

    @property
    def head(self) -> int:
        """The ordinal after the last message."""
        return self._writer.head[0]

    def append(self, records: Sequence[Record]) -> int:
        """Keep messages, synced; gives how many were new."""
        return self._writer.append(records)

    def read(self, start: int, end: int) -> list[Record]:
        """Messages by their ordinals."""
        return [each for some in self._reader.blocks(0, start, end) for each in some.records()]

    def confirm(self, position: int) -> None:
        """Note that the destination has all before a position."""
        progress(self._folder, _READER, (position,))
        self.position = position
        if position - self._retained >= _RETAIN_EVERY:
            self._retained = position
            # The destination has all of it: nobody reads it here again.
            retain(self._writer, max_age_s=0.0, whole_changesets=False)

    def close(self) -> None:
        """Close it."""
        self._writer.close()
