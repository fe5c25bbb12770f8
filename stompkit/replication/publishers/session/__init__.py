"""Watching sessions of SQLAlchemy: what they commit becomes signals. Needs ``replication``.

A changeset has the changes of one outermost transaction. They are recorded when they are flushed,
from the statements that the session sends, so that they are what the database was told, in that
order; nothing is loaded for them but what the database has made up itself, such as defaults. What a
savepoint or a transaction has rolled back is forgotten.

* ``after`` has the columns that were written and those that the object had loaded; ``before`` those
  whose old values were known. Columns are named as in the database.
* An update of what the same transaction has written becomes part of that, and what was written and
  deleted again is not told, where that can't break a rule of the database at a replica: columns in
  keys, foreign keys and unique constraints keep their steps, and so do rows that foreign keys may
  refer to.
* Statements besides the unit of work's (``session.execute(update(...))``, ``bulk_insert_mappings``,
  Core statements) are expanded: the rows are read, and locked, before they are changed, and read
  again after. What can't be followed so raises :class:`UnseenChange` before it runs: SQL as text,
  upserts, INSERT from SELECT. The execution option ``stompkit_bulk="ignore"`` lets one statement
  pass.
* What the database does by itself to other rows, by triggers and ``ON DELETE CASCADE``, is not
  seen, and neither is what goes past the session.

Signals are sent after the commit, in its order in one thread; between threads only as their commits
return. If the process ends in between they are never sent: an
:class:`~stompkit.replication.publishers.outbox.Outbox` does without that gap.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from threading import Lock, get_ident
from typing import Final

from blinker import Signal
from sqlalchemy.orm import Session

from stompkit.replication.events import RowChange
from stompkit.replication.publication import Publication
from stompkit.replication.publishers.session._statements import UnseenChange
from stompkit.replication.publishers.session.recording import Bulk, Recording
from stompkit.replication.publishers.session.values import Converters
from stompkit.replication.publishers.session.watch import SessionFactory, Watch, table_names
from stompkit.replication.signals import CHANGESET

__all__ = ["SESSION_ID", "Callback", "Converters", "UnseenChange", "sqlalchemy_pub"]

_log: Final = logging.getLogger(__name__)

#: Where, in the ``info`` of a session, the id is that a changeset's source has as its transaction.
SESSION_ID: Final = "stompkit.session_id"

#: Called with a session and changes.
Callback = Callable[[Session, Sequence[RowChange]], object]


class sqlalchemy_pub:
    """Publishes what sessions commit: see the module."""

    def __init__(
        self,
        session_factory: SessionFactory,
        tables: Iterable[str] | None = None,
        *,
        bulk: Bulk = "expand",
        name: str = "",
        changesets: Signal = CHANGESET,
        on_prepare: Callback | None = None,
        on_commit: Callback | None = None,
        on_unpublished: Callback | None = None,
        on_rollback: Callback | None = None,
    ) -> None:
        """Watch a session, or all of a ``sessionmaker``, ``scoped_session`` or class of sessions.

        Those of asyncio will do, too; an ``async_sessionmaker`` is given a class of sessions of its
        own, if it has none, for the sessions that it makes from now on. ``tables`` are names or
        patterns, as :class:`~stompkit.replication.tables.Tables` takes them; ``None`` and an empty
        list are all. ``bulk`` says what becomes of statements that are not the unit of work's:
        ``expand``, ``refuse`` them by :class:`UnseenChange`, or ``ignore`` them. ``name`` is the
        beginning of the origin. Receivers of ``changesets`` hear of this publisher alone; those of
        :data:`~stompkit.replication.signals.CHANGESET` hear it as well.

        ``on_prepare`` is called after each flush, and each statement that was expanded, with all
        changes of the transaction so far, and with what is left of them when a savepoint was rolled
        back; what it raises in a flush ends that. At the end of a transaction for which it was
        called comes one of ``on_commit``, when the changes were published, if any are left;
        ``on_unpublished``, when they were committed but publishing has failed; ``on_rollback``.
        What these raise is logged.

        Raises TypeError for what makes no sessions, and ValueError for an argument that can't be
        understood.
        """
        self._on_prepare = on_prepare
        self._on_commit = on_commit
        self._on_unpublished = on_unpublished
        self._on_rollback = on_rollback
        self._name = name
        self._publication = Publication(kind="sqlalchemy", name=name, changesets=changesets)
        #: What is to be published, the thread that does so, and what others wait for.
        self._committed: deque[tuple[Session, Recording, list[RowChange], object]] = deque()
        self._publishing_thread = 0
        self._lock = Lock()
        names = None if tables is None else table_names(tables)
        self._watch = Watch(session_factory, names or None, bulk, self)

    def __call__(self, tables: Iterable[str]) -> None:
        """Watch these tables, too; where all were watched, these and no others from now on."""
        self._watch.merge(tables)

    @property
    def tables(self) -> frozenset[str] | None:
        """Which tables are watched; ``None`` for all."""
        return self._watch.tables

    @property
    def origin(self) -> str:
        """The origin of the changesets; another one after publishing has failed."""
        return self._publication.origin

    def close(self) -> None:
        """Watch no longer; harmless if it was closed before."""
        self._watch.close()

    # What the watch tells.

    def prepared(self, session: Session, recording: Recording) -> None:
        """Something may be committed."""
        recording.is_prepared = True
        if self._on_prepare is not None:
            self._on_prepare(session, [each.change for each in recording.pending])

    def reduced(self, session: Session, recording: Recording) -> None:
        """Less may be committed than was said before."""
        self.prepared(session, recording)

    def committing(self, session: Session, recording: Recording) -> None:
        """Nothing is done before it is committed."""

    def committed(self, session: Session, recording: Recording, changes: list[RowChange]) -> None:
        """Publish; what a receiver has committed meanwhile comes when it has returned."""
        transaction = session.info.get(SESSION_ID, "")
        self._committed.append((session, recording, changes, transaction))
        if self._publishing_thread == get_ident():
            return
        # Numbers are given in the order of publishing.
        with self._lock:
            self._publishing_thread = get_ident()
            try:
                while self._committed:
                    self._end(*self._committed.popleft())
            finally:
                self._publishing_thread = 0

    def _end(
        self, session: Session, recording: Recording, changes: list[RowChange], transaction: object
    ) -> None:
        call = self._on_commit
        try:
            if changes:
                self._publication.publish(
                    changes,
                    position="",
                    transaction=transaction if isinstance(transaction, str) else "",
                    time=datetime.now(UTC),
                )
        except Exception:
            # The program's part is done, and well.
            _log.exception("the changes of a transaction were committed, but not published")
            # Some have its number already: what comes next must not look like it to them.
            self._publication = Publication(kind="sqlalchemy", name=self._name)
            call = self._on_unpublished
        if recording.is_prepared and call is not None:
            try:
                call(session, changes)
            except Exception:
                _log.exception("what was to be done after a commit has failed")

    def rolled_back(self, session: Session, recording: Recording, changes: list[RowChange]) -> None:
        """Say so to who was told that there was something."""
        if recording.is_prepared and self._on_rollback is not None:
            self._on_rollback(session, changes)
