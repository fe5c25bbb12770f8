"""The transactional outbox: changes are stored in the transaction that makes them.

It records the same changes as :mod:`~stompkit.replication.sources.session`. Before the
outermost commit, they are written to a table of the same database: both are committed, or neither
is. An :class:`~stompkit.replication.sources.relay.OutboxRelay` publishes them, in this process
or in another. Needs the extra ``replication``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, MetaData, Table, insert, update
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import Session

from stompkit._common.lease import database_clock
from stompkit._common.moved import renamed
from stompkit._common.tables import create_missing
from stompkit.replication.model.events import RowChange, Source, encode, make_changeset
from stompkit.replication.sources.outbox_tables import OutboxTables
from stompkit.replication.sources.session import UnseenChangeError
from stompkit.replication.sources.session.recording import Bulk, Recording
from stompkit.replication.sources.session.watch import SessionFactory, Watch

if TYPE_CHECKING:
    # This library is needed only by programs that use asyncio.
    from sqlalchemy.ext.asyncio import AsyncSession

__all__ = ["Outbox", "UnseenChangeError"]


class Outbox:
    """Stores the changes of sessions in a table of the database that they commit to."""

    def __init__(
        self,
        session_factory: SessionFactory,
        tables: Iterable[str] | None = None,
        table_name: str = "stompkit_outbox",
        *,
        bulk: Bulk = "expand",
    ) -> None:
        """Watch sessions, as :class:`~stompkit.replication.sources.session.sqlalchemy_pub` does.

        ``tables`` may be empty to watch none: then only the changes of :meth:`add` are stored.
        Create the tables of the outbox before the first commit, with :meth:`create`. Raises
        TypeError and ValueError, as ``sqlalchemy_pub`` does.
        """
        self._tables = OutboxTables(table_name)
        self._watch = Watch(session_factory, tables, bulk, self)

    def __call__(self, tables: Iterable[str]) -> None:
        """Watch these tables, too; if all are watched, that stays so."""
        self._watch.merge(tables)

    @property
    def tables(self) -> frozenset[str] | None:
        """Patterns of the watched tables; ``None`` for all."""
        return self._watch.tables

    @property
    def metadata(self) -> MetaData:
        """Tables of the outbox, for programs that create tables by migrations."""
        return self._tables.metadata

    @property
    def table(self) -> Table:
        """Table of the changesets."""
        return self._tables.rows

    def create(self, bind: Engine | Connection) -> None:
        """Create the missing tables of the outbox."""
        create_missing(bind, self._tables.metadata.sorted_tables)

    def add(self, session: Session | AsyncSession, changes: Iterable[RowChange]) -> None:
        """Store changes that the program specifies, in the session's transaction.

        They come after earlier flushes. Raises :class:`~sqlalchemy.exc.InvalidRequestError` for a
        session that is not watched; the session of an ``AsyncSession`` must have a connection.
        """
        # An AsyncSession wraps a synchronous session.
        inner: Session = session if isinstance(session, Session) else session.sync_session
        if inner is session:
            inner.flush()
            inner.connection()
        recording = self._watch.recording(inner)
        if recording is None or not recording.connections:
            raise InvalidRequestError("the session is in no transaction that this outbox watches")
        recording.add(changes, recording.connections[0].engine)

    def close(self) -> None:
        """Stop watching; repeated calls are harmless."""
        self._watch.close()

    # Events of the watch.

    def prepared(self, session: Session, recording: Recording) -> None:
        """Handle prepared changes; during a commit, the row is written again."""
        if recording.is_committing:
            self._write(recording)

    def reduced(self, session: Session, recording: Recording) -> None:
        """Handle the rollback of a savepoint, whose changes were not written yet."""

    def committing(self, session: Session, recording: Recording) -> None:
        """Flush, and write the changes."""
        session.flush()
        self._write(recording)
        recording.is_committing = True

    def committed(self, session: Session, recording: Recording, changes: list[RowChange]) -> None:
        """Do nothing: the relay continues."""

    def rolled_back(self, session: Session, recording: Recording, changes: list[RowChange]) -> None:
        """Do nothing: the database has rolled back the row, too."""

    def left_open(self, session: Session, recording: Recording, changes: list[RowChange]) -> None:
        """Do nothing: the row is in the database if the changes are."""

    def _write(self, recording: Recording) -> None:
        """Write a row for each changed database."""
        changes: dict[Engine, list[RowChange]] = {}
        for each in recording.pending:
            assert each.engine is not None
            changes.setdefault(each.engine, []).append(each.change)
        with recording.quietly():
            for connection in recording.connections:
                found = changes.get(connection.engine)
                if found:
                    self._write_row(recording, connection, found)

    def _write_row(
        self, recording: Recording, connection: Connection, changes: list[RowChange]
    ) -> None:
        table = self._tables.rows
        # The relay sets the origin and the sequence number.
        source = Source(kind="outbox", time=datetime.now(UTC))
        body = encode(make_changeset("", 0, changes, source, timestamp=source.time))
        values = {"size": len(body), "body": body}
        row = recording.outbox_rows.get(connection.engine)
        if row is not None:
            again = update(table).where(table.c.id == row).values(values)
            if connection.execute(again).rowcount:
                return
        values["stored_at"] = database_clock(connection.dialect.name)
        result = connection.execute(insert(table).values(values))
        key = result.inserted_primary_key
        assert key is not None
        recording.outbox_rows[connection.engine] = key[0]


renamed(
    __name__,
    UnseenChange="UnseenChangeError",
)
