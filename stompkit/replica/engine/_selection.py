"""Comparison of the table selections of two nodes.

A selection is the text of :attr:`~stompkit.replica.engine.EngineSettings.selection`: the patterns
of included tables and those of excluded ones, or empty for all tables.
"""

from __future__ import annotations

import ast
import hashlib
from typing import Final

import msgspec

__all__ = ["announced", "includes"]

#: Maximum length in announcements, in characters.
_LONGEST: Final = 200
_WILDCARDS: Final = frozenset("*?[")

_Patterns = tuple[list[str], list[str]]


def announced(selection: str) -> str:
    """Return the form of a selection in announcements: a long one can only be compared."""
    if len(selection) <= _LONGEST:
        return selection
    return "sha256:" + hashlib.sha256(selection.encode()).hexdigest()


def includes(theirs: str, own: str) -> bool:
    """Return True if a node that announces ``theirs`` certainly has all tables of ``own``.

    Patterns are compared as text, so a wildcard includes only the same wildcard.
    """
    if theirs in ("", announced(own)):
        return True
    their_patterns, own_patterns = _parsed(theirs), _parsed(own)
    if their_patterns is None or own_patterns is None:
        return False
    their_include, their_exclude = map(set, their_patterns)
    include, exclude = map(set, own_patterns)
    if their_include and not (include and include <= their_include):
        return False
    return all(
        pattern in exclude or (include and all(_are_apart(pattern, each) for each in include))
        for pattern in their_exclude
    )


def _are_apart(one: str, other: str) -> bool:
    """Return True if no table matches both patterns."""
    if _WILDCARDS & {*one, *other}:
        return False
    return one.rpartition(".")[2] != other.rpartition(".")[2]


def _parsed(selection: str) -> _Patterns | None:
    if not selection:
        return [], []
    try:
        patterns: _Patterns = msgspec.convert(ast.literal_eval(selection), _Patterns)
    except (ValueError, SyntaxError, MemoryError, RecursionError, msgspec.ValidationError):
        # Another version may write selections in another form.
        return None
    return patterns
