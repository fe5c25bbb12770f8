"""The stream of a slot: messages from the server, and status updates to it.

The formats are those of "Streaming Replication Protocol" in PostgreSQL's documentation.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from threading import Event, Lock, Thread
from typing import Final

import msgspec
import psycopg
from psycopg.pq import ExecStatus
from psycopg.sql import SQL, Identifier, Literal

from stompkit.replication.sources.postgres._connections import (
    Connection,
    format_lsn,
    is_unchecked,
)

__all__ = ["Keepalive", "Payload", "Stream"]

#: ``XLogData``: its start position, the end position of the server's log, and its clock.
_PAYLOAD: Final = struct.Struct("!cQQq")
_PAYLOAD_TYPE: Final = ord("w")
#: Primary keepalive: the server's position, its clock, and its request for an answer.
_KEEPALIVE: Final = struct.Struct("!cQqB")
#: Standby status update: positions written, flushed and applied, the clock, and a request for an
#: answer.
_STATUS: Final = struct.Struct("!cQQQqB")
#: Start of the server's clock, the year 2000, in seconds since 1970.
_EPOCH_S: Final = 946_684_800


class Payload(msgspec.Struct, frozen=True):
    """A message of the plug-in."""

    octets: bytes


class Keepalive(msgspec.Struct, frozen=True):
    """All commits before ``lsn`` have been sent."""

    lsn: int
    #: True if the server requests a status update. It also does so before a shutdown, which waits
    #: until everything is flushed.
    is_urgent: bool


class Stream:
    """The messages of a slot, from a log position on.

    A separate thread reports the confirmed position to the server, also while :meth:`read` is not
    called. Otherwise the server would consider a slow reader dead.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        slot: str,
        publication: str,
        begin_lsn: int,
        confirmed: Callable[[], int],
        interval_s: float,
    ) -> None:
        """Start at ``begin_lsn``, or at the slot's position if that is later; 0 for the latter.

        The result of ``confirmed()`` is reported to the server every ``interval_s`` seconds, and by
        :meth:`confirm`. The connection is for replication, and is closed by :meth:`close`. Raises
        :class:`psycopg.Error`.
        """
        self._connection = connection
        self._pgconn = connection.pgconn
        self._confirmed = confirmed
        self._reported = 0
        self._lock = Lock()
        self._closing = Event()
        # The publication's name is quoted twice: in a list of names, which is a text.
        command = SQL("START_REPLICATION SLOT {} LOGICAL {} ({} '1', {} {})").format(
            Identifier(slot),
            SQL(format_lsn(begin_lsn)),
            Identifier("proto_version"),
            Identifier("publication_names"),
            Literal(Identifier(publication).as_string(connection)),
        )
        octets = command.as_bytes(connection)
        if is_unchecked(connection):
            connection.execute(b"SET client_encoding = SQL_ASCII")
        result = self._pgconn.exec_(octets)
        if result.status != ExecStatus.COPY_BOTH:
            raise psycopg.errors.error_from_result(result)
        self._selector = DefaultSelector()
        self._selector.register(self._pgconn.socket, EVENT_READ)
        self._interval_s = interval_s
        self._pump = Thread(target=self._tell_often, name=f"stompkit {slot}", daemon=True)
        self._pump.start()

    def read(self, timeout_s: float) -> Payload | Keepalive | None:
        """Return the next message; ``None`` after the timeout. Raises :class:`psycopg.Error`."""
        found = self._next()
        if found is None:
            self._selector.select(timeout_s)
            with self._lock:
                self._pgconn.consume_input()
            found = self._next()
        return found

    def confirm(self, *, ask: bool = False) -> None:
        """Report the confirmed position to the server, if it has changed.

        With ``ask``, report it anyway, and request a :class:`Keepalive`. Raises
        :class:`psycopg.Error`.
        """
        if ask or self._confirmed() > self._reported:
            self._report(ask=ask)

    def close(self) -> None:
        """Report the confirmed position a last time, and close."""
        self._closing.set()
        self._pump.join()
        self._selector.close()
        # If the connection is lost, there is nothing to report.
        with suppress(psycopg.Error), self._lock:
            self._report_locked(ask=False)
            self._pgconn.put_copy_end()
            self._pgconn.flush()
        self._connection.close()

    # Inside.

    def _next(self) -> Payload | Keepalive | None:
        with self._lock:
            length, view = self._pgconn.get_copy_data(1)
        if length == 0:
            return None
        if length < 0:
            raise self._ended()
        if length >= _PAYLOAD.size and view[0] == _PAYLOAD_TYPE:
            return Payload(bytes(view[_PAYLOAD.size :]))
        octets = bytes(view)
        if octets[:1] == b"k" and length == _KEEPALIVE.size:
            _, lsn, _, wants_answer = _KEEPALIVE.unpack(octets)
            return Keepalive(lsn, bool(wants_answer))
        raise psycopg.DataError(f"{octets[:1]!r} begins no message of a stream for replication")

    def _ended(self) -> psycopg.Error:
        with self._lock:
            result = self._pgconn.get_result()
            if result is not None and result.status == ExecStatus.FATAL_ERROR:
                return psycopg.errors.error_from_result(result)
        return psycopg.OperationalError("the server has ended the stream")

    def _tell_often(self) -> None:
        while not self._closing.wait(self._interval_s):
            try:
                self._report(ask=False)
            except psycopg.Error:
                # The reader detects the error itself.
                return

    def _report(self, *, ask: bool) -> None:
        with self._lock:
            self._report_locked(ask=ask)

    def _report_locked(self, *, ask: bool) -> None:
        # Read in the lock: the thread that was read first could otherwise report last, and the
        # slots of older servers also move backwards.
        lsn = self._confirmed()
        now = int((time.time() - _EPOCH_S) * 1_000_000)
        # If it does not fit in the buffer, the next one will.
        if self._pgconn.put_copy_data(_STATUS.pack(b"r", lsn, lsn, lsn, now, ask)):
            self._reported = max(self._reported, lsn)
        self._pgconn.flush()
