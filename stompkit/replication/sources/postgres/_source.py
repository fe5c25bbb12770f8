"""The publisher: snapshot, then stream, with reconnects."""

from __future__ import annotations

import logging
import time
from contextlib import closing, suppress
from threading import Event, Thread
from typing import Final, Literal

import msgspec
import psycopg

from stompkit.replication.sources.postgres._catalogue import read_tables
from stompkit.replication.sources.postgres._changes import TableChangedError
from stompkit.replication.sources.postgres._connections import (
    Connection,
    Dsn,
    format_lsn,
    parse_lsn,
)
from stompkit.replication.sources.postgres._copying import (
    Copier,
    Progress,
    is_unfinished,
    to_copy,
)
from stompkit.replication.sources.postgres._following import Follower
from stompkit.replication.sources.postgres._preflight import (
    PreflightError,
    UnreadableNamesError,
    check_names,
    check_position,
    check_server,
    check_version,
    make_publication,
    warn_of_generated,
    warn_of_patterns,
)
from stompkit.replication.sources.postgres._published import PublishedTable
from stompkit.replication.sources.postgres._slot import (
    NewSlot,
    Slot,
    create_slot,
    find_slot,
    system_of,
)
from stompkit.replication.sources.postgres._snapshot import published_rows
from stompkit.replication.sources.postgres._survey import OWN, TablesChangedError
from stompkit.replication.sources.publication import Publication, PublicationStoppedError

__all__ = ["PostgresPublisher", "SnapshotMode"]

_log: Final = logging.getLogger(__name__)

#: Errors for which a retry may help. One of them is a name that has just ceased to be UTF-8, which
#: the next session omits or refuses.
_PASSING: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.CharacterNotInRepertoire,
    PreflightError,
)

SnapshotMode = Literal["initial", "never", "only"]

#: Interval in seconds at which a wait checks for a stop.
_LOOK_S: Final = 0.2
#: Initial and maximum wait in seconds before reconnecting.
_DELAY_S: Final = 0.2
_MAX_DELAY_S: Final = 30.0
#: Maximum number of characters of a slot's name before a suffix.
_SLOT_LENGTH: Final = 58


class _StoppedError(Exception):
    """A stop was requested."""


class PostgresPublisher:
    """Publishes the commits of a PostgreSQL database, by its own slot.

    The first run takes a snapshot: existing rows as changes ``read``, in chunks, as of the exact
    log position where the slot begins. The transactions from that position on follow. Nothing is
    locked, omitted or repeated.

    A killed publisher resumes after the last checkpoint. In the stream, the same transactions come
    again, with the same numbers. In the middle of a snapshot, the same state of the database cannot
    be read again: a new snapshot continues after the last key, and the stream still begins at the
    slot's creation. Rows that were changed in between therefore come first with their current
    values, then with older ones, and then with the current ones again. A replica that applies
    everything is consistent in the end, but passes through states that never existed. Such an older
    update may omit an unchanged large value; after a change of its key the replica may miss that
    value. If remaining tables have no key, their rows would be duplicated, so this raises
    OffsetLostError. The numbers of unconfirmed chunks may already be in use: the same number of
    empty changesets comes first.

    A whole transaction is in memory, and so is a chunk: reduce ``chunk_rows`` if rows are large.

    Selected tables may be added or removed after the publisher was stopped, but not after it was
    killed, because unconfirmed transactions could get other numbers.
    """

    def __init__(
        self,
        dsn: str | Dsn,
        publication: Publication,
        *,
        slot: str = "stompkit",
        publication_name: str = "stompkit",
        snapshot: SnapshotMode = "initial",
        announce: bool = False,
        blocking: bool = True,
        heartbeat_s: float = 10.0,
        chunk_rows: int = 1000,
        flush_s: float = 5.0,
        busy_s: float = 10.0,
        all_tables: bool = False,
        stop: Event | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        """Configure; nothing is connected yet. Raises ``ValueError`` for an invalid ``dsn``.

        ``slot`` and ``publication_name`` are the server's; they are created if missing. The
        publication lists the existing selected tables; later tables with a replica identity are
        added to it. With ``all_tables`` it is FOR ALL TABLES, which only a superuser may create.
        The server then refuses UPDATE and DELETE for every table without a key, including later
        ones.

        ``snapshot``: ``initial`` takes one before the stream, once; ``never`` takes none; ``only``
        takes one and ends, without a slot. With ``announce``, the columns of a table are also
        published, as a change ``schema``, when it is seen for the first time, for targets that
        create tables.

        Without ``blocking``, :meth:`run` ends at the position where the log ended when the stream
        began. The checkpoint of an idle database advances every ``heartbeat_s`` seconds. A snapshot
        has ``chunk_rows`` rows in a changeset. ``stop`` is an event that ends :meth:`run`, which
        then waits at most ``flush_s`` seconds for outstanding confirmations. The publisher waits up
        to ``busy_s`` seconds for a slot that another connection reads. The server may not yet have
        noticed the end of a killed process.
        """
        if snapshot not in ("initial", "never", "only"):
            raise ValueError("snapshot is 'initial', 'never' or 'only'")
        if chunk_rows < 1:
            raise ValueError("a chunk has one row at least")
        self._stop = stop = stop or Event()
        self._dsn = dsn if isinstance(dsn, Dsn) else Dsn(dsn)
        self._publication = publication
        self._slot = slot
        self._publication_name = publication_name
        self._snapshot_mode = snapshot
        self._follower = Follower(
            publication,
            slot=slot,
            publication_name=publication_name,
            announce=announce,
            blocking=blocking,
            heartbeat_s=heartbeat_s,
            flush_s=flush_s,
            stop=stop,
            copies=snapshot == "initial",
        )
        self._flush_s = flush_s
        self._busy_s = busy_s
        self._wants = publication.tables.wants
        self._all_tables = all_tables
        self._has_begun = False
        self._making_slot: Connection | None = None
        self._copier = Copier(
            publication,
            publication_name=None if snapshot == "only" else publication_name,
            chunk_rows=chunk_rows,
            announce=announce,
            look=self._look,
            on_progress=on_progress,
        )

    def __repr__(self) -> str:
        """Show the server and the slot, without secrets."""
        return f"<PostgresPublisher of {self._dsn!r}, slot {self._slot}: {self._publication!r}>"

    def stop(self) -> None:
        """Make :meth:`run` return; thread-safe.

        Unconfirmed changesets will be published again.
        """
        self._stop.set()

    def run(self) -> None:
        """Publish until a stop is requested.

        Once a session has succeeded, lost connections are retried. Raises the errors of changeset
        receivers, and

        * :class:`psycopg.OperationalError` if the server is unavailable at the start,
        * PreflightError if the server is not configured for this,
        * OffsetLostError if the server no longer has the log,
        * PgoutputError for unreadable messages,
        * TableLostError for a replicated table that is no longer published.
        """
        ended = Event()
        watcher = Thread(target=self._limit_stop, args=[ended], name="stompkit stop", daemon=True)
        watcher.start()
        try:
            self._run()
        except (_StoppedError, PublicationStoppedError):
            self._flush()
        finally:
            ended.set()
            watcher.join()

    # Inside.

    def _run(self) -> None:
        delay_s = _DELAY_S
        while True:
            published = self._publication.published
            try:
                return self._session()
            except (TableChangedError, TablesChangedError) as changed:
                self._note_changed(changed)
                continue
            except UnreadableNamesError:
                raise
            except _PASSING as error:
                self._look()
                if not self._has_begun:
                    raise
                if self._publication.published > published:
                    delay_s = _DELAY_S
                self._publication.problem = str(error).strip()
                _log.warning(
                    "%s: the stream has broken, another try in %.1f s: %s",
                    self._dsn.server,
                    delay_s,
                    self._publication.problem,
                )
            if self._stop.wait(delay_s):
                raise _StoppedError
            delay_s = min(2 * delay_s, _MAX_DELAY_S)

    def _note_changed(self, changed: TableChangedError | TablesChangedError) -> None:
        """Schedule copies of tables for the next session, before it resumes."""
        publication = self._publication
        if isinstance(changed, TableChangedError):
            _log.warning("%s: %s", self._dsn.server, changed)
        names = [changed.table] if isinstance(changed, TableChangedError) else changed.tables
        state = publication.state
        wanted = list(dict.fromkeys([*to_copy(state), *names]))
        publication.advance(publication.position, {**state, "copy": wanted})
        publication.flush()

    def _copy_again(self, connection: Connection) -> None:
        """Copy replaced tables, as of a log position, while the stream waits."""
        slot = f"{self._slot[:_SLOT_LENGTH]}_copy"
        with closing(self._dsn.connect(for_replication=True)) as maker:
            self._making_slot = maker
            try:
                self._look()
                made = create_slot(maker, slot, with_snapshot=True, is_temporary=True)
            finally:
                self._making_slot = None
            self._copier.copy_again(connection, made.snapshot, made.lsn)

    def _limit_stop(self, ended: Event) -> None:
        """Limit the time that a stop waits for the broker."""
        while not ended.wait(_LOOK_S):
            if self._stop.is_set():
                if (making := self._making_slot) is not None:
                    # Otherwise it waits for the end of other transactions.
                    making.cancel()
                if not ended.wait(self._flush_s):
                    self._publication.stop()
                return

    def _look(self) -> None:
        if self._stop.is_set():
            raise _StoppedError

    def _flush(self) -> None:
        with suppress(TimeoutError, PublicationStoppedError):
            self._publication.flush(self._flush_s)

    def _session(self) -> None:
        """Run one session, until a connection is lost."""
        with closing(self._dsn.connect()) as connection:
            if self._snapshot_mode == "only":
                check_version(connection)
                check_names(connection)
                tables = read_tables(connection).values()
                warn_of_patterns(self._publication.tables, tables)
                warn_of_generated(each for each in tables if self._wants(each.schema, each.name))
                self._has_begun = True
                return self._copier.run(connection, "")
            slot = self._free_slot(connection)
            check_server(
                connection,
                slot=slot,
                publication=self._publication_name,
                wants=self._wants,
                selection=self._publication.tables,
                with_rows=self._snapshot_mode == "initial" and not self._publication.position,
                has_begun=bool(self._publication.position),
            )
            with closing(self._dsn.connect(for_replication=True)) as replication:
                exported = self._begin(connection, replication, slot)
                self._has_begun = True
                self._copier.pass_used_numbers()
                if is_unfinished(self._publication.state) and self._snapshot_mode != "never":
                    self._copier.run(connection, exported)
                if to_copy(self._publication.state):
                    self._copy_again(connection)
                self._publication.problem = ""
                self._follower.run(connection, replication)

    def _free_slot(self, connection: Connection) -> Slot | None:
        """Return the slot when its reader has left it, or after the maximum wait."""
        deadline = time.monotonic() + self._busy_s
        while True:
            slot = find_slot(connection, self._slot)
            if slot is None or slot.active_pid is None or time.monotonic() > deadline:
                return slot
            if self._stop.wait(_LOOK_S):
                raise _StoppedError

    def _begin(self, connection: Connection, replication: Connection, slot: Slot | None) -> str:
        """Create the missing objects and a first checkpoint; return the name of a snapshot."""
        publication = self._publication
        system = system_of(replication)
        state = publication.state
        check_position(
            slot,
            self._slot,
            position=parse_lsn(publication.position) if publication.position else None,
            system=system,
            known_system=state.get("system", ""),
        )
        is_own = make_publication(
            connection, self._publication_name, self._wants, all_tables=self._all_tables
        )
        if publication.position:
            return ""
        snapshot = ""
        if slot is None:
            made = self._make_slot(replication)
            lsn, snapshot = made.lsn, made.snapshot
        else:
            lsn = slot.confirmed_lsn
        state = {"system": system, "tables": {}}
        if is_own:
            state["publication"] = OWN
        if self._snapshot_mode == "never":
            wanted = [
                table
                for table in read_tables(connection).values()
                if self._wants(table.schema, table.name)
            ]
            state["present"] = [table.full_name for table in wanted]
            # From now on, changes to rows that consumers got by other means are published.
            published = published_rows(connection, self._publication_name)
            state["shapes"] = {
                table.full_name: msgspec.to_builtins(
                    PublishedTable(published[table.place].relation(table), table).shape
                )
                for table in wanted
                if table.place in published
            }
        if self._snapshot_mode == "initial":
            state["snapshot"] = {"done": []}
        publication.advance(format_lsn(lsn), state)
        publication.flush()
        return snapshot

    def _make_slot(self, replication: Connection) -> NewSlot:
        _log.info(
            "%s: making the slot %s when running transactions end", self._dsn.server, self._slot
        )
        self._making_slot = replication
        try:
            self._look()
            return create_slot(
                replication, self._slot, with_snapshot=self._snapshot_mode == "initial"
            )
        finally:
            self._making_slot = None
