"""How keys, messages and lanes are laid out in octets."""

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

#: A lane, or whatever else is one number. Big-endian, so that keys sort as their numbers do.
NUMBER: Final = Struct(">Q")
#: A lane and a place in it.
KEY: Final = Struct(">QQ")
#: What begins a message: its size, when it expires, when it is due, and the octets of its id and
#: of its lines. These follow, and the body is the rest.
_HEAD: Final = Struct(">QqqII")
#: What begins a lane: its part, messages, octets, last place and delivered place. The name of its
#: queue is the rest.
_LANE: Final = Struct(">qQQQQ")

_pack_head: Final = _HEAD.pack
_head_octets: Final = _HEAD.size


def pack_text(text: str) -> bytes:
    """Any text as octets, also text that was no UTF-8 when a client sent it."""
    return text.encode("utf-8", "surrogatepass")


def unpack_text(octets: bytes) -> str:
    """The text again; ValueError for octets that are none."""
    return octets.decode("utf-8", "surrogatepass")


def pack_message(message: Put) -> bytes:
    """A message without lane and place, which are its key."""
    _, _, size, expires_ms, due_ms, id, lines, body = message
    octets = id.encode("utf-8", "surrogatepass")
    head = _pack_head(size, expires_ms, due_ms, len(octets), len(lines))
    return b"".join((head, octets, lines, body))


def unpack_size(value: bytes | memoryview) -> int:
    """The size of a message, without a look at the rest; ``struct.error`` if it is too short."""
    size: int = NUMBER.unpack_from(value)[0]
    return size


def unpack_message(value: bytes | memoryview, place: int, deliveries: int) -> StoredMessage:
    """The message again; ``struct.error`` or ValueError for what can't be one."""
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
    """A lane without its number, which is its key."""
    _, queue, *numbers = lane
    return _LANE.pack(*numbers) + pack_text(queue)


def unpack_lane(value: bytes | memoryview, lane: int) -> LaneState:
    """The lane again; ``struct.error`` or ValueError for what can't be one."""
    numbers = _LANE.unpack_from(value)
    return LaneState(lane, unpack_text(bytes(value[_LANE.size :])), *numbers)


def record_key(name: str) -> bytes:
    """What a record is kept under: the name itself may be longer than a key can be."""
    return sha256(pack_text(name)).digest()


def pack_record(name: str, value: bytes) -> bytes:
    """A record, with its name."""
    octets = pack_text(name)
    return NUMBER.pack(len(octets)) + octets + value


def unpack_record(value: bytes) -> tuple[str, bytes]:
    """Name and value again; ``struct.error`` or ValueError for what can't be a record."""
    end = NUMBER.size + NUMBER.unpack_from(value)[0]
    if end > len(value):
        raise ValueError("the record is cut off")
    return unpack_text(value[NUMBER.size : end]), value[end:]
