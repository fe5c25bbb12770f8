"""Hooks into sessions, which report begin, flushes and end of transactions."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from sqlalchemy import Connection, event
from sqlalchemy.orm import Mapper, Session, SessionTransaction, object_session, sessionmaker
from sqlalchemy.orm.scoping import scoped_session

from stompkit.replication.model.events import RowChange
from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.session.recording import Bulk, Policy, Recording
from stompkit.replication.sources.session.values import Converters

__all__ = ["Listener", "SessionFactory", "Watch", "table_names"]

_log: Final = logging.getLogger(__name__)

#: A session, or a factory of sessions.
SessionFactory = Any


class Listener(Protocol):
    """Receives events of the transactions of watched sessions."""

    def prepared(self, session: Session, recording: Recording) -> None:
        """Handle changes before the commit; an exception aborts the flush."""

    def reduced(self, session: Session, recording: Recording) -> None:
        """Handle the rollback of a savepoint with changes."""

    def committing(self, session: Session, recording: Recording) -> None:
        """Handle the start of the outermost commit, which can still fail."""

    def committed(self, session: Session, recording: Recording, changes: list[RowChange]) -> None:
        """Handle the commit of the outermost transaction; the session is free again."""

    def rolled_back(self, session: Session, recording: Recording, changes: list[RowChange]) -> None:
        """Handle the rollback of the outermost transaction, with these changes."""

    def left_open(self, session: Session, recording: Recording, changes: list[RowChange]) -> None:
        """Handle a failed commit, all or part of which may be in the database nevertheless."""


class Watch:
    """Watches all sessions of a factory; each has a :class:`Recording` in its ``info``."""

    def __init__(
        self,
        factory: SessionFactory,
        tables: Iterable[str] | None,
        bulk: Bulk,
        listener: Listener,
        converters: Converters | None = None,
    ) -> None:
        """Start with the next transaction of each session.

        Raises TypeError for an unsupported factory, and ValueError for an invalid pattern of
        tables, or an unknown ``bulk``.
        """
        if bulk not in ("expand", "refuse", "ignore"):
            raise ValueError(f"bulk is expand, refuse or ignore, not {bulk!r}")
        self._listener = listener
        self._names: frozenset[str] | None = None
        self._tables = Tables()
        if tables is not None:
            self._names = table_names(tables)
            self._tables = Tables(self._names)
        self._policy = Policy(self._wants, bulk, converters or Converters())
        target = _target(factory)
        self._hooks: list[tuple[object, str, Callable[..., Any]]] = [
            (target, "after_transaction_create", self._began),
            (target, "after_transaction_end", self._ended),
            (target, "after_begin", self._connected),
            (target, "before_flush", self._flushing),
            (target, "after_flush", self._flushed),
            (target, "before_commit", self._committing),
            (target, "after_commit", self._committed),
            (Mapper, "after_insert", self._written),
            (Mapper, "after_update", self._written),
            (Mapper, "after_delete", self._deleted),
        ]
        for where, name, hook in self._hooks:
            event.listen(where, name, hook)

    def close(self) -> None:
        """Remove the hooks; open transactions are not reported any more."""
        for target, name, hook in self._hooks:
            event.remove(target, name, hook)
        self._hooks.clear()

    @property
    def tables(self) -> frozenset[str] | None:
        """Patterns of the watched tables; ``None`` for all."""
        return self._names

    def merge(self, tables: Iterable[str]) -> None:
        """Watch more tables; if all were watched, watch only these from now on."""
        self._names = (self._names or frozenset()) | table_names(tables)
        self._tables = Tables(self._names)

    def recording(self, session: Session) -> Recording | None:
        """Return the recording of a session's transaction, if one has begun."""
        found = session.info.get(self)
        return found if isinstance(found, Recording) else None

    def _wants(self, schema: str, table: str) -> bool:
        # An empty selection means none here, but all in ``Tables``.
        return self._names != frozenset() and self._tables.wants(schema, table)

    # Hooks.

    def _began(self, session: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is None:
            session.info[self] = Recording(session, self._policy, self._expanded)
        recording = self.recording(session)
        if recording is not None and (transaction.parent is None or transaction.nested):
            recording.begin(transaction)

    def _connected(
        self, session: Session, transaction: SessionTransaction, connection: Connection
    ) -> None:
        recording = self.recording(session)
        if recording is not None:
            recording.attach(connection)

    def _flushing(self, session: Session, *_: object) -> None:
        recording = self.recording(session)
        if recording is None and session.autobegin and not session.in_transaction():
            # The flush would begin it itself, but the hook needs to know the transaction now.
            session.begin()
            recording = self.recording(session)
        if recording is not None:
            recording.begin_flush()

    def _written(self, mapper: Mapper[Any], connection: Connection, target: object) -> None:
        self._see(mapper, connection, target, is_deleted=False)

    def _deleted(self, mapper: Mapper[Any], connection: Connection, target: object) -> None:
        self._see(mapper, connection, target, is_deleted=True)

    def _see(
        self, mapper: Mapper[Any], connection: Connection, target: object, *, is_deleted: bool
    ) -> None:
        session = object_session(target)
        recording = None if session is None else self.recording(session)
        if recording is not None:
            recording.see(mapper, target, connection, is_deleted=is_deleted)

    def _flushed(self, session: Session, _: object) -> None:
        recording = self.recording(session)
        if recording is not None and recording.end_flush():
            self._listener.prepared(session, recording)

    def _expanded(self, session: Session) -> None:
        recording = self.recording(session)
        if recording is not None:
            self._listener.prepared(session, recording)

    def _committing(self, session: Session) -> None:
        recording = self.recording(session)
        if recording is None:
            return
        if recording.problem is not None:
            raise recording.problem
        if not session.in_nested_transaction():
            self._listener.committing(session, recording)

    def _committed(self, session: Session) -> None:
        recording = self.recording(session)
        if recording is None:
            return
        if session.in_nested_transaction():
            recording.release()
        else:
            recording.is_committed = True

    def _ended(self, session: Session, transaction: SessionTransaction) -> None:
        recording = self.recording(session)
        if recording is None:
            return
        if transaction.parent is not None:
            if not transaction.nested:
                recording.cancel_flush()
            elif recording.end(transaction):
                self._notify(self._listener.reduced, session, recording)
            return
        changes = [each.change for each in recording.pending]
        recording.end(transaction)
        connections = recording.connections
        recording.detach()
        del session.info[self]

        def committed(*_: object) -> None:
            self._notify(self._listener.committed, session, recording, changes)

        def rolled_back(*_: object) -> None:
            self._notify(self._listener.rolled_back, session, recording, changes)

        joined = [connection for connection in connections if _goes_on(connection)]
        if not recording.may_be_committed:
            rolled_back()
        elif not recording.is_committed:
            self._notify(self._listener.left_open, session, recording, changes)
        elif not joined:
            committed()
        else:
            # The session uses a connection in an outer transaction, which decides the outcome.
            outcome = _Once(committed, rolled_back)
            event.listen(joined[0], "commit", outcome.commit, once=True)
            event.listen(joined[0], "rollback", outcome.rollback, once=True)

    @staticmethod
    def _notify(call: Callable[..., None], *arguments: object) -> None:
        """Call a hook after the outcome is decided; log its exceptions."""
        try:
            call(*arguments)
        except Exception:
            _log.exception("what was to be done at the end of a transaction has failed")


def _goes_on(connection: Connection) -> bool:
    return not connection.closed and connection.in_transaction()


class _Once:
    """Calls only the first of two functions."""

    def __init__(self, commit: Callable[[], None], rollback: Callable[[], None]) -> None:
        self._commit, self._rollback = commit, rollback
        self._is_over = False

    def commit(self, connection: Connection) -> None:
        if not self._is_over:
            self._is_over = True
            self._commit()

    def rollback(self, connection: Connection) -> None:
        if not self._is_over:
            self._is_over = True
            self._rollback()


def table_names(tables: Iterable[str]) -> frozenset[str]:
    """Return patterns of tables; raises ValueError for a single one that is not in a list."""
    if isinstance(tables, str):
        raise ValueError(f"tables are a list of names, not one text: [{tables!r}]")
    return frozenset(tables)


def _target(factory: SessionFactory) -> object:
    """Return the object to attach the hooks of a factory's sessions to."""
    # Not imported here, because only programs that use asyncio need the library.
    asynchronous = sys.modules.get("sqlalchemy.ext.asyncio")
    if isinstance(factory, scoped_session):
        return _target(factory.session_factory)
    if asynchronous is not None and isinstance(factory, asynchronous.async_scoped_session):
        return _target(factory.session_factory)
    if asynchronous is not None and isinstance(factory, asynchronous.AsyncSession):
        return factory.sync_session
    if asynchronous is not None and isinstance(factory, asynchronous.async_sessionmaker):
        made_by = factory.kw.get("sync_session_class")
        if made_by is None:
            # Without its own class, it would share one with all others.
            base: type[Session] = getattr(factory.class_, "sync_session_class", Session)
            made_by = type(base.__name__, (base,), {})
            factory.configure(sync_session_class=made_by)
        return _target(made_by)
    if isinstance(factory, (Session, sessionmaker)):
        return factory
    if isinstance(factory, type) and issubclass(factory, Session):
        return factory
    raise TypeError(f"{factory!r} makes no sessions of SQLAlchemy")
