"""What statements of the log are about: as far as one has to understand them, and no further."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["Statement", "parse_statement"]

#: ``rows``: it changes rows itself, and nothing else in the log tells which.
Kind = Literal[
    "begin",
    "commit",
    "rollback",
    "rollback to",
    "savepoint",
    "rows",
    "schema",
    "truncate",
    "drop database",
    "xa",
    "other",
]
Name = tuple[str, str]

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
#: Statements that are in a log of rows only if a session has had them logged as statements.
_OF_ROWS: Final = frozenset(
    {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "SELECT", "DO", "CALL"}
)


@dataclass(frozen=True)
class Statement:
    """A statement, and the tables or the savepoint that it names."""

    kind: Kind
    #: Schemas and names.
    tables: tuple[Name, ...] = ()
    #: Of a savepoint, of a database; the verb of an XA statement.
    name: str = ""


class _Tokens:
    """The tokens of a statement, comments aside; what MySQL runs of comments is in it."""

    def __init__(self, query: str) -> None:
        self._all = self._read(query)
        self._next = next(self._all, ("", ""))

    @staticmethod
    def _read(query: str) -> Iterator[tuple[str, str]]:
        for match in _TOKEN.finditer(query):
            kind = match.lastgroup or ""
            if kind == "quoted":
                yield "name", match["quoted"].replace("``", "`")
            elif kind == "double":
                yield "double", match["double"].replace('""', '"')
            elif kind != "space":
                yield kind, match[kind]

    def peek(self) -> str:
        """The next word or symbol, in capitals; empty for a quoted one, and at the end."""
        kind, text = self._next
        return text.upper() if kind in ("word", "symbol") else ""

    @property
    def is_end(self) -> bool:
        return not self._next[0]

    def take(self) -> tuple[str, str]:
        taken = self._next
        self._next = next(self._all, ("", ""))
        return taken

    def skip(self, *words: str) -> bool:
        """Pass over these words if they come next, one after the other; say if the first did."""
        if self.peek() != words[0]:
            return False
        for word in words:
            if self.peek() == word:
                self.take()
        return True

    def name(self) -> str:
        """A name; empty if none comes."""
        kind, text = self._next
        if kind not in ("name", "double", "word"):
            return ""
        self.take()
        return text

    def table(self, schema: str) -> Name | None:
        """A name of a table, in the schema where it names none."""
        first = self.name()
        if not first:
            return None
        if self.skip("."):
            return first, self.name()
        return schema, first


def parse_statement(query: str, schema: str) -> Statement:
    """Read a statement that was run in a schema."""
    tokens = _Tokens(query)
    while tokens.skip("("):
        pass
    if tokens.skip("SET"):
        if not tokens.skip("STATEMENT"):
            return Statement("other")
        while not tokens.is_end and not tokens.skip("FOR"):
            tokens.take()
    verb = tokens.peek()
    if verb in ("BEGIN", "COMMIT"):
        return Statement("begin" if verb == "BEGIN" else "commit")
    tokens.take()
    match verb:
        case "START":
            return Statement("begin" if tokens.peek() == "TRANSACTION" else "other")
        case "ROLLBACK":
            tokens.skip("WORK")
            if not tokens.skip("TO", "SAVEPOINT"):
                return Statement("rollback")
            return Statement("rollback to", name=tokens.name().lower())
        case "SAVEPOINT":
            return Statement("savepoint", name=tokens.name().lower())
        case "XA":
            return Statement("xa", name=tokens.peek())
        case "TRUNCATE":
            tokens.skip("TABLE")
            return _about("truncate", [tokens.table(schema)])
        case "CREATE" | "ALTER" | "DROP" | "RENAME":
            return _definition(verb, tokens, schema)
        case "DELETE" if tokens.skip("FROM"):
            # How a server tells that a table in memory is empty since it was started.
            table = tokens.table(schema)
            return _about("truncate", [table]) if tokens.is_end else Statement("rows")
    return Statement("rows" if verb in _OF_ROWS else "other")


def _about(kind: Kind, tables: list[Name | None]) -> Statement:
    return Statement(kind, tuple(table for table in tables if table is not None))


def _definition(verb: str, tokens: _Tokens, schema: str) -> Statement:
    for word in ("OR", "REPLACE", "ONLINE", "IGNORE", "UNIQUE", "FULLTEXT", "SPATIAL"):
        tokens.skip(word)
    if tokens.peek() == "TEMPORARY":
        return Statement("other")
    if tokens.skip("INDEX"):
        return _index(tokens, schema)
    if tokens.skip("DATABASE") or tokens.skip("SCHEMA"):
        tokens.skip("IF", "EXISTS")
        return Statement("drop database" if verb == "DROP" else "other", name=tokens.name())
    if not tokens.skip("TABLE") and not tokens.skip("TABLES"):
        return Statement("other")
    tokens.skip("IF", "NOT", "EXISTS")
    tables = [tokens.table(schema)]
    if verb == "DROP":
        while tokens.skip(","):
            tables.append(tokens.table(schema))
    elif verb == "RENAME":
        while not tokens.is_end:
            if tokens.skip("TO") or tokens.skip(","):
                tokens.skip("IF", "EXISTS")
                tables.append(tokens.table(schema))
            else:
                tokens.take()
    elif verb == "ALTER":
        tables.append(_new_name(tokens, schema))
    return _about("schema", tables)


def _index(tokens: _Tokens, schema: str) -> Statement:
    """An index can be the key of a table that has no other."""
    while not tokens.is_end:
        if tokens.skip("ON"):
            return _about("schema", [tokens.table(schema)])
        tokens.take()
    return Statement("other")


def _new_name(tokens: _Tokens, schema: str) -> Name | None:
    """The name that ALTER TABLE gives to the table itself."""
    depth = 0
    while not tokens.is_end:
        if tokens.peek() in ("(", ")"):
            depth += 1 if tokens.peek() == "(" else -1
        if not depth and tokens.skip("RENAME"):
            if tokens.peek() in ("COLUMN", "INDEX", "KEY"):
                continue
            for word in ("TO", "AS", "="):
                tokens.skip(word)
            return tokens.table(schema)
        tokens.take()
    return None
