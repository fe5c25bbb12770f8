"""Watching SQLAlchemy sessions: their commits become signals. Needs ``replication``.

A changeset has the changes of one outermost transaction. They are recorded at each flush, from the
session's statements, so that they match the database's statements in order. Only values that the
database has generated, such as defaults, are loaded. Changes that a savepoint or a transaction has
rolled back are discarded.

* ``after`` has the written columns and those that the object had loaded; ``before`` those whose old
  values were known. Columns have their database names.
* An update of a row written in the same transaction is merged into that change. A row that was
  written and deleted again is omitted. Both apply only where replicas cannot violate a constraint:
  columns in keys, foreign keys and unique constraints keep their separate steps, and so do rows
  that foreign keys may reference.
* Statements besides the unit of work's (``session.execute(update(...))``, ``bulk_insert_mappings``,
  Core statements) are expanded: the rows are read, and locked, before they are changed, and read
  again after. Statements that cannot be expanded raise :class:`UnseenChangeError` before they run:
  SQL as text, upserts, INSERT from SELECT. The execution option ``stompkit_bulk="ignore"`` exempts
  one statement.
* Changes of other rows by the database itself, by triggers and ``ON DELETE CASCADE``, are not
  recorded, and neither are changes outside of the session.

Signals are sent after the commit. Within a thread they follow the order of commits; between threads
the order in which commits return. If the process ends in between, they are never sent: an
:class:`~stompkit.replication.sources.outbox.Outbox` has no such gap.
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

from stompkit._common.moved import renamed
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.sources.publication import Publication
from stompkit.replication.sources.session.recording import Bulk, Recording
from stompkit.replication.sources.session.statements import UnseenChangeError
from stompkit.replication.sources.session.values import Converters
from stompkit.replication.sources.session.watch import SessionFactory, Watch, table_names

__all__ = ["SESSION_ID", "Callback", "Converters", "UnseenChangeError", "sqlalchemy_pub"]

_log: Final = logging.getLogger(__name__)

#: Key in ``session.info`` of the transaction's id, which is in the changeset's source.
SESSION_ID: Final = "stompkit.session_id"

#: Function called with a session and changes.
Callback = Callable[[Session, Sequence[RowChange]], object]


class sqlalchemy_pub:
    """Publishes the commits of sessions: see the module."""

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
        on_unknown: Callback | None = None,
    ) -> None:
        """Watch a session, or all of a ``sessionmaker``, ``scoped_session`` or class of sessions.

        Asynchronous ones are supported, too. An ``async_sessionmaker`` without its own class of
        sessions gets one, for the sessions that it makes from now on. ``tables`` are names or
        patterns, as for :class:`~stompkit.replication.model.tables.Tables`; ``None`` and an empty
        list select all. ``bulk`` is the policy for statements outside of the unit of work:
        ``expand``, ``refuse`` them by :class:`UnseenChangeError`, or ``ignore`` them. ``name`` is
        the prefix of the origin. Receivers of ``changesets`` receive from this publisher only;
        those of :data:`~stompkit.replication.model.signals.CHANGESET` receive its changesets as
        well.

        ``on_prepare`` is called after each flush, and each expanded statement, with all changes of
        the transaction until then. It is also called when a savepoint was rolled back, with the
        remaining changes. Its exception aborts the flush. At the end of such a transaction one of
        these is called: ``on_commit``, when the changes were published, if any are left;
        ``on_unpublished``, when they were committed but publishing has failed; ``on_rollback``;
        ``on_unknown``, when the commit has failed in a way that does not tell whether the database
        has the changes, such as a lost connection. Their exceptions are logged.

        Raises TypeError for an unsupported factory, and ValueError for an invalid argument.
        """
        self._on_prepare = on_prepare
        self._on_commit = on_commit
        self._on_unpublished = on_unpublished
        self._on_rollback = on_rollback
        self._on_unknown = on_unknown
        self._name = name
        self._publication = Publication(kind="sqlalchemy", name=name, changesets=changesets)
        #: Changes to publish, the publishing thread, and a lock for other threads.
        self._committed: deque[tuple[Session, Recording, list[RowChange], object]] = deque()
        self._publishing_thread = 0
        self._lock = Lock()
        names = None if tables is None else table_names(tables)
        self._watch = Watch(session_factory, names or None, bulk, self)

    def __call__(self, tables: Iterable[str]) -> None:
        """Watch these tables, too; if all were watched, watch only these from now on."""
        self._watch.merge(tables)

    @property
    def tables(self) -> frozenset[str] | None:
        """Patterns of the watched tables; ``None`` for all."""
        return self._watch.tables

    @property
    def origin(self) -> str:
        """Origin of the changesets; it changes after a failure of publishing."""
        return self._publication.origin

    def close(self) -> None:
        """Stop watching; repeated calls are harmless."""
        self._watch.close()

    # Events of the watch.

    def prepared(self, session: Session, recording: Recording) -> None:
        """Handle changes before the commit."""
        recording.is_prepared = True
        if self._on_prepare is not None:
            self._on_prepare(session, [each.change for each in recording.pending])

    def reduced(self, session: Session, recording: Recording) -> None:
        """Handle the rollback of a savepoint."""
        self.prepared(session, recording)

    def committing(self, session: Session, recording: Recording) -> None:
        """Do nothing before the commit."""

    def committed(self, session: Session, recording: Recording, changes: list[RowChange]) -> None:
        """Publish the changes; changesets that receivers commit meanwhile come afterwards."""
        transaction = session.info.get(SESSION_ID, "")
        self._committed.append((session, recording, changes, transaction))
        if self._publishing_thread == get_ident():
            return
        # Numbers are assigned in the order of publishing.
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
            # The commit has succeeded, so the error is only logged.
            _log.exception("the changes of a transaction were committed, but not published")
            # Some receivers have its number already, so the next changeset must have another
            # origin.
            self._publication = Publication(kind="sqlalchemy", name=self._name)
            call = self._on_unpublished
        if recording.is_prepared and call is not None:
            try:
                call(session, changes)
            except Exception:
                _log.exception("what was to be done after a commit has failed")

    def rolled_back(self, session: Session, recording: Recording, changes: list[RowChange]) -> None:
        """Report the rollback, if changes were reported before."""
        if recording.is_prepared and self._on_rollback is not None:
            self._on_rollback(session, changes)

    def left_open(self, session: Session, recording: Recording, changes: list[RowChange]) -> None:
        """Report a commit of unknown outcome, if changes were reported before."""
        if not recording.is_prepared:
            return
        tables = sorted({change.name for change in changes})
        _log.warning(
            "the commit of changes of %s has failed, but may be in the database: its changes are"
            " not published. An event store with strict=True publishes them with recover(), and an"
            " outbox does not depend on the answer",
            ", ".join(tables),
        )
        if self._on_unknown is not None:
            self._on_unknown(session, changes)


renamed(
    __name__,
    UnseenChange="UnseenChangeError",
)
