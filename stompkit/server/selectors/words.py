"""Split the text of a selector into words."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from stompkit.server.selectors.errors import SelectorError

__all__ = ["HYPHENATED", "UNSIGNED", "Word", "words_of"]

#: Maximum length in bytes of a selector, and number of its names and values.
_MOST_OCTETS: Final = 8_192
_MOST_VALUES: Final = 1_000

#: Regular expression of an unsigned number.
UNSIGNED: Final = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_WORD: Final = rf"""(?P<blank>[ \t\r\n\f]+)
    |(?P<number>{UNSIGNED})
    |(?P<hyphenated>{{hyphenated}})
    |(?P<name>(?:[A-Za-z0-9_$]|[^\x00-\x7f])+)
    |(?P<string>'(?:[^']|'')*'(?!'))
    |(?P<quoted>"(?:[^"]|"")*"(?!"))
    |(?P<mark><>|<=|>=|[-+*/=<>(),])"""
#: Prefix of selectors whose names may contain hyphens, as in Artemis.
HYPHENATED: Final = "hyphenated_props:"
_PLAIN_WORD: Final = re.compile(_WORD.replace("{hyphenated}", "(?!)"), re.VERBOSE)
#: Here a name may contain hyphens that are followed by a letter.
_WORD_WITH_HYPHENS: Final = re.compile(
    _WORD.replace("{hyphenated}", r"[A-Za-z_$][A-Za-z0-9_$]*(?:-[A-Za-z_$][A-Za-z0-9_$]*)+"),
    re.VERBOSE,
)
_KEYWORDS: Final = frozenset("AND BETWEEN ESCAPE FALSE IN IS LIKE NOT NULL OR TRUE".split())
_UNFINISHED: Final = {"'": "string without its last quote", '"': "name without its last quote"}


class Word(NamedTuple):
    """A word, or the end, with the number of characters before it."""

    sort: Literal["name", "number", "string", "mark", "end"]
    #: Without quotes; keywords are marks in capitals.
    text: str
    at: int


def words_of(text: str) -> list[Word]:
    """Return all words of a selector and the end; raises the error of the first invalid word."""
    if len(text) > _MOST_OCTETS or len(text.encode("utf-8", "surrogatepass")) > _MOST_OCTETS:
        raise SelectorError(f"selector of more than {_MOST_OCTETS} octets", 0, text)
    words: list[Word] = []
    values = at = 0
    word = _PLAIN_WORD
    if text.startswith(HYPHENATED):
        word, at = _WORD_WITH_HYPHENS, len(HYPHENATED)
    while at < len(text):
        match = word.match(text, at)
        if match is None:
            raise SelectorError(_UNFINISHED.get(text[at], "unexpected character"), at, text)
        found = match[0]
        if match["string"]:
            words.append(Word("string", found[1:-1].replace("''", "'"), at))
        elif match["quoted"]:
            words.append(Word("name", found[1:-1].replace('""', '"'), at))
        elif match["number"]:
            words.append(Word("number", found, at))
        elif match["hyphenated"]:
            words.append(Word("name", found, at))
        elif match["name"]:
            words.append(_name(found, at, text))
        elif match["mark"]:
            words.append(Word("mark", found, at))
        if not match["blank"] and words[-1].sort != "mark":
            values += 1
            if values > _MOST_VALUES:
                raise SelectorError(f"more than {_MOST_VALUES} names and values", at, text)
        at = match.end()
    words.append(Word("end", "", at))
    return words


def _name(found: str, at: int, text: str) -> Word:
    # ASCII only: capitals of some other letters are ASCII, such as that of the dotless i.
    if found.isascii() and found.upper() in _KEYWORDS:
        return Word("mark", found.upper(), at)
    if not found.replace("$", "_").isidentifier():
        raise SelectorError("name that needs double quotes", at, text)
    return Word("name", found, at)
