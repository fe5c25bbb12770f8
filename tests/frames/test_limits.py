"""Limits on the memory that a peer can occupy, each just below, at and above its value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stompkit.frames import (
    AFTER_LOGIN,
    BEFORE_LOGIN,
    Frame,
    FrameDecoder,
    Limits,
    Tolerance,
    Version,
)
from tests.frames.helpers import (
    EVERY_VERSION,
    VERSIONS,
    decode,
    decode_one,
    octets,
    read,
    receipt_named,
    refuse,
    requirement,
)

WIDE = Limits(
    max_command_bytes=1000,
    max_header_line_bytes=1000,
    max_headers=1000,
    max_body_bytes=1000,
    max_frame_bytes=10_000,
)


def refused_after(
    data: bytes, limits: Limits, version: Version | None = "1.2", *, code: str
) -> int:
    """Feed byte by byte; return the number of bytes accepted before the refused one."""
    decoder = FrameDecoder(version, limits=limits)
    for count, octet in enumerate(octets(data)):
        _, error = read(decoder, [octet])
        if error is not None:
            assert error.code == code
            assert error.reply is not None
            assert decoder.pending_bytes == 0
            return count
    raise AssertionError("nothing was refused")


# The command.


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_a_command_may_be_as_long_as_the_limit(version: Version | None) -> None:
    limits = replace(WIDE, max_command_bytes=11)
    assert decode_one(b"UNSUBSCRIBE\n\n\0", version, limits=limits) == Frame("UNSUBSCRIBE")


@requirement("1.1/conformance/limits-may", "1.2/conformance/limits-may")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("most", [5, 10])
def test_a_command_past_the_limit_is_refused(version: Version | None, most: int) -> None:
    limits = replace(WIDE, max_command_bytes=most)
    data = b"UNSUBSCRIBE\nreceipt:7\n\n\0"
    error = refuse(data, version, limits=limits, code="header-too-large")
    assert str(error) == f"command too long: at most {most} octets"
    assert receipt_named(error) == "7"
    assert refused_after(data, limits, version, code="header-too-large") == most


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_an_unknown_command_is_refused_for_its_length_where_that_is_past_the_limit(
    version: Version | None,
) -> None:
    refuse(b"%b\n\n\0" % (b"X" * 64), version, code="unknown-command")
    refuse(b"%b\n\n\0" % (b"X" * 65), version, code="header-too-large")
    refuse(b"%b\0" % (b"X" * 65), version, code="header-too-large")
    refuse(b"\xff" * 65 + b"\n\n\0", version, code="header-too-large")
    assert refused_after(b"X" * 100, Limits(), version, code="header-too-large") == 64


def test_a_command_without_end_is_refused_early_even_in_one_piece() -> None:
    refuse(b"GET /index.html?%b HTTP/1.1\r\nHost: example.org\r\n\r\n" % (b"q" * 60),
           None, code="header-too-large")  # fmt: skip


# Header lines.


@requirement("1.1/limits/header-length", "1.2/limits/header-length")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("lines", [b"a:%b", b"a:%b\nb:1", b"b:1\na:%b", b"b:1\na:%b\nc:1"])
def test_a_header_line_may_be_as_long_as_the_limit_and_no_longer(
    version: Version | None, lines: bytes
) -> None:
    limits = replace(WIDE, max_header_line_bytes=20)
    frame = decode_one(b"SEND\n%b\n\n\0" % (lines % (b"x" * 18)), version, limits=limits)
    assert frame.headers["a"] == "x" * 18
    past = b"SEND\nreceipt:7\n%b\n\n\0" % (lines % (b"x" * 19))
    error = refuse(past, version, limits=limits, code="header-too-large")
    assert str(error) == "header line too long: at most 20 octets"
    assert receipt_named(error) == "7"
    end_of_line = past.index(b"x" * 19) + 19
    assert refused_after(past, limits, version, code="header-too-large") == end_of_line - 1


def test_the_first_header_line_counts_as_the_others_do() -> None:
    limits = replace(WIDE, max_header_line_bytes=20)
    refuse(b"SEND\na:%b\nb:c\n\n\0" % (b"x" * 19), limits=limits, code="header-too-large")


@requirement("1.2/frame/eol-cr-optional", "1.2/limits/header-length")
@pytest.mark.parametrize("version", [None, "1.2"])
@pytest.mark.parametrize("blank_line", [b"\n", b"\r\n"])
def test_cr_lf_does_not_count_as_part_of_the_line(
    version: Version | None, blank_line: bytes
) -> None:
    limits = replace(WIDE, max_header_line_bytes=20, max_command_bytes=11)
    data = b"UNSUBSCRIBE\r\na:%b\r\n" + blank_line + b"\0"
    frame = decode_one(data % (b"x" * 18), version, limits=limits)
    assert frame.headers == {"a": "x" * 18}
    refuse(data % (b"x" * 19), version, limits=limits, code="header-too-large")
    refuse(data % (b"x" * 18 + b"\r"), version, limits=limits, code="header-too-large")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_cr_counts_where_it_is_a_character(version: Version) -> None:
    limits = replace(WIDE, max_header_line_bytes=20)
    decode_one(b"SEND\na:%b\r\n\n\0" % (b"x" * 17), version, limits=limits)
    refuse(b"SEND\na:%b\r\n\n\0" % (b"x" * 18), version, limits=limits, code="header-too-large")


@requirement("1.1/limits/exceeded-error-and-close", "1.2/limits/exceeded-error-and-close")
@pytest.mark.parametrize("version", EVERY_VERSION)
def test_a_header_line_without_end_is_refused_at_the_limit(version: Version | None) -> None:
    limits = BEFORE_LOGIN if version is None else AFTER_LOGIN
    most = limits.max_header_line_bytes
    for pieces in ([b"SEND\n" + b"x" * (most + 1)], [b"SEND\n", b"x" * most, b"x"]):
        decoder = FrameDecoder(version)
        frames, error = read(decoder, pieces)
        assert (frames, error and error.code) == ([], "header-too-large")
        assert error is not None
        assert error.reply is not None
        assert error.reply.command == "ERROR"
    decoder = FrameDecoder(version)
    assert read(decoder, [b"SEND\n" + b"x" * most]) == ([], None)


# The number of headers.


@requirement("1.1/limits/header-count", "1.2/limits/header-count")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("most", [0, 1, 2, 10])
def test_there_may_be_as_many_headers_as_the_limit_and_no_more(
    version: Version | None, end: bytes, most: int
) -> None:
    tolerance = Tolerance.CRLF if end == b"\r\n" else Tolerance.NONE
    limits = replace(WIDE, max_headers=most)

    def data(count: int) -> bytes:
        lines = [b"SEND", *(b"%d:" % number for number in range(count)), b"", b""]
        return end.join(lines)

    frame = decode_one(data(most) + b"\0", version, limits=limits, tolerance=tolerance)
    assert len(frame.headers) == most
    past = data(most + 1) + b"\0"
    error = refuse(past, version, limits=limits, tolerance=tolerance, code="too-many-headers")
    assert str(error) == f"too many headers: at most {most}"


@requirement("1.1/limits/header-count", "1.2/limits/header-count")
def test_repeated_headers_count_each() -> None:
    limits = replace(WIDE, max_headers=3)
    assert decode_one(b"SEND\na:\na:\na:\n\n\0", limits=limits).repeated == (("a", ""),) * 2
    error = refuse(b"SEND\nreceipt:7\na:\na:\na:\n\n\0", limits=limits, code="too-many-headers")
    assert receipt_named(error) == "7"


@requirement("1.1/limits/exceeded-error-and-close", "1.2/limits/exceeded-error-and-close")
def test_too_many_headers_are_refused_when_the_first_too_many_has_come() -> None:
    limits = replace(WIDE, max_headers=3)
    data = b"SEND\na:1\nb:2\nc:3\nd:4\n"
    assert refused_after(data, limits, code="too-many-headers") == len(data) - 1
    for pieces in ([data], [data[:9], data[9:]]):
        _, error = read(FrameDecoder("1.2", limits=limits), pieces)
        assert error is not None
        assert error.code == "too-many-headers"


# The body.


@requirement("1.1/limits/body-size", "1.2/limits/body-size")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("most", [0, 1, 20])
@pytest.mark.parametrize("head", [b"SEND\n\n", b"SEND\na:b\n\n", b"SEND\ncontent-length:%d\n\n"])
def test_a_body_may_be_as_long_as_the_limit_and_no_longer(
    version: Version, most: int, head: bytes
) -> None:
    limits = replace(WIDE, max_body_bytes=most)

    def data(size: int) -> bytes:
        return (head % size if b"%" in head else head) + b"x" * size + b"\0"

    assert len(decode_one(data(most), version, limits=limits).body) == most
    error = refuse(data(most + 1), version, limits=limits, code="frame-too-large")
    assert f"{most} octets of body" in str(error)
    refused = refused_after(data(most + 1), limits, version, code="frame-too-large")
    if b"%" in head:
        assert refused == data(most + 1).index(b"\n\n") + 1  # with the head, before the body
    else:
        assert refused == len(data(most + 1)) - 2  # at the first byte above the limit


@requirement("1.1/error/receipt-id", "1.2/error/receipt-id")
@pytest.mark.parametrize("length", [b"", b"content-length:21\n"])
def test_the_refusal_of_a_large_body_names_the_receipt_in_every_chunking(length: bytes) -> None:
    limits = replace(WIDE, max_body_bytes=20)
    data = b"SEND\n%breceipt:a\\cb\n\n%b\0" % (length, b"x" * 21)
    for pieces in ([data], octets(data)):
        _, error = read(FrameDecoder("1.2", limits=limits), pieces)
        assert error is not None
        assert receipt_named(error) == "a:b"


# The frame.


@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize(
    "head", [b"SEND\na:bcdef\n\n", b"SEND\n\n", b"SEND\ncontent-length:%04d\n\n"]
)
@pytest.mark.parametrize("most", [30, 40])
def test_a_frame_may_be_as_long_as_the_limit_and_no_longer(
    version: Version | None, head: bytes, most: int
) -> None:
    limits = replace(WIDE, max_frame_bytes=most)

    def data(size: int) -> bytes:
        """Return a frame of ``size`` bytes, not counting its NUL."""
        body = size - len(head)
        return (head % body if b"%" in head else head) + b"x" * body

    assert len(data(most)) == most
    frame = decode_one(data(most) + b"\0", version, limits=limits)
    assert len(frame.body) == most - len(head)
    error = refuse(data(most + 1) + b"\0", version, limits=limits, code="frame-too-large")
    assert f"{most} octets in all" in str(error)
    refused = refused_after(data(most + 1), limits, version, code="frame-too-large")
    assert refused == (len(head) - 1 if b"%" in head else most)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_frame_of_a_chunk_may_be_as_long_as_the_limit(version: Version) -> None:
    for frame in (b"SEND\n\n%b" % (b"x" * 24), b"SEND\ncontent-length:6\n\nab\0\0cd"):
        limits = replace(WIDE, max_frame_bytes=len(frame))
        assert len(decode(b"%b\0" % frame * 5, version, limits=limits)) == 5
        limits = replace(WIDE, max_frame_bytes=len(frame) - 1)
        refuse(b"%b\0" % frame, version, limits=limits, code="frame-too-large")


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_a_head_may_fill_the_frame_and_no_more(version: Version | None) -> None:
    limits = replace(WIDE, max_frame_bytes=30)
    head = b"SEND\na:" + b"x" * 21
    decode_one(head + b"\n\n\0", version, limits=limits)
    refuse(head[:-4] + b"\nbad\n\n\0", version, limits=limits, code="bad-header")
    for lines in (head + b"x", head + b"\nb:c", head + b"\nbad"):
        refuse(lines + b"\n\n\0", version, limits=limits, code="frame-too-large")
        assert refused_after(lines + b"\n\n", limits, version, code="frame-too-large") >= 30


def test_a_length_that_makes_the_frame_too_large_is_refused_before_the_body() -> None:
    # Whether the body is missing or too long, the error is the same.
    limits = replace(WIDE, max_frame_bytes=100)
    head = b"SEND\nreceipt:7\ncontent-length:90\n\n"
    for rest in (b"", b"x", b"x" * 90 + b"\0", b"x" * 95 + b"\0", b"x\0", b"\0" * 100):
        error = refuse(head + rest, limits=limits, code="frame-too-large")
        assert receipt_named(error) == "7"


def test_frames_behind_one_that_was_not_complete_do_not_count_against_its_limit() -> None:
    limits = replace(WIDE, max_frame_bytes=30)
    frame = b"SEND\na:b\n\nbody\0"
    for cut in range(1, len(frame)):
        decoder = FrameDecoder("1.2", limits=limits)
        frames, error = read(decoder, [frame[:cut], frame[cut:] + frame * 20])
        assert error is None
        assert frames == [Frame("SEND", {"a": "b"}, b"body")] * 21


def test_a_large_frame_ends_where_its_nul_is_however_much_follows() -> None:
    limits = replace(WIDE, max_body_bytes=10)
    decoder = FrameDecoder("1.2", limits=limits)
    assert decoder.feed(b"SEND\n\n12345") == []
    assert decoder.feed(b"67890\0" + b"\n" * 1000) == [Frame("SEND", {}, b"1234567890")]


# Before and after the login.


@pytest.mark.parametrize("version", VERSIONS)
def test_the_handshake_has_narrower_limits(version: Version) -> None:
    data = b"SEND\ncontent-length:1025\n\n%b\0" % (b"x" * 1025)
    decoder = FrameDecoder()
    _, error = read(decoder, [data])
    assert error is not None
    assert error.code == "frame-too-large"
    assert "before login" in str(error)
    decoder = FrameDecoder()
    assert decoder.feed(b"CONNECT\n\n\0" + data) == [Frame("CONNECT")]
    decoder.negotiated(version)
    (frame,) = decoder.feed(b"")
    assert len(frame.body) == 1025


def test_limits_for_later_are_given_with_the_version() -> None:
    decoder = FrameDecoder(limits=WIDE)
    assert len(decoder.feed(b"CONNECT\n\n\0")) == 1
    decoder.negotiated("1.2", replace(WIDE, max_body_bytes=3))
    assert decoder.feed(b"SEND\n\nabc\0") == [Frame("SEND", {}, b"abc")]
    _, error = read(decoder, [b"SEND\n\nabcd\0"])
    assert error is not None
    assert error.code == "frame-too-large"
    assert "before login" not in str(error)


def test_what_has_come_already_is_judged_by_the_limits_given_with_the_version() -> None:
    decoder = FrameDecoder()
    assert len(decoder.feed(b"CONNECT\n\n\0")) == 1
    assert decoder.feed(b"SEND\ncontent-length:4\n\na") == []
    decoder.negotiated("1.2", replace(WIDE, max_body_bytes=3))
    _, error = read(decoder, [b""])
    assert error is not None
    assert error.code == "frame-too-large"


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_line_ends_between_frames_are_not_held(version: Version | None) -> None:
    decoder = FrameDecoder(version, limits=replace(WIDE, max_frame_bytes=10))
    for _ in range(100):
        assert decoder.feed(b"\n" * 100) == []
        assert decoder.pending_bytes == 0


def test_a_tolerated_missing_blank_line_does_not_lift_a_limit() -> None:
    limits = replace(WIDE, max_frame_bytes=30, max_headers=1)
    for data, code in (
        (b"SEND\na:%b\n\0" % (b"x" * 25), "frame-too-large"),
        (b"SEND\na:\nb:\n\0", "too-many-headers"),
    ):
        refuse(data, limits=limits, tolerance=Tolerance.NO_BLANK_LINE, code=code)
