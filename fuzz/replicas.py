"""Messages between replicas: messages in parts, and the changesets in them."""

from __future__ import annotations

import base64
from typing import Final

from fuzz._driver import main
from stompkit.replica.messages import Message, MessageError, Unpacker, pack
from stompkit.replica.signed import SignedChangeset
from stompkit.replication.model.events import EventError
from stompkit.replication.model.values import InvalidValueError

__all__ = ["SEEDS", "check"]

#: Separators: between headers and body of a frame, and between frames.
_BODY, _NEXT = b"\xfe", b"\xfd"
#: Limit on the size of incomplete messages, in bytes.
_MOST_BYTES: Final = 8_192

_CHANGESET: Final = (
    b'{"format":1,"id":"","origin":"a~00000001","sequence":1,"timestamp":"2026-11-21T12:00:00Z",'
    b'"source":{"kind":"replica"},"changes":[{"table":"t","action":"write","key":{"id":1},'
    b'"after":{"id":1}}],"parents":[],"revision":{"trunk":"t","hlc":1700000000000000,"context":'
    b'{"b~00000001":2},"seen":{"b~00000001":"0123456789abcdef"},"previous":"","author":"x"}}'
)


def _written(message: Message, most: int = 256) -> bytes:
    frames = []
    for packet in pack(message, max_body_bytes=most):
        lines = [f"{name}:{value}" for name, value in packet.headers.items()]
        frames.append("\n".join(lines).encode() + _BODY + packet.body)
    return _NEXT.join(frames)


SEEDS: Final = (
    _written(Message("have", "a~00000001", {"vector": {"a~00000001": 3}})),
    _written(Message("changes", "a~00000001", {"n": 1}, [b" " + _CHANGESET, b"\n\0x"]), 4_000),
    _written(Message("changes", "a~00000001", {}, [b" " + _CHANGESET] * 2), 300),
    _written(Message("want", "b~00000002", {"x": ["\u00e9" * 60]}), 16),
    b"alone" + _BODY + _CHANGESET,
)


def check(data: bytes) -> None:
    """Read frames; pack each complete message to the same frames again."""
    unpacker = Unpacker(max_bytes=_MOST_BYTES, max_partial=3)
    for each in data.split(_NEXT):
        lines, _, body = each.partition(_BODY)
        _changeset(body)
        headers = {}
        for line in lines.decode("utf-8", "surrogateescape").split("\n"):
            name, _, value = line.partition(":")
            headers[name] = value
        try:
            message = unpacker.add(headers, body)
        except MessageError as problem:
            assert str(problem)
            continue
        assert unpacker.waiting <= 3 and unpacker.waiting_bytes <= _MOST_BYTES
        if message is not None:
            _again(message)


def _again(message: Message) -> None:
    whole = Unpacker()
    found = [whole.add(each.headers, each.body) for each in message.packets]
    assert found[-1] == message and found[-1] is not None and found[-1].id == message.id
    for item in message.items:
        try:
            signed = SignedChangeset.decode(item)
        except MessageError:
            continue
        assert SignedChangeset.decode(signed.encode()) == signed
        _changeset(signed.body)


def _changeset(body: bytes) -> None:
    signed = SignedChangeset(body)
    try:
        origin, sequence = signed.dot
        changeset = signed.changeset
    except EventError as problem:
        assert str(problem)
        return
    assert (origin, sequence) == (changeset.origin, changeset.sequence)
    assert base64.b16decode(signed.id.upper())
    try:
        made = SignedChangeset.make(changeset)
    except InvalidValueError:
        raise AssertionError("what was read cannot be written") from None
    assert SignedChangeset(made.body).changeset.changes == changeset.changes


if __name__ == "__main__":
    main(__file__)
