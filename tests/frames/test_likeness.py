"""The cache of heads changes no result: a decoder with a similar head reads the same frames."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompkit.frames import VERSIONS, Frame, FrameDecoder, Limits, RemoteProtocolError, Version
from tests.frames.helpers import RELAXED

#: Plain characters, escapes, and the ends of lines, heads and frames.
VALUES = st.text("ab-9._/@ :\\cn\r\n\0é", max_size=4) | st.sampled_from(
    ["r-1", "r-2", "77", "", "long" * 8]
)
HEADERS = st.sampled_from(
    [
        b"SEND\ndestination:/queue/a",
        b"SEND\ndestination:/queue/a\nreceipt:%b",
        b"SEND\ndestination:/queue/a\nreceipt:%b\npriority:4",
        b"SEND\nreceipt:%b\nreceipt:again\ndestination:/queue/a",
        b"SEND\nreceipt:%b\ndestination:/queue/a\ncontent-length:3",
        b"SEND\ndestination:/queue/a\ncontent-length:3",
        b"SEND\ndestination:/queue/a\ncontent-length:3\r",
        b"SEND\ndestination:/queue/a\ncontent-length:+3",
        b"SUBSCRIBE\nid:%b\ndestination:/queue/a",
        b"ACK\nid:%b",
        b"ACK\nid:%b\ntransaction:t",
        b"ACK\nsubscription:s\nmessage-id:%b",
        b"NACK\nid:%b\nreceipt:r",
        b"ABORT\ntransaction:%b",
    ]
)
BODIES = st.sampled_from([b"", b"", b"abc", b"a\0c", b"ab", b"abcdef", b"\n\n"])
BLANK = st.sampled_from([b"\n\n", b"\n\n", b"\n\n", b"\n\r\n", b"\n"])


@st.composite
def octets_of_a_frame(draw: st.DrawFn) -> bytes:
    """Draw a frame, or nearly one."""
    head = draw(HEADERS)
    if b"%b" in head:
        head %= draw(VALUES).encode()
    return head + draw(BLANK) + draw(BODIES) + b"\0"


def read(decoder: FrameDecoder, data: bytes) -> list[Frame | str]:
    """Return the frames, and the code of the error that ends them."""
    found: list[Frame | str] = []
    try:
        while frames := decoder.feed(data):
            found += frames
            data = b""
    except RemoteProtocolError as error:
        found.append(f"{error.code}: {error}")
    return found


LIMITS = [
    Limits(),
    Limits(max_body_bytes=2),
    Limits(max_frame_bytes=40),
    Limits(max_headers=1),
    Limits(max_header_line_bytes=25),
]


@pytest.mark.parametrize("version", VERSIONS)
@settings(RELAXED, max_examples=500)
@given(st.lists(octets_of_a_frame(), min_size=2, max_size=6), st.sampled_from(LIMITS))
def test_what_was_read_before_makes_no_difference(
    version: Version, frames: list[bytes], limits: Limits
) -> None:
    decoder = FrameDecoder(version, limits=limits)
    for octets in frames:
        remembering = read(decoder, octets)
        fresh = FrameDecoder(version, limits=limits)
        assert remembering == read(fresh, octets)
        heads = [each.head for each in remembering if isinstance(each, Frame)]
        assert heads == [
            each.head
            for each in read(FrameDecoder(version, limits=limits), octets)
            if isinstance(each, Frame)
        ]
        if fresh.pending_bytes or any(isinstance(each, str) for each in remembering):
            return


def models(*heads: bytes, version: Version = "1.2") -> list[bytes | None]:
    """Return the models of consecutive frames."""
    decoder = FrameDecoder(version)
    return [decoder.feed(head + b"\n\n\0")[0].model for head in heads]


@pytest.mark.parametrize(
    ("version", "head"),
    [
        ("1.2", "SEND\ndestination:a\nreceipt:{}"),
        ("1.2", "SEND\nreceipt:{}\ndestination:a"),
        ("1.2", "ACK\nid:{}"),
        ("1.1", "ACK\nmessage-id:{}\nsubscription:1"),
        ("1.0", "ACK\nmessage-id:{}\ntransaction:t"),
    ],
)
def test_heads_are_alike_that_differ_in_one_value(version: Version, head: str) -> None:
    given = [head.format(value).encode() for value in ("1", "r-22", "")]
    assert models(*given, version=version) == [given[0]] * 3


def test_heads_that_differ_in_more_are_not() -> None:
    first, second = models(b"SEND\ndestination:a\nreceipt:1", b"SEND\ndestination:b\nreceipt:1")
    assert first != second
    first, second = models(
        b"SEND\nreceipt:1\ndestination:a", b"SEND\nreceipt:2\ndestination:a\npriority:4"
    )
    assert first != second


@pytest.mark.parametrize(
    ("octets", "value"), [(rb"2\c3", "2:3"), ("é".encode(), "é"), (b"2 3", "2 3")]
)
def test_a_value_that_may_not_stand_for_itself_is_parsed(octets: bytes, value: str) -> None:
    decoder = FrameDecoder("1.2")
    head = b"SEND\ndestination:a\nreceipt:"
    first, second = (decoder.feed(head + each + b"\n\n\0")[0] for each in (b"1", octets))
    assert (first.headers["receipt"], second.headers["receipt"]) == ("1", value)
    assert second.model != first.model


def test_who_sends_no_two_heads_alike_is_still_understood_when_that_changes() -> None:
    different = [b"SEND\ndestination:%d" % number for number in range(100)]
    same = [b"SEND\ndestination:same"] * 100
    found = models(*different, *same)
    assert found[-1] == same[0]
    assert None in found


@pytest.mark.parametrize("command", ["SEND", "ACK"])
def test_frames_are_alike_whatever_comes_in_between(command: str) -> None:
    heads = {"SEND": b"SEND\ndestination:a\nreceipt:%d", "ACK": b"ACK\nid:%d"}
    given = [heads[each] % number for number in range(3) for each in heads]
    found = models(*given)
    own = [
        model for head, model in zip(given, found, strict=True) if head.startswith(command.encode())
    ]
    assert own == [own[0]] * 3


def test_a_limit_holds_for_a_head_that_is_like_another() -> None:
    decoder = FrameDecoder("1.2", limits=Limits(max_header_line_bytes=25))
    assert decoder.feed(b"ACK\nid:1\n\n\0")
    with pytest.raises(RemoteProtocolError, match="header line too long"):
        decoder.feed(b"ACK\nid:%b\n\n\0" % (b"1" * 30))


def test_a_limit_holds_for_a_body_behind_a_head_that_is_like_another() -> None:
    decoder = FrameDecoder("1.2", limits=Limits(max_body_bytes=2))
    assert decoder.feed(b"SEND\ndestination:a\n\nab\0")
    with pytest.raises(RemoteProtocolError, match="body"):
        decoder.feed(b"SEND\ndestination:a\n\nabc\0")


def test_no_body_is_taken_behind_a_head_that_is_like_one_that_may_have_none() -> None:
    decoder = FrameDecoder("1.2")
    assert decoder.feed(b"ACK\nid:1\n\n\0")
    with pytest.raises(RemoteProtocolError, match="body"):
        decoder.feed(b"ACK\nid:2\n\nx\0")


def test_no_long_heads_are_kept() -> None:
    long = b"SEND\ndestination:" + b"a" * 3_000
    assert models(long, long) == [None, None]
