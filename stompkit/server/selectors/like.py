"""Translate patterns of LIKE to regular expressions."""

from __future__ import annotations

import re

__all__ = ["pattern_of"]


def pattern_of(text: str, escape: str | None) -> re.Pattern[str] | None:
    """Return the expression of a LIKE pattern, or ``None`` if it ends in its escape character.

    The text between two ``%`` is matched at its first occurrence, without backtracking. Atomic
    groups express that, and limit the time to the product of both lengths.
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
