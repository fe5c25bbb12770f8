"""The publisher: reads, groups and publishes, and reconnects after a lost connection."""

from __future__ import annotations

import logging
import time as clocks
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Event, Timer
from typing import Any, Final, Literal

import pymysql
from pymysql.connections import Connection
from pymysqlreplication.event import HeartbeatLogEvent

from stompkit._common.retry import Backoff
from stompkit.replication.model.tables import Tables
from stompkit.replication.model.values import NoDate
from stompkit.replication.sources.mysql._binlog.charsets import collations, decoders
from stompkit.replication.sources.mysql._binlog.moments import Zero
from stompkit.replication.sources.mysql._binlog.rows import Decoding
from stompkit.replication.sources.mysql._checkpoints import Checkpoints
from stompkit.replication.sources.mysql._dsn import Dsn
from stompkit.replication.sources.mysql._errors import (
    MysqlError,
    PreflightError,
)
from stompkit.replication.sources.mysql._grouping import OnProblem, Transaction
from stompkit.replication.sources.mysql._positions import Position
from stompkit.replication.sources.mysql._preflight import (
    SYSTEM_SCHEMAS,
    Findings,
    examine,
    missing_tables,
    table_names,
)
from stompkit.replication.sources.mysql._reader import DisconnectedError, problem_of
from stompkit.replication.sources.mysql._reading import LogReading, random_server_id
from stompkit.replication.sources.mysql._sending import (
    SendingFailedError,
    meepo_payload,
    send_position,
    sending,
)
from stompkit.replication.sources.mysql._server import (
    Server,
    Start,
    begin_position,
    check_position,
    read_server,
)
from stompkit.replication.sources.mysql._snapshot import (
    Snapshot,
    SnapshotStoppedError,
    copied_of,
)
from stompkit.replication.sources.mysql._tables.catalogue import Catalogue
from stompkit.replication.sources.mysql._tables.definitions import Definitions
from stompkit.replication.sources.offsets import MemoryOffsets
from stompkit.replication.sources.publication import Publication, PublicationStoppedError

__all__ = ["MysqlPublisher", "SnapshotMode"]

_log: Final = logging.getLogger(__name__)

#: Snapshot mode: no existing rows; existing rows first, if there is no checkpoint; or only existing
#: rows.
SnapshotMode = Literal["never", "initial", "only"]

#: Initial and maximum wait in seconds before reconnecting.
_RETRY_S: Final = (0.1, 10.0)
#: Time in seconds that a stop waits for outstanding confirmations.
_FLUSH_S: Final = 5.0


#: Conversions of invalid dates, such as 0000-00-00.
_ZEROS: Final[Mapping[str, Zero]] = {"exact": NoDate, "text": str, "null": lambda text: None}


class MysqlPublisher:
    """Publishes the changes of a MariaDB or MySQL server from its binary log."""

    def __init__(
        self,
        mysql_dsn: str,
        tables: Tables | Iterable[str] | None = None,
        blocking: bool = False,  # noqa: FBT001, FBT002 - as Meepo has it
        *,
        publication: Publication | None = None,
        server_id: int | None = None,
        snapshot: SnapshotMode = "never",
        announce: bool = False,
        start: Start | None = None,
        same_server: bool = True,
        keys: Mapping[str, Sequence[str]] | None = None,
        zero_dates: Literal["exact", "null", "text"] = "exact",
        on_problem: OnProblem = "stop",
        heartbeat_s: float = 1.0,
        chunk_rows: int = 1000,
        needs_tables: bool = False,
        needs_database: str = "",
    ) -> None:
        """Configure; nothing is connected before :meth:`run`.

        ``mysql_dsn``: see :meth:`Dsn.parse`. ``tables``: names, or patterns, of tables; a
        ``publication`` has its own, so give one or the other. ``blocking``: wait for more at the
        end of the log, instead of returning. ``server_id``: a number that no other reader of the
        server has; random by default. ``announce``: publish a table's columns, as a change
        ``schema``, also when the table is seen for the first time, for targets that create tables.
        ``start``: start position without a checkpoint; by default, as in Meepo, the current file,
        but with a ``publication`` its end. ``same_server=False`` resumes by GTID at another server
        of the same replication. ``keys``: columns to use as the key, by ``schema.table`` or
        ``table``. ``zero_dates``: invalid dates as such, as NULL or as text. ``on_problem="skip"``
        skips unreadable events, with an error in the log. ``heartbeat_s``: interval in seconds of
        the server's heartbeats; :meth:`stop` takes about that long. ``chunk_rows``: number of
        snapshot rows in a changeset. With ``needs_tables``, or ``needs_database``, the first run
        fails if no selected table, or no such database, exists.

        Raises ``ValueError``.
        """
        self._dsn = Dsn.parse(mysql_dsn)
        if publication is not None and tables is not None:
            raise ValueError("tables are those of the publication: give one or the other")
        if isinstance(tables, str):
            raise ValueError(f"tables is a list of names, not one text: [{tables!r}]")
        if server_id is not None and not 0 < server_id < 2**32:
            raise ValueError("server_id is a number from 1 to 4294967295")
        if start is None:
            start = "file" if publication is None else "now"
        self._publication = publication or Publication(
            MemoryOffsets(),
            kind="mysql",
            server=self._dsn.server,
            tables=tables if isinstance(tables, Tables) else Tables(include=tables or ()),
            raw=meepo_payload,
        )
        self._checkpoints = Checkpoints(
            self._publication, self._dsn.server, can_copy=snapshot == "initial"
        )
        self._tables = self._publication.tables
        self._blocking = blocking
        self._server_id = server_id or random_server_id()
        self._snapshot: SnapshotMode = snapshot
        self._announce = announce
        self._start: Start = start
        self._same_server = same_server
        self._keys = dict(keys or {})
        self._zero = _ZEROS[zero_dates]
        self._on_problem: OnProblem = on_problem
        self._heartbeat_s = heartbeat_s
        self._chunk_rows = chunk_rows
        self._needs_tables = needs_tables
        self._needs_database = needs_database
        self._stop = Event()
        self._limit: Timer | None = None
        self._lag_s: float | None = None
        self._skipped = 0

    def __repr__(self) -> str:
        """Show the server; no secrets."""
        return f"<MysqlPublisher of {self._dsn.server}>"

    @property
    def publication(self) -> Publication:
        """The publication that sends the changesets."""
        return self._publication

    @property
    def server_id(self) -> int:
        """Its number among the server's readers."""
        return self._server_id

    @property
    def lag_s(self) -> float | None:
        """Age in seconds of the newest transaction when it was read; the log has whole seconds.

        0 when the server has reported no new events, ``None`` before the first transaction.
        """
        return self._lag_s

    @property
    def progress(self) -> tuple[int, int] | None:
        """Progress of an incomplete snapshot: published rows, and the estimated total."""
        snapshot = self._publication.state.get("snapshot")
        return (snapshot["rows"], snapshot["expected"]) if snapshot else None

    @property
    def skipped(self) -> int:
        """Number of events that were skipped as unreadable (``on_problem="skip"``)."""
        return self._skipped

    def stop(self) -> None:
        """Make :meth:`run` return; thread-safe, and does not block.

        :meth:`run` still waits some seconds for outstanding confirmations.
        """
        self._stop.set()
        self._limit = Timer(_FLUSH_S, self._publication.stop)
        self._limit.daemon = True
        self._limit.start()

    # Running.

    def preflight(self) -> Findings:
        """Check the configuration of the server; raises :class:`MysqlError`."""
        with self._connect() as connection:
            return self._examine(connection, read_server(connection))

    def run(self) -> None:
        """Read until the log ends, or until :meth:`stop`; blocks.

        Raises :class:`PreflightError`, with every reason; :class:`OffsetLostError`;
        :class:`StreamError`; and the errors of :meth:`Publication.publish`. After a lost
        connection it reconnects instead of raising.
        """
        with self._connect() as connection:
            server = read_server(connection)
            findings = self._examine(connection, server)
            for warning in findings.warnings:
                _log.warning("%s: %s", self._dsn.server, warning)
            if findings.problems:
                raise PreflightError(findings.problems)
            charsets = collations(connection)
        catalogue = Catalogue(
            self._dsn.connect,
            is_mariadb=server.is_mariadb,
            folds_names=server.variables.get("lower_case_table_names", "0") != "0",
        )
        decode = decoders(charsets, catalogue.decoder)
        reading = LogReading(
            dsn=self._dsn,
            is_mariadb=server.is_mariadb,
            catalogue=catalogue,
            decoding=Decoding(decode, self._zero, self._keys),
            wants=self._wants,
            announce=self._announce,
            on_problem=self._on_problem,
            heartbeat_s=self._heartbeat_s,
        )
        self._definitions = Definitions(self._publication.state.get("ddl"))
        self._prepared = reading.prepared(self._publication.state.get("xa", {}))
        self._checkpoints.open(self._prepared, self._definitions)
        try:
            with suppress(PublicationStoppedError, SnapshotStoppedError):
                self._read(server, reading)
                self._checkpoints.store()
            with suppress(PublicationStoppedError):
                self._publication.flush()
        except SendingFailedError as failed:
            raise failed.error from None
        finally:
            catalogue.close()
            if self._limit is not None:
                self._limit.cancel()

    def _read(self, server: Server, reading: LogReading) -> None:
        backoff = Backoff(*_RETRY_S)
        while not self._stop.is_set():
            before = self._publication.sequence, self._checkpoints.pending
            try:
                position = self._prepare(server, reading)
                if position is None or self._stream(position, reading):
                    return
            except DisconnectedError as lost:
                if (self._publication.sequence, self._checkpoints.pending) != before:
                    backoff.reset()
                wait_s = backoff.fail()
                self._publication.problem = str(lost)
                _log.warning(
                    "%s: %s; trying again in %g s", self._dsn.server, lost, round(wait_s, 1)
                )
                self._stop.wait(wait_s)

    def _prepare(self, server: Server, reading: LogReading) -> Position | None:
        """Take the snapshot if due; return the start position in the log, or ``None`` if done."""
        publication = self._publication
        if self._checkpoints.has_used_numbers:
            self._checkpoints.pass_used_numbers()
        try:
            if self._snapshot != "never":
                snapshot = Snapshot(
                    self._dsn,
                    server,
                    reading.catalogue,
                    publication,
                    wants=self._wants,
                    keys=self._keys,
                    zero=self._zero,
                    chunk_rows=self._chunk_rows,
                    announce=self._announce,
                    stop=self._stop,
                    definitions=self._definitions,
                    dated=reading.dated,
                )
                if snapshot.is_due:
                    snapshot.take()
                if self._snapshot == "only":
                    return None
            with self._dsn.connect() as connection:
                now = read_server(connection)
                if self._checkpoints.pending is not None or publication.position:
                    position = self._checkpoints.pending or Position.decode(publication.position)
                    return check_position(connection, now, position, same_server=self._same_server)
                begin = reading.dated(begin_position(connection, now, self._start))
                self._checkpoints.store_later(begin)
                return begin
        except (pymysql.Error, OSError) as error:
            raise problem_of(error, self._dsn.server) from None

    def _stream(self, position: Position, reading: LogReading) -> bool:
        """Read the log; return True if there is nothing more to do."""
        grouping = reading.grouping(
            position,
            self._prepared,
            self._definitions,
            copied_of(self._publication.state),
            can_copy=self._snapshot == "initial",
        )
        stream = reading.stream(position, self._server_id, is_blocking=self._blocking)
        skipped = self._skipped
        self._checkpoints.begin_stream()
        try:
            for event in stream.events():
                self._publication.problem = ""
                if self._stop.is_set():
                    return True
                if isinstance(event, HeartbeatLogEvent):
                    if not grouping.is_open:
                        self._lag_s = 0.0
                        self._checkpoints.store_later(grouping.at(event.packet.log_pos))
                        self._checkpoints.store()
                        with sending:
                            self._publication.settle()
                    continue
                transaction = grouping.feed(event)
                self._skipped = skipped + grouping.skipped
                if transaction is not None:
                    self._publish(transaction)
                    if transaction.copies and self._checkpoints.begin_copy(transaction):
                        return False
            return True
        except (pymysql.Error, OSError) as error:
            raise problem_of(error, str(position)) from None
        finally:
            stream.close()

    # Publishing.

    def _publish(self, transaction: Transaction) -> None:
        position = transaction.position
        if transaction.time is not None:
            self._lag_s = max(0.0, clocks.time() - transaction.time.timestamp())
        if transaction.changes:
            with sending:
                self._publication.publish(
                    transaction.changes,
                    position=position.encode(),
                    transaction=transaction.gtid,
                    time=transaction.time,
                    state=self._checkpoints.state(),
                )
            self._checkpoints.pending = None
        else:
            self._checkpoints.store_later(position)
        send_position(position, transaction.gtid)

    # Inside.

    def _wants(self, schema: str, table: str) -> bool:
        return schema not in SYSTEM_SCHEMAS and self._tables.wants(schema, table)

    def _connect(self) -> Connection[Any]:
        try:
            return self._dsn.connect()
        except (pymysql.Error, OSError) as error:
            raise MysqlError(
                f"{self._dsn.server} refuses the connection: {error}. Check the URL of the source"
            ) from None

    def _examine(self, connection: Connection[Any], server: Server) -> Findings:
        found = examine(
            connection,
            server,
            wants=self._wants,
            server_id=self._server_id,
            with_snapshot=self._snapshot != "never",
        )
        names = table_names(connection, with_columns=self._tables.has_column_rules)
        found = replace(found, warnings=(*found.warnings, *self._tables.unmatched(names)))
        if self._publication.position:
            return found
        missing = missing_tables(
            connection,
            names,
            wants=self._wants,
            needs_tables=self._needs_tables,
            needs_database=self._needs_database,
        )
        return replace(found, problems=(*found.problems, *missing))
