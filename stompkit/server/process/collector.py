"""Settings of Python's garbage collector for a broker."""

from __future__ import annotations

import gc
from typing import Final

__all__ = ["CollectorSettings"]

#: Number of new objects between collections of the youngest generation, and of collections between
#: those of older ones. Every message consists of some objects, nearly none of which are part of a
#: cycle. With Python's defaults of 700, 10 and 10, collections take a quarter of the time of a
#: message. A closed connection leaves cycles, and some ten thousand of them can wait for the oldest
#: generation. A collection stops everything: about 10 ms for the 50,000 objects of the second
#: generation.
_THRESHOLDS: Final = (10_000, 5, 80)


class CollectorSettings:
    """Makes the collector run less often, and exempts permanent objects."""

    def __init__(self) -> None:
        """Keep the current settings."""
        self._before: tuple[int, int, int] | None = None

    def apply(self) -> None:
        """Change the settings of this process; does nothing the second time."""
        if self._before is None:
            self._before = gc.get_threshold()
            gc.set_threshold(*_THRESHOLDS)
            gc.collect()
            gc.freeze()

    def undo(self) -> None:
        """Restore the previous settings; does nothing if not applied."""
        if self._before is not None:
            gc.set_threshold(*self._before)
            gc.unfreeze()
            self._before = None
