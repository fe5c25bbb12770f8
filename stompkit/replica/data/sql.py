"""Reads and writes the application's SQL tables for a replica."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from typing import Final

from sqlalchemy import Connection, Engine, MetaData, Table, inspect
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from stompkit.replica.data import Wanted
from stompkit.replica.data._plan import Planner, RowFilter
from stompkit.replica.data._reading import TableReader
from stompkit.replica.data._reasons import Reason
from stompkit.replica.data._runner import Runner
from stompkit.replica.data._schema import Schema, Source
from stompkit.replica.data._settling import settle
from stompkit.replica.data._writer import Writer
from stompkit.replication.model.tables import Tables
from stompkit.replication.model.values import Value
from stompkit.replication.sql import Statements

__all__ = ["RowFilter", "SqlData"]

#: Prefix of tables that belong to this library.
_OWN: Final = "stompkit_"
#: MySQL truncates nothing silently, and does not replace a key of 0 by the next number.
_STRICT: Final = (
    "SET @stompkit_sql_mode = @@sql_mode,"
    " sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO')"
)
_AS_BEFORE: Final = "SET sql_mode = @stompkit_sql_mode"


class SqlData:
    """Tables in SQLite, PostgreSQL, MariaDB or MySQL, as :class:`~.Data`.

    Rows are found by their key columns and written whole, as far as their columns are known. If the
    database refuses them together, they are written in several rounds until none of the rest is
    accepted. Parents are written before children, and deletions happen in reverse order. Rows that
    depend on each other, such as two that swap unique names, first get placeholders.

    Values have the column's type in the database. An application's ``TypeDecorator`` is bypassed,
    as it is when changes are recorded.
    """

    def __init__(
        self,
        engine: Engine,
        tables: Iterable[Table] | MetaData | None,
        select: Tables | None = None,
        rows: Mapping[str, RowFilter] | None = None,
    ) -> None:
        """Describe the tables; ``None`` means all current tables with a primary key.

        ``select`` selects the replicated tables and columns. ``rows`` has functions by table name:
        a row for which one returns a false value, given its known columns, does not belong here.
        Nothing is read from ``engine`` if tables are given.

        Raises ``ValueError`` for a table without a primary key, a filter of a table that is not
        replicated, and an unsupported database.
        """
        name = engine.dialect.name
        self._backend = "mysql" if name == "mariadb" else name
        if self._backend not in ("sqlite", "postgresql", "mysql"):
            raise ValueError(f"a replica has SQLite, PostgreSQL, MariaDB or MySQL, not {name}")
        self._select = Tables() if select is None else select
        filters = dict(rows or {})
        found = _found(engine) if tables is None else _given(tables)
        self._sources = {
            f"{schema}.{name}" if schema else name: Source(
                schema, name, table, filters.pop(f"{schema}.{name}" if schema else name, None)
            )
            for schema, name, table in found
            if self._select.wants(schema, name)
        }
        if filters:
            raise ValueError(f"there is a filter for {min(filters)}, which is not replicated")
        self._statements = Statements(self._backend, engine.dialect.paramstyle)
        self._schema: Schema | None = None
        self._readers: dict[str, TableReader] = {}
        self._unknown: dict[str, set[str]] = {}
        #: Keys of rows, by table, that could not be written because others held locks.
        self._contested: dict[str, list[dict[str, Value]]] = {}

    @property
    def names(self) -> frozenset[str]:
        """Replicated tables, even if they do not exist."""
        return frozenset(self._sources)

    @property
    def unknown(self) -> Mapping[str, AbstractSet[str]]:
        """Received columns that the tables lack, by table."""
        return self._unknown

    def create(self, engine: Engine) -> None:
        """Do nothing: the tables are the application's."""

    def forget(self) -> None:
        """Reload the table definitions before their next use."""
        self._schema = None
        self._readers = {}
        self._unknown = {}

    def prepare(self, connection: Connection) -> None:
        """Lock the rows for which the last transaction gave way.

        In SQLite, a row is never locked without the lock that all writers need.
        """
        contested, self._contested = self._contested, {}
        if contested and self._backend != "sqlite":
            for table in self.tables(connection):
                if table in contested:
                    self._reader(connection, table).lock(connection, contested[table])

    def write(self, connection: Connection, rows: Sequence[Wanted]) -> dict[bytes, str]:
        """Write rows; returns the reasons, by id, for rows that the database refuses.

        In PostgreSQL, deferred constraints become immediate for the rest of the transaction.
        """
        wanted = list({row.id: row for row in rows}.values())
        with self._ready(connection), self._remembering(wanted):
            reasons = self._write(connection, wanted)
            gone = {id for id, reason in reasons.items() if reason.kind == "schema"}
            if gone:
                # The table definitions may have changed since they were loaded.
                self.forget()
                again = self._write(connection, [row for row in wanted if row.id in gone])
                reasons = {id: each for id, each in reasons.items() if id not in gone} | again
        return {id: reason.text for id, reason in reasons.items()}

    def read(
        self,
        connection: Connection,
        table: str,
        after: Mapping[str, Value] | None = None,
        limit: int = 1000,
    ) -> list[tuple[dict[str, Value], dict[str, Value]]]:
        """Return keys and other columns of rows in key order, after a given key.

        Row filters do not apply. Raises ``KeyError`` for an unknown table.
        """
        return self._reader(connection, table).page(connection, after, limit)

    def read_one(
        self, connection: Connection, table: str, key: Mapping[str, Value]
    ) -> dict[str, Value] | None:
        """Return the columns of a row beside its key; ``None`` if it does not exist.

        Raises ``KeyError`` for an unknown table.
        """
        return self._reader(connection, table).find(connection, key)

    def tables(self, connection: Connection) -> list[str]:
        """Return the sorted names of the existing tables."""
        there: dict[str, list[str]] = {}
        inspector = inspect(connection)
        for source in self._sources.values():
            if source.schema not in there:
                there[source.schema] = inspector.get_table_names(source.schema or None)
        return sorted(
            name for name, source in self._sources.items() if source.name in there[source.schema]
        )

    # Internals.

    def _write(self, connection: Connection, rows: Sequence[Wanted]) -> dict[bytes, Reason]:
        schema = self._look(connection)
        planner = Planner(
            lambda name: schema.target(connection, name),
            schema.links,
            self._unknown,
            self._backend,
        )
        batches = planner.plan(rows)
        reasons = {id: Reason("other", text) for id, text in planner.reasons.items()}
        if batches:
            runner = Runner(connection, self._statements, self._backend)
            writer = Writer(runner, self._backend)
            reasons |= settle(writer, schema, batches)
        return reasons

    def _look(self, connection: Connection) -> Schema:
        if self._schema is None:
            self._schema = Schema(connection, self._backend, self._sources, self._select)
        return self._schema

    def _reader(self, connection: Connection, name: str) -> TableReader:
        reader = self._readers.get(name)
        if reader is None:
            reader = TableReader(connection, self._sources[name], self._select)
            self._readers[name] = reader
        return reader

    @contextmanager
    def _remembering(self, rows: Sequence[Wanted]) -> Iterator[None]:
        """Remember rows that others may have locked, for the next transaction."""
        try:
            yield
        except DBAPIError:
            contested: dict[str, list[dict[str, Value]]] = {}
            for row in rows:
                contested.setdefault(row.table, []).append(row.key)
            self._contested = contested
            raise

    @contextmanager
    def _ready(self, connection: Connection) -> Iterator[None]:
        """Set up a transaction and a session that lose no data."""
        if self._backend == "sqlite":
            # Python's driver begins a transaction only with the first changed row, which would be
            # too late: releasing an earlier savepoint would end the transaction.
            driver = connection.connection.dbapi_connection
            if driver is not None and not driver.in_transaction:
                connection.exec_driver_sql("BEGIN")
        if self._backend != "mysql":
            yield
            return
        connection.exec_driver_sql(_STRICT)
        try:
            yield
        finally:
            with suppress(SQLAlchemyError):
                connection.exec_driver_sql(_AS_BEFORE)


def _found(engine: Engine) -> list[tuple[str, str, Table | None]]:
    """Return the tables with a primary key in the default schema."""
    inspector = inspect(engine)
    return [
        ("", name, None)
        for name in inspector.get_table_names()
        if not name.startswith(_OWN) and inspector.get_pk_constraint(name)["constrained_columns"]
    ]


def _given(tables: Iterable[Table] | MetaData) -> list[tuple[str, str, Table | None]]:
    """Return schema and name of each table as in changes."""
    listed = list(tables.tables.values() if isinstance(tables, MetaData) else tables)
    for table in listed:
        if not table.primary_key.columns:
            raise ValueError(f"{table.fullname} has no primary key, which tells rows apart")
    return [(str(table.schema or ""), str(table.name), table) for table in listed]
