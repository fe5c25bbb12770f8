"""The lease in the database of the store, and the list of brokers that take part.

Changes of the lease wait neither for the disk nor for replicas: ``synchronous_commit`` is off. If a
crash of the server undoes a change, a broker loses the lease, or gets it early. The store excludes
its writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from psycopg.types.numeric import Float8, Int8
from sqlalchemy import BigInteger, Column, Double, MetaData, SmallInteger, String, Table
from sqlalchemy.dialects.postgresql import insert

from stompkit._common.lease import database_clock
from stompkit._common.tables import create_missing
from stompkit.server.interfaces import StoreError
from stompkit.server.lease.election import Ask, LeaseState, Request
from stompkit.server.stores.postgresql.connection import Link, PostgresConnection
from stompkit.server.stores.postgresql.url import parsed

__all__ = ["LONGEST_NAME", "BrokerState", "LeaseTable", "Look"]

#: Maximum length of the name of a broker.
LONGEST_NAME: Final = 100
#: Maximum number of brokers that are listed, and seconds after which one that is gone is forgotten.
_MOST_BROKERS: Final = 100
_FORGOTTEN_S: Final = 86_400.0
#: Least timeout in seconds of connecting: libpq takes 1 for 2.
_CONNECT_S: Final = 2

_TABLES: Final = MetaData()

LEASE: Final = Table(
    "stompkit_lease",
    _TABLES,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("owner", String(LONGEST_NAME), nullable=False),
    Column("instance", String(32), nullable=False),
    Column("seconds", Double, nullable=False),
    Column("deadline", Double, nullable=False),
    Column("renewals", BigInteger, nullable=False),
    Column("changed", Double, nullable=False),
    Column("successor", String(LONGEST_NAME), nullable=False),
)

BROKERS: Final = Table(
    "stompkit_brokers",
    _TABLES,
    Column("name", String(LONGEST_NAME), primary_key=True),
    Column("instance", String(32), nullable=False),
    Column("role", String(16), nullable=False),
    Column("seen", Double, nullable=False),
)

_CLOCK: Final = str(database_clock("postgresql"))

#: For the current transaction only: with a pooler, the store can get the server's session.
_NO_WAIT: Final = "SELECT set_config('synchronous_commit', 'off', true)"
_STATE: Final = (
    f"epoch, owner, instance, seconds, deadline - {_CLOCK}, renewals, {_CLOCK} - changed, successor"
)
_LOOK: Final = f"SELECT {_STATE} FROM stompkit_lease WHERE id = 1"
_ACQUIRE: Final = f"""
UPDATE stompkit_lease SET epoch = epoch + 1, owner = %(name)s, instance = %(instance)s,
    seconds = %(seconds)s, deadline = {_CLOCK} + %(seconds)s, renewals = renewals + 1,
    changed = {_CLOCK}, successor = ''
WHERE id = 1 AND epoch = %(epoch)s AND renewals = %(renewals)s
RETURNING {_STATE}
"""
_MINE: Final = "id = 1 AND epoch = %(epoch)s AND instance = %(instance)s"
_RENEW: Final = f"""
UPDATE stompkit_lease
SET seconds = %(seconds)s, deadline = {_CLOCK} + %(seconds)s, renewals = renewals + 1
WHERE {_MINE}
RETURNING {_STATE}
"""
_RELEASE: Final = f"""
UPDATE stompkit_lease SET owner = '', instance = '', successor = %(successor)s::text,
    deadline = {_CLOCK} + CASE WHEN %(successor)s::text = '' THEN 0 ELSE seconds END,
    renewals = renewals + 1, changed = {_CLOCK}
WHERE {_MINE}
RETURNING {_STATE}
"""
_STATEMENTS: Final = {Ask.ACQUIRE: _ACQUIRE, Ask.RENEW: _RENEW, Ask.RELEASE: _RELEASE}
_ASK_TO_LEAVE: Final = f"""
UPDATE stompkit_lease SET successor = %(successor)s WHERE id = 1 AND owner <> ''
RETURNING {_STATE}
"""

#: Returns the process that had the name before.
_REPORT: Final = f"""
WITH old AS (SELECT instance FROM stompkit_brokers WHERE name = %(name)s)
INSERT INTO stompkit_brokers (name, instance, role, seen)
VALUES (%(name)s, %(instance)s, %(role)s, {_CLOCK})
ON CONFLICT (name) DO UPDATE
    SET instance = excluded.instance, role = excluded.role, seen = excluded.seen
RETURNING (SELECT instance FROM old)
"""
_LIST: Final = f"""
SELECT name, role, {_CLOCK} - seen FROM stompkit_brokers ORDER BY name LIMIT {_MOST_BROKERS}
"""
_FORGET: Final = f"DELETE FROM stompkit_brokers WHERE seen < {_CLOCK} - %(seconds)s"
_LEAVE: Final = "DELETE FROM stompkit_brokers WHERE name = %(name)s AND instance = %(instance)s"


class BrokerState(NamedTuple):
    """A broker that takes part, and the seconds since it has last reported."""

    name: str
    role: str
    seen_s: float


class Look(NamedTuple):
    """The lease, the brokers, and the process that last reported under the name of this broker."""

    state: LeaseState
    brokers: tuple[BrokerState, ...]
    previous: str


class LeaseTable:
    """The lease of a store; all methods block, and raise :class:`StoreError`."""

    def __init__(self, url: str, name: str, instance: str, seconds: float) -> None:
        """Describe the database; raises ValueError for an invalid URL."""
        self._named = {"name": name, "instance": instance}
        self._seconds = {"seconds": Float8(seconds)}
        milliseconds = max(int(seconds * 1000 / 2), 1_000)
        setup = (
            # Requests that nobody waits for any more must not wait for locks.
            f"SET statement_timeout = {milliseconds}",
            "SET default_transaction_isolation = 'read committed'",
        )
        defaults = {
            "connect_timeout": _CONNECT_S,
            "tcp_user_timeout": milliseconds,
            "target_session_attrs": "read-write",
        }
        self._connection = PostgresConnection(parsed(url), setup, defaults, kind="lease")
        self._is_prepared = False

    @property
    def name(self) -> str:
        """The URL of the database without its secrets."""
        return self._connection.name

    def prepare(self) -> None:
        """Create the tables, and forget brokers that are gone for long.

        If that has not succeeded, every other method does it first. Raises StoreError behind a
        pooler in transaction mode.
        """
        self._connection.check_sessions()
        with self._connection.for_sqlalchemy() as connection:
            create_missing(connection, _TABLES.sorted_tables)
            row = {"id": 1, "epoch": 0, "owner": "", "instance": "", "seconds": 0.0}
            row |= {"deadline": 0.0, "renewals": 0, "changed": 0.0, "successor": ""}
            connection.execute(insert(LEASE).on_conflict_do_nothing(), row)
        self._is_prepared = True
        self._rows(_FORGET, {"seconds": Float8(_FORGOTTEN_S)})

    @property
    def is_refused(self) -> bool:
        """True if the database refuses this broker: a later attempt would fail, too."""
        return self._connection.is_refused()

    def _use(self) -> Link:
        """Return the connection to tables that exist."""
        if not self._is_prepared:
            self.prepare()
        return self._connection.use()

    def look(self, role: str) -> Look:
        """Report this broker with its role; return the lease and all brokers."""
        link = self._use()
        with self._connection.errors():
            with link.pipeline():
                link.execute(_NO_WAIT)
                reported = link.execute(_REPORT, {**self._named, "role": role})
                state = link.execute(_LOOK)
                brokers = link.execute(_LIST)
            [(previous,)] = reported.fetchall()
            found = tuple(BrokerState(*row) for row in brokers.fetchall())
            return Look(self._state(state.fetchall()), found, previous or "")

    def make(self, request: Request) -> LeaseState | None:
        """Make a request other than LOOK; return ``None`` if it was refused."""
        values = {
            **self._named,
            **self._seconds,
            "epoch": Int8(request.epoch),
            "renewals": Int8(request.renewals),
            "successor": request.successor,
        }
        rows = self._rows(_STATEMENTS[request.ask], values)
        return self._state(rows) if rows else None

    def ask_to_leave(self, successor: str) -> LeaseState | None:
        """Ask the owner to hand the lease over; return ``None`` if there is no owner."""
        rows = self._rows(_ASK_TO_LEAVE, {"successor": successor})
        return self._state(rows) if rows else None

    def leave(self) -> None:
        """Remove this broker from the list."""
        self._rows(_LEAVE, self._named)

    def _rows(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        link = self._use()
        with self._connection.errors():
            with link.pipeline():
                link.execute(_NO_WAIT)
                cursor = link.execute(statement, values)
            return cursor.fetchall() if cursor.description is not None else []

    def _state(self, rows: Sequence[tuple[Any, ...]]) -> LeaseState:
        if not rows:
            raise StoreError(f"the store {self.name} has lost its lease: restart the brokers")
        [(epoch, owner, instance, seconds, remaining, renewals, held, successor)] = rows
        return LeaseState(
            epoch, owner, instance, seconds, float(remaining), renewals, float(held), successor
        )

    def abort(self) -> None:
        """End any call in progress with an error, from any thread; later calls connect again."""
        self._connection.interrupt()

    def close(self) -> None:
        """Disconnect."""
        self._connection.drop()
