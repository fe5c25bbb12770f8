"""Publishing of a slot's stream, transaction by transaction."""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Event
from typing import Any, Final

import msgspec

from stompkit.replication.sources.postgres._catalogue import CatalogueTable, read_tables
from stompkit.replication.sources.postgres._changes import Assembler, Transaction
from stompkit.replication.sources.postgres._connections import (
    Connection,
    format_lsn,
    parse_lsn,
)
from stompkit.replication.sources.postgres._preflight import check_names
from stompkit.replication.sources.postgres._shapes import stored
from stompkit.replication.sources.postgres._stream import Keepalive, Payload, Stream
from stompkit.replication.sources.postgres._survey import Survey
from stompkit.replication.sources.postgres.pgoutput import Relation
from stompkit.replication.sources.publication import Publication, PublicationStoppedError

__all__ = ["Follower"]

#: Interval in seconds at which a wait checks for a stop.
_LOOK_S: Final = 0.2
#: Interval in seconds of queries whether the end of the log is reached.
_ASK_S: Final = 0.02
#: Maximum interval in seconds between status updates to the server.
_TELL_S: Final = 1.0


class _LastLsn:
    """The last parsed log position, since the same text is parsed again and again."""

    def __init__(self) -> None:
        self._last = ("", 0)

    def lsn_of(self, text: str) -> int:
        """Return the log position for its text; 0 for an empty one."""
        known, lsn = self._last
        if text != known:
            lsn = parse_lsn(text)
            self._last = (text, lsn)
        return lsn


class Follower:
    """Publishes the transactions of a slot."""

    def __init__(
        self,
        publication: Publication,
        *,
        slot: str,
        publication_name: str,
        announce: bool,
        blocking: bool,
        heartbeat_s: float,
        flush_s: float,
        stop: Event,
        copies: bool,
    ) -> None:
        """Configure; the arguments are those of :class:`PostgresPublisher`."""
        self._publication = publication
        self._slot = slot
        self._publication_name = publication_name
        self._announce = announce
        self._blocking = blocking
        self._heartbeat_s = heartbeat_s
        self._flush_s = flush_s
        self._stop = stop
        self._copies = copies
        self._published = _LastLsn()
        self._confirmed = _LastLsn()

    def run(self, connection: Connection, replication: Connection) -> None:
        """Continue after the publication's position, until the stop or the end.

        Queries the catalogue over ``connection``, and consumes ``replication``. Raises
        :class:`psycopg.Error`, PgoutputError, UnreadableNamesError, TableChangedError and
        TablesChangedError if tables have to be copied again first, and errors of publishing.
        """
        publication = self._publication

        def look_up(relation: Relation) -> CatalogueTable | None:
            if not relation.is_readable:
                check_names(connection, self._publication_name)
            return read_tables(connection, [relation.oid]).get(relation.oid)

        assembler = Assembler(
            publication.tables.wants,
            look_up,
            publication.state.get("tables", {}),
            announce=self._announce,
            shapes=stored(publication.state.get("shapes", {})),
            copied={
                name: parse_lsn(lsn) for name, lsn in publication.state.get("copied", {}).items()
            },
            copies=self._copies,
        )
        survey = Survey(connection, self._publication_name, publication, follows=self._copies)
        end = None if self._blocking else _end_of_log(connection)
        stream = Stream(
            replication,
            slot=self._slot,
            publication=self._publication_name,
            begin_lsn=parse_lsn(publication.position),
            confirmed=self._confirmed_lsn,
            interval_s=min(_TELL_S, self._heartbeat_s, _sender_timeout_s(connection) / 4),
        )
        try:
            self._read(stream, assembler, end, survey)
            with suppress(TimeoutError, PublicationStoppedError):
                publication.flush(self._flush_s if self._blocking else None)
        finally:
            stream.close()

    def _read(self, stream: Stream, assembler: Assembler, end: int | None, survey: Survey) -> None:
        survey.look()
        quiet_since = time.monotonic()
        patience_s = _LOOK_S if end is None else _ASK_S
        while not self._stop.is_set():
            message = stream.read(patience_s)
            if isinstance(message, Payload):
                transaction = assembler.feed(message.octets)
                if transaction is None:
                    continue
                # Changes that the stream does not contain come before its changes.
                survey.look()
                self._take(transaction)
                if end is not None and transaction.end_lsn >= end:
                    return
                continue
            match message:
                case Keepalive(lsn, is_urgent) if assembler.is_between:
                    now = time.monotonic()
                    is_end = end is not None and lsn >= end
                    if is_urgent or is_end or now - quiet_since >= self._heartbeat_s:
                        quiet_since = now
                        self._pass(lsn)
                    if is_end:
                        return
                    survey.look()
                    self._settle(stream)
                case _:
                    if assembler.is_between:
                        survey.look()
                    self._settle(stream)
                    if time.monotonic() - quiet_since >= self._heartbeat_s or end is not None:
                        # The server reports its position by itself only when it suspects a dead
                        # client.
                        stream.confirm(ask=True)

    def _take(self, transaction: Transaction) -> None:
        publication = self._publication
        if transaction.end_lsn <= self._published_lsn():
            return
        position = format_lsn(transaction.end_lsn)
        state: dict[str, Any] | None = None
        if transaction.digests is not None:
            state = {**publication.state, "tables": transaction.digests}
        if transaction.shapes is not None:
            shapes = {
                name: msgspec.to_builtins(shape) for name, shape in transaction.shapes.items()
            }
            state = {**(state or publication.state), "shapes": shapes}
        if transaction.changes:
            publication.publish(
                transaction.changes,
                position=position,
                transaction=str(transaction.xid),
                time=transaction.time,
                state=state,
            )
        else:
            publication.advance(position, state)

    def _pass(self, lsn: int) -> None:
        """Record that no selected changes exist up to a position."""
        if lsn > self._published_lsn():
            self._publication.advance(format_lsn(lsn))

    def _settle(self, stream: Stream) -> None:
        """Store new confirmations, and report them to the server."""
        publication = self._publication
        if publication.position != publication.confirmed_position:
            with suppress(TimeoutError):
                publication.flush(0)
        stream.confirm()

    def _published_lsn(self) -> int:
        return self._published.lsn_of(self._publication.position)

    def _confirmed_lsn(self) -> int:
        return self._confirmed.lsn_of(self._publication.confirmed_position)


def _end_of_log(connection: Connection) -> int:
    row = connection.execute(b"SELECT pg_current_wal_flush_lsn()").fetchone()
    assert row is not None
    return parse_lsn(row[0])


def _sender_timeout_s(connection: Connection) -> float:
    """Return the server's timeout for clients in seconds; infinite if disabled."""
    query = b"SELECT setting::int FROM pg_settings WHERE name = 'wal_sender_timeout'"
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0] / 1000 if row[0] else float("inf")
