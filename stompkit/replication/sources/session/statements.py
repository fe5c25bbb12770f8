"""Statements that change rows: the affected rows, and unsupported statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Delete,
    Insert,
    Select,
    Table,
    Update,
    and_,
    or_,
    select,
)
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.elements import BinaryExpression, BooleanClauseList, TextClause
from sqlalchemy.sql.selectable import TextualSelect

__all__ = [
    "Parameters",
    "SelectAs",
    "UnseenChangeError",
    "bound_values",
    "equalities",
    "insert_with_keys",
    "raw_problem",
    "rows_by_keys",
    "rows_by_statement",
    "table_of",
]

Parameters = Sequence[Mapping[str, Any]]
#: Function from a column to the expression to select for it.
SelectAs = Callable[[ColumnElement[Any]], ColumnElement[Any]]

#: Number of keys in one statement; older SQLite versions allow only 999 parameters.
_CHUNK: Final = 300


class UnseenChangeError(Exception):
    """A statement would change watched rows in a way that cannot be recorded.

    It is raised before the statement runs, if that is known by then; otherwise the transaction
    cannot be committed.
    """


def table_of(statement: UpdateBase) -> Table:
    """Return the table that a statement changes; raises UnseenChangeError if it is none."""
    target = statement.table
    if not isinstance(target, Table):
        raise UnseenChangeError(
            "a statement that changes something else than one table: change tables"
        )
    # The ORM annotates copies of tables.
    return target.metadata.tables[target.key]


def equalities(
    statement: Update | Delete, table: Table
) -> dict[Column[Any], BindParameter[Any]] | None:
    """Return the columns and values of a condition that consists of equalities only."""
    found: dict[Column[Any], BindParameter[Any]] = {}
    for clause in _conjuncts(statement.whereclause):
        if not (
            isinstance(clause, BinaryExpression)
            and clause.operator is operators.eq
            and isinstance(clause.left, Column)
            and isinstance(clause.right, BindParameter)
        ):
            return None
        column = table.columns.get(clause.left.key)
        if column is None or clause.left.table is None or column in found:
            return None
        found[column] = clause.right
    return found


def _conjuncts(clause: ColumnElement[Any] | None) -> Iterator[ColumnElement[Any]]:
    if isinstance(clause, BooleanClauseList) and clause.operator is operators.and_:
        for each in clause.clauses:
            yield from _conjuncts(each)
    elif clause is not None:
        yield clause


def bound_values(
    found: Mapping[Column[Any], BindParameter[Any]], parameters: Mapping[str, Any]
) -> dict[Column[Any], Any]:
    """Return the values of :func:`equalities` in one execution."""
    return {
        column: parameters.get(bind.key, bind.effective_value) for column, bind in found.items()
    }


def insert_with_keys(
    statement: Insert, table: Table, rows: Parameters, connection: Connection
) -> Insert:
    """Return a statement that returns the keys of inserted rows; the same one if it does already.

    Raises :class:`UnseenChangeError` if that is impossible.
    """
    name = table.fullname
    if statement.select is not None:
        raise UnseenChangeError(
            f"INSERT INTO {name} from a SELECT: read the rows, then insert them"
        )
    if statement._multi_values:
        raise UnseenChangeError(
            f"INSERT INTO {name} with several rows in values(): execute the statement with a list"
            " of parameters instead"
        )
    if statement._post_values_clause is not None or statement._prefixes:
        raise UnseenChangeError(
            f"INSERT INTO {name} that may update, replace or ignore rows: look whether they are"
            " there first"
        )
    keys = list(table.primary_key)
    if not keys or len(rows) < 2 or all(_is_told(column, rows) for column in keys):
        return statement
    returned = statement.exported_columns
    if len(returned):
        if all(column.key in returned for column in keys):
            return statement
    elif connection.dialect.insert_executemany_returning_sort_by_parameter_order:
        if statement._return_defaults:
            return statement
        return statement.return_defaults(*keys, sort_by_parameter_order=True)
    remedy = (
        "have it return the key"
        if connection.dialect.insert_executemany_returning
        else "this database does not return them, so add objects to the session, or give the keys"
    )
    raise UnseenChangeError(
        f"INSERT INTO {name} of several rows whose keys the database makes: {remedy}"
    )


def _is_told(column: Column[Any], rows: Parameters) -> bool:
    return all(row.get(column.key) is not None for row in rows)


# Reading rows.


def rows_by_statement(
    connection: Connection,
    statement: Update | Delete,
    table: Table,
    rows: Parameters,
    select_as: SelectAs,
) -> list[tuple[Any, ...]]:
    """Return the rows that a statement is about to change, locked if possible.

    Each is the values of its key, in the program's form, followed by all columns.
    """
    if statement.kwargs:
        raise UnseenChangeError(
            f"a statement with options of one database only changes {table.fullname}: which rows"
            " that are is not known"
        )
    target = statement.table
    primary = [target.columns[column.key] for column in table.primary_key]
    query = select(*primary, *(select_as(each) for each in target.columns)).select_from(target)
    query = query.with_for_update().order_by(*primary)
    condition = statement.whereclause
    if condition is None:
        return _distinct(connection.execute(query).all(), table)
    names = {each.key for each in visitors.iterate(condition) if isinstance(each, BindParameter)}
    found: list[Any] = []
    for row in rows:
        bound = {name: value for name, value in row.items() if name in names}
        found += connection.execute(query.where(condition), bound).all()
    return _distinct(found, table)


def _distinct(rows: Sequence[Any], table: Table) -> list[tuple[Any, ...]]:
    """Return each row once, because a condition over several tables may find it more than once."""
    size = len(table.primary_key)
    if not size:
        return [tuple(row) for row in rows]
    return list({tuple(row[:size]): tuple(row) for row in rows}.values())


def rows_by_keys(
    connection: Connection,
    table: Table,
    columns: Sequence[ColumnElement[Any]],
    keys: Sequence[Sequence[Any]],
    *,
    lock: bool = False,
) -> list[tuple[Any, ...]]:
    """Return columns of the rows with these primary keys, in any order."""
    primary = list(table.primary_key)
    found: list[tuple[Any, ...]] = []
    for start in range(0, len(keys), _CHUNK):
        chunk = keys[start : start + _CHUNK]
        query: Select[Any] = select(*columns)
        if len(primary) == 1:
            query = query.where(primary[0].in_([key[0] for key in chunk]))
        else:
            same = (
                and_(*(column == value for column, value in zip(primary, key, strict=True)))
                for key in chunk
            )
            query = query.where(or_(*same))
        if lock:
            query = query.with_for_update()
        found += [tuple(row) for row in connection.execute(query)]
    return found


# SQL text.

_QUIET: Final = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_QUOTES: Final = re.compile(r'["`\[\]]')
_WORD: Final = re.compile(r"[\w$]+(?:\.[\w$]+)?")
#: First words of statements that change no rows. DDL is not followed.
_HARMLESS: Final = frozenset(
    "select with values table show explain describe desc pragma set reset begin start savepoint"
    " release rollback commit end abort lock unlock create alter drop rename comment grant revoke"
    " analyze analyse vacuum optimize reindex cluster checkpoint use declare fetch move close"
    " deallocate discard listen notify unlisten attach detach kill flush prepare xa".split()
)
_CHANGES: Final = re.compile(
    r"\b(?:insert\s+(?:\w+\s+)*?into|delete\s+from|update\s+(?:\w+\s+)?\S+\s+(?:\w+\s+)*?set"
    r"|merge\s+into|replace\s+into|truncate)\b",
    re.IGNORECASE,
)
#: Statements that may do anything, independently of table names.
_OPAQUE: Final = frozenset(["call", "do", "exec", "execute"])


def raw_problem(context: Any, sql: str, wants: Callable[[str, str], bool]) -> str | None:
    """Return the problem of a statement that is text, or hides changes in a SELECT; or None."""
    compiled = context.compiled
    statement = None if compiled is None else compiled.statement
    if isinstance(statement, UpdateBase):
        return _hidden(compiled, statement, wants)
    if statement is not None and not isinstance(statement, (TextClause, TextualSelect)):
        return _hidden(compiled, statement, wants)
    text = _QUOTES.sub("", _QUIET.sub(" ", sql))
    words = _WORD.findall(text)
    first = words[0].lower() if words else ""
    if not words or (first in _HARMLESS and not _CHANGES.search(text)):
        return None
    named = (word.rpartition(".") for word in words[1:])
    if first in _OPAQUE or any(wants(schema, table) for schema, _, table in named):
        return f"a statement in SQL ({first.upper()} ...)"
    return None


def _hidden(compiled: Any, statement: Any, wants: Callable[[str, str], bool]) -> str | None:
    """Return the problem of changes inside of common table expressions; or None."""
    # DDL statements have none.
    for each in getattr(compiled, "ctes", None) or ():
        inner = each.element
        if isinstance(inner, UpdateBase) and inner is not statement:
            table = table_of(inner)
            if wants(table.schema or "", table.name):
                return f"a change of {table.fullname} inside of another statement"
    return None
