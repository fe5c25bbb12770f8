"""Subscribers that store events. Needs the extra ``replication``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from threading import Lock, get_ident
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec
from blinker import Signal
from sqlalchemy import Engine

from stompkit.replication.eventstore.prepare import HasInfo, PrepareCommit
from stompkit.replication.eventstore.source import (
    SESSION_COMMIT,
    SESSION_PREPARE,
    SESSION_ROLLBACK,
    SESSION_UNKNOWN,
)
from stompkit.replication.eventstore.sql_prepare import SqlPrepareCommit
from stompkit.replication.eventstore.sql_store import SqlEventStore
from stompkit.replication.eventstore.store import DEFAULT_TTL_S, EventStore, Namespace
from stompkit.replication.model.events import Changeset
from stompkit.replication.model.signals import CHANGESET, for_factory, row_signals, signal

__all__ = ["es_sub", "sql_es_sub", "store_changeset", "store_sub"]

_log: Final = logging.getLogger(__name__)
_ACTIONS: Final = ("write", "update", "delete")


def store_changeset(
    store: EventStore, changeset: Changeset, tables: Collection[str] | None = None
) -> bool:
    """Store the events of a changeset, and the changeset itself if there is a history.

    ``tables`` are names with or without their schema, and the names of events follow them. For all
    tables, both forms are stored. Returns True if it is stored; raises the errors of a strict
    store.
    """
    found = _narrowed(changeset, tables)
    if not found.changes:
        return True
    is_added = store.add_many(_events(found, tables))
    return (not store.has_history or store.append(found)) and is_added


def store_sub(store: EventStore, tables: Collection[str] | None = None) -> None:
    """Store the changes of any publisher of this process, until the store is closed.

    With a strict store, a resumable publisher stops at a failure, and resumes from there without
    loss. Raises ``ValueError`` unless ``tables`` is a list or a set.
    """
    wanted = None if tables is None else _checked(tables)

    def receive(changeset: Changeset) -> None:
        store_changeset(store, changeset, wanted)

    _connect(store, CHANGESET, receive)


def sql_es_sub(
    session_factory: Any,
    tables: Collection[str],
    engine_or_url: Engine | str,
    strict: bool = False,  # noqa: FBT001, FBT002 - as redis_es_sub
    namespace: Namespace | None = None,
    ttl: float | None = DEFAULT_TTL_S,
    *,
    history: bool = False,
) -> tuple[SqlEventStore, SqlPrepareCommit]:
    """Store the events of sessions in an SQL database; see :func:`es_sub`.

    It can be the database of the sessions, unless that is SQLite. Raises ``ValueError`` for that,
    and unless ``tables`` is a list or a set.
    """
    prepare_commit = SqlPrepareCommit(engine_or_url, strict, namespace, ttl)
    own = prepare_commit.engine
    bind = getattr(getattr(session_factory, "session_factory", session_factory), "kw", {}).get(
        "bind"
    )
    if own.dialect.name == "sqlite" and bind is not None and own.url == bind.url:
        raise ValueError(f"notes of sessions need another SQLite file than theirs: {own.url}")
    store = SqlEventStore(engine_or_url, namespace, ttl, strict=strict, history=history)
    es_sub(store, prepare_commit, session_factory, tables)
    return store, prepare_commit


def es_sub(
    store: EventStore,
    prepare_commit: PrepareCommit,
    session_factory: object,
    tables: Collection[str],
) -> None:
    """Note sessions before they are committed, and store their events afterwards.

    Sessions are those that ``session_factory`` makes and ``sqlalchemy_es_pub`` watches. Events of
    ``tables`` from any publisher of this process are stored, as ``table_action``. The events of a
    session are stored together. If that fails, the note stays, marked as committed, and
    :func:`~stompkit.replication.eventstore.recovery.recover` publishes the session. The same is
    done if the connection is lost during the commit, so that its outcome is unknown. Of all
    possible failures, only a failing prepare of a strict ``prepare_commit`` aborts a transaction.

    It ends when the store is closed. Raises ``ValueError`` unless ``tables`` is a list or a set.
    """
    wanted = _checked(tables)
    sessions = _Sessions(store, prepare_commit, wanted)
    for announced, receiver in (
        (SESSION_PREPARE, sessions.prepare),
        (SESSION_COMMIT, sessions.commit),
        (SESSION_ROLLBACK, sessions.rollback),
        (SESSION_UNKNOWN, sessions.unknown),
    ):
        _connect(store, announced, for_factory(receiver, session_factory))
    for table in wanted:
        for action in _ACTIONS:
            _connect(store, signal(f"{table}_{action}"), sessions.row(f"{table}_{action}"))
    if store.has_history:
        _connect(store, CHANGESET, sessions.changeset)


class _Sessions:
    """Receives the signals of sessions, and of rows.

    A row's signal does not name its session. It is sent by the thread that commits. Events in a
    thread with a prepared session are therefore kept until a session of that thread ends.
    """

    def __init__(
        self, store: EventStore, prepare_commit: PrepareCommit, tables: Collection[str]
    ) -> None:
        self._store = store
        self._prepare_commit = prepare_commit
        self._tables = tables
        self._lock = Lock()
        #: Threads of prepared sessions. A session that is garbage-collected is removed.
        self._open: MutableMapping[HasInfo, int] = WeakKeyDictionary()
        self._received: dict[int, list[tuple[str, Any]]] = {}
        #: Threads that failed to store a changeset.
        self._failed: set[int] = set()

    def prepare(self, session: HasInfo, *, event: Mapping[str, Iterable[Any]]) -> None:
        """Handle changes of a session before the commit."""
        # A row without a key could neither be stored nor found again.
        own = {
            name: [key for key in keys if key is not None]
            for name, keys in event.items()
            if self._wants(name)
        }
        if not own and session not in self._open:
            return
        with self._lock:
            self._open[session] = get_ident()
        self._prepare_commit.prepare(session, own)

    def commit(self, session: HasInfo, *, published: bool = True) -> None:
        """Handle the commit of a session, after its rows were published."""
        is_stored = self._end(session)
        if is_stored is not None:
            self._prepare_commit.commit(session, published=published and is_stored)

    def rollback(self, session: HasInfo) -> None:
        """Handle the rollback of a session."""
        if self._end(session) is not None:
            self._prepare_commit.rollback(session)

    def unknown(self, session: HasInfo) -> None:
        """Handle a failed commit of a session that may be in the database."""
        if self._end(session) is not None:
            self._prepare_commit.unknown(session)

    def row(self, name: str) -> Callable[[Any], None]:
        """Return a receiver for a row signal."""

        def receive(key: Any) -> None:
            if key is None:
                return
            with self._lock:
                if get_ident() in self._open.values():
                    self._received.setdefault(get_ident(), []).append((name, key))
                    return
            self._store.add(name, key)

        return receive

    def changeset(self, changeset: Changeset) -> None:
        """Handle a published changeset."""
        found = _narrowed(changeset, self._tables)
        if found.changes and not self._is_done(lambda: self._store.append(found)):
            with self._lock:
                self._failed.add(get_ident())

    def _end(self, session: HasInfo) -> bool | None:
        """Store the received events; return True on success, or ``None`` for an unknown session."""
        with self._lock:
            thread = self._open.pop(session, None)
            threads = {get_ident(), thread}
            received = [each for one in threads if one for each in self._received.pop(one, ())]
            has_failed = get_ident() in self._failed
            self._failed.discard(get_ident())
        is_stored = self._is_done(lambda: self._store.add_many(received))
        return None if thread is None else is_stored and not has_failed

    def _is_done(self, write: Callable[[], bool]) -> bool:
        try:
            return write()
        except Exception:
            _log.exception("events of a session are not stored")
            return False

    def _wants(self, name: str) -> bool:
        table = name.rpartition("_")[0]
        return table in self._tables or table.rpartition(".")[2] in self._tables


def _connect(store: EventStore, announced: Signal, receiver: Callable[..., None]) -> None:
    """Connect a receiver until the store is closed."""
    announced.connect(receiver, weak=False)
    store.on_close(lambda: announced.disconnect(receiver))


def _checked(tables: Collection[str]) -> frozenset[str]:
    if not isinstance(tables, (list, tuple, set, frozenset)):
        raise ValueError(f"tables is a list or a set of names, and not {tables!r}")
    return frozenset(tables)


def _narrowed(changeset: Changeset, tables: Collection[str] | None) -> Changeset:
    """Return a changeset with the changes of some tables only."""
    if tables is None:
        return changeset
    changes = tuple(
        each for each in changeset.changes if each.table in tables or each.name in tables
    )
    return msgspec.structs.replace(changeset, changes=changes)


def _events(changeset: Changeset, tables: Collection[str] | None) -> Iterator[tuple[str, Any]]:
    """Yield the names and the keys of a changeset's events, as signals have them."""
    for change in changeset.changes:
        names = {change.table, change.name}
        for table in names if tables is None else names.intersection(tables):
            for name, key in row_signals(change):
                if key is not None:
                    yield f"{table}{name.removeprefix(change.table)}", key
