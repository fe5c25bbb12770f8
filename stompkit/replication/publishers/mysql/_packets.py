"""Packets of the log, in the words that the library for it knows.

Newer servers put things into events of which the library knows nothing, and at which it ends. What
matters to nobody here is taken out before the library looks: variables of the session that has run
a statement, and descriptions of columns that are none of the fields known. A column of the type
VECTOR is laid out as a LONGBLOB is, and counts among those that have a character set. A transaction
that is compressed becomes its events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pymysql.connections import Connection
from pymysql.protocol import MysqlPacket
from pymysqlreplication.constants import FIELD_TYPE

from stompkit.replication.publishers.mysql import _payloads
from stompkit.replication.publishers.mysql._numbers import number_at

__all__ = ["LogConnection", "understandable"]

#: Commands that ask for the log.
_DUMPS: Final = (0x12, 0x1E)
_ASKS_FOR_CHECKSUMS: Final = b"@master_binlog_checksum"
#: Where the number of a command is in what is sent.
_COMMAND_AT: Final = 4

# An event behind the octet that says that there is one.
_TYPE_AT: Final = 5
_SIZE_AT: Final = slice(10, 14)
_BODY_AT: Final = 20
_QUERY: Final = 2
_TABLE_MAP: Final = 19
#: Where the number of octets of variables is in the body of a statement's event; they follow it.
_VARIABLES_AT: Final = 11
_VECTOR: Final = 242
#: The last kind of optional description of a table that the library knows.
_LAST_KNOWN_FIELD: Final = 12


if TYPE_CHECKING:
    _Connection = Connection[Any]
else:
    _Connection = Connection


class LogConnection(_Connection):
    """A connection whose packets are :func:`understandable` once the log is asked for."""

    _reads_log = False
    #: What is still to come of a transaction that is compressed.
    _events: Iterator[bytes] = iter(())
    #: Octets of the checksum at the end of each event.
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
            if data[_TYPE_AT] != _payloads.PAYLOAD or not _payloads.CAN_READ:
                return packet
            self._events = _payloads.events_within(data[1:], self._checksum)


def understandable(data: bytes, checksum: int) -> bytes:
    """Return an event as the library for the log understands it, a 0 in front of it.

    ``checksum`` is how many octets at its end are its checksum.
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
    # Nobody looks at the checksum, which is of what the server has sent.
    return bytes(header) + changed + data[end:]


def _without_variables(body: bytes) -> bytes:
    """The event of a statement."""
    begin = _VARIABLES_AT + 2
    length = int.from_bytes(body[_VARIABLES_AT:begin], "little")
    return body[:_VARIABLES_AT] + b"\0\0" + body[begin + length :] if length else body


def _without_vectors(body: bytes) -> bytes:
    """The description of a table."""
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
    # Behind the details of types come the bits of columns that may be NULL.
    optional = begin + length + (count + 7) // 8
    return made + body[at:optional] + _known_fields(body[optional:])


def _known_fields(content: bytes) -> bytes:
    """The optional fields of a description, without those that are not known."""
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
