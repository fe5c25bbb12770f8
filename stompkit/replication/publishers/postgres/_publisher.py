"""The publisher: snapshot, then stream, over connections that may break."""

from __future__ import annotations

import logging
import time
from contextlib import closing, suppress
from threading import Event, Thread
from typing import Final, Literal

import msgspec
import psycopg

from stompkit.replication.publication import Publication, PublicationStopped
from stompkit.replication.publishers.postgres._catalogue import read_tables
from stompkit.replication.publishers.postgres._changes import PublishedTable, TableChanged
from stompkit.replication.publishers.postgres._connections import (
    Connection,
    Dsn,
    format_lsn,
    parse_lsn,
)
from stompkit.replication.publishers.postgres._copying import (
    Copier,
    Progress,
    is_unfinished,
    to_copy,
)
from stompkit.replication.publishers.postgres._following import Follower
from stompkit.replication.publishers.postgres._preflight import (
    PreflightProblem,
    UnreadableNames,
    check_names,
    check_position,
    check_server,
    check_version,
    make_publication,
    tell_generated,
)
from stompkit.replication.publishers.postgres._slot import (
    NewSlot,
    Slot,
    create_slot,
    find_slot,
    system_of,
)
from stompkit.replication.publishers.postgres._snapshot import published_rows
from stompkit.replication.publishers.postgres._survey import OWN, TablesChanged

__all__ = ["PostgresPublisher", "SnapshotMode"]

_log: Final = logging.getLogger(__name__)

#: What another try is for: among it a name that is not UTF-8 any more, at this moment, which the
#: next session leaves out or refuses.
_PASSING: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.CharacterNotInRepertoire,
    PreflightProblem,
)

SnapshotMode = Literal["initial", "never", "only"]

#: How often a wait looks whether it is to end, in seconds.
_LOOK_S: Final = 0.2
#: The first and the longest wait before connecting anew, in seconds.
_DELAY_S: Final = 0.2
_MAX_DELAY_S: Final = 30.0
#: How many characters of a slot's name are left where something is put behind it.
_SLOT_LENGTH: Final = 58


class _Stopped(Exception):
    """Somebody has said stop."""


class PostgresPublisher:
    """Publishes what is committed in a database of PostgreSQL, by a slot of its own.

    What is there when it is run first is a snapshot: rows as changes ``read``, in chunks, as of the
    very place in the log where the slot begins. Then come the transactions from that place on.
    Nothing is locked, nothing is left out, nothing comes twice.

    A publisher that is killed goes on behind the last checkpoint. For the stream that is all: the
    same transactions come again, with the same numbers. In the middle of a snapshot it can't see
    the same state of the database again: it goes on behind the last key, in a new snapshot, and the
    stream still begins where the slot was made. So rows that were changed in between come first as
    they are now, then as they were, then as they are: a replica that applies all that is told ends
    right, and passes through states that never were. An update that leaves out an unchanged large
    value does so then, too, and after a change of its key the replica may miss that value. Where
    tables without a key are left, whose rows would be there twice, that is OffsetLost. Chunks that
    nobody had confirmed are numbers that were used: so many empty changesets come first.

    A transaction is in memory as a whole, and so is a chunk: give fewer ``chunk_rows`` where rows
    are large.

    Tables may be added to what is wanted, or taken from it, when the publisher was stopped, not
    after it was killed: transactions that were not confirmed could get other numbers.
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
        """Connect to nothing yet. Raises ``ValueError`` for a ``dsn`` that is none.

        ``slot`` and ``publication_name`` are those of the server; they are made where they are
        missing. The publication names the tables that are there and wanted; later ones that have
        something that identifies their rows are added to it. With ``all_tables`` it is FOR ALL
        TABLES, which only a superuser may make: the server then refuses UPDATE and DELETE of every
        table without a key that anybody makes later.

        ``snapshot``: ``initial`` takes one before the stream, once; ``never`` takes none; ``only``
        takes one and ends, without a slot. With ``announce`` the columns of a table are told, as a
        change ``schema``, when it is seen for the first time, too: for targets that make tables.

        Without ``blocking``, :meth:`run` ends where the log ended when the stream began. The
        checkpoint of a quiet database moves on every ``heartbeat_s`` seconds. A snapshot has
        ``chunk_rows`` rows in a changeset. ``stop`` is an event that ends :meth:`run`, which then
        waits ``flush_s`` seconds at most for confirmations that are still owed. A slot that another
        connection reads is waited for ``busy_s`` seconds, since the server may not yet have seen
        that somebody was killed.
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
        """From where to where, without secrets."""
        return f"<PostgresPublisher of {self._dsn!r}, slot {self._slot}: {self._publication!r}>"

    def stop(self) -> None:
        """Have :meth:`run` return, in any thread.

        What is not confirmed then will come again.
        """
        self._stop.set()

    def run(self) -> None:
        """Publish until somebody says stop.

        A server that goes away is waited for, once all was well. Raises
        :class:`psycopg.OperationalError` where it is not there to begin with, PreflightProblem
        where it is not set up for this, OffsetLost where it does not have the log any more,
        PgoutputProblem for what can't be read, TableLost for a table that was replicated and is not
        published any more, and what a receiver of changesets raises.
        """
        ended = Event()
        watcher = Thread(target=self._limit_stop, args=[ended], name="stompkit stop", daemon=True)
        watcher.start()
        try:
            self._run()
        except (_Stopped, PublicationStopped):
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
            except (TableChanged, TablesChanged) as changed:
                self._note_changed(changed)
                continue
            except UnreadableNames:
                raise
            except _PASSING as error:
                self._look()
                if not self._has_begun:
                    raise
                if self._publication.published > published:
                    delay_s = _DELAY_S
                _log.warning(
                    "%s: the stream has broken, another try in %.1f s: %s",
                    self._dsn.server,
                    delay_s,
                    str(error).strip(),
                )
            if self._stop.wait(delay_s):
                raise _Stopped
            delay_s = min(2 * delay_s, _MAX_DELAY_S)

    def _note_changed(self, changed: TableChanged | TablesChanged) -> None:
        """Have the next session copy tables before it reads on."""
        publication = self._publication
        if isinstance(changed, TableChanged):
            _log.warning("%s: %s", self._dsn.server, changed)
        names = [changed.table] if isinstance(changed, TableChanged) else changed.tables
        state = publication.state
        wanted = list(dict.fromkeys([*to_copy(state), *names]))
        publication.advance(publication.position, {**state, "copy": wanted})
        publication.flush()

    def _copy_again(self, connection: Connection) -> None:
        """Copy tables that were replaced, as of a place in the log, while the stream waits."""
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
        """Let a stop wait for the broker, but not for ever."""
        while not ended.wait(_LOOK_S):
            if self._stop.is_set():
                if (making := self._making_slot) is not None:
                    # Otherwise it waits for transactions of anybody to end.
                    making.cancel()
                if not ended.wait(self._flush_s):
                    self._publication.stop()
                return

    def _look(self) -> None:
        if self._stop.is_set():
            raise _Stopped

    def _flush(self) -> None:
        with suppress(TimeoutError, PublicationStopped):
            self._publication.flush(self._flush_s)

    def _session(self) -> None:
        """All that is done while the connections last."""
        with closing(self._dsn.connect()) as connection:
            if self._snapshot_mode == "only":
                check_version(connection)
                check_names(connection)
                tables = read_tables(connection).values()
                tell_generated(each for each in tables if self._wants(each.schema, each.name))
                self._has_begun = True
                return self._copier.run(connection, "")
            slot = self._free_slot(connection)
            check_server(
                connection,
                slot=slot,
                publication=self._publication_name,
                wants=self._wants,
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
                self._follower.run(connection, replication)

    def _free_slot(self, connection: Connection) -> Slot | None:
        """The slot, when whoever had it has left it, or has been waited for long enough."""
        deadline = time.monotonic() + self._busy_s
        while True:
            slot = find_slot(connection, self._slot)
            if slot is None or slot.active_pid is None or time.monotonic() > deadline:
                return slot
            if self._stop.wait(_LOOK_S):
                raise _Stopped

    def _begin(self, connection: Connection, replication: Connection, slot: Slot | None) -> str:
        """Make what is missing, and have a first checkpoint; gives the name of a snapshot."""
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
            # What becomes of rows that consumers have by other means is told from now on.
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
