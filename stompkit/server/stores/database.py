"""An SQL database: how it is connected to, and what can go wrong with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol
from uuid import uuid4

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError, StatementError
from sqlalchemy.pool import QueuePool
from twisted.logger import Logger

from stompkit.server.interfaces import StoreError, StoreFull
from stompkit.server.stores.tables import META, TABLES, VERSION
from stompkit.server.stores.versions import upgrade

__all__ = ["Database"]

_log: Final = Logger()

_MIGRATIONS: Final[dict[int, Callable[[Connection], None]]] = {}

#: The drivers that are taken where a URL names none.
_DRIVERS: Final = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}
#: How long PostgreSQL may take to answer, in seconds, where the URL says nothing; PyMySQL waits
#: for as long.
_CONNECT_S: Final = 10

#: How a lack of room is told: SQLite's result code, PostgreSQL's SQLSTATE, MariaDB's numbers.
_SQLITE_FULL: Final = 13
_POSTGRESQL_FULL: Final = "53100"
_MARIADB_FULL: Final = ((1021,), (1114,))


class _Cursor(Protocol):
    """What is used of a driver's cursor."""

    def execute(self, statement: str) -> object: ...

    def close(self) -> object: ...


class Database:
    """The database of a store, over one connection that is made again when it was lost.

    Every method raises :class:`StoreError`. No message has a password in it, nor anything that
    clients have sent.
    """

    def __init__(self, url: str, *, synchronous: bool) -> None:
        """Describe a database; ValueError for a URL that can't be read."""
        try:
            parsed = make_url(url)
        except ArgumentError:
            raise ValueError(
                "the URL of an SQL store has to be like postgresql://USER:PASSWORD@HOST/DATABASE"
                " or sqlite:////var/lib/stompkit/messages.sqlite"
            ) from None
        driver = _DRIVERS.get(parsed.drivername)
        if driver is not None:
            parsed = parsed.set(drivername=f"{parsed.drivername}+{driver}")
        self._url = parsed
        self._synchronous = synchronous
        self._engine: Engine | None = None
        #: What the stamp of the database is, as far as is known: see :meth:`change`.
        self._stamps: set[str] = set()

    @property
    def name(self) -> str:
        """The URL without its secrets."""
        return self._url.set(query={}).render_as_string()

    def open(self) -> None:
        """Connect, and make the tables if there are none."""
        if self._engine is not None:
            raise StoreError("the store is open already")
        with self._errors():
            engine = self._create_engine()
            try:
                with engine.begin() as connection:
                    self._stamps = {self._prepare(connection)}
            except BaseException:
                engine.dispose()
                raise
        self._engine = engine

    def close(self) -> None:
        """Sync and disconnect; harmless if it is not open."""
        engine = self._engine
        if engine is not None:
            try:
                self.sync()
            finally:
                self._engine = None
                engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction for reading."""
        with self._errors(), self._use().begin() as connection:
            yield connection

    @contextmanager
    def change(self) -> Iterator[Connection]:
        """A transaction for writing: committed at the end, or else undone.

        Each gives the database another stamp, and fails if the stamp is not the one that was
        read or given last: somebody else is at work then, and what is known of the store here is
        no longer true. By its stamp a commit is also known that was not heard of, because the
        connection was lost.
        """
        engine = self._use()
        stamp = uuid4().hex
        is_complete = False
        with self._errors():
            try:
                with engine.begin() as connection:
                    self._stamp(connection, stamp)
                    yield connection
                    is_complete = True
            except DBAPIError as error:
                if not (is_complete and error.connection_invalidated):
                    raise
                self._stamps.add(stamp)
                if not self._was_committed(engine, stamp):
                    raise
        self._stamps = {stamp}

    def sync(self) -> None:
        """Have everything that was written reach the disk."""
        engine = self._use()
        if self._synchronous:
            return
        if engine.dialect.name == "postgresql":
            with self.change() as connection:
                connection.execute(text("SET LOCAL synchronous_commit = on"))
        elif engine.dialect.name == "sqlite":
            # What is written with the next commit includes what was written before.
            with self._errors(), engine.connect() as connection:
                _execute(connection, "PRAGMA synchronous = FULL")
            try:
                with self.change():
                    pass
            finally:
                with self._errors(), engine.connect() as connection:
                    _execute(connection, "PRAGMA synchronous = NORMAL")

    def _use(self) -> Engine:
        """SQLAlchemy's object, while the database is open."""
        if self._engine is None:
            raise StoreError("the store is not open")
        return self._engine

    def _create_engine(self) -> Engine:
        """What connects, each time as the store needs it."""
        url = self._url
        dialect = url.get_backend_name()
        arguments: dict[str, Any] = {}
        if dialect == "sqlite":
            # Calls come from several threads, one at a time.
            arguments["check_same_thread"] = False
            _make_file(url)
        elif dialect == "postgresql" and "connect_timeout" not in url.query:
            arguments["connect_timeout"] = _CONNECT_S
        engine = create_engine(
            url,
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
            pool_pre_ping=True,
            hide_parameters=True,
            connect_args=arguments,
        )
        if dialect == "sqlite":
            event.listen(engine, "connect", self._connected_to_sqlite)
            event.listen(engine, "begin", _begin)
        elif dialect == "postgresql":
            event.listen(engine, "connect", self._connected_to_postgresql)
        return engine

    def _connected_to_sqlite(self, connection: Any, _: object) -> None:
        """Have the driver leave transactions to us, and set how safe commits are."""
        connection.isolation_level = None
        cursor: _Cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute(f"PRAGMA synchronous = {'FULL' if self._synchronous else 'NORMAL'}")
        cursor.close()

    def _connected_to_postgresql(self, connection: Any, _: object) -> None:
        """Set how safe commits are; safer than ``on``, as the server may be set, is kept."""
        cursor: _Cursor = connection.cursor()
        if self._synchronous:
            cursor.execute(
                "SELECT set_config('synchronous_commit', 'on', false)"
                " WHERE current_setting('synchronous_commit') = 'off'"
            )
        else:
            cursor.execute("SET synchronous_commit = off")
        cursor.close()
        connection.commit()

    def _prepare(self, connection: Connection) -> str:
        """Make the tables or see to their version; return the stamp."""
        columns = select(META.c.version, META.c.stamp)
        found = None
        if inspect(connection).has_table(META.name):
            found = connection.execute(columns).one_or_none()
        if found is None:
            TABLES.create_all(connection)
            stamp = uuid4().hex
            row = {"id": 1, "version": VERSION, "uuid": uuid4().hex, "stamp": stamp}
            connection.execute(insert(META), row)
        else:
            version, stamp = found
            if version != VERSION:
                upgrade(f"the store {self.name}", version, VERSION, _MIGRATIONS, connection)
                connection.execute(update(META).values(version=VERSION))
        if self._synchronous and connection.dialect.name in ("mysql", "mariadb"):
            flush = connection.execute(text("SELECT @@innodb_flush_log_at_trx_commit")).scalar()
            if flush != 1:
                _log.warn(
                    "{store} does not sync at each commit: innodb_flush_log_at_trx_commit of the"
                    " server is {flush}, not 1",
                    store=self.name,
                    flush=flush,
                )
        return stamp

    def _stamp(self, connection: Connection, stamp: str) -> None:
        """Give the database another stamp, if it has one that is known."""
        known = META.c.stamp.in_(sorted(self._stamps))
        if connection.execute(update(META).where(known).values(stamp=stamp)).rowcount != 1:
            raise StoreError(
                f"somebody else has written to the store {self.name} since it was opened here:"
                " another broker, or an import. Open it again, with no other broker running"
            )

    def _was_committed(self, engine: Engine, stamp: str) -> bool:
        """Whether a change was made; looks at what is there once nobody is changing it."""
        try:
            with engine.begin() as connection:
                found = connection.execute(select(META.c.stamp).with_for_update()).scalar()
        except SQLAlchemyError:
            raise StoreError(
                f"the connection to the store {self.name} was lost during a commit, and can't be"
                " made again: whether the change was made is not known"
            ) from None
        return found == stamp

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn what can go wrong into a :class:`StoreError` that says so, and no more."""
        try:
            yield
        except ModuleNotFoundError as error:
            raise StoreError(
                f"the store {self.name} needs the package {error.name}, which is not installed"
            ) from None
        except DBAPIError as error:
            kind = StoreFull if _lacks_room(error.orig) else StoreError
            raise kind(f"the store {self.name} can't be used: {_reason(error.orig)}") from None
        except StatementError as error:
            problem = type(error.orig).__name__
            raise StoreError(f"the store {self.name} was given what can't be: {problem}") from None
        except (SQLAlchemyError, OSError) as error:
            raise StoreError(f"the store {self.name} can't be used: {error}") from None


def _execute(connection: Connection, statement: str) -> None:
    """Run a statement outside of any transaction."""
    cursor: _Cursor = connection.connection.cursor()
    cursor.execute(statement)
    cursor.close()


def _begin(connection: Connection) -> None:
    """Begin a transaction of SQLite, which its driver would only do before it writes."""
    connection.exec_driver_sql("BEGIN")


def _make_file(url: URL) -> None:
    """Make the file of an SQLite database for its owner only; the log beside it is as it is."""
    if url.database and url.database != ":memory:" and not url.database.startswith("file:"):
        with suppress(FileExistsError):
            os.close(os.open(url.database, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _lacks_room(error: BaseException | None) -> bool:
    """Whether a driver's error is about a lack of room."""
    return (
        getattr(error, "sqlite_errorcode", None) == _SQLITE_FULL
        or getattr(error, "sqlstate", None) == _POSTGRESQL_FULL
        or (error is not None and error.args[:1] in _MARIADB_FULL)
    )


def _reason(error: BaseException | None) -> str:
    """What a driver says, without the lines that can quote what is stored."""
    said = str(error.args[-1]) if error is not None and error.args else repr(error)
    return said.strip().partition("\n")[0]
