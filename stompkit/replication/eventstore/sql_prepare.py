"""Prepare and commit in an SQL database. Needs the extra ``replication``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    delete,
    insert,
    select,
    update,
)

from stompkit.replication.eventstore._sql import (
    MANY_OCTETS,
    NAME,
    PROBLEMS,
    TIME,
    SqlServer,
    options,
)
from stompkit.replication.eventstore.prepare import PrepareCommit, Prepared, fixed_namespace
from stompkit.replication.eventstore.store import Namespace, life_s

__all__ = ["SqlPrepareCommit"]

_TABLES: Final = MetaData()
_PREPARED: Final = Table(
    "stompkit_prepared",
    _TABLES,
    Column("id", String(64), primary_key=True),
    Column("namespace", NAME, nullable=False),
    Column("time", TIME, nullable=False),
    Column("is_committed", Boolean, nullable=False),
    Column("claimed_until", TIME, nullable=False),
    Column("body", MANY_OCTETS, nullable=False),
    **options(),
)
#: Number of ids in one statement; older SQLite versions allow only 999 parameters.
_CHUNK: Final = 500


class SqlPrepareCommit(PrepareCommit):
    """Stores notes in the table ``stompkit_prepared``, which is created on first use.

    Notes are written over a separate connection, while the transaction that they describe is open.
    With SQLite they therefore need a different file from the sessions' database, because its lock
    would block them until the timeout. An engine shared with sessions needs a spare connection for
    each of them; for a URL a separate engine is created.
    """

    _problems = PROBLEMS

    def __init__(
        self,
        engine_or_url: Engine | str,
        strict: bool = False,  # noqa: FBT001, FBT002 - as RedisPrepareCommit
        namespace: Namespace | None = None,
        ttl: float | None = 86400,
    ) -> None:
        """Configure the database; nothing is connected yet.

        ``namespace`` separates the notes of applications, ``stompkit:pc`` by default; a callable is
        called with time 0. Notes are kept for ``ttl`` seconds, which is the maximum delay of
        :func:`recover`. A given engine remains the caller's.
        """
        super().__init__(strict)
        self._namespace = fixed_namespace(namespace, "stompkit:pc").encode()
        self._ttl = life_s(ttl)
        self._server = SqlServer(engine_or_url, _TABLES)

    @property
    def engine(self) -> Engine:
        """The engine that connects to the database."""
        return self._server.engine

    def close(self) -> None:
        """Disconnect; a given engine is left as it is."""
        self._server.close()

    def _save(self, id: str, body: bytes) -> None:
        def work(connection: Connection) -> None:
            note = {"time": self._server.now(connection), "body": body, "is_committed": False}
            there = update(_PREPARED).where(_PREPARED.c.id == id)
            if not connection.execute(there.values(note)).rowcount:
                new = {"id": id, "namespace": self._namespace, "claimed_until": 0.0}
                connection.execute(insert(_PREPARED).values(**note, **new))

        self._server.run(work)

    def _remove(self, ids: Sequence[str]) -> None:
        def work(connection: Connection) -> None:
            for some in _chunks(ids):
                connection.execute(delete(_PREPARED).where(_PREPARED.c.id.in_(some)))

        self._server.run(work)

    def _mark(self, ids: Sequence[str]) -> None:
        def work(connection: Connection) -> None:
            for some in _chunks(ids):
                there = update(_PREPARED).where(_PREPARED.c.id.in_(some))
                connection.execute(there.values(is_committed=True))

        self._server.run(work)

    def _list(self, until: float) -> list[tuple[str, float]]:
        columns = _PREPARED.c

        def work(connection: Connection) -> list[tuple[str, float]]:
            own = columns.namespace == self._namespace
            if not math.isinf(self._ttl):
                first = self._server.now(connection) - self._ttl
                connection.execute(delete(_PREPARED).where(own, columns.time <= first))
            # Not every database supports infinity.
            due = [] if math.isinf(until) else [columns.time <= until]
            query = select(columns.id, columns.time).where(own, *due).order_by(columns.time)
            return [(id, time) for id, time in connection.execute(query)]

        return self._server.run(work)

    def _load(self, ids: Sequence[str]) -> list[Prepared | None]:
        columns = _PREPARED.c

        def work(connection: Connection) -> dict[str, Prepared]:
            first = -math.inf if math.isinf(self._ttl) else self._server.now(connection) - self._ttl
            found = {}
            for some in _chunks(ids):
                query = select(columns.id, columns.time, columns.is_committed, columns.body)
                for id, time, is_committed, body in connection.execute(
                    query.where(columns.id.in_(some))
                ):
                    if time > first:
                        found[id] = self._read(id, time, is_committed, bytes(body))
            return found

        found = self._server.run(work)
        return [found.get(id) for id in ids]

    def _claim(self, id: str, lease_s: float) -> bool:
        columns = _PREPARED.c

        def work(connection: Connection) -> bool:
            now = self._server.now(connection)
            there = update(_PREPARED).where(columns.id == id, columns.claimed_until <= now)
            return bool(connection.execute(there.values(claimed_until=now + lease_s)).rowcount)

        return self._server.run(work)

    def _release(self, id: str) -> None:
        free = update(_PREPARED).where(_PREPARED.c.id == id).values(claimed_until=0.0)
        self._server.run(lambda connection: connection.execute(free))

    def _now(self) -> float:
        return self._server.run(self._server.now)


def _chunks(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK)]
