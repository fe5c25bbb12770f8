"""What a text that is no selector raises."""

from __future__ import annotations

import json
from typing import Final

__all__ = ["SelectorError"]

#: Characters of a selector that the text of an error repeats on each side of the place.
_QUOTED_AROUND: Final = 60


class SelectorError(ValueError):
    """A text that is no selector.

    ``message`` says why not, ``position`` where, as the characters before the place.
    """

    def __init__(self, message: str, position: int, text: str) -> None:
        """Keep what is wrong, and where in ``text``."""
        start, end = max(0, position - _QUOTED_AROUND), position + _QUOTED_AROUND
        excerpt = "..." * (start > 0) + text[start:end] + "..." * (end < len(text))
        super().__init__(f"{message} at offset {position} of {json.dumps(excerpt)}")
        self.message = message
        self.position = position
