"""Texts of other parties, without terminal control sequences."""

from __future__ import annotations

import json

__all__ = ["escaped", "json_line", "shown", "text_of"]


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


def json_line(document: object) -> str:
    """Return a document as JSON in one line, without terminal control sequences.

    JSON itself escapes the ASCII control characters. Others are U+009B, which begins a terminal
    control sequence, and those that change the writing direction.
    """
    return escaped(json.dumps(document, ensure_ascii=False, default=str))
