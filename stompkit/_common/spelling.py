"""Suggest what a misspelt word most likely means, and inflect words of messages."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

__all__ = ["amount", "closest", "did_you_mean", "suggestion", "with_article"]


def closest(word: str, words: Collection[str]) -> str | None:
    """Return the one of *words* that *word* most likely means; None if there is none."""
    found = get_close_matches(word, words, 1)
    return found[0] if found else None


def amount(number: int, noun: str) -> str:
    """Return a number with its regular noun: ``1 message``, ``2 messages``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def with_article(name: str) -> str:
    """Return a name with its indefinite article: ``a broker``, ``an ACK``."""
    return f"{'an' if name[:1].lower() in tuple('aeiou') else 'a'} {name}"


def did_you_mean(word: str, words: Collection[str]) -> str:
    """Return the end of a message about an unknown *word*: the closest one, or an empty text."""
    meant = closest(word, words)
    return f"; did you mean {meant}?" if meant is not None else ""


def suggestion(word: str, words: Collection[str]) -> str:
    """Return what a message about an unknown *word* advises: the closest one, or all."""
    meant = closest(word, words)
    return f"did you mean {meant}?" if meant is not None else f"there are {', '.join(words)}"
