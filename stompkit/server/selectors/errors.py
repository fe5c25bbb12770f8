"""Error for an invalid selector."""

from __future__ import annotations

import json
from typing import Final

__all__ = ["SelectorError"]

#: Maximum number of characters of a selector that an error quotes on each side of the position.
_QUOTED_AROUND: Final = 60


class SelectorError(ValueError):
    """An invalid selector.

    ``message`` is the reason, ``position`` the number of characters before the error.
    """

    def __init__(self, message: str, position: int, text: str) -> None:
        """Keep the reason, and the position in ``text``."""
        start, end = max(0, position - _QUOTED_AROUND), position + _QUOTED_AROUND
        excerpt = "..." * (start > 0) + text[start:end] + "..." * (end < len(text))
        super().__init__(f"{message} at offset {position} of {json.dumps(excerpt)}")
        self.message = message
        self.position = position
