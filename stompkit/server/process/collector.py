"""Python's collector of cycles, as a broker needs it."""

from __future__ import annotations

import gc
from typing import Final

__all__ = ["CollectorSettings"]

#: New objects until the young ones are looked at, and how often that is until older ones are.
#: Every message is some objects, nearly none of which are ever part of a cycle: with Python's own
#: 700, 10 and 10 a quarter of the time of a message goes into looking. What is left of a connection
#: is part of one, and some ten thousand of them can wait for the last look. Everybody waits while
#: the collector looks: at the 50,000 young ones of a second look for about 10 ms.
_THRESHOLDS: Final = (10_000, 5, 80)


class CollectorSettings:
    """Has the collector look less often, and not at what is here to stay."""

    def __init__(self) -> None:
        """Keep everything as it is."""
        self._before: tuple[int, int, int] | None = None

    def apply(self) -> None:
        """Change the settings of this process; harmless the second time."""
        if self._before is None:
            self._before = gc.get_threshold()
            gc.set_threshold(*_THRESHOLDS)
            gc.collect()
            gc.freeze()

    def undo(self) -> None:
        """Have everything be as before; harmless where it is."""
        if self._before is not None:
            gc.set_threshold(*self._before)
            gc.unfreeze()
            self._before = None
