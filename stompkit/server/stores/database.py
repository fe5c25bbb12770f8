"""Connect to an SQL database, and translate its errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    create_engine,
    event,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    NoSuchModuleError,
    SQLAlchemyError,
    StatementError,
)
from sqlalchemy.pool import QueuePool

from stompkit._common.secrets import mask_url
from stompkit.server.interfaces import StoreError, StoreFullError
from stompkit.server.log import store_events
from stompkit.server.stores.driver_errors import lacks_room, reason
from stompkit.server.stores.schema import prepare
from stompkit.server.stores.tables import META

__all__ = ["Database"]


#: The default drivers for URLs that name none.
_DRIVERS: Final = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}
#: Connection timeout in seconds for PostgreSQL when the URL sets none; the same as PyMySQL's.
_CONNECT_S: Final = 10


class _Cursor(Protocol):
    """The methods used of a driver's cursor."""

    def execute(self, statement: str) -> object: ...

    def close(self) -> object: ...


class Database:
    """The database of a store, over one connection that is re-established when it is lost.

    Every method raises :class:`StoreError`. No message contains a password or data that clients
    have sent.
    """

    def __init__(self, url: str, *, synchronous: bool) -> None:
        """Describe a database; raises ValueError for an invalid URL."""
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
        self._given = url
        self._url = parsed
        self._synchronous = synchronous
        self._engine: Engine | None = None
        #: The possible stamps of the database, as far as is known: see :meth:`change`.
        self._stamps: set[str] = set()

    @property
    def name(self) -> str:
        """The URL without its secrets, as it can be given again."""
        return mask_url(self._given)

    @property
    def file(self) -> Path | None:
        """The file of an SQLite database; None for a server."""
        if self._url.get_backend_name() != "sqlite" or not self._url.database:
            return None
        return Path(self._url.database)

    def check_connection(self) -> None:
        """Connect to the server of a closed database, and change nothing."""
        with self._errors():
            engine = self._create_engine()
            try:
                engine.connect().close()
            finally:
                engine.dispose()

    def open(self) -> None:
        """Connect, and create missing tables."""
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
        """Sync and disconnect; does nothing if not open."""
        engine = self._engine
        if engine is not None:
            try:
                self.sync()
            finally:
                self._engine = None
                engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction for reading."""
        with self._errors(), self._use().begin() as connection:
            yield connection

    @contextmanager
    def change(self) -> Iterator[Connection]:
        """Open a transaction for writing: committed at the end, rolled back on an error.

        Each transaction sets a new stamp. It fails if the stamp is not the one read or set last:
        another broker is then writing, and the cached state of the store is stale. After a lost
        connection the stamp also shows if the commit succeeded.
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
        """Flush everything written to the disk."""
        engine = self._use()
        if self._synchronous:
            return
        if engine.dialect.name == "postgresql":
            with self.change() as connection:
                connection.execute(text("SET LOCAL synchronous_commit = on"))
        elif engine.dialect.name == "sqlite":
            # The next commit also flushes everything written before.
            with self._errors(), engine.connect() as connection:
                _execute(connection, "PRAGMA synchronous = FULL")
            try:
                with self.change():
                    pass
            finally:
                with self._errors(), engine.connect() as connection:
                    _execute(connection, "PRAGMA synchronous = NORMAL")

    def _use(self) -> Engine:
        """Return SQLAlchemy's engine; raises StoreError unless the database is open."""
        if self._engine is None:
            raise StoreError("the store is not open")
        return self._engine

    def _create_engine(self) -> Engine:
        """Return the engine that connects each time the store needs it."""
        url = self._url
        dialect = url.get_backend_name()
        arguments: dict[str, Any] = {}
        if dialect == "sqlite":
            # Calls come from several threads, but never at the same time.
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
        """Leave transactions to this module, and set the durability of commits."""
        connection.isolation_level = None
        cursor: _Cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute(f"PRAGMA synchronous = {'FULL' if self._synchronous else 'NORMAL'}")
        cursor.close()

    def _connected_to_postgresql(self, connection: Any, _: object) -> None:
        """Set the durability of commits; keep a server setting that is safer than ``on``."""
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
        """Create the tables or check their version; return the stamp."""
        stamp = prepare(connection, self.name)
        if self._synchronous and connection.dialect.name in ("mysql", "mariadb"):
            flush = connection.execute(text("SELECT @@innodb_flush_log_at_trx_commit")).scalar()
            if flush != 1:
                store_events.store_without_sync(store=self.name, value=str(flush))
        return stamp

    def _stamp(self, connection: Connection, stamp: str) -> None:
        """Replace the stamp of the database, if it has a known one."""
        known = META.c.stamp.in_(sorted(self._stamps))
        if connection.execute(update(META).where(known).values(stamp=stamp)).rowcount != 1:
            raise StoreError(
                f"somebody else has written to the store {self.name} since it was opened here:"
                " another broker, or an import. Open it again, with no other broker running"
            )

    def _was_committed(self, engine: Engine, stamp: str) -> bool:
        """Return True if a change was committed; waits for any transaction in progress."""
        try:
            with engine.begin() as connection:
                found = connection.execute(select(META.c.stamp).with_for_update()).scalar()
        except SQLAlchemyError:
            raise StoreError(
                f"the connection to the store {self.name} was lost during a commit, and cannot be"
                " made again: whether the change was made is not known"
            ) from None
        return found == stamp

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate errors into :class:`StoreError`, without the driver's details."""
        try:
            yield
        except ModuleNotFoundError as error:
            raise StoreError(
                f"the store {self.name} needs the package {error.name}, which is not installed"
            ) from None
        except DBAPIError as error:
            kind = StoreFullError if lacks_room(error.orig) else StoreError
            raise kind(f"the store {self.name} cannot be used: {reason(error.orig)}") from None
        except StatementError as error:
            problem = type(error.orig).__name__
            raise StoreError(f"the store {self.name} was given what cannot be: {problem}") from None
        except NoSuchModuleError:
            raise StoreError(
                f"the store {self.name} cannot be used: SQLAlchemy does not know this kind of"
                " database. Write a URL such as sqlite:////var/lib/stompkit/messages.db or"
                " postgresql://USER@HOST/DATABASE"
            ) from None
        except (SQLAlchemyError, OSError) as error:
            raise StoreError(f"the store {self.name} cannot be used: {error}") from None


def _execute(connection: Connection, statement: str) -> None:
    """Run a statement outside of any transaction."""
    cursor: _Cursor = connection.connection.cursor()
    cursor.execute(statement)
    cursor.close()


def _begin(connection: Connection) -> None:
    """Begin a transaction of SQLite, which its driver would otherwise begin only before a write."""
    connection.exec_driver_sql("BEGIN")


def _make_file(url: URL) -> None:
    """Create the file of an SQLite database, for its owner only; its log gets the same mode."""
    if url.database and url.database != ":memory:" and not url.database.startswith("file:"):
        with suppress(FileExistsError):
            os.close(os.open(url.database, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
