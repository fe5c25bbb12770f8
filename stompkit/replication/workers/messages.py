"""Keys of changed rows as messages, for ZeroMQ and brokers.

The body is JSON::

    {"version": 1, "topic": "orders_update", "keys": [17, "a b", [1, "x"], {"$uuid": "..."}]}

A key of one column is its value, as :mod:`stompkit.replication.model.values` has it; a list stands
for a key of several columns, and ``null`` for a table without a key.

Over ZeroMQ the body comes second. The first part is the topic and a zero byte. Subscriptions match
prefixes of topics, and with the terminator a topic is never a prefix of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from stompkit._common.moved import renamed
from stompkit.replication.model.values import InvalidValueError, Value, from_json, to_json

__all__ = [
    "CONTENT_TYPE",
    "VERSION",
    "Key",
    "KeysMessage",
    "MessageError",
    "check_topic",
    "decode_keys",
    "decode_parts",
    "encode_keys",
    "key_octets",
    "topic_frame",
]

#: Version of the body. It is raised when an older reader would misread the new format.
VERSION: Final = 1
#: Content type of a broker message with such a body.
CONTENT_TYPE: Final = "application/vnd.stompkit.keys+json"

#: A value, a tuple of several, or ``None``.
Key = Any


class MessageError(ValueError):
    """Bytes that are not such a message, or have a newer version; ``str()`` gives the reason."""


class KeysMessage(msgspec.Struct, frozen=True, kw_only=True):
    """An event, and the keys of its rows."""

    topic: str
    keys: tuple[Key, ...]


class _Body(msgspec.Struct):
    version: int
    topic: str
    keys: list[Any]


class _Version(msgspec.Struct):
    version: int


_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_DECODER: Final = msgspec.json.Decoder(_Body)
_VERSION_DECODER: Final = msgspec.json.Decoder(_Version)


def _key_to_json(key: Key) -> object:
    if isinstance(key, (tuple, list)):
        return [to_json(value) for value in key]
    return to_json(key)


def _key_from_json(found: object) -> Value:
    return tuple(map(from_json, found)) if isinstance(found, list) else from_json(found)


def key_octets(key: Key) -> bytes:
    """Return a key as bytes: equal for equal keys, different for others (1 is not "1").

    Raises :class:`~stompkit.replication.InvalidValueError` for a value without a JSON form.
    """
    return _ENCODER.encode(_key_to_json(key))


def encode_keys(topic: str, keys: Iterable[Key]) -> bytes:
    """Return the body of a message.

    Raises :class:`~stompkit.replication.InvalidValueError` for a value without a JSON form.
    """
    return _ENCODER.encode(_Body(VERSION, topic, [_key_to_json(key) for key in keys]))


def decode_keys(body: bytes) -> KeysMessage:
    """Decode the body of a message; raises :class:`MessageError`."""
    try:
        version = _VERSION_DECODER.decode(body).version
        if version != VERSION:
            raise MessageError(f"this is version {version} of keys, and {VERSION} is known")
        found = _DECODER.decode(body)
        keys = tuple(map(_key_from_json, found.keys))
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidValueError, RecursionError) as error:
        raise MessageError(f"these are no keys: {error}") from None
    return KeysMessage(topic=found.topic, keys=keys)


def check_topic(topic: str) -> str:
    """Return the topic; raises ``ValueError`` for an invalid one."""
    if not isinstance(topic, str) or not topic or "\0" in topic:
        raise ValueError(f"a topic is text such as 'users_update', and not {topic!r}")
    return topic


def topic_frame(topic: str) -> bytes:
    """Return the first part of a message over ZeroMQ, which is also the subscription."""
    return topic.encode() + b"\0"


def decode_parts(parts: Sequence[bytes]) -> KeysMessage:
    """Decode both parts of a message over ZeroMQ; raises :class:`MessageError`."""
    if len(parts) != 2:
        raise MessageError(f"a message of {len(parts)} parts, and not of two")
    message = decode_keys(parts[1])
    if parts[0] != topic_frame(message.topic):
        raise MessageError("its topic is not that of its body")
    return message


renamed(
    __name__,
    MessageProblem="MessageError",
)
