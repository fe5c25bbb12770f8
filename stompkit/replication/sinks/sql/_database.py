"""The database that a sink writes to: connections, transactions, and what can go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from sqlalchemy import URL, Connection, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError, StatementError

from stompkit.replication.sinks import ApplyProblem

__all__ = ["Database", "ForeignKeys", "Rejected", "SinkUnavailable"]

#: ``enforced``: as the target does; ``deferred``: to the end of the transaction, where it can;
#: ``off``: not at all.
ForeignKeys = Literal["enforced", "deferred", "off"]

#: The drivers that are taken where a URL names none.
_DRIVERS: Final = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}
#: How long PostgreSQL may take to answer, in seconds; PyMySQL waits for as long.
_CONNECT_S: Final = 10
#: How long SQLite waits for others to write, in seconds.
_BUSY_S: Final = 30.0

#: Nothing is cut or rounded quietly, and a key of 0 is not replaced by the next number.
_SQL_MODE: Final = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ERROR_FOR_DIVISION_BY_ZERO"

#: What PostgreSQL refuses for good, by the first two characters of its codes: values, constraints
#: (also those of views), limits; and some codes of others: types that don't fit, columns that are
#: always generated, RAISE in a trigger.
_POSTGRESQL_CLASSES: Final = ("22", "23", "44", "54")
_POSTGRESQL_CODES: Final = ("42804", "42846", "428C9", "P0001")
#: The same of MySQL and MariaDB, beside what PyMySQL knows as such: CHECK constraints (4025, 3819),
#: SIGNAL in a trigger, a row that is too large, a packet that is too large, a column without a
#: default, a generated column, a value that does not fit (several), no JSON.
_MYSQL_CODES: Final = frozenset(
    {1118, 1153, 1264, 1265, 1292, 1364, 1366, 1406, 1644, 1690, 1906, 3140, 3105, 3819, 4025}
)


class SinkUnavailable(Exception):
    """The database can't be used now, which may pass; ``str()`` says why, without secrets."""


class Rejected(ApplyProblem):
    """The database refuses what it was given, and always will."""


class Database:
    """An engine of SQLAlchemy, of which only the connections are used that are asked for."""

    def __init__(self, target: Engine | URL | str, foreign_keys: ForeignKeys) -> None:
        """Describe a database; ValueError for a URL that can't be read, or another kind."""
        self._is_own = not isinstance(target, Engine)
        self.engine = target if isinstance(target, Engine) else _make_engine(target)
        self._foreign_keys = foreign_keys
        name = self.engine.dialect.name
        self.backend = "mysql" if name == "mariadb" else name
        if self.backend not in ("sqlite", "postgresql", "mysql"):
            raise ValueError(
                f"a sink writes to SQLite, PostgreSQL, MariaDB and MySQL, not to {name}"
            )
        #: The URL without its secrets.
        self.name = self.engine.url.set(query={}).render_as_string()

    def close(self) -> None:
        """Disconnect; an engine that was given goes on."""
        if self._is_own:
            self.engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction; raises :class:`Rejected` and :class:`SinkUnavailable`."""
        with self.errors(), self.engine.connect() as connection:
            with self._settings(connection), connection.begin():
                if self.backend != "sqlite":
                    # Whoever waited for a lock has to see what the other one has written.
                    connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
                yield connection

    def defer(self, connection: Connection) -> None:
        """See to foreign keys, within a transaction that has begun to write."""
        if self.backend == "postgresql" and self._foreign_keys == "off":
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        elif self.backend == "postgresql" and self._foreign_keys == "deferred":
            connection.exec_driver_sql("SET CONSTRAINTS ALL DEFERRED")
        elif self.backend == "sqlite" and self._foreign_keys == "deferred":
            connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")

    @contextmanager
    def _settings(self, connection: Connection) -> Iterator[None]:
        """Have a session as it has to be, and afterwards as it was."""
        if self.backend == "mysql":
            names = "@@sql_mode, @@time_zone, @@foreign_key_checks"
            before = connection.exec_driver_sql(f"SELECT {names}").one()
            checks = 0 if self._foreign_keys == "off" else before[2]
            self._set_mysql(connection, (_SQL_MODE, "+00:00", checks))
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
            "SET SESSION sql_mode = %s, time_zone = %s, foreign_key_checks = %s", tuple(values)
        )

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Tell what is of no use to try again from the rest, without parameters or secrets."""
        try:
            yield
        except DBAPIError as error:
            reason = _reason(error.orig)
            if not error.connection_invalidated and self._is_final(error.orig):
                raise Rejected(reason) from None
            raise SinkUnavailable(f"{self.name} can't be used: {reason}") from None
        except StatementError as error:
            raise Rejected(_reason(error.orig)) from None
        except (UnicodeError, OverflowError) as error:
            raise Rejected(f"the driver can't write a value: {error}") from None
        except (SQLAlchemyError, OSError) as error:
            raise SinkUnavailable(f"{self.name} can't be used: {error}") from None

    def _is_final(self, error: BaseException | None) -> bool:
        """Whether it is of no use to try again."""
        if self.backend == "postgresql":
            code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""
            return code.startswith(_POSTGRESQL_CLASSES) or code in _POSTGRESQL_CODES
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if not kinds.isdisjoint({"IntegrityError", "DataError"}):
            return True
        if self.backend == "mysql":
            return error is not None and error.args[:1] != () and error.args[0] in _MYSQL_CODES
        return bool(kinds & {"InterfaceError", "ProgrammingError"}) and "bind" in str(error)


def _make_engine(url: URL | str) -> Engine:
    """Describe how to connect."""
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
        ) from None
    except SQLAlchemyError as error:
        raise ValueError(f"{parsed.drivername} is not known: {type(error).__name__}") from None


def _reason(error: BaseException | None) -> str:
    """What a driver says, without the lines that can quote whole rows."""
    said = str(error.args[-1]) if error is not None and error.args else repr(error)
    return said.strip().partition("\n")[0]
