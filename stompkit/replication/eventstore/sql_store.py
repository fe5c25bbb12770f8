"""An event store in an SQL database. Needs the extra ``replication``."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Index,
    Integer,
    MetaData,
    Table,
    UniqueConstraint,
    delete,
    func,
    literal_column,
    or_,
    select,
    tuple_,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite

from stompkit.replication.eventstore._sql import (
    DIGEST,
    MANY_OCTETS,
    NAME,
    PROBLEMS,
    TIME,
    SqlServer,
    options,
)
from stompkit.replication.eventstore.store import DEFAULT_TTL_S, EventStore, Namespace

__all__ = ["SqlEventStore"]

_TABLES: Final = MetaData()

#: The last time of each key; ``digest`` is SHA-256 of the event and the key, because the key may
#: exceed the maximum index size. ``expires`` is NULL for data that never expires.
_EVENTS: Final = Table(
    "stompkit_events",
    _TABLES,
    Column("digest", DIGEST, primary_key=True),
    Column("namespace", NAME, primary_key=True),
    Column("event", NAME, nullable=False),
    Column("row_key", MANY_OCTETS, nullable=False),
    Column("ts", TIME, nullable=False),
    Column("expires", TIME),
    Index("stompkit_events_by_ts", "event", "ts"),
    Index("stompkit_events_by_expires", "expires"),
    **options(),
)
#: Changesets; ``digest`` is SHA-256 of the id.
_HISTORY: Final = Table(
    "stompkit_history",
    _TABLES,
    Column(
        "number", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, nullable=False
    ),
    Column("digest", DIGEST, nullable=False),
    Column("namespace", NAME, nullable=False),
    Column("ts", TIME, nullable=False),
    Column("expires", TIME),
    Column("body", MANY_OCTETS, nullable=False),
    UniqueConstraint("digest", "namespace", name="stompkit_history_once"),
    Index("stompkit_history_by_ts", "ts", "number"),
    Index("stompkit_history_by_expires", "expires"),
    sqlite_autoincrement=True,
    **options(),
)
#: Number of changesets that are read at a time.
_CHUNK: Final = 200


class SqlEventStore(EventStore):
    """Stores events in the tables ``stompkit_events`` and ``stompkit_history`` of a database.

    They are created on first use. Expired data is never returned, but it stays in the tables until
    :meth:`prune` is called. Names of events and namespaces have up to 255 bytes.
    """

    _problems = PROBLEMS

    def __init__(
        self,
        engine_or_url: Engine | str,
        namespace: Namespace | None = None,
        ttl: float | None = DEFAULT_TTL_S,
        *,
        strict: bool = False,
        history: bool = False,
    ) -> None:
        """Configure a store; nothing is connected yet.

        A given SQLAlchemy engine remains the caller's; for a URL the store creates its own. See
        :class:`~stompkit.replication.eventstore.store.EventStore` for the others.
        """
        name = "stompkit:es" if namespace is None else namespace
        super().__init__(name, ttl, strict=strict, history=history)
        self._server = SqlServer(engine_or_url, _TABLES)

    def clear(self, event: str, ts: float | None = None) -> int:
        """Delete all keys of an event, or with ``ts`` those in the namespace of that time."""

        def work(connection: Connection) -> int:
            there = [_EVENTS.c.event == event.encode()]
            if ts is None:
                there += self._in_own(connection, _EVENTS, *there)
            else:
                there.append(_EVENTS.c.namespace == self._name(ts).encode())
            alive = _alive(_EVENTS, self._server.now(connection))
            count = connection.scalar(select(func.count()).where(*there, alive))
            connection.execute(delete(_EVENTS).where(*there))
            return count or 0

        return self._server.run(work)

    def prune(self) -> int:
        """Remove expired data of all stores in these tables; return the number of rows."""

        def work(connection: Connection) -> int:
            now = self._server.now(connection)
            return sum(
                connection.execute(delete(table).where(table.c.expires <= now)).rowcount
                for table in (_EVENTS, _HISTORY)
            )

        return self._server.run(work)

    def _disconnect(self) -> None:
        self._server.close()

    def _add(self, events: dict[str, list[str]], ts: float | None, ttl: float) -> None:
        def work(connection: Connection) -> None:
            now = self._server.now(connection)
            time = now if ts is None else ts
            namespace = _name(self._name(time))
            rows: list[dict[str, Any]] = [
                {
                    "digest": _digest(event, text),
                    "namespace": namespace,
                    "event": _name(event),
                    "row_key": text.encode(),
                    "ts": time,
                    "expires": _expiry(now, ttl),
                }
                for event, texts in events.items()
                for text in set(texts)
            ]
            # Always in the same order, so that transactions do not deadlock.
            rows.sort(key=lambda row: row["digest"])
            connection.execute(_put(connection.dialect.name, now), rows)

        self._server.run(work)

    def _read(self, event: str, ts: float, end_ts: float) -> Iterable[tuple[str, float]]:
        def work(connection: Connection) -> list[tuple[bytes, float]]:
            there = [_EVENTS.c.event == event.encode(), *_between(_EVENTS, ts, end_ts)]
            own = self._in_own(connection, _EVENTS, *there)
            alive = _alive(_EVENTS, self._server.now(connection))
            query = select(_EVENTS.c.row_key, _EVENTS.c.ts).where(*there, *own, alive)
            return [(bytes(text), time) for text, time in connection.execute(query)]

        return [(text.decode(), time) for text, time in self._server.run(work)]

    def _query(self, event: str, text: str, ts: float | None) -> float | None:
        def work(connection: Connection) -> float | None:
            there = [_EVENTS.c.digest == _digest(event, text)]
            if ts is None:
                there += self._in_own(connection, _EVENTS, *there)
            else:
                there.append(_EVENTS.c.namespace == self._name(ts).encode())
            alive = _alive(_EVENTS, self._server.now(connection))
            query = select(func.max(_EVENTS.c.ts)).where(*there, alive)
            found: float | None = connection.execute(query).scalar_one()
            return found

        return self._server.run(work)

    def _append(self, id: str, body: bytes, ts: float | None) -> None:
        def work(connection: Connection) -> None:
            now = self._server.now(connection)
            time = now if ts is None else ts
            row = {
                "digest": _digest(id),
                "namespace": _name(self._name(time)),
                "ts": time,
                "expires": _expiry(now, self._ttl),
                "body": body,
            }
            connection.execute(_keep(connection.dialect.name, now), row)

        self._server.run(work)

    def _bodies(self, since: float, until: float) -> Iterator[tuple[float, bytes]]:
        columns = _HISTORY.c
        last = (since, 0)

        def work(connection: Connection) -> list[tuple[float, int, bytes]]:
            there = [
                *_between(_HISTORY, since, until),
                _alive(_HISTORY, self._server.now(connection)),
            ]
            own = self._in_own(connection, _HISTORY, *there)
            query = (
                select(columns.ts, columns.number, columns.body)
                .where(*there, *own, tuple_(columns.ts, columns.number) > last)
                .order_by(columns.ts, columns.number)
                .limit(_CHUNK)
            )
            return [(time, number, bytes(body)) for time, number, body in connection.execute(query)]

        while rows := self._server.run(work):
            yield from ((time, body) for time, _, body in rows)
            last = rows[-1][:2]

    def _in_own(
        self, connection: Connection, table: Table, *there: ColumnElement[bool]
    ) -> list[ColumnElement[bool]]:
        """Return the conditions for rows of this store's namespaces among existing rows."""
        namespace = table.c.namespace
        if isinstance(self._namespace, str):
            return [namespace == self._namespace.encode()]
        query = select(namespace, func.max(table.c.ts)).where(*there).group_by(namespace)
        found = [(bytes(name), time) for name, time in connection.execute(query)]
        return [namespace.in_([name for name, time in found if self._name(time).encode() == name])]


def _alive(table: Table, now: float) -> ColumnElement[bool]:
    return or_(table.c.expires.is_(None), table.c.expires > now)


def _between(table: Table, first: float, last: float) -> list[ColumnElement[bool]]:
    # Not every database supports infinity.
    until = [] if math.isinf(last) else [table.c.ts <= last]
    return [table.c.ts >= first, *until]


def _expiry(now: float, ttl: float) -> float | None:
    return None if math.isinf(ttl) else now + ttl


def _name(name: str) -> bytes:
    octets = name.encode()
    if len(octets) > 255:
        raise ValueError(f"a name of more than 255 octets: {name}")
    return octets


def _digest(*texts: str) -> bytes:
    return hashlib.sha256(msgspec.json.encode(texts)).digest()


def _put(dialect: str, now: float) -> Any:
    """Return the statement that upserts a key, unless a later, unexpired time is stored."""
    old = _EVENTS.c
    if dialect in ("mysql", "mariadb"):
        into = mysql.insert(_EVENTS)
        new = into.inserted
        # PyMySQL accepts no parameter after the values of many rows.
        is_later = or_(new.ts >= old.ts, old.expires <= literal_column(f"{now:.6f}"))
        # Assignments see earlier assignments, so the time then shows if it was later.
        return into.on_duplicate_key_update(
            [
                ("ts", func.if_(is_later, new.ts, old.ts)),
                ("expires", func.if_(old.ts == new.ts, new.expires, old.expires)),
            ]
        )
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    upsert = insert(_EVENTS)
    return upsert.on_conflict_do_update(
        index_elements=[old.digest, old.namespace],
        set_={"ts": upsert.excluded.ts, "expires": upsert.excluded.expires},
        where=or_(upsert.excluded.ts >= old.ts, old.expires <= now),
    )


def _keep(dialect: str, now: float) -> Any:
    """Return the statement that inserts a changeset, unless the same unexpired one is stored."""
    old = _HISTORY.c
    names = ("ts", "body", "expires")
    is_dead = old.expires <= now
    if dialect in ("mysql", "mariadb"):
        into = mysql.insert(_HISTORY)
        # The other assignments depend on the last one.
        return into.on_duplicate_key_update(
            [(name, func.if_(is_dead, into.inserted[name], old[name])) for name in names]
        )
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    upsert = insert(_HISTORY)
    return upsert.on_conflict_do_update(
        index_elements=[old.digest, old.namespace],
        set_={name: upsert.excluded[name] for name in names},
        where=is_dead,
    )
