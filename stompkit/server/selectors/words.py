"""From the text of a selector to its words."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from stompkit.server.selectors.errors import SelectorError

__all__ = ["HYPHENATED", "UNSIGNED", "Word", "words_of"]

#: Octets of a selector, and names and values in it.
_MOST_OCTETS: Final = 8_192
_MOST_VALUES: Final = 1_000

#: A number without its sign, as a regular expression.
UNSIGNED: Final = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_WORD: Final = rf"""(?P<blank>[ \t\r\n\f]+)
    |(?P<number>{UNSIGNED})
    |(?P<hyphenated>{{hyphenated}})
    |(?P<name>(?:[A-Za-z0-9_$]|[^\x00-\x7f])+)
    |(?P<string>'(?:[^']|'')*'(?!'))
    |(?P<quoted>"(?:[^"]|"")*"(?!"))
    |(?P<mark><>|<=|>=|[-+*/=<>(),])"""
#: What a selector begins with whose names can have hyphens in them, as in Artemis.
HYPHENATED: Final = "hyphenated_props:"
_PLAIN_WORD: Final = re.compile(_WORD.replace("{hyphenated}", "(?!)"), re.VERBOSE)
#: Here a name can have hyphens with a letter behind each.
_WORD_WITH_HYPHENS: Final = re.compile(
    _WORD.replace("{hyphenated}", r"[A-Za-z_$][A-Za-z0-9_$]*(?:-[A-Za-z_$][A-Za-z0-9_$]*)+"),
    re.VERBOSE,
)
_KEYWORDS: Final = frozenset("AND BETWEEN ESCAPE FALSE IN IS LIKE NOT NULL OR TRUE".split())
_UNFINISHED: Final = {"'": "string without its last quote", '"': "name without its last quote"}


class Word(NamedTuple):
    """A word, or the end, and the characters before it."""

    sort: Literal["name", "number", "string", "mark", "end"]
    #: Without quotes; keywords are marks in capitals.
    text: str
    at: int


def words_of(text: str) -> list[Word]:
    """All words of a selector and the end, or the error of the first that is none."""
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
    # Only of ASCII: the capitals of some other letters are ASCII, as that of a dotless i.
    if found.isascii() and found.upper() in _KEYWORDS:
        return Word("mark", found.upper(), at)
    if not found.replace("$", "_").isidentifier():
        raise SelectorError("name that needs double quotes", at, text)
    return Word("name", found, at)
