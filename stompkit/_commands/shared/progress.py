"""How far a command is, on the last line of a terminal."""

from __future__ import annotations

import os
import sys
import time
from typing import Final

from stompkit._commands.shared.text import amount

__all__ = ["Progress"]

#: Work that is done within that time, in seconds, is not worth a word.
_SHORT_S: Final = 1.0
#: How often the line changes, in seconds.
_STEP_S: Final = 0.2
_BAR: Final = 24


class Progress:
    """Says on standard error how many messages are done, if that is a terminal and it takes long.

    The total is told as a bar where it is known.
    """

    def __init__(
        self, what: str, total: int | None = None, *, quiet: bool = False, unit: str = "message"
    ) -> None:
        """Begin; ``what`` is what is done to messages, such as ``sent``."""
        self._what = what
        self._unit = unit
        self._total = total
        self._is_wanted = not quiet and sys.stderr.isatty()
        self._began = time.monotonic()
        self._next = self._began + _SHORT_S
        self._is_shown = False

    def __call__(self, done: int) -> None:
        """Say how many are done by now; cheap enough to be called for each."""
        if not self._is_wanted:
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _STEP_S
        self._is_shown = True
        line = f"{self._bar(done)}{amount(done, self._unit)} {self._what}"
        line += f"  {done / (now - self._began):,.0f}/s"
        print(f"\r\x1b[K{line[: _columns()]}", end="", file=sys.stderr, flush=True)

    def _bar(self, done: int) -> str:
        if not self._total:
            return ""
        share = min(done / self._total, 1.0)
        full = int(share * _BAR)
        return f"[{'#' * full}{'.' * (_BAR - full)}] {share:4.0%}  "

    def end(self) -> None:
        """Take the line away."""
        if self._is_shown:
            self._is_shown = False
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns - 1
    except (OSError, ValueError):
        return 79
