"""Binary layout of keys, messages and lanes."""

from __future__ import annotations

from hashlib import sha256
from struct import Struct
from typing import Final

from stompkit.server.interfaces import LaneState, Put, StoredMessage

__all__ = [
    "KEY",
    "NUMBER",
    "pack_lane",
    "pack_message",
    "pack_record",
    "pack_text",
    "record_key",
    "unpack_lane",
    "unpack_message",
    "unpack_record",
    "unpack_size",
    "unpack_text",
]

#: A lane number or any other single number. Big-endian, so that keys sort in numeric order.
NUMBER: Final = Struct(">Q")
#: A lane and a place in it.
KEY: Final = Struct(">QQ")
#: Header of a message: its size, its expiry, its due time, and the lengths in bytes of its id and
#: lines. The id, the lines and the body follow.
_HEAD: Final = Struct(">QqqII")
#: Header of a lane: its part, messages, bytes, last place and delivered place. The name of its
#: queue follows.
_LANE: Final = Struct(">qQQQQ")

_pack_head: Final = _HEAD.pack
_head_octets: Final = _HEAD.size


def pack_text(text: str) -> bytes:
    """Encode any text, including lone surrogates for client bytes that were not UTF-8."""
    return text.encode("utf-8", "surrogatepass")


def unpack_text(octets: bytes) -> str:
    """Decode the text; raises ValueError for invalid bytes."""
    return octets.decode("utf-8", "surrogatepass")


def pack_message(message: Put) -> bytes:
    """Encode a message without lane and place, which are its key."""
    _, _, size, expires_ms, due_ms, id, lines, body = message
    octets = id.encode("utf-8", "surrogatepass")
    head = _pack_head(size, expires_ms, due_ms, len(octets), len(lines))
    return b"".join((head, octets, lines, body))


def unpack_size(value: bytes | memoryview) -> int:
    """Decode the size of a message only; raises ``struct.error`` if the value is too short."""
    size: int = NUMBER.unpack_from(value)[0]
    return size


def unpack_message(value: bytes | memoryview, place: int, deliveries: int) -> StoredMessage:
    """Decode the message; raises ``struct.error`` or ValueError for invalid bytes."""
    size, expires_ms, due_ms, id_octets, lines_octets = _HEAD.unpack_from(value)
    lines_at = _head_octets + id_octets
    body_at = lines_at + lines_octets
    if body_at > len(value):
        raise ValueError("the message is cut off")
    return StoredMessage(
        place,
        deliveries,
        size,
        expires_ms,
        due_ms,
        unpack_text(bytes(value[_head_octets:lines_at])),
        bytes(value[lines_at:body_at]),
        bytes(value[body_at:]),
    )


def pack_lane(lane: LaneState) -> bytes:
    """Encode a lane without its number, which is its key."""
    _, queue, *numbers = lane
    return _LANE.pack(*numbers) + pack_text(queue)


def unpack_lane(value: bytes | memoryview, lane: int) -> LaneState:
    """Decode the lane; raises ``struct.error`` or ValueError for invalid bytes."""
    numbers = _LANE.unpack_from(value)
    return LaneState(lane, unpack_text(bytes(value[_LANE.size :])), *numbers)


def record_key(name: str) -> bytes:
    """Return the key of a record: a hash, since the name may exceed the maximum key length."""
    return sha256(pack_text(name)).digest()


def pack_record(name: str, value: bytes) -> bytes:
    """Encode a record with its name."""
    octets = pack_text(name)
    return NUMBER.pack(len(octets)) + octets + value


def unpack_record(value: bytes) -> tuple[str, bytes]:
    """Decode name and value; raises ``struct.error`` or ValueError for invalid bytes."""
    end = NUMBER.size + NUMBER.unpack_from(value)[0]
    if end > len(value):
        raise ValueError("the record is cut off")
    return unpack_text(value[NUMBER.size : end]), value[end:]
