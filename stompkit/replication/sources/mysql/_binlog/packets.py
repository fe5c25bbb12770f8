"""Packets of the log: events on the path of each row, and the others for the log library.

Newer servers add session variables to the event of a statement at which the library fails. They are
irrelevant, and are removed. A compressed transaction is replaced by its events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CR
from pymysql.protocol import MysqlPacket
from pymysqlreplication.constants import BINLOG

from stompkit.replication.sources.mysql._binlog import payloads
from stompkit.replication.sources.mysql._binlog.blocks import PacketReader
from stompkit.replication.sources.mysql._binlog.events import LogEvent, parse_event

__all__ = ["EventSkippedError", "LogConnection", "understandable"]

#: Commands that request the log.
_DUMPS: Final = (0x12, 0x1E)
_ASKS_FOR_CHECKSUMS: Final = b"@master_binlog_checksum"
#: Number of a packet with a command, and then the command. Packets of a log-in have other numbers.
_REQUESTS: Final = frozenset(bytes((0, command)) for command in _DUMPS)
_REQUEST_AT: Final = slice(3, 5)

# Indexes in an event, after the status byte.
_TYPE_AT: Final = 5
_SIZE_AT: Final = slice(10, 14)
_BODY_AT: Final = 20
#: Index of the length of the variables in the event of a statement; they follow its other numbers.
_VARIABLES_AT: Final = _BODY_AT + 11

if TYPE_CHECKING:
    _Connection = Connection[Any]
else:
    _Connection = Connection


class EventSkippedError(Exception):
    """The library has skipped an event, and asks for the next one, which may not be for it."""


class LogConnection(_Connection):
    """A connection that reads the log by large blocks, once the log is requested."""

    _reads_log = False
    #: Remaining events of a compressed transaction.
    _events: Iterator[bytes] = iter(())
    #: Number of bytes of the checksum at the end of each event.
    _checksum = 0
    _packets: PacketReader | None = None
    #: Packet that was read, and has to be passed to the library.
    _kept: bytes | None = None

    def take(self) -> LogEvent | None:
        """Return the next event; ``None`` if the library has to read what is next.

        Raises :class:`pymysql.Error` for a lost connection, and other errors for invalid bytes.
        """
        if not self._reads_log:
            return None
        data = self._next()
        if len(data) > _BODY_AT and not data[0]:
            event = parse_event(data, self._checksum)
            if event is not None:
                return event
        self._kept = data
        return None

    def _write_bytes(self, data: bytes) -> None:
        if _ASKS_FOR_CHECKSUMS in data:
            self._checksum = 4
        if data[_REQUEST_AT] in _REQUESTS:
            self._reads_log = True
        super()._write_bytes(data)  # type: ignore[misc]

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        if not self._reads_log:
            return super()._read_packet(packet_type)  # type: ignore[no-untyped-call]
        data, self._kept = self._kept, None
        if data is None:
            raise EventSkippedError
        if data[:1] == b"\0" and len(data) > _BODY_AT:
            data = understandable(data, self._checksum)
        packet = packet_type(data, self.encoding)
        if packet.is_error_packet():
            packet.raise_for_error()
        return packet

    def _next(self) -> bytes:
        """Return the next packet; each event of a compressed transaction stands for one."""
        while True:
            for event in self._events:
                return b"\0" + event
            try:
                data = (self._packets or self._opened()).packet()
            except OSError as error:
                self._force_close()  # type: ignore[attr-defined]
                raise pymysql.OperationalError(
                    CR.CR_SERVER_LOST, f"the connection was lost while the log was read ({error})"
                ) from error
            if len(data) <= _BODY_AT or data[_TYPE_AT] != payloads.PAYLOAD or data[0]:
                return data
            if not payloads.CAN_READ:
                return data
            self._events = payloads.events_within(data[1:], self._checksum)

    def _opened(self) -> PacketReader:
        raw: Any = self
        raw._sock.settimeout(raw._read_timeout)
        self._packets = PacketReader(raw._rfile, raw._next_seq_id)
        return self._packets


def understandable(data: bytes, checksum: int) -> bytes:
    """Return an event in the form that the log library supports, with a 0 before it.

    ``checksum`` is the number of checksum bytes at its end.
    """
    if data[_TYPE_AT] != BINLOG.QUERY_EVENT:
        return data
    size = int.from_bytes(data[_SIZE_AT], "little")
    begin = _VARIABLES_AT + 2
    length = int.from_bytes(data[_VARIABLES_AT:begin], "little")
    if not length:
        return data
    # The checksum is not verified; it is that of the original event.
    header = bytearray(data[:_VARIABLES_AT]) + b"\0\0"
    header[_SIZE_AT] = (size - length).to_bytes(4, "little")
    return bytes(header) + data[begin + length :]
