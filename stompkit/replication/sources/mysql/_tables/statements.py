"""A partial parser for statements in the log: their kinds, their tables, and their effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from stompkit.replication.sources.mysql._tables.alterations import (
    Effect,
    alteration,
    definitions_in,
)
from stompkit.replication.sources.mysql._tables.tokens import Name, Tokens, tokens_of

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

#: Statements that a row-based log contains only if a session has logged them as statements.
_OF_ROWS: Final = frozenset(
    {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "SELECT", "DO", "CALL"}
)


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
            effects=tuple(
                replace(each, table=table(each.table), was=each.was and table(each.was))
                for each in self.effects
            ),
        )


def parse_statement(query: str, schema: str) -> Statement:
    """Parse a statement that was run in a schema."""
    tokens = Tokens(tokens_of(query))
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


def _written(tokens: Tokens, schema: str) -> list[Name | None]:
    """Return the table that a statement writes to; empty if there may be several."""
    while any(tokens.skip(word) for word in _MODIFIERS):
        pass
    table = tokens.table(schema)
    return [] if _joins(tokens) else [table]


def _joins(tokens: Tokens) -> bool:
    """Return True if more tables follow before the written one is known."""
    while not tokens.is_end and tokens.peek() not in ("SET", "WHERE", "VALUES", "VALUE", "("):
        if tokens.peek() in (",", "JOIN", "USING", "FROM", "SELECT", "INNER", "LEFT", "RIGHT"):
            # INSERT ... SELECT writes to the first one only.
            return tokens.peek() != "SELECT"
        tokens.take()
    return False


def _about(kind: Kind, tables: list[Name | None]) -> Statement:
    return Statement(kind, tuple(table for table in tables if table is not None))


def _definition(verb: str, tokens: Tokens, schema: str) -> Statement:
    is_replacing = tokens.skip("OR")
    for word in ("REPLACE", "ONLINE", "UNIQUE", "FULLTEXT", "SPATIAL"):
        tokens.skip(word)
    drops_rows = tokens.skip("IGNORE")
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
        return _effects(alteration(tokens, schema, table, drops_rows=drops_rows))
    if verb == "CREATE":
        kind: Literal["replaced", "made"] = "replaced" if is_replacing else "made"
        effect = Effect(table, kind, is_if_missing=is_if_missing)
        model, types = _columns_made(tokens, schema)
        return _effects([replace(effect, was=model, types=types)])
    found = [Effect(table, "gone")]
    while tokens.skip(","):
        other = tokens.table(schema)
        if other is not None:
            found.append(Effect(other, "gone"))
    return _effects(found)


def _columns_made(
    tokens: Tokens, schema: str
) -> tuple[Name | None, tuple[tuple[str, str | None], ...]]:
    """Return the model of a new table, if it has one, and the special types of its columns."""
    if tokens.peek_second() == "LIKE":
        tokens.skip("(")
    if tokens.skip("LIKE"):
        return tokens.table(schema), ()
    return None, tuple(definitions_in(tokens))


def _effects(effects: list[Effect]) -> Statement:
    return Statement("schema", tuple(effect.table for effect in effects), effects=tuple(effects))


def _renames(tokens: Tokens, schema: str) -> list[Effect]:
    """Return the effects of RENAME TABLE, which renames one table after the other."""
    found: dict[Name, Effect] = {}
    #: Names before the statement.
    former: dict[Name, Name] = {}
    while not tokens.is_end:
        old = tokens.table(schema)
        while not tokens.is_end and not tokens.skip("TO"):
            tokens.take()
        new = tokens.table(schema)
        if old is not None and new is not None:
            former[new] = former.pop(old, old)
        for table, kind in ((old, "gone"), (new, "copy")):
            if table is not None:
                found.pop(table, None)
                was = former.get(table) if kind == "copy" else None
                found[table] = Effect(table, kind, was=was)  # type: ignore[arg-type]
        while not tokens.is_end and not tokens.skip(","):
            tokens.take()
        tokens.skip("IF", "EXISTS")
    return list(found.values())


def _index(tokens: Tokens, schema: str) -> Statement:
    """Return the statement for an index, which may be the key of a table without a primary key."""
    while not tokens.is_end:
        if tokens.skip("ON"):
            return _about("schema", [tokens.table(schema)])
        tokens.take()
    return Statement("other")
