"""A partial parser for statements in the log: their kinds, their tables, and their effects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

__all__ = ["Effect", "Name", "Statement", "parse_statement"]

#: ``rows``: it changes rows itself, without row events in the log. Its tables are those that it
#: writes to; if there are none, they are unknown.
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
#: Statements that a row-based log contains only if a session has logged them as statements.
_OF_ROWS: Final = frozenset(
    {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "SELECT", "DO", "CALL"}
)


@dataclass(frozen=True)
class Effect:
    """Effect of a statement on the rows of a table."""

    table: Name
    #: ``made``: the table is new and empty; ``replaced``: it is empty now; ``gone``: it was
    #: dropped; ``same``: its rows are unchanged; ``copy``: rows have changed without row events.
    kind: Literal["made", "replaced", "gone", "same", "copy"]
    #: True if an existing table is left unchanged.
    is_if_missing: bool = False
    #: New names of columns by the old ones.
    renamed: tuple[tuple[str, str], ...] = ()
    #: Columns whose type may have changed.
    retyped: tuple[str, ...] = ()
    #: Dropped columns, and added columns that are NULL in all rows.
    dropped: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    #: True if a ``copy`` is needed only for renamed columns.
    only_names: bool = False


@dataclass(frozen=True)
class Statement:
    """A statement, and the tables or the savepoint that it names."""

    kind: Kind
    #: Schemas and names.
    tables: tuple[Name, ...] = ()
    #: Name of a savepoint or a database; the verb of an XA statement.
    name: str = ""
    #: Effects on tables of a statement of the kind ``schema``.
    effects: tuple[Effect, ...] = ()

    def spelled(self, table: Callable[[Name], Name], database: Callable[[str], str]) -> Statement:
        """Return the statement with names in the server's spelling."""
        return replace(
            self,
            tables=tuple(map(table, self.tables)),
            name=database(self.name) if self.kind == "drop database" else self.name,
            effects=tuple(replace(each, table=table(each.table)) for each in self.effects),
        )


class _Tokens:
    """The tokens of a statement without comments, but with MySQL's executable comments."""

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
        """Return the next word or symbol, in upper case; empty for a quoted one, and at the end."""
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


def parse_statement(query: str, schema: str) -> Statement:
    """Parse a statement that was run in a schema."""
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
            # A server logs this to report that a MEMORY table is empty after a restart.
            table = tokens.table(schema)
            if tokens.is_end:
                return _about("truncate", [table])
            return _about("rows", [] if _joins(tokens) else [table])
        case "INSERT" | "REPLACE" | "UPDATE" | "DELETE":
            return _about("rows", _written(tokens, schema))
    return Statement("rows" if verb in _OF_ROWS else "other")


#: Words between the verb of a statement and the table that it writes to.
_MODIFIERS: Final = ("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "QUICK", "IGNORE", "INTO", "FROM")


def _written(tokens: _Tokens, schema: str) -> list[Name | None]:
    """Return the table that a statement writes to; empty if there may be several."""
    while any(tokens.skip(word) for word in _MODIFIERS):
        pass
    table = tokens.table(schema)
    return [] if _joins(tokens) else [table]


def _joins(tokens: _Tokens) -> bool:
    """Return True if more tables follow before the written one is known."""
    while not tokens.is_end and tokens.peek() not in ("SET", "WHERE", "VALUES", "VALUE", "("):
        if tokens.peek() in (",", "JOIN", "USING", "FROM", "SELECT", "INNER", "LEFT", "RIGHT"):
            # INSERT ... SELECT writes to the first one only.
            return tokens.peek() != "SELECT"
        tokens.take()
    return False


def _about(kind: Kind, tables: list[Name | None]) -> Statement:
    return Statement(kind, tuple(table for table in tables if table is not None))


def _definition(verb: str, tokens: _Tokens, schema: str) -> Statement:
    is_replacing = tokens.skip("OR")
    for word in ("REPLACE", "ONLINE", "IGNORE", "UNIQUE", "FULLTEXT", "SPATIAL"):
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
    is_if_missing = tokens.peek() == "IF" and verb == "CREATE"
    tokens.skip("IF", "NOT", "EXISTS")
    if verb == "RENAME":
        return _effects(_renames(tokens, schema))
    table = tokens.table(schema)
    if table is None:
        return Statement("schema")
    if verb == "ALTER":
        return _effects(_alteration(tokens, schema, table))
    if verb == "CREATE":
        kind: Literal["replaced", "made"] = "replaced" if is_replacing else "made"
        return _effects([Effect(table, kind, is_if_missing=is_if_missing)])
    found = [Effect(table, "gone")]
    while tokens.skip(","):
        other = tokens.table(schema)
        if other is not None:
            found.append(Effect(other, "gone"))
    return _effects(found)


def _effects(effects: list[Effect]) -> Statement:
    return Statement("schema", tuple(effect.table for effect in effects), effects=tuple(effects))


def _renames(tokens: _Tokens, schema: str) -> list[Effect]:
    """Return the effects of RENAME TABLE, which renames one table after the other."""
    found: dict[Name, Effect] = {}
    while not tokens.is_end:
        old = tokens.table(schema)
        while not tokens.is_end and not tokens.skip("TO"):
            tokens.take()
        new = tokens.table(schema)
        for table, kind in ((old, "gone"), (new, "copy")):
            if table is not None:
                found.pop(table, None)
                found[table] = Effect(table, kind)  # type: ignore[arg-type]
        while not tokens.is_end and not tokens.skip(","):
            tokens.take()
        tokens.skip("IF", "EXISTS")
    return list(found.values())


def _index(tokens: _Tokens, schema: str) -> Statement:
    """Return the statement for an index, which may be the key of a table without a primary key."""
    while not tokens.is_end:
        if tokens.skip("ON"):
            return _about("schema", [tokens.table(schema)])
        tokens.take()
    return Statement("other")


#: Clauses of ALTER TABLE that leave all rows unchanged, by their first words.
_HARMLESS: Final = frozenset(
    """ALGORITHM ANALYZE AUTO_INCREMENT AVG_ROW_LENGTH CHARACTER CHARSET CHECK CHECKSUM COALESCE
    COLLATE COMMENT COMPRESSION CONNECTION DATA DEFAULT DELAY_KEY_WRITE DISABLE ENABLE ENCRYPTED
    ENCRYPTION ENCRYPTION_KEY_ID ENGINE ENGINE_ATTRIBUTE FORCE IETF_QUOTES INDEX INSERT_METHOD
    KEY_BLOCK_SIZE LOCK MAX_ROWS MIN_ROWS NOWAIT OPTIMIZE ORDER PACK_KEYS PAGE_CHECKSUM
    PAGE_COMPRESSED PAGE_COMPRESSION_LEVEL PARTITION REBUILD REMOVE REORGANIZE REPAIR ROW_FORMAT
    SECONDARY_ENGINE SECONDARY_LOAD SECONDARY_UNLOAD STATS_AUTO_RECALC STATS_PERSISTENT
    STATS_SAMPLE_PAGES STORAGE TABLESPACE TRANSACTIONAL UNION WAIT WITH WITHOUT""".split()
)
#: Objects of ADD, DROP, ALTER and RENAME other than columns.
_NO_COLUMN: Final = frozenset(
    "INDEX KEY CONSTRAINT UNIQUE PRIMARY FULLTEXT SPATIAL FOREIGN CHECK PERIOD VECTOR".split()
)
#: Words that give existing rows a new value when a column is added.
_VALUED: Final = frozenset(
    "DEFAULT NOT GENERATED AS AUTO_INCREMENT SERIAL TIMESTAMP PRIMARY ON".split()
)
_Clause = list[tuple[str, str]]


def _clauses(tokens: _Tokens) -> Iterator[_Clause]:
    """Yield the parts of ALTER TABLE between commas outside of parentheses."""
    depth = 0
    clause: _Clause = []
    while not tokens.is_end:
        taken = tokens.take()
        depth += {"(": 1, ")": -1}.get(taken[1], 0) if taken[0] == "symbol" else 0
        if taken == ("symbol", ",") and not depth:
            yield clause
            clause = []
        else:
            clause.append(taken)
    yield clause


class _Words:
    """The words of a clause, in order."""

    def __init__(self, clause: _Clause) -> None:
        self._left = list(clause)

    def peek(self) -> str:
        """Return the next word in upper case; empty for a quoted one, and at the end."""
        kind, text = self._left[0] if self._left else ("", "")
        return text.upper() if kind in ("word", "symbol") else ""

    def skip(self, *words: str) -> bool:
        """Skip these words if they come next; return True if the first one did."""
        is_there = self.peek() == words[0]
        for word in words if is_there else ():
            if self.peek() == word:
                del self._left[0]
        return is_there

    def name(self) -> str:
        """Take a name; empty if there is none."""
        if not self._left or self._left[0][0] not in ("name", "double", "word"):
            return ""
        return self._left.pop(0)[1]

    def has(self, words: frozenset[str]) -> bool:
        """Return True if one of these words is among the rest."""
        return any(kind == "word" and text.upper() in words for kind, text in self._left)

    def table(self, schema: str) -> Name | None:
        """Take a table's name, in the given schema by default."""
        first = self.name()
        if not first:
            return None
        return (first, self.name()) if self.skip(".") else (schema, first)


def _alteration(tokens: _Tokens, schema: str, table: Name) -> list[Effect]:
    """Return the effects of ALTER TABLE on the table, and on others that it names."""
    is_copy = False
    renamed: list[tuple[str, str]] = []
    retyped: list[str] = []
    dropped: list[str] = []
    added: list[str] = []
    others: list[Effect] = []
    new: Name | None = None
    if tokens.skip("WAIT"):
        tokens.take()
    tokens.skip("NOWAIT")
    for clause in _clauses(tokens):
        words = _Words(clause)
        verb = words.peek()
        words.skip(verb)
        if verb == "ADD":
            if words.peek() in _NO_COLUMN or words.peek() in ("PARTITION", "SYSTEM"):
                continue
            words.skip("COLUMN")
            words.skip("IF", "NOT", "EXISTS")
            name = words.name()
            if not name or words.has(_VALUED):
                is_copy = True
            added += [name] if name else []
        elif verb == "DROP":
            if words.peek() in ("PARTITION", "SYSTEM"):
                is_copy = True
            elif words.peek() not in _NO_COLUMN:
                words.skip("COLUMN")
                words.skip("IF", "EXISTS")
                dropped.append(words.name())
        elif verb == "RENAME" and words.peek() in ("INDEX", "KEY"):
            continue
        elif verb == "RENAME" and words.skip("COLUMN"):
            words.skip("IF", "EXISTS")
            old = words.name()
            words.skip("TO")
            renamed.append((old, words.name()))
        elif verb == "RENAME":
            for word in ("TO", "AS", "="):
                words.skip(word)
            new = words.table(schema)
        elif verb in ("CHANGE", "MODIFY"):
            words.skip("COLUMN")
            words.skip("IF", "EXISTS")
            old = words.name()
            name = words.name() if verb == "CHANGE" else old
            if name != old:
                renamed.append((old, name))
            retyped.append(name)
        elif verb == "EXCHANGE":
            is_copy = True
            while words.peek() != "TABLE" and words.name():
                pass
            words.skip("TABLE")
            other = words.table(schema)
            others += [Effect(other, "copy")] if other is not None else []
        elif verb == "ALTER":
            continue
        elif verb and verb not in _HARMLESS:
            # CONVERT, TRUNCATE PARTITION, IMPORT TABLESPACE, and unknown clauses.
            is_copy = True
    only_names = bool(renamed) and not (is_copy or retyped)
    is_copy = is_copy or bool(renamed or retyped)
    effect = Effect(
        table,
        "copy" if is_copy else "same",
        renamed=tuple(renamed),
        retyped=tuple(retyped),
        dropped=tuple(dropped),
        added=tuple(added),
        only_names=only_names,
    )
    if new is None or new == table:
        return [effect, *others]
    return [
        Effect(table, "gone"),
        replace(effect, table=new, kind="copy", only_names=False),
        *others,
    ]
