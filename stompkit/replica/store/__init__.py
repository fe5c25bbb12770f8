"""Storage of a replica, in tables beside the application's in the same database.

Every write transaction takes a lock first. So changeset numbers have no gaps, and reads in the
transaction are repeatable. Needs the extra ``replication``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, Engine, MetaData
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from stompkit._common.moved import renamed
from stompkit.replica.store._errors import (
    ReplicaStoreError,
    StoreBusyError,
    StoreUnavailableError,
    problem_of,
)
from stompkit.replica.store._locking import Prepare, locking_of
from stompkit.replica.store._records import (
    LONGEST_NAME,
    LONGEST_ORIGIN,
    ChangesetRecord,
    HeldRecord,
    OriginRecord,
    PeerRecord,
    RowRecord,
    check_name,
    row_id,
)
from stompkit.replica.store._statements import Statements
from stompkit.replica.store._tables import Tables
from stompkit.replica.store._tx import Reader, Tx

__all__ = [
    "LONGEST_NAME",
    "LONGEST_ORIGIN",
    "ChangesetRecord",
    "HeldRecord",
    "OriginRecord",
    "PeerRecord",
    "Prepare",
    "Reader",
    "ReplicaStoreError",
    "RowRecord",
    "Store",
    "StoreBusyError",
    "StoreUnavailableError",
    "Tx",
    "check_name",
    "row_id",
]

#: Maximum attempts to create the tables while another process does so: each failure means that at
#: least one more table or index exists.
_TRIES: Final = 50


class Store:
    """The tables of a replica in a database."""

    def __init__(
        self,
        engine: Engine,
        prefix: str = "stompkit_replica_",
        *,
        lock_wait_s: float = 2.0,
        join_wait_s: float = 30.0,
    ) -> None:
        """Describe a store; it connects later.

        The caller owns the engine, and all table names begin with ``prefix``. A transaction of the
        store waits ``lock_wait_s`` seconds for a lock. A writing application waits ``join_wait_s``
        seconds for the store. In SQLite, the connection's settings determine both. Raises
        ValueError for an unsupported database.
        """
        self.engine: Final = engine
        self._tables = Tables(prefix)
        self._statements = Statements(self._tables, engine.dialect.name)
        self._locking = locking_of(engine, self._statements, lock_wait_s, join_wait_s)

    @property
    def metadata(self) -> MetaData:
        """Table definitions, for migrations."""
        return self._tables.metadata

    def create(self) -> None:
        """Create missing tables; concurrent calls are harmless.

        Raises :class:`StoreBusyError` and :class:`StoreUnavailableError`, and SQLAlchemy's errors.
        """
        for left in reversed(range(_TRIES)):
            try:
                with self._errors(), self.engine.begin() as connection:
                    self._tables.create(connection)
                return
            except DBAPIError:
                if not left:
                    raise

    @contextmanager
    def transaction(self, prepare: Prepare | None = None) -> Iterator[Tx]:
        """Return a transaction that is committed at its end, or rolled back on an exception.

        ``prepare`` is called in it before it has the store's lock.

        It waits for other transactions, and then raises :class:`StoreBusyError`, as for every error
        that a retry may resolve. It may be waiting for an application that waits for the store, and
        then has to give way. Raises :class:`StoreUnavailableError` if the database is unusable.
        Other exceptions pass through.
        """
        with self._errors(), self._locking.writing(prepare) as (connection, state):
            yield Tx(connection, self._statements, state)

    def join(self, connection: Connection) -> Tx:
        """Join a transaction that the caller commits.

        Raises as :meth:`transaction` does, but waits longer; its methods raise SQLAlchemy's errors.
        After a rollback to a savepoint, the transaction must be joined again.
        """
        with self._errors():
            state = self._locking.join(connection)
        reads_latest = self._locking.reads_are_old
        return Tx(connection, self._statements, state, reads_latest=reads_latest)

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Return a consistent snapshot of the store; raises as :meth:`transaction` does."""
        with self._errors(), self._locking.reading() as connection:
            yield Reader(connection, self._statements)

    def generation(self) -> int:
        """Return the number of write transactions; cheap enough for frequent polls."""
        return self._state()[0]

    def last_position(self) -> int:
        """Return the position of the last changeset, as cheaply; 0 before the first."""
        return self._state()[1]

    def _state(self) -> tuple[int, int]:
        with self._errors(), self.engine.connect() as connection:
            generation, position = connection.execute(self._statements.state).one()
            return generation, position

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise transient database errors as :class:`ReplicaStoreError`."""
        try:
            yield
        except DBAPIError as error:
            problem = problem_of(error, self.engine.dialect.name)
            if problem is None:
                raise
            # SQLAlchemy's message includes the application's parameters.
            raise problem from None
        except PoolTimeout as error:
            raise StoreBusyError(f"the store is in use: {error}") from None


renamed(
    __name__,
    StoreBusy="StoreBusyError",
    StoreProblem="ReplicaStoreError",
    StoreUnavailable="StoreUnavailableError",
)
