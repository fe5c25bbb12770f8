"""What a replica keeps, in tables beside the application's in its database.

Every transaction that writes takes a lock first: numbers of changesets have no gaps, and what one
has read is so until it ends. Needs the extra ``replication``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, Engine, MetaData
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from stompkit.replica.store._locking import Prepare, locking_of
from stompkit.replica.store._problems import (
    StoreBusy,
    StoreProblem,
    StoreUnavailable,
    problem_of,
)
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
    "RowRecord",
    "Store",
    "StoreBusy",
    "StoreProblem",
    "StoreUnavailable",
    "Tx",
    "check_name",
    "row_id",
]

#: How often it is tried to make tables that somebody else may be making: each failure is about one
#: more table or index that is there the next time, and there are fewer of them.
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
        """Describe a store; nothing is connected yet.

        The engine stays the caller's, and all names of tables begin with ``prefix``. A transaction
        of the store waits ``lock_wait_s`` for any lock, that of an application which writes
        ``join_wait_s`` for the store; in SQLite it is the connection that says how long both wait.
        Raises ValueError for a database that is not known.
        """
        self.engine: Final = engine
        self._tables = Tables(prefix)
        self._statements = Statements(self._tables, engine.dialect.name)
        self._locking = locking_of(engine, self._statements, lock_wait_s, join_wait_s)

    @property
    def metadata(self) -> MetaData:
        """The tables, for those who make tables by migrations."""
        return self._tables.metadata

    def create(self) -> None:
        """Make what is missing of the tables; others may do so at the same time.

        Raises :class:`StoreBusy` and :class:`StoreUnavailable`, and what SQLAlchemy raises.
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
        """A transaction, committed at its end, or rolled back when anything is raised in it.

        ``prepare`` is called in it before it has the store's lock.

        It waits for others, and then raises :class:`StoreBusy`, as it does for everything that may
        succeed when it is tried again; what it waits for may be an application that waits for the
        store, so that it has to give way. Raises :class:`StoreUnavailable` where the database can't
        be used. Everything else passes.
        """
        with self._errors(), self._locking.writing(prepare) as (connection, state):
            yield Tx(connection, self._statements, state)

    def join(self, connection: Connection) -> Tx:
        """What can be done in somebody else's transaction, who commits it.

        Raises as :meth:`transaction` does, but waits longer; what is done with it raises what
        SQLAlchemy raises. Where that transaction is rolled back to a savepoint, it has to be joined
        anew.
        """
        with self._errors():
            state = self._locking.join(connection)
        reads_latest = self._locking.reads_are_old
        return Tx(connection, self._statements, state, reads_latest=reads_latest)

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """What sees one state of the store; raises as :meth:`transaction` does."""
        with self._errors(), self._locking.reading() as connection:
            yield Reader(connection, self._statements)

    def generation(self) -> int:
        """How many transactions have written anything: cheap enough to be asked often."""
        return self._state()[0]

    def last_position(self) -> int:
        """The position of the last changeset, as cheaply; 0 before the first."""
        return self._state()[1]

    def _state(self) -> tuple[int, int]:
        with self._errors(), self.engine.connect() as connection:
            generation, position = connection.execute(self._statements.state).one()
            return generation, position

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Tell what may pass from the rest."""
        try:
            yield
        except DBAPIError as error:
            problem = problem_of(error, self.engine.dialect.name)
            if problem is None:
                raise
            # What SQLAlchemy says has parameters in it, which are the application's.
            raise problem from None
        except PoolTimeout as error:
            raise StoreBusy(f"the store is in use: {error}") from None
