"""The target database of a sink: connections, transactions and errors."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from sqlalchemy import URL, Connection, Engine, create_engine, make_url
from sqlalchemy.exc import (
    ArgumentError,
    CompileError,
    DBAPIError,
    IdentifierError,
    SQLAlchemyError,
    StatementError,
)

from stompkit._common.secrets import mask_url
from stompkit.replication.sinks import ApplyError, SinkMisconfiguredError
from stompkit.replication.sql.failures import failure_of, is_orphan

__all__ = [
    "Database",
    "ForeignKeys",
    "OrphanRowError",
    "RejectedRowError",
    "SinkDeniedError",
    "SinkUnavailableError",
    "StaleRowError",
]

#: ``enforced``: as the target does; ``deferred``: to the end of the transaction, where it can;
#: ``off``: not at all.
ForeignKeys = Literal["enforced", "deferred", "off"]

#: Default drivers for URLs without one.
_DRIVERS: Final = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}
#: Connection timeout of PostgreSQL in seconds; PyMySQL's default is the same.
_CONNECT_S: Final = 10
#: Time in seconds that SQLite waits for other writers.
_BUSY_S: Final = 30.0

#: Forbids silent truncation and rounding, and keeps a key of 0.
_SQL_MODE: Final = (
    "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ERROR_FOR_DIVISION_BY_ZERO,ALLOW_INVALID_DATES"
)


class SinkUnavailableError(Exception):
    """The database is temporarily unavailable; ``str()`` gives the reason, without secrets."""


class SinkDeniedError(SinkUnavailableError, SinkMisconfiguredError):
    """The user or the database is misconfigured; ``str()`` says what is refused."""


class RejectedRowError(ApplyError):
    """The database refuses the change permanently."""


class StaleRowError(RejectedRowError):
    """Tables or columns have changed since they were read; permanent if it happens again."""


class OrphanRowError(RejectedRowError):
    """A row references a missing row, which may come later."""


class Database:
    """An SQLAlchemy engine, of which only explicitly requested connections are used."""

    def __init__(self, target: Engine | URL | str, foreign_keys: ForeignKeys) -> None:
        """Configure a database; ValueError for an invalid URL, or an unsupported kind."""
        self._is_own = not isinstance(target, Engine)
        self.engine = target if isinstance(target, Engine) else _make_engine(target)
        self._foreign_keys = foreign_keys
        #: Number of savepoints.
        self._depth = 0
        name = self.engine.dialect.name
        self.backend = "mysql" if name == "mariadb" else name
        if self.backend not in ("sqlite", "postgresql", "mysql"):
            raise ValueError(
                f"a sink writes to SQLite, PostgreSQL, MariaDB and MySQL, not to {name}"
            )
        #: URL without its secrets, as it can be given again.
        self.name = mask_url(_text_of(target))

    @property
    def can_defer(self) -> bool:
        """True if foreign key checks can be deferred and made immediate again."""
        return self.backend == "postgresql" and self._foreign_keys == "deferred"

    def close(self) -> None:
        """Disconnect; a given engine stays open."""
        if self._is_own:
            self.engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Run a block in a transaction; raises RejectedRowError and SinkUnavailableError."""
        with self.errors(), self.engine.connect() as connection:
            with self._settings(connection), connection.begin():
                if self.backend != "sqlite":
                    # After waiting for a lock, the other transaction's writes must be visible.
                    connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
                yield connection

    @contextmanager
    def savepoint(self, connection: Connection) -> Iterator[None]:
        """Run a block in a savepoint, which is rolled back on an exception.

        A savepoint is also released after a rollback, which SQLAlchemy does not do. Otherwise all
        later ones are nested in it, until PostgreSQL has no more memory for their locks.
        """
        name = f"stompkit_{self._depth}"
        connection.exec_driver_sql(f"SAVEPOINT {name}")
        self._depth += 1
        try:
            yield
        except Exception as error:
            try:
                connection.exec_driver_sql(f"ROLLBACK TO SAVEPOINT {name}")
                connection.exec_driver_sql(f"RELEASE SAVEPOINT {name}")
            except SQLAlchemyError:
                # The database has rolled back the whole transaction, as after a deadlock.
                reason = _reason(error.orig if isinstance(error, DBAPIError) else error)
                raise SinkUnavailableError(f"{self.name} cannot be used: {reason}") from None
            raise
        else:
            connection.exec_driver_sql(f"RELEASE SAVEPOINT {name}")
        finally:
            self._depth -= 1

    def defer(self, connection: Connection, *, at_once: bool = False) -> None:
        """Set the time of foreign key checks, within a transaction that has begun to write.

        With ``at_once`` they are checked after each statement, unless they are off.
        """
        if self.backend == "postgresql" and self._foreign_keys == "off":
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        elif self.backend == "postgresql" and at_once:
            connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")
        elif at_once:
            return
        elif self.backend == "postgresql" and self._foreign_keys == "deferred":
            connection.exec_driver_sql("SET CONSTRAINTS ALL DEFERRED")
        elif self.backend == "sqlite" and self._foreign_keys == "deferred":
            connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")

    @contextmanager
    def _settings(self, connection: Connection) -> Iterator[None]:
        """Set the required settings of a session, and restore the old ones afterwards."""
        if self.backend == "mysql":
            names = "@@sql_mode, @@time_zone, @@foreign_key_checks, @@completion_type"
            before = connection.exec_driver_sql(f"SELECT {names}").one()
            checks = 0 if self._foreign_keys == "off" else before[2]
            # SQLAlchemy quotes names as the server's mode requires, and reads them so.
            is_ansi = connection.dialect.identifier_preparer.initial_quote == '"'
            quotes = ",ANSI_QUOTES" if is_ansi else ""
            self._set_mysql(connection, (_SQL_MODE + quotes, "+00:00", checks, "NO_CHAIN"))
            connection.rollback()
            try:
                yield
            finally:
                if not connection.invalidated:
                    self._set_mysql(connection, before)
                    connection.rollback()
        elif self.backend == "sqlite" and self._foreign_keys == "off":
            # It has no effect within a transaction, which SQLAlchemy would begin.
            cursor = connection.connection.cursor()
            before = cursor.execute("PRAGMA foreign_keys").fetchone()
            cursor.execute("PRAGMA foreign_keys = OFF")
            try:
                yield
            finally:
                cursor.execute(f"PRAGMA foreign_keys = {int(before[0])}")
                cursor.close()
        else:
            yield

    def _set_mysql(self, connection: Connection, values: Any) -> None:
        connection.exec_driver_sql(
            "SET SESSION sql_mode = %s, time_zone = %s, foreign_key_checks = %s,"
            " completion_type = %s",
            tuple(values),
        )

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Convert errors to permanent and temporary ones, without parameters or secrets.

        Raises :class:`RejectedRowError`, :class:`StaleRowError`, :class:`SinkUnavailableError` and
        :class:`SinkDeniedError`.
        """
        try:
            yield
        except DBAPIError as error:
            raise self._failed(error) from None
        except StatementError as error:
            raise RejectedRowError(_reason(error.orig)) from None
        except (UnicodeError, OverflowError) as error:
            raise RejectedRowError(f"the driver cannot write a value: {error}") from None
        except (CompileError, IdentifierError) as error:
            raise RejectedRowError(str(error)) from None
        except (SQLAlchemyError, OSError) as error:
            raise SinkUnavailableError(f"{self.name} cannot be used: {error}") from None

    def _failed(self, error: DBAPIError) -> Exception:
        """Return the exception to raise for a driver's error."""
        reason = _reason(error.orig)
        is_lost = error.connection_invalidated
        match "passing" if is_lost else failure_of(error.orig, self.backend):
            case "final":
                kind = OrphanRowError if is_orphan(error.orig, self.backend) else RejectedRowError
                return kind(reason)
            case "stale":
                return StaleRowError(reason)
            case "denied":
                return SinkDeniedError(f"{self.name} refuses this user or database: {reason}")
        if self.backend == "sqlite" and (trouble := _trouble_of_file(self.engine.url, error.orig)):
            return SinkDeniedError(f"{self.name} cannot be used: {trouble}")
        return SinkUnavailableError(f"{self.name} cannot be used: {reason}")


def _text_of(target: Engine | URL | str) -> str:
    if isinstance(target, str):
        return target
    url = target.url if isinstance(target, Engine) else target
    return url.render_as_string(hide_password=False)


def _make_engine(url: URL | str) -> Engine:
    """Create an engine."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ValueError(
            "the URL of an SQL sink has to be like postgresql://USER:PASSWORD@HOST/DATABASE"
            " or sqlite:////var/lib/copy.sqlite"
        ) from None
    driver = _DRIVERS.get(parsed.drivername)
    if driver is not None:
        parsed = parsed.set(drivername=f"{parsed.drivername}+{driver}")
    arguments: dict[str, Any] = {}
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        arguments["timeout"] = _BUSY_S
    elif backend == "postgresql" and "connect_timeout" not in parsed.query:
        arguments["connect_timeout"] = _CONNECT_S
    try:
        return create_engine(
            parsed, pool_pre_ping=True, hide_parameters=True, connect_args=arguments
        )
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{parsed.drivername} needs the package {error.name}, which is not installed"
        ) from error
    except SQLAlchemyError as error:
        raise ValueError(f"{parsed.drivername} is not known: {type(error).__name__}") from None


def _trouble_of_file(url: URL, error: Any) -> str | None:
    """Return the lasting reason that prevents SQLite from opening its file, if any."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return "the file is no database of SQLite"
    if code not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) or not url.database:
        return None
    path = Path(url.database)
    if path.is_dir():
        return f"{path} is a folder"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}: make it"
    for each in (path.parent, path):
        if each.exists() and not os.access(each, os.W_OK):
            return f"{each} cannot be written to by this user"
    return None


def _reason(error: BaseException | None) -> str:
    """Return the driver's message, without the lines that can quote whole rows."""
    said = str(error.args[-1]) if error is not None and error.args else repr(error)
    return said.strip().partition("\n")[0]
