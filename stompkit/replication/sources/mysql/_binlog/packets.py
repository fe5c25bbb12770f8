"""Packets of the log, converted to the form that the log library supports.

Newer servers add parts to events that the library does not support, and at which it fails. This
module removes the irrelevant ones: session variables of a statement, and unknown fields of column
descriptions. A VECTOR column has the same layout as a LONGBLOB, and counts among the columns with a
character set. A compressed transaction is replaced by its events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pymysql.connections import Connection
from pymysql.protocol import MysqlPacket
from pymysqlreplication.constants import FIELD_TYPE

from stompkit.replication.sources.mysql._binlog import payloads
from stompkit.replication.sources.mysql._binlog.numbers import number_at

__all__ = ["LogConnection", "understandable"]

#: Commands that request the log.
_DUMPS: Final = (0x12, 0x1E)
_ASKS_FOR_CHECKSUMS: Final = b"@master_binlog_checksum"
#: Index of the command's number in a sent packet.
_COMMAND_AT: Final = 4

# Indexes in an event, after the status byte.
_TYPE_AT: Final = 5
_SIZE_AT: Final = slice(10, 14)
_BODY_AT: Final = 20
_QUERY: Final = 2
_TABLE_MAP: Final = 19
#: Index of the length of the variables in the body of a statement's event; they follow it.
_VARIABLES_AT: Final = 11
_VECTOR: Final = 242
#: Last kind of optional table metadata that the library supports.
_LAST_KNOWN_FIELD: Final = 12


if TYPE_CHECKING:
    _Connection = Connection[Any]
else:
    _Connection = Connection


class LogConnection(_Connection):
    """A connection that converts packets by :func:`understandable` once the log is requested."""

    _reads_log = False
    #: Remaining events of a compressed transaction.
    _events: Iterator[bytes] = iter(())
    #: Number of bytes of the checksum at the end of each event.
    _checksum = 0

    def _write_bytes(self, data: bytes) -> None:
        if _ASKS_FOR_CHECKSUMS in data:
            self._checksum = 4
        if len(data) > _COMMAND_AT and data[_COMMAND_AT] in _DUMPS:
            self._reads_log = True
        super()._write_bytes(data)  # type: ignore[misc]

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        while True:
            for event in self._events:
                data = understandable(b"\0" + event, self._checksum)
                return packet_type(data, self.encoding)
            packet = super()._read_packet(packet_type)  # type: ignore[no-untyped-call]
            data = packet.get_all_data() if self._reads_log else b""
            if data[:1] != b"\0" or len(data) <= _BODY_AT:
                return packet
            if data[_TYPE_AT] in _CHANGED:
                return packet_type(understandable(data, self._checksum), self.encoding)
            if data[_TYPE_AT] != payloads.PAYLOAD or not payloads.CAN_READ:
                return packet
            self._events = payloads.events_within(data[1:], self._checksum)


def understandable(data: bytes, checksum: int) -> bytes:
    """Return an event in the form that the log library supports, with a 0 before it.

    ``checksum`` is the number of checksum bytes at its end.
    """
    change = _CHANGED.get(data[_TYPE_AT])
    if change is None:
        return data
    size = int.from_bytes(data[_SIZE_AT], "little")
    end = size + 1 - checksum
    body = data[_BODY_AT:end]
    changed = change(body)
    if changed is body:
        return data
    header = bytearray(data[:_BODY_AT])
    header[_SIZE_AT] = (size + len(changed) - len(body)).to_bytes(4, "little")
    # The checksum is not verified; it is that of the original event.
    return bytes(header) + changed + data[end:]


def _without_variables(body: bytes) -> bytes:
    """Return the event of a statement without its session variables."""
    begin = _VARIABLES_AT + 2
    length = int.from_bytes(body[_VARIABLES_AT:begin], "little")
    return body[:_VARIABLES_AT] + b"\0\0" + body[begin + length :] if length else body


def _without_vectors(body: bytes) -> bytes:
    """Return the description of a table with VECTOR columns replaced."""
    at = 8
    at += body[at] + 2  # the schema's name and a NUL
    at += body[at] + 2  # the table's
    count, at = number_at(body, at)
    types = body[at : at + count]
    if _VECTOR not in types:
        return body
    types = types.replace(bytes((_VECTOR,)), bytes((FIELD_TYPE.BLOB,)))
    made = body[:at] + types
    at += count
    length, begin = number_at(body, at)
    # The bits of nullable columns follow the details of types.
    optional = begin + length + (count + 7) // 8
    return made + body[at:optional] + _known_fields(body[optional:])


def _known_fields(content: bytes) -> bytes:
    """Return the optional metadata fields of a description, without unsupported ones."""
    kept = []
    at = 0
    while at < len(content):
        length, begin = number_at(content, at + 1)
        end = begin + length
        if content[at] <= _LAST_KNOWN_FIELD:
            kept.append(content[at:end])
        at = end
    return b"".join(kept)


_CHANGED: Final = {_QUERY: _without_variables, _TABLE_MAP: _without_vectors}
