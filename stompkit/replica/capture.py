"""Capture of committed session changes as changesets of this node, in the same transaction.

The session's changes are recorded as in :mod:`~stompkit.replication.sources.session`. They are
numbered and stored immediately before the commit. Nothing can be flushed after that, so a
transaction is one changeset. The lock that orders all changes of a replica is held only briefly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from glob import escape
from typing import Final
from weakref import WeakKeyDictionary

import msgspec
from sqlalchemy import Connection, Engine, Pool, event, inspect
from sqlalchemy.orm import Session

from stompkit._common.moved import renamed
from stompkit.replica.applier import Applier
from stompkit.replica.nodes import known_node
from stompkit.replica.store import Store
from stompkit.replication.model.events import RowChange
from stompkit.replication.sources.session import Converters, UnseenChangeError
from stompkit.replication.sources.session.recording import Bulk, Recording
from stompkit.replication.sources.session.watch import SessionFactory, Watch

__all__ = ["AUTHOR", "COMMENT", "Capture", "ReadOnlyReplicaError"]

_log: Final = logging.getLogger(__name__)

#: Keys in the ``info`` of a session for the author and the comment of its changesets.
AUTHOR: Final = "stompkit.author"
COMMENT: Final = "stompkit.comment"


class ReadOnlyReplicaError(Exception):
    """A local change on a receive-only replica (``direction="receive"``)."""


class Capture:
    """Records what sessions commit to the database of the replica."""

    def __init__(
        self,
        session_factory: SessionFactory,
        store: Store,
        applier: Applier,
        tables: Iterable[str],
        *,
        engine: Engine,
        is_read_only: bool = False,
        bulk: Bulk = "expand",
        on_commit: Callable[[], object] = lambda: None,
    ) -> None:
        """Watch a session factory, as the session publisher does.

        ``tables`` are names as in :attr:`~stompkit.replication.RowChange.name`, ``engine``
        is that of the store. Sessions may also use other databases, and other engines of this
        one. ``on_commit`` is called after each commit of changes. Raises TypeError and ValueError
        as the session publisher does.
        """
        self._store = store
        self._applier = applier
        self._names = frozenset(tables)
        self._engine = engine
        self._is_read_only = is_read_only
        self._on_commit = on_commit
        #: By connection pool: engines with other options share the pool.
        self._is_ours: WeakKeyDictionary[Pool, bool] = WeakKeyDictionary({engine.pool: True})
        self._transactions: WeakKeyDictionary[Recording, _Transaction] = WeakKeyDictionary()
        # Values are converted to a form that all databases can store.
        converters = Converters(of_programs=True)
        self._watch = Watch(session_factory, map(escape, self._names), bulk, self, converters)

    def close(self) -> None:
        """Stop watching; closing twice is harmless."""
        self._watch.close()

    # Callbacks of the watch.

    def prepared(self, session: Session, recording: Recording) -> None:
        """Prepare for a possible commit; raises :class:`ReadOnlyReplicaError`."""
        if self._is_read_only:
            self._gather(session, recording)
        elif recording.is_committing:
            self._prepare(session, recording)

    def reduced(self, session: Session, recording: Recording) -> None:
        """Prepare again after some changes were withdrawn."""
        if recording.is_committing:
            self._prepare(session, recording)

    def committing(self, session: Session, recording: Recording) -> None:
        """Collect the changes now and at each further flush: hooks may still change them."""
        recording.is_committing = True
        self._prepare(session, recording)

    def committed(self, session: Session, recording: Recording, changes: list[RowChange]) -> None:
        """Call ``on_commit`` if the transaction had changes."""
        if self._forget(recording):
            self._on_commit()

    def rolled_back(self, session: Session, recording: Recording, changes: list[RowChange]) -> None:
        """Discard the changes of a transaction that was rolled back."""
        self._forget(recording)

    def left_open(self, session: Session, recording: Recording, changes: list[RowChange]) -> None:
        """Do as after a commit: the changes are recorded in the database if they are in it."""
        self.committed(session, recording, changes)

    # Internals.

    def _gather(self, session: Session, recording: Recording) -> dict[Connection, list[RowChange]]:
        """Return the changes to record, by connection."""
        changes: dict[Engine | None, list[RowChange]] = {}
        for each in recording.pending:
            if each.change.name in self._names:
                changes.setdefault(each.engine, []).append(_written(each.change))
        found = {
            connection: changes[connection.engine]
            for connection in recording.connections
            if connection.engine in changes and self._belongs(connection, recording)
        }
        if found and self._is_read_only:
            raise ReadOnlyReplicaError(
                "this replica takes the changes of others only, and a session changes"
                f" {next(iter(found.values()))[0].name}: direction='both' lets it"
            )
        return found

    def _belongs(self, connection: Connection, recording: Recording) -> bool:
        """Return True if a connection leads to the database of the replica."""
        pool = connection.engine.pool
        if pool not in self._is_ours:
            with recording.quietly():
                self._is_ours[pool] = self._is_same_store(connection)
            if not self._is_ours[pool]:
                _log.warning(
                    "sessions change replicated tables in %r, which is not the database of the"
                    " replica: these changes are not replicated",
                    connection.engine,
                )
        return self._is_ours[pool]

    def _is_same_store(self, connection: Connection) -> bool:
        """Return True if another engine's connection leads to the same database."""
        names = set(inspect(connection).get_table_names())
        if not {table.name for table in self._store.metadata.sorted_tables} <= names:
            return False
        with self._store.reading() as reader:
            return known_node(self._store.join(connection)) == known_node(reader)

    def _prepare(self, session: Session, recording: Recording) -> None:
        """Note the changes to record when the connections are committed."""
        found = self._gather(session, recording)
        transaction = self._transactions.get(recording)
        if transaction is None and found:
            transaction = _Transaction(session, recording, self._record)
            self._transactions[recording] = transaction
        if transaction is not None:
            transaction.prepare(found)

    def _record(
        self, session: Session, connection: Connection, changes: Sequence[RowChange]
    ) -> None:
        tx = self._store.join(connection)
        author, comment = (str(session.info.get(name, "")) for name in (AUTHOR, COMMENT))
        self._applier.record(tx, changes, author=author, comment=comment)

    def _forget(self, recording: Recording) -> bool:
        """Discard the noted changes; returns True if there were any."""
        transaction = self._transactions.pop(recording, None)
        if transaction is not None:
            transaction.close()
        return transaction is not None


class _Transaction:
    """Changes that a session is about to commit, by connection; each one is recorded once."""

    def __init__(
        self,
        session: Session,
        recording: Recording,
        record: Callable[[Session, Connection, Sequence[RowChange]], None],
    ) -> None:
        """Start empty."""
        self._session = session
        self._recording = recording
        self._record = record
        self._changes: dict[Connection, Sequence[RowChange]] = {}
        self._recorded: set[Connection] = set()
        event.listen(session, "after_commit", self._session_committed)

    def close(self) -> None:
        """Record nothing more."""
        self._changes.clear()
        event.remove(self._session, "after_commit", self._session_committed)

    def prepare(self, found: Mapping[Connection, Sequence[RowChange]]) -> None:
        """Replace the changes to record; raises UnseenChangeError if they were recorded already."""
        if self._recorded:
            for connection in self._recorded:
                _roll_back(connection)
            raise UnseenChangeError(
                "a session has changed rows when its transaction was recorded already: it has to do"
                " so before its connection is committed"
            )
        for connection in found.keys() - self._changes.keys():
            event.listen(connection, "commit", self._connection_commits)
            event.listen(connection, "prepare_twophase", self._connection_commits)
        # A connection keeps its listener even if it has no changes any more.
        self._changes = {connection: () for connection in self._changes} | dict(found)

    def _connection_commits(self, connection: Connection, *_: object) -> None:
        try:
            self._end(connection)
        except BaseException:
            _roll_back(connection)
            raise

    def _session_committed(self, session: Session) -> None:
        """Record the rest, because the session has joined an outer transaction."""
        if not session.in_nested_transaction():
            for connection in list(self._changes):
                self._end(connection)

    def _end(self, connection: Connection) -> None:
        changes = self._changes.get(connection)
        if changes and connection not in self._recorded:
            self._recorded.add(connection)
            with self._recording.quietly():
                self._record(self._session, connection, changes)


def _roll_back(connection: Connection) -> None:
    """Roll back a connection whose commit was prevented.

    SQLAlchemy does not roll back after a failed commit: the next user of the connection would
    commit the open transaction.
    """
    connection.dialect.do_rollback(connection.connection)


def _written(change: RowChange) -> RowChange:
    """Return the change without columns that an update did not write.

    The values of those columns may be outdated by changes of other nodes.
    """
    before, after = change.before, change.after
    if change.action != "update" or not before or not after:
        return change
    kept = {
        name: value
        for name, value in after.items()
        if name in change.key or name not in before or before[name] != value
    }
    return msgspec.structs.replace(change, after=kept)


renamed(
    __name__,
    ReadOnlyReplica="ReadOnlyReplicaError",
)
