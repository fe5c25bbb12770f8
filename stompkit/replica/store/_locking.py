"""Transactions and the store's lock, for each kind of database.

The lock is a row that every write transaction locks first and updates; in SQLite, it is the lock of
the whole database.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import InvalidRequestError

from stompkit._common.retry import Backoff
from stompkit.replica.store._errors import StoreBusyError
from stompkit.replica.store._statements import Statements

__all__ = ["Locking", "Prepare", "locking_of"]

#: Poll interval in seconds while joining: first and maximum.
_LOOK_S: Final = 0.001
_LOOK_MOST_S: Final = 0.01

_COMMITS_BY_ITSELF: Final = "a store cannot join a connection that commits each statement by itself"

#: A function that is called in a transaction before it has the lock.
Prepare = Callable[[Connection], object]
#: Generation and position.
State = tuple[int, int]


class Locking(ABC):
    """Begins transactions on one kind of database."""

    #: True if reads in a joined transaction may use an earlier snapshot.
    reads_are_old: ClassVar[bool] = False

    def __init__(
        self, engine: Engine, statements: Statements, lock_wait_s: float, join_wait_s: float
    ) -> None:
        """Use an engine, which the caller owns."""
        self.engine: Final = engine
        self._statements: Final = statements
        self._lock_wait_s: Final = lock_wait_s
        self._join_wait_s: Final = join_wait_s

    @abstractmethod
    def writing(
        self, prepare: Prepare | None = None
    ) -> AbstractContextManager[tuple[Connection, State]]:
        """Return a transaction with the lock; it is rolled back on an exception.

        ``prepare`` is called before the lock is taken.

        Raises StoreBusyError, and the driver's errors.
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[Connection]:
        """Return a transaction that reads a consistent snapshot."""

    @abstractmethod
    def join(self, connection: Connection) -> State:
        """Take the lock in a transaction; raises as :meth:`writing` does."""

    def _state(self, connection: Connection) -> State:
        generation, position = connection.execute(self._statements.state).one()
        return generation, position


class _SqliteLocking(Locking):
    """SQLite permits one write transaction at a time.

    Its driver begins a transaction before the first write statement, unless the engine is
    configured otherwise, as SQLAlchemy's documentation advises. Both work.
    """

    @contextmanager
    def writing(self, prepare: Prepare | None = None) -> Iterator[tuple[Connection, State]]:
        with self.engine.connect() as connection:
            _check_unused(connection)
            with connection.begin():
                if prepare is not None:
                    prepare(connection)
                if _in_transaction(connection):
                    connection.execute(self._statements.lock)
                else:
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                yield connection, self._state(connection)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self.engine.connect() as connection:
            _check_unused(connection)
            with connection.begin():
                if not _in_transaction(connection):
                    connection.exec_driver_sql("BEGIN")
                yield connection

    def join(self, connection: Connection) -> State:
        connection.execute(self._statements.lock)
        if not _in_transaction(connection):
            raise InvalidRequestError(_COMMITS_BY_ITSELF)
        return self._state(connection)


def _in_transaction(connection: Connection) -> bool:
    raw: Any = connection.connection.dbapi_connection
    return bool(raw.in_transaction)


def _check_unused(connection: Connection) -> None:
    """Raise InvalidRequestError if the connection is already in a transaction.

    Pools of in-memory databases share one connection, and roll it back when it is returned.
    """
    raw: Any = connection.connection.dbapi_connection
    # From Python 3.12 on, a connection may always be in a transaction.
    if raw.in_transaction and getattr(raw, "autocommit", None) is not False:
        raise InvalidRequestError(
            "a transaction was begun on a connection of SQLite that was in another one, which is"
            " rolled back by that: join it, or have a pool that shares no connections"
        )


class _RowLocking(Locking):
    """PostgreSQL, MariaDB and MySQL lock the row until the end of the transaction.

    Checking a lock without waiting requires MariaDB 10.6 or MySQL 8.
    """

    def join(self, connection: Connection) -> State:
        if _commits_by_itself(connection):
            raise InvalidRequestError(_COMMITS_BY_ITSELF)
        # Waiting in the database could cause a deadlock, in which the application would fail as
        # often as the store. With polling, the store always gives way.
        until = time.monotonic() + self._join_wait_s
        backoff = Backoff(_LOOK_S, _LOOK_MOST_S)
        while True:
            found = connection.execute(self._statements.lock_at_once).one_or_none()
            if found is not None:
                return found.generation, found.position
            if time.monotonic() >= until:
                raise StoreBusyError("the store is in use: another transaction has not ended")
            time.sleep(backoff.fail())

    def _lock(self, connection: Connection) -> State:
        generation, position = connection.execute(self._statements.lock_row).one()
        return generation, position

    def _connect(self, level: Any) -> Connection:
        return self.engine.connect().execution_options(isolation_level=level)


def _commits_by_itself(connection: Connection) -> bool:
    raw: Any = connection.connection.dbapi_connection
    ask = getattr(raw, "get_autocommit", None)
    return (getattr(raw, "autocommit", False) if ask is None else ask()) is True


class _PostgresqlLocking(_RowLocking):
    @contextmanager
    def writing(self, prepare: Prepare | None = None) -> Iterator[tuple[Connection, State]]:
        # After waiting for the lock, the transaction must see the writes of the previous holder.
        with self._connect("READ COMMITTED") as connection, connection.begin():
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {self._lock_wait_s * 1000:.0f}")
            if prepare is not None:
                prepare(connection)
            yield connection, self._lock(connection)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._connect("REPEATABLE READ") as connection, connection.begin():
            yield connection


class _MysqlLocking(_RowLocking):
    reads_are_old = True

    @contextmanager
    def writing(self, prepare: Prepare | None = None) -> Iterator[tuple[Connection, State]]:
        with self._connect("READ COMMITTED") as connection, connection.begin():
            connection.exec_driver_sql(
                "SET @stompkit_wait = @@innodb_lock_wait_timeout,"
                f" SESSION innodb_lock_wait_timeout = {math.ceil(self._lock_wait_s)}"
            )
            try:
                if prepare is not None:
                    prepare(connection)
                yield connection, self._lock(connection)
            finally:
                if not connection.invalidated:
                    connection.exec_driver_sql(
                        "SET SESSION innodb_lock_wait_timeout = @stompkit_wait"
                    )

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._connect("REPEATABLE READ") as connection, connection.begin():
            yield connection


def locking_of(
    engine: Engine, statements: Statements, lock_wait_s: float, join_wait_s: float
) -> Locking:
    """Return the locking for an engine; raises ValueError for an unsupported database."""
    kinds: dict[str, type[Locking]] = {
        "sqlite": _SqliteLocking,
        "postgresql": _PostgresqlLocking,
        "mysql": _MysqlLocking,
        "mariadb": _MysqlLocking,
    }
    name = engine.dialect.name
    if name not in kinds:
        raise ValueError(
            f"a store can be in SQLite, PostgreSQL, MariaDB and MySQL, and not in {name}"
        )
    return kinds[name](engine, statements, lock_wait_s, join_wait_s)
