"""Access to SQL databases: their clocks, and the differences between them."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Any, Final, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Double,
    Engine,
    LargeBinary,
    MetaData,
    create_engine,
    func,
    literal,
    select,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from stompkit._common.tables import create_missing

__all__ = ["DIGEST", "MANY_OCTETS", "NAME", "PROBLEMS", "TIME", "SqlServer", "options"]

_T = TypeVar("_T")

PROBLEMS: Final[tuple[type[Exception], ...]] = (SQLAlchemyError, OSError)

#: Text stored as bytes: databases differ in collations, and in the text that they accept.
NAME: Final = LargeBinary(255).with_variant(mysql.VARBINARY(255), "mysql", "mariadb")
DIGEST: Final = LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")
MANY_OCTETS: Final = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
#: Seconds since 1970, exact to the microsecond.
TIME: Final[Double[float]] = Double()

#: Number of attempts of a transaction: connections can be lost, and transactions can conflict.
_TRIES: Final = 5
#: Deadlocks and serialisation failures: SQLSTATEs and MariaDB's numbers.
_POSTGRESQL_PASSING: Final = ("40P01", "40001")
_MARIADB_PASSING: Final = ((1213,), (1020,))


def options() -> dict[str, Any]:
    """Return the options of all tables."""
    return {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}


class SqlServer:
    """Runs transactions in a database, and first creates the tables."""

    def __init__(self, engine_or_url: Engine | str, tables: MetaData) -> None:
        """Configure the server; nothing is connected yet."""
        self._is_own = isinstance(engine_or_url, str)
        self.engine: Final = (
            create_engine(engine_or_url, pool_pre_ping=True)
            if isinstance(engine_or_url, str)
            else engine_or_url
        )
        self._tables = tables
        self._is_ready = False
        self._lock = Lock()

    def run(self, work: Callable[[Connection], _T]) -> _T:
        """Run *work* in one transaction, with retries if needed; raises one of PROBLEMS."""
        self._make_ready()
        for left in reversed(range(_TRIES)):
            with self.engine.connect() as connection:
                try:
                    with connection.begin():
                        return work(connection)
                except DBAPIError as error:
                    if not left or not _is_passing(error):
                        raise
        raise AssertionError  # the last try has returned or raised

    def now(self, connection: Connection) -> float:
        """Return the server's time."""
        return float(connection.scalar(select(_now(connection.dialect.name))) or 0)

    def close(self) -> None:
        """Disconnect, if the server has created the engine."""
        if self._is_own:
            self.engine.dispose()

    def _make_ready(self) -> None:
        with self._lock:
            if self._is_ready:
                return
            for left in reversed(range(_TRIES)):
                with self.engine.connect() as connection:
                    try:
                        with connection.begin():
                            create_missing(connection, self._tables.sorted_tables)
                        break
                    except DBAPIError:
                        # Another process may be creating them; some exist at the next attempt.
                        if not left:
                            raise
            self._is_ready = True


def _is_passing(error: DBAPIError) -> bool:
    """Return True if an immediate retry may succeed: a lost connection or a deadlock."""
    if error.connection_invalidated:
        return True
    said: Any = error.orig
    state = getattr(said, "sqlstate", None) or getattr(said, "pgcode", None)
    return state in _POSTGRESQL_PASSING or said.args[:1] in _MARIADB_PASSING


def _now(dialect: str) -> ColumnElement[Any]:
    match dialect:
        case "postgresql":
            return func.date_part("epoch", func.clock_timestamp())
        case "mysql" | "mariadb":
            # Local times are ambiguous: one hour in autumn occurs twice.
            past = func.timestampdiff(
                text("MICROSECOND"), "1970-01-01", func.utc_timestamp(6), type_=BigInteger
            )
            return past / 1e6
        case _:
            return literal(time.time())
