"""Progress of a command, on the last line of a terminal."""

from __future__ import annotations

import sys
import time
from typing import Final

from stompkit._commands.shared.terminal import columns
from stompkit._common.spelling import amount

__all__ = ["Progress"]

#: Time in seconds before progress is shown.
_SHORT_S: Final = 1.0
#: Interval of updates in seconds.
_STEP_S: Final = 0.2
_BAR: Final = 24


class Progress:
    """Shows the number of finished messages on a terminal, if the work takes long.

    If the total is known, it is shown as a bar.
    """

    def __init__(
        self,
        description: str,
        total: int | None = None,
        *,
        quiet: bool = False,
        unit: str = "message",
    ) -> None:
        """Start; ``description`` is the participle of the work, such as ``sent``."""
        self._description = description
        self._unit = unit
        self._total = total
        self._is_wanted = not quiet and sys.stderr.isatty()
        self._began = time.monotonic()
        self._next = self._began + _SHORT_S
        self._is_shown = False

    def __call__(self, done: int) -> None:
        """Update the number of finished messages; cheap enough to call for each."""
        if not self._is_wanted:
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _STEP_S
        self._is_shown = True
        line = f"{self._bar(done)}{amount(done, self._unit)} {self._description}"
        line += f"  {done / (now - self._began):,.0f}/s"
        print(f"\r\x1b[K{line[: columns()]}", end="", file=sys.stderr, flush=True)

    def _bar(self, done: int) -> str:
        if not self._total:
            return ""
        share = min(done / self._total, 1.0)
        full = int(share * _BAR)
        return f"[{'#' * full}{'.' * (_BAR - full)}] {share:4.0%}  "

    def end(self) -> None:
        """Clear the line."""
        if self._is_shown:
            self._is_shown = False
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
