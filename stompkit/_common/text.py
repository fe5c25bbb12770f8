"""Texts of other parties, without terminal control sequences."""

from __future__ import annotations

import json
from typing import Final

__all__ = ["escaped", "json_line", "shown", "shown_lines", "text_of", "trimmed"]

_BLANKS: Final = (
    0x85,
    0xA0,
    0x1680,
    *range(0x2000, 0x200B),
    0x2028,
    0x2029,
    0x202F,
    0x205F,
    0x3000,
)
#: Characters that one reader or another of header names removes from their ends: the control
#: characters and blank of ASCII, and the blanks of Unicode.
_REMOVED: Final = "".join(map(chr, (*range(0x21), *_BLANKS)))


def text_of(error: BaseException) -> str:
    """Return the text of an error, or its type if it has none."""
    return str(error) or type(error).__name__


def escaped(text: str) -> str:
    """Return a text with unprintable characters in JSON's escaped form."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def shown(text: str) -> str:
    """Return an untrusted text in one line, without terminal control sequences.

    A backslash is doubled if anything is escaped, so that the text can be restored.
    """
    return text if text.isprintable() else escaped(text.replace("\\", "\\\\"))


def shown_lines(text: str) -> str:
    """Return a text in several lines, without terminal control sequences."""
    return "\n".join(map(escaped, text.split("\n")))


def trimmed(name: str) -> str:
    """Return the name of a header as a reader takes it that removes what stands at its ends."""
    return name.strip(_REMOVED)


def json_line(document: object) -> str:
    """Return a document as JSON in one line, without terminal control sequences.

    JSON itself escapes the ASCII control characters. Others are U+009B, which begins a terminal
    control sequence, and those that change the writing direction.
    """
    return escaped(json.dumps(document, ensure_ascii=False, default=str))
