"""From the patterns of LIKE to regular expressions."""

from __future__ import annotations

import re

__all__ = ["pattern_of"]


def pattern_of(text: str, escape: str | None) -> re.Pattern[str] | None:
    """A pattern of LIKE, or ``None`` where it ends in its escape character.

    What is between two ``%`` is found where it occurs first, and never looked for again: that is
    what atomic groups say, and it keeps the time to the product of both lengths.
    """
    pieces = [""]
    characters = iter(text)
    for character in characters:
        if character == escape:
            follower = next(characters, None)
            if follower is None:
                return None
            pieces[-1] += re.escape(follower)
        elif character == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if character == "_" else re.escape(character)
    first, *others = pieces
    if others:
        *middle, last = others
        first += "".join(f"(?>.*?{piece})" for piece in middle if piece) + ".*" + last
    return re.compile(first, re.DOTALL)
