"""Changesets: decoding, encoding and decoding again gives the same; parts are tested, too."""

from __future__ import annotations

from typing import Final

from fuzz._driver import main
from stompkit.replication.model.events import EventError, decode, encode, encode_parts
from stompkit.replication.model.frames import Reassembler, packets

__all__ = ["SEEDS", "check"]

#: Separates the frames of an input.
_BETWEEN: Final = b"\xfe"
#: Limit on the size of incomplete parts, in bytes.
_MOST_BYTES: Final = 4_096

_EVENT: Final = (
    b'{"format":1,"id":"a1","origin":"shop","sequence":7,"timestamp":"2026-11-21T12:00:00Z",'
    b'"source":{"kind":"mysql","server":"db","position":"x:1","is_snapshot":true},"changes":[%b],'
    b'"parents":["p"]%b}'
)
_CHANGES: Final = (
    b'{"table":"t","action":"write","key":{"id":1},"after":{"id":1,"n":null,"f":1.5,"b":true}}',
    b'{"table":"t","action":"update","key":{"id":2},"before":{"a":"x"},"after":{"a":"\\u00e9"},'
    b'"old_key":{"id":1},"schema":"s"}',
    b'{"table":"t","action":"delete","key":{"d":{"$date":"2026-11-21"},"t":{"$time":"12:00:00+01:00"'
    b'}},"before":{"w":{"$datetime":"2026-11-21T12:00:00"},"i":{"$interval":-42}}}',
    b'{"table":"t","action":"read","key":{},"after":{"n":{"$decimal":"1E+3"},"b":{"$bytes":"AAH/"},'
    b'"u":{"$uuid":"0f8fad5b-d9cb-469f-a165-70867728950e"},"j":{"$json":{"a":[1,{}]}},'
    b'"s":{"$set":["b","a"]},"big":{"$int":"18446744073709551616"},"nan":{"$float":"nan"}}}',
    b'{"table":"t","action":"truncate","key":{}}',
    b'{"table":"t","action":"schema","key":{},"after":{"x":[1]}}',
)
_REVISION: Final = (
    b',"revision":{"trunk":"t","hlc":1,"context":{"a":1},"seen":{"a":"00"},"previous":"p",'
    b'"replaces":[["a",1,"b"]],"author":"x","comment":"y"}'
)
SEEDS: Final = (
    *(b"1/1" + _BETWEEN + _EVENT % (each, b"") for each in _CHANGES),
    b"1/1" + _BETWEEN + _EVENT % (b",".join(_CHANGES[:5]), _REVISION),
    _BETWEEN.join(
        (b"1/2", _EVENT % (_CHANGES[0], b""), b"2/2", _EVENT % (_CHANGES[1], b""), b"0/1", b"{}")
    ),
    b"1/1" + _BETWEEN + _EVENT.replace(b'"format":1', b'"format":2') % (b"", b""),
)


def check(data: bytes) -> None:
    """Read frames, each after its part number."""
    reassembler = Reassembler(max_bytes=_MOST_BYTES)
    octets = data.split(_BETWEEN)
    for numbers, body in zip(octets[::2], octets[1::2], strict=False):
        _alone(body)
        number, _, parts = numbers.decode("latin-1").partition("/")
        try:
            reassembler.add({"stompkit-part": number, "stompkit-parts": parts}, body)
        except EventError as problem:
            assert str(problem)
    for waiting in reassembler.waiting:
        reassembler.forget(waiting)
    assert not reassembler.waiting


def _alone(body: bytes) -> None:
    try:
        changeset = decode(body)
    except EventError as problem:
        assert str(problem)
        return
    again = encode(changeset)
    same = decode(again)
    assert encode(same) == again
    assert same.hash == changeset.hash
    whole = Reassembler()
    found = [whole.add(each.headers, each.body) for each in packets(changeset, max_body_bytes=300)]
    assert found[-1] is not None and encode(found[-1]) == again
    assert not any(found[:-1])
    assert b"".join(encode_parts(changeset)) == again
    for change in changeset.changes:
        assert change.identity


if __name__ == "__main__":
    main(__file__)
