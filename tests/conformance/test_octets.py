"""Representation of frames as bytes, and as text."""

from __future__ import annotations

import pytest

from stompkit.conformance import FailedError, frame_octets, raw_value
from stompkit.conformance.wire.octets import describe, plain
from stompkit.frames import Frame


def test_value_without_the_carriage_return_that_ends_its_line() -> None:
    """On 1.2 each line ends for itself; on 1.1 a carriage return is part of the value."""

    def of(head: bytes) -> Frame:
        return Frame("MESSAGE", {}, b"", (), head)

    assert raw_value(of(b"MESSAGE\r\na:b\r\nc:d\r"), "a") == b"b"
    assert raw_value(of(b"MESSAGE\r\na:b\r\nc:d"), "c") == b"d"
    assert raw_value(of(b"MESSAGE\na:b\r\nc:d"), "a") == b"b"
    assert raw_value(of(b"MESSAGE\na:b\r\r\nc:d"), "a", "1.2") == b"b\r"
    assert raw_value(of(b"MESSAGE\na:b\r\nc:d"), "a", "1.1") == b"b\r"
    with pytest.raises(FailedError, match="MESSAGE has no header x"):
        raw_value(of(b"MESSAGE\na:b"), "x")


def test_description_is_short_whatever_the_frame() -> None:
    headers = {f"{n}" * 10_000: "x" * 1_000_000 for n in range(100)}
    assert len(describe(Frame("MESSAGE", headers, b"x" * 1_000_000))) < 2_000
    assert len(describe(Frame("ERROR", {"message": "x" * 1_000_000}))) < 500
    assert describe(Frame("ERROR", {}, b"caf\xc3\xa9\xff\n")) == "ERROR 'caf\u00e9\ufffd'"


def test_plain_text() -> None:
    assert plain("caf\u00e9 \U0001f600") == "caf\u00e9 \U0001f600"
    assert plain("a\nb\x1b\udcff\u202e") == "a\\nb\\x1b\\udcff\\u202e"
    assert plain("x" * 2_000) == "x" * 1_000 + "... (2000 characters)"


def test_frame_is_put_together_as_told() -> None:
    assert frame_octets("SEND", {"a": "b:c"}, b"x", version="1.1") == (
        b"SEND\na:b\\cc\ncontent-length:1\n\nx\0"
    )
    assert frame_octets("CONNECT", {"a": "b:c"}) == b"CONNECT\na:b:c\n\n\0"
    pairs = [("a", "1"), ("a", "2"), ("content-length", "7")]
    assert frame_octets("SEND", pairs, b"x", eol="\r\n") == (
        b"SEND\r\na:1\r\na:2\r\ncontent-length:7\r\n\r\nx\0"
    )
    assert frame_octets("SEND", {}, b"x", length=False) == b"SEND\n\nx\0"
