"""Snapshots: the existing rows, read in chunks in the order of their keys."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from stompkit.replication.sources.postgres._catalogue import CatalogueTable, unreadable_tables
from stompkit.replication.sources.postgres._connections import Connection, is_unchecked
from stompkit.replication.sources.postgres.pgoutput import Relation, Row

__all__ = ["Chunk", "PublishedRows", "chunks", "open_snapshot", "published_rows"]


#: A key in a checkpoint: each value as text, or as base64 if that is not UTF-8.
Place = list[str | dict[str, str]]


class PublishedRows(msgspec.Struct, frozen=True):
    """The published columns and rows of a table."""

    #: ``None`` for every column.
    columns: frozenset[str] | None
    #: SQL condition for the rows, or None.
    condition: str | None

    def relation(self, table: CatalogueTable) -> Relation:
        """Return the relation as the stream would describe the table."""
        found = table.relation
        if self.columns is None:
            return found
        columns = tuple(each for each in found.columns if each.name in self.columns)
        return msgspec.structs.replace(found, columns=columns)


class Chunk(msgspec.Struct, frozen=True):
    """Consecutive rows in the order of their keys."""

    rows: list[Row]
    #: Key of the last row; empty for a table without a key.
    last: Place
    is_last: bool


_LEFT_OUT: Final = b"""
SELECT FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid
WHERE n.nspname = p.schemaname AND c.relname = p.tablename AND c.oid = ANY (%s::oid[])
"""


def open_snapshot(connection: Connection, name: str) -> None:
    """Begin a transaction with a fixed view: that of snapshot ``name``, or the current one."""
    connection.execute(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    if name:
        connection.execute(SQL("SET TRANSACTION SNAPSHOT {}").format(Literal(name)))
    else:
        # The state is that of the first query.
        connection.execute(b"SELECT 1")


def published_rows(
    connection: Connection, publication: str
) -> dict[tuple[str, str], PublishedRows]:
    """Return the contents of a publication, by schema and table."""
    # Columns and conditions exist since version 15.
    more = b", attnames::text[], rowfilter" if connection.info.server_version >= 150000 else b""
    query = b"SELECT schemaname, tablename" + more
    query += b" FROM pg_publication_tables p WHERE pubname = %s AND NOT EXISTS (" + _LEFT_OUT
    query += b") ORDER BY 1, 2"
    found: dict[tuple[str, str], PublishedRows] = {}
    unreadable = sorted(unreadable_tables(connection))
    for schema, table, *rest in connection.execute(query, [publication, unreadable]):
        columns, condition = rest or (None, None)
        found[schema, table] = PublishedRows(
            None if columns is None else frozenset(columns), condition
        )
    return found


def chunks(
    connection: Connection,
    table: CatalogueTable,
    rows: PublishedRows,
    *,
    key: list[str],
    after: Place,
    size: int,
) -> Iterator[Chunk]:
    """Yield the rows of a table after the key ``after`` (all, if it is empty), ``size`` at a time.

    A table without a ``key`` is read in storage order, always from its beginning.
    """
    names = [column.name for column in rows.relation(table).columns]
    select = SQL("SELECT {} FROM {}{}").format(
        SQL(", ").join(map(Identifier, names)),
        # Child tables are published separately. Partitions are included only if the publication has
        # the partitioned table as a whole.
        SQL("" if table.is_partitioned else "ONLY "),
        Identifier(table.schema, table.name),
    )
    conditions: list[Composable] = []
    if rows.condition:
        conditions.append(SQL(f"({rows.condition})"))
    if not key:
        yield from _unordered(connection, select + _where(conditions), size)
        return
    places = [names.index(name) for name in key]
    order = SQL(", ").join(map(Identifier, key))
    end = SQL(" ORDER BY {} LIMIT {}").format(order, Literal(size))
    casts = _casts(connection, table, key)
    while True:
        bounds = list(conditions)
        if after:
            last = SQL(", ").join(
                cast.format(_literal(value)) for cast, value in zip(casts, after, strict=True)
            )
            bounds.append(SQL("({}) > ({})").format(order, last))
        found = _rows(connection, select + _where(bounds) + end)
        if found:
            after = [_kept(found[-1][place]) for place in places]
        yield Chunk(found, after, len(found) < size)
        if len(found) < size:
            return


#: OID of the first type that is not the server's own.
_FIRST_OID: Final = 16384
#: With -1, names of types stand for values of any length.
_TYPE_NAMES: Final = b"SELECT oid, format_type(oid, -1) FROM pg_type WHERE oid = ANY (%s::oid[])"


def _casts(connection: Connection, table: CatalogueTable, key: Iterable[str]) -> list[SQL]:
    """Return expressions for literals of the columns of a key.

    The server infers its own types from the comparison, but not composite types.
    """
    oids = {column.name: column.type_oid for column in table.columns}
    wanted = [oids[name] for name in key]
    made = [oid for oid in wanted if oid >= _FIRST_OID]
    names: dict[int, str] = {}
    if made:
        names = dict(connection.execute(_TYPE_NAMES, [made]).fetchall())
    # Braces in a name of a type are no placeholders.
    types = {oid: name.replace("{", "{{").replace("}", "}}") for oid, name in names.items()}
    return [SQL(f"CAST({{}} AS {types[oid]})" if oid in types else "{}") for oid in wanted]


_CURSOR: Final = b"stompkit_rows"


def _unordered(connection: Connection, query: Composed, size: int) -> Iterator[Chunk]:
    connection.execute(
        SQL("DECLARE {} NO SCROLL CURSOR FOR ").format(Identifier(_CURSOR.decode())) + query
    )
    while True:
        found = _rows(connection, SQL("FETCH {} FROM stompkit_rows").format(Literal(size)))
        yield Chunk(found, [], len(found) < size)
        if len(found) < size:
            break
    connection.execute(b"CLOSE " + _CURSOR)


def _where(conditions: list[Composable]) -> Composed:
    if not conditions:
        return Composed([])
    return SQL(" WHERE ") + SQL(" AND ").join(conditions)


def _rows(connection: Connection, query: Composed) -> list[Row]:
    """Return the rows as the stream has them: each value is the server's text."""
    # A query without parameters is sent unchanged, so percent signs in it are not placeholders.
    octets = query.as_bytes(connection)
    if not is_unchecked(connection):
        result = connection.execute(octets).pgresult
    else:
        connection.execute(b"SET LOCAL client_encoding = SQL_ASCII")
        result = connection.execute(octets).pgresult
        connection.execute(b"SET LOCAL client_encoding = UTF8")
    assert result is not None
    columns = range(result.nfields)
    value = result.get_value
    return [tuple(value(row, column) for column in columns) for row in range(result.ntuples)]


def _kept(value: object) -> str | dict[str, str]:
    """Return a key's value in the form of a checkpoint."""
    assert isinstance(value, bytes), "a key is not NULL"
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"$bytes": base64.b64encode(value).decode()}


def _literal(kept: str | dict[str, str]) -> Composable:
    """Return a value of a checkpoint as a literal."""
    if isinstance(kept, str):
        return Literal(kept)
    octets = base64.b64decode(kept["$bytes"])
    # The driver rejects text that is invalid in the encoding of its connection.
    return Composed([SQL("E'"), *(SQL(f"\\x{octet:02x}") for octet in octets), SQL("'")])
