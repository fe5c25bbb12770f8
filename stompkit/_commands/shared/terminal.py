"""The terminal that a command reports to."""

from __future__ import annotations

import os
import sys
from typing import Final

__all__ = ["columns"]

_USUAL: Final = 80


def columns() -> int:
    """Return the length of the longest line that the terminal of stderr does not wrap."""
    try:
        # A terminal that does not know its size has 0 columns.
        found = os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL
    except (OSError, ValueError):
        found = _USUAL
    return found - 1
