"""The table of documents."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, Text, select
from sqlalchemy.dialects import mysql

from stompkit.replica.data import Wanted
from stompkit.replica.data._bodies import (
    LONGEST_COLLECTION,
    LONGEST_ID,
    body_of,
    document_in,
    end_of,
    name_problem,
    values_of,
)
from stompkit.replica.data._many import Values, each_row, insert_rows, mark_of
from stompkit.replication.model.values import InvalidValueError, Value
from stompkit.replication.sql import create_tables, quote

__all__ = ["SCHEMA", "DocumentData"]

#: Schema name, before the dot and the collection, of the table name of a collection.
SCHEMA: Final = "doc"
#: Number of ids in one statement.
_CHUNK: Final = 300
_BEGINNING: Final = f"{SCHEMA}."


def _name(length: int) -> String:
    """Return a text type that sorts by code point in all databases."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")


class _Collections(Container[str]):
    """The table names of all collections, or of selected ones."""

    def __init__(self, collections: Iterable[str] | None) -> None:
        self._names = None if collections is None else frozenset(collections)
        for each in self._names or ():
            if problem := name_problem("collection", each):
                raise ValueError(problem)

    def __contains__(self, name: object) -> bool:
        """Return True if the name is the table name of one of these collections."""
        if not isinstance(name, str) or not name.startswith(_BEGINNING):
            return False
        return self._names is None or name[len(_BEGINNING) :] in self._names


class DocumentData:
    """The table of documents, as :class:`~stompkit.replica.data.Data`.

    It refuses nothing but invalid names; see
    :class:`~stompkit.replica.data.documents.Documents`.
    """

    def __init__(self, prefix: str = "stompkit_", collections: Iterable[str] | None = None) -> None:
        """Describe the table, whose name is ``prefix`` and ``documents``.

        Only ``collections`` are replicated, or all by default. Raises ``ValueError`` for an invalid
        name of a collection.
        """
        #: Replicated tables: an unbounded set unless collections were named.
        self.names: Final = _Collections(collections)
        body = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
        self.table: Final = Table(
            f"{prefix}documents",
            MetaData(),
            Column("collection", _name(LONGEST_COLLECTION), primary_key=True),
            Column("id", _name(LONGEST_ID), primary_key=True),
            Column("body", body, nullable=False),
        )

    @property
    def unknown(self) -> Mapping[str, frozenset[str]]:
        """Always empty: a document accepts any member."""
        return {}

    def create(self, engine: Engine) -> None:
        """Create the table if it is missing; concurrent calls are harmless."""
        with engine.begin() as connection:
            create_tables(connection, [self.table])

    def forget(self) -> None:
        """Do nothing: the table is always the same."""

    def prepare(self, connection: Connection) -> None:
        """Do nothing: a document can only be locked with the replica's lock."""

    def write(self, connection: Connection, rows: Sequence[Wanted]) -> dict[bytes, str]:
        """Insert, replace or delete documents."""
        reasons: dict[bytes, str] = {}
        puts: list[Values] = []
        deletes: list[Values] = []
        for row in {row.id: row for row in rows}.values():
            collection = row.table[len(_BEGINNING) :]
            if problem := _problem(row.table, collection, row.key):
                reasons[row.id] = problem
            elif row.values is None:
                deletes.append((collection, row.key["id"]))
            else:
                try:
                    puts.append((collection, row.key["id"], body_of(row.values)))
                except (InvalidValueError, UnicodeError, RecursionError):
                    reasons[row.id] = "the document has no form in JSON"
        put, delete = self._statements(connection)
        each_row(connection, delete, deletes)
        insert_rows(connection, put, puts)
        return reasons

    def read(
        self,
        connection: Connection,
        table: str,
        after: Mapping[str, Value] | None = None,
        limit: int = 1000,
    ) -> list[tuple[dict[str, Value], dict[str, Value]]]:
        """Return the documents of a collection in the order of their ids, as columns."""
        last = None if after is None else after["id"]
        found = self.page(connection, self._collection(table), after=last, limit=limit)
        return [({"id": name}, values_of(document)) for name, document in found]

    def read_one(
        self, connection: Connection, table: str, key: Mapping[str, Value]
    ) -> dict[str, Value] | None:
        """Return a document as columns."""
        name = self._collection(table), key["id"]
        found = self.several(connection, [name])
        return values_of(found[name]) if name in found else None

    def tables(self, connection: Connection) -> list[str]:
        """Return the replicated collections that have documents."""
        found = connection.scalars(select(self.table.c.collection).distinct())
        return sorted(name for each in found if (name := f"{_BEGINNING}{each}") in self.names)

    # Documents.

    def several(
        self, connection: Connection, names: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the existing documents among these, by collection and id."""
        columns = self.table.c
        found = {}
        for start in range(0, len(names), _CHUNK):
            chunk = names[start : start + _CHUNK]
            query = select(columns.collection, columns.id, columns.body).where(
                columns.collection.in_({collection for collection, _ in chunk}),
                columns.id.in_([id for _, id in chunk]),
            )
            for collection, id, body in connection.execute(query):
                found[collection, id] = body
        return {name: document_in(found[name]) for name in names if name in found}

    def page(
        self,
        connection: Connection,
        collection: str,
        *,
        after: str | None,
        limit: int,
        prefix: str = "",
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return ids with a prefix, after a given id, and their documents."""
        columns = self.table.c
        query = select(columns.id, columns.body).where(columns.collection == collection)
        if after is not None:
            query = query.where(columns.id > after)
        if prefix:
            query = query.where(columns.id >= prefix)
            if end := end_of(prefix):
                query = query.where(columns.id < end)
        query = query.order_by(columns.id).limit(limit)
        return [(name, document_in(body)) for name, body in connection.execute(query)]

    # Internals.

    def _collection(self, table: str) -> str:
        if table not in self.names:
            raise KeyError(table)
        return table[len(_BEGINNING) :]

    def _statements(self, connection: Connection) -> tuple[str, str]:
        """Return the statements that insert or replace a document, and that delete one."""
        dialect = connection.dialect
        name = quote(connection, self.table.name)
        mark = mark_of(connection)
        put = f"INSERT INTO {name} (collection, id, body) VALUES ({mark}, {mark}, {mark})"
        if dialect.name in ("mysql", "mariadb"):
            put += " ON DUPLICATE KEY UPDATE body = VALUES(body)"
        else:
            put += " ON CONFLICT (collection, id) DO UPDATE SET body = excluded.body"
        return put, f"DELETE FROM {name} WHERE collection = {mark} AND id = {mark}"


def _problem(table: str, collection: str, key: Mapping[str, Value]) -> str:
    """Return the problem with a row as a document; empty if it is valid."""
    if not table.startswith(_BEGINNING):
        return "it is in no collection of documents"
    if len(key) != 1 or "id" not in key:
        return "the key of a document is its id"
    return name_problem("collection", collection) or name_problem("id", key["id"])
