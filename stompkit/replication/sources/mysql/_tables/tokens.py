"""Tokens of statements in the log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["Name", "Token", "Tokens", "tokens_of"]

#: Schema and name of a table.
Name = tuple[str, str]
#: Kind and text.
Token = tuple[str, str]

_END: Final[Token] = ("", "")
_TOKEN: Final = re.compile(
    r"""
      (?P<space> \s+ | --(?=\s|$)[^\n]* | \#[^\n]* | /\*(?!M?!).*?\*/ | /\*M?!\d* | \*/ )
    | ` (?P<quoted> (?:[^`]|``)* ) `
    | " (?P<double> (?:[^"\\]|\\.|"")* ) "
    | ' (?P<text> (?:[^'\\]|\\.|'')* ) '
    | (?P<word> [\w$@]+ )
    | (?P<symbol> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens_of(query: str) -> Iterator[Token]:
    """Yield the tokens of a statement without comments, but with MySQL's executable comments."""
    for match in _TOKEN.finditer(query):
        kind = match.lastgroup or ""
        if kind == "quoted":
            yield "name", match["quoted"].replace("``", "`")
        elif kind == "double":
            yield "double", match["double"].replace('""', '"')
        elif kind != "space":
            yield kind, match[kind]


class Tokens:
    """The tokens of a statement or a clause, one after the other."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        """Start before the first token."""
        self._rest = iter(tokens)
        self._next = next(self._rest, _END)

    def peek(self) -> str:
        """Return the next word or symbol, in upper case; empty for a quoted one, and at the end."""
        kind, text = self._next
        return text.upper() if kind in ("word", "symbol") else ""

    def peek_second(self) -> str:
        """Return the word or symbol after the next token, as :meth:`peek` does."""
        rest = [*self._rest]
        self._rest = iter(rest)
        return Tokens(rest).peek()

    @property
    def is_end(self) -> bool:
        """True if no token is left."""
        return not self._next[0]

    def take(self) -> Token:
        """Take the next token."""
        taken = self._next
        self._next = next(self._rest, _END)
        return taken

    def skip(self, *words: str) -> bool:
        """Skip these words if they come next, in order; return True if the first one did."""
        if self.peek() != words[0]:
            return False
        for word in words:
            if self.peek() == word:
                self.take()
        return True

    def name(self) -> str:
        """Take a name; empty if there is none."""
        kind, text = self._next
        if kind not in ("name", "double", "word"):
            return ""
        self.take()
        return text

    def table(self, schema: str) -> Name | None:
        """Take the name of a table, in the given schema by default."""
        first = self.name()
        if not first:
            return None
        if self.skip("."):
            return first, self.name()
        return schema, first

    def has(self, words: frozenset[str]) -> bool:
        """Return True if one of these words is among the rest."""
        rest = [*self._rest]
        self._rest = iter(rest)
        return any(kind == "word" and text.upper() in words for kind, text in (self._next, *rest))
