"""Effects of statements on the rows of tables, and those of ALTER TABLE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from stompkit.replication.sources.mysql._tables.tokens import Name, Token, Tokens

__all__ = ["Effect", "alteration", "definitions_in"]


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
    #: Columns whose type may have changed, and columns that have the name of a former one.
    retyped: tuple[str, ...] = ()
    #: Dropped columns, and added columns that are NULL in all rows.
    dropped: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    #: True if a ``copy`` is needed only for renamed columns.
    only_names: bool = False
    #: Former name of a renamed table, or the table after which a new one is modelled.
    was: Name | None = field(default=None, compare=False)
    #: Special types of the columns that the statement defines; ``None`` for other types.
    types: tuple[tuple[str, str | None], ...] = field(default=(), compare=False)

    @property
    def is_renaming(self) -> bool:
        """True if the name is now that of another table, or of a part of it."""
        return self.kind == "copy" and self.was not in (None, self.table)


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
#: Objects of ADD and DROP other than columns. Servers reserve these words.
_NO_COLUMN: Final = frozenset(
    "INDEX KEY CONSTRAINT UNIQUE PRIMARY FULLTEXT SPATIAL FOREIGN CHECK PARTITION SYSTEM".split()
)
#: Words that begin another object only before one of these; elsewhere they are columns' names.
_FOLLOWED: Final[Mapping[str, frozenset[str]]] = {
    "PERIOD": frozenset({"FOR"}),
    "VECTOR": frozenset({"INDEX", "KEY"}),
}
#: Words that give existing rows a new value when a column is added.
_VALUED: Final = frozenset(
    "DEFAULT NOT GENERATED AS AUTO_INCREMENT SERIAL TIMESTAMP PRIMARY ON".split()
)


#: Types that the log does not contain completely.
_SPECIAL: Final[Mapping[str, str]] = {
    "UUID": "uuid",
    "INET4": "inet4",
    "INET6": "inet6",
    "JSON": "json",
}
#: Start of names of the server's hidden columns, which columns of applications may have as well.
_HIDDEN: Final = "DB_ROW_HASH_"


def special_type(name: str, words: Tokens) -> str | None:
    """Return the special type of a column by its definition without the name, if it has one."""
    first = words.peek()
    if first in _SPECIAL:
        return _SPECIAL[first]
    texts: list[str] = []
    while not words.is_end:
        texts.append(words.take()[1].upper())
    if texts[:4] == ["YEAR", "(", "2", ")"]:
        return "year(2)"
    # As SHOW CREATE TABLE writes a column of the type JSON.
    check = ["CHECK", "(", "JSON_VALID", "(", name.upper(), ")", ")"]
    if any(texts[at : at + len(check)] == check for at in range(len(texts))):
        return "json"
    return "" if name.startswith(_HIDDEN) else None


def definitions_in(tokens: Tokens) -> list[tuple[str, str | None]]:
    """Return the columns in parentheses, with their special types."""
    if not tokens.skip("("):
        return []
    depth = 1
    inner: list[Token] = []
    while not tokens.is_end:
        taken = tokens.take()
        depth += {"(": 1, ")": -1}.get(taken[1], 0) if taken[0] == "symbol" else 0
        if not depth:
            break
        inner.append(taken)
    found = []
    for clause in _clauses(Tokens(inner)):
        words = Tokens(clause)
        if _is_column(words) and (name := words.name()):
            found.append((name, special_type(name, words)))
    return found


def _clauses(tokens: Tokens) -> Iterator[list[Token]]:
    """Yield the parts of ALTER TABLE between commas outside of parentheses."""
    depth = 0
    clause: list[Token] = []
    while not tokens.is_end:
        taken = tokens.take()
        depth += {"(": 1, ")": -1}.get(taken[1], 0) if taken[0] == "symbol" else 0
        if taken == ("symbol", ",") and not depth:
            yield clause
            clause = []
        else:
            clause.append(taken)
    yield clause


def _is_column(words: Tokens) -> bool:
    """Return True if ADD or DROP is about a column."""
    word = words.peek()
    return word not in _NO_COLUMN and words.peek_second() not in _FOLLOWED.get(word, ())


def _converted(words: Tokens, schema: str, table: Name) -> list[Effect]:
    """Return the effect on the table that becomes a partition, or that a partition becomes."""
    if words.skip("TABLE"):
        other = words.table(schema)
        return [] if other is None else [Effect(other, "gone")]
    if not words.skip("PARTITION"):
        return []
    words.name()
    words.skip("TO", "TABLE")
    other = words.table(schema)
    return [] if other is None else [Effect(other, "copy", was=table)]


def alteration(
    tokens: Tokens, schema: str, table: Name, *, drops_rows: bool = False
) -> list[Effect]:
    """Return the effects of ALTER TABLE on the table, and on others that it names.

    ``drops_rows`` is True if rows that violate a new key are deleted (IGNORE).
    """
    is_copy = drops_rows
    renamed: list[tuple[str, str]] = []
    retyped: list[str] = []
    dropped: list[str] = []
    added: list[str] = []
    types: list[tuple[str, str | None]] = []
    others: list[Effect] = []
    new: Name | None = None
    if tokens.skip("WAIT"):
        tokens.take()
    tokens.skip("NOWAIT")
    for clause in _clauses(tokens):
        words = Tokens(clause)
        verb = words.peek()
        words.skip(verb)
        if verb == "ADD":
            if not _is_column(words):
                continue
            words.skip("COLUMN")
            words.skip("IF", "NOT", "EXISTS")
            name = words.name()
            if not name or words.has(_VALUED):
                is_copy = True
            types += [(name, special_type(name, words))] if name else definitions_in(words)
            added += [name] if name else []
        elif verb == "DROP":
            if words.peek() in ("PARTITION", "SYSTEM"):
                is_copy = True
            elif _is_column(words):
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
            types.append((name, special_type(name, words)))
        elif verb == "EXCHANGE":
            is_copy = True
            while words.peek() != "TABLE" and words.name():
                pass
            words.skip("TABLE")
            other = words.table(schema)
            others += [Effect(other, "copy")] if other is not None else []
        elif verb == "CONVERT":
            # Also to a character set.
            is_copy = True
            others += _converted(words, schema, table)
        elif verb == "ALTER":
            continue
        elif verb and verb not in _HARMLESS:
            # TRUNCATE PARTITION, IMPORT TABLESPACE, and unknown clauses.
            is_copy = True
    # Another column has such a name now, with other values and perhaps of another type.
    former = [*dropped, *(old for old, _ in renamed)]
    again = {*former}.intersection((*added, *(name for _, name in renamed)))
    retyped += [name for name in former if name in again and name not in retyped]
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
        types=tuple(types),
    )
    if new is None or new == table:
        return [effect, *others]
    return [
        Effect(table, "gone"),
        replace(effect, table=new, kind="copy", only_names=False, was=table),
        *others,
    ]
