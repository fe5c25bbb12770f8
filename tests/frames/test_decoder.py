"""Decoding: the ends of frames, bytes between frames, and the handshake."""

from __future__ import annotations

from itertools import product

import pytest

from stompkit.frames import Frame, FrameDecoder, RemoteProtocolError, Tolerance, Version
from tests.frames.helpers import (
    ESCAPING,
    EVERY_VERSION,
    NEXT,
    NEXT_FRAME,
    VERSIONS,
    decode,
    decode_one,
    octets,
    read,
    receipt_named,
    refuse,
    requirement,
)

BODYLESS = ["SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "DISCONNECT"]
BODYLESS += ["CONNECT", "STOMP", "CONNECTED", "RECEIPT"]


# The shape of a frame.


@requirement("1.1/bnf/frame", "1.2/bnf/frame", "1.1/overview/frame-based")
@requirement("1.1/frame/null-terminator", "1.2/frame/null-terminator", "1.2/overview/frame-based")
@requirement("1.0/frame/null-ends-frame", "1.0/send/null-terminates-without-content-length")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_ends_with_nul(version: Version) -> None:
    frame = decode_one(b"SEND\na:b\n\nbody\0", version)
    assert frame == Frame("SEND", {"a": "b"}, b"body")


@requirement("1.0/frame/blank-line-ends-headers")
@requirement("1.1/frame/blank-line", "1.2/frame/blank-line")
@pytest.mark.parametrize("version", EVERY_VERSION)
def test_the_first_blank_line_ends_the_headers(version: Version | None) -> None:
    frame = decode_one(b"SEND\n\na:b\n\nc\n\0", version)
    assert frame == Frame("SEND", {}, b"a:b\n\nc\n")


@requirement("1.0/bnf/body-optional", "1.1/body/only-send-message-error")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("body", [b"", b"\n", b"\r\n", b"\n\n\n", b"\xff\xfe", b"SEND\na:b\n\n"])
@pytest.mark.parametrize("command", ["SEND", "MESSAGE", "ERROR"])
def test_a_body_is_any_octets_but_nul(version: Version, body: bytes, command: str) -> None:
    assert decode_one(b"%b\n\n%b\0" % (command.encode(), body), version).body == body


@requirement("1.0/bnf/frame-stream", "1.1/bnf/stream", "1.2/bnf/stream")
@pytest.mark.parametrize("version", VERSIONS)
def test_frames_follow_each_other_without_a_gap(version: Version) -> None:
    data = b"SEND\na:1\n\nx\0BEGIN\n\n\0SEND\n\n\0"
    assert decode(data, version) == [Frame("SEND", {"a": "1"}, b"x"), Frame("BEGIN"), Frame("SEND")]


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_with_the_same_head_have_headers_of_their_own(version: Version) -> None:
    frames = decode(b"SEND\na:1\n\nx\0" * 3 + b"SEND\na:2\n\ny\0", version)
    frames[0].headers["a"] = "changed"
    del frames[1].headers["a"]
    assert frames[2:] == [Frame("SEND", {"a": "1"}, b"x"), Frame("SEND", {"a": "2"}, b"y")]


def test_the_octets_of_the_head_are_kept_as_they_came() -> None:
    frame = decode_one(b"SEND\r\na:b\\c\r\nc:d\r\n\r\nbody\0")
    assert frame.head == b"SEND\r\na:b\\c\r\nc:d\r"


def test_nothing_comes_of_nothing() -> None:
    decoder = FrameDecoder("1.2")
    assert decoder.feed(b"") == []
    assert (decoder.pending_bytes, decoder.eols, decoder.version) == (0, 0, "1.2")


def test_what_is_not_complete_is_counted() -> None:
    decoder = FrameDecoder("1.2")
    assert decoder.feed(NEXT + b"SEND\n") == [NEXT_FRAME]
    assert decoder.pending_bytes == 5
    assert decoder.feed(b"\nbo") == []
    assert decoder.pending_bytes == 8
    assert decoder.feed(b"dy\0\n") == [Frame("SEND", {}, b"body")]
    assert decoder.pending_bytes == 0


# content-length.


@requirement("1.0/send/content-length-read-through-nulls", "1.0/send/content-length-is-byte-count")
@requirement("1.0/message/content-length-octets", "1.0/error/content-length-octets")
@requirement("1.1/content-length/must-read", "1.2/content-length/must-read")
@requirement("1.1/content-length/is-octet-count", "1.2/content-length/is-octet-count")
@requirement("1.1/overview/binary-bodies", "1.2/overview/binary-bodies")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("command", ["SEND", "MESSAGE", "ERROR"])
@pytest.mark.parametrize(
    "body", [b"", b"\0", b"\0\0\0", b"a\0", b"\0a", b"\n\n\0\nSEND\n\n\0", "€\0é".encode()]
)
def test_a_counted_body_may_hold_nul(version: Version, command: str, body: bytes) -> None:
    data = b"%b\ncontent-length:%d\nz:1\n\n%b\0" % (command.encode(), len(body), body)
    frame = decode_one(data, version)
    assert frame == Frame(command, {"content-length": str(len(body)), "z": "1"}, body)


@requirement("1.2/content-length/any-frame", "1.2/std/special-meaning")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("command", BODYLESS)
def test_any_frame_may_say_that_it_has_no_body(version: Version | None, command: str) -> None:
    frame = decode_one(f"{command}\ncontent-length:0\n\n\0".encode(), version)
    assert frame == Frame(command, {"content-length": "0"})


@pytest.mark.parametrize("value", ["3", "03", "0000000000000000003"])
def test_leading_zeros_do_not_matter(value: str) -> None:
    assert decode_one(f"SEND\ncontent-length:{value}\n\na\0b\0".encode()).body == b"a\0b"


@requirement("1.1/content-length/is-octet-count", "1.2/content-length/is-octet-count")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize(
    "value",
    [
        *("-1", "-0", "+3", " 3", "3 ", "\t3", "", " ", "x", "3x", "0x3", "3.0", "3e0", "1_0"),
        *("3,4", "\u0663", "\uff13", "\u00b3", "\u1043", "9" * 5000 + "x"),
    ],
)
def test_anything_but_digits_is_no_length(version: Version | None, value: str) -> None:
    data = f"SEND\nreceipt:7\ncontent-length:{value}\n\nabc\0".encode()
    error = refuse(data, version, code="bad-content-length")
    assert receipt_named(error) == "7"
    assert str(error).isascii()
    assert len(str(error)) < 500


@requirement("1.1/limits/body-size", "1.2/limits/body-size")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("digits", [9, 18, 19, 20, 100, 5000])
def test_an_enormous_length_is_too_large_at_once(version: Version | None, digits: int) -> None:
    data = b"SEND\nreceipt:7\ncontent-length:%b\n\n\0" % (b"9" * digits)
    assert receipt_named(refuse(data, version, code="frame-too-large")) == "7"


@pytest.mark.parametrize("zeros", [18, 19, 20, 5000])
def test_any_number_of_leading_zeros_is_read(zeros: int) -> None:
    data = b"SEND\ncontent-length:%b3\n\na\0b\0" % (b"0" * zeros)
    assert decode_one(data).body == b"a\0b"
    assert decode_one(data.replace(b"3\n\na\0b", b"0\n\n")).body == b""


@requirement("1.2/body/others-must-not")
@pytest.mark.parametrize("version", [None, "1.1", "1.2"])
@pytest.mark.parametrize("command", BODYLESS)
@pytest.mark.parametrize("length", [b"5", b"0005", b"1000000"])
def test_a_length_in_a_frame_that_can_have_no_body_is_refused_at_once(
    version: Version | None, command: str, length: bytes
) -> None:
    head = b"%b\nreceipt:7\ncontent-length:%b\n\n" % (command.encode(), length)
    assert receipt_named(refuse(head + b"\0", version, code="body-not-allowed")) == "7"
    # Without the NUL, too: no further bytes can make the frame valid.
    with pytest.raises(RemoteProtocolError):
        FrameDecoder(version).feed(head)


@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("command", BODYLESS)
def test_a_length_in_a_frame_that_can_have_no_body_is_ignored_where_that_is_tolerated(
    version: Version | None, command: str
) -> None:
    lengths = [b"5", b"0", b"1000000", b"9" * 30, b"x"]
    for length, body in product(lengths, [b"", b"hello"]):
        data = b"%b\ncontent-length:%b\n\n%b\0" % (command.encode(), length, body)
        frame = decode_one(data, version, tolerance=Tolerance.BODY)
        assert frame == Frame(command, {"content-length": length.decode()}), data


@pytest.mark.parametrize("command", ["SUBSCRIBE", "ACK", "BEGIN"])
def test_on_1_0_a_length_in_a_frame_without_a_body_is_ignored(command: str) -> None:
    data = b"%b\ncontent-length:5\n\n\0" % command.encode()
    assert decode_one(data, "1.0") == Frame(command, {"content-length": "5"})


def test_repeated_frames_with_a_length_that_is_ignored_are_all_read() -> None:
    """The decoder takes a shortcut for identical heads; here it must not skip a body."""
    data = b"ACK\nid:1\ncontent-length:9\n\nbody\0" + b"ACK\nid:1\ncontent-length:9\n\n\0" * 3
    decoder = FrameDecoder("1.2", tolerance=Tolerance.BODY)
    assert [frame.body for frame in decoder.feed(data)] == [b""] * 4
    assert decoder.pending_bytes == 0


@requirement("1.0/send/null-after-content-length", "1.0/message/null-terminated")
@requirement("1.1/content-length/null-still-needed", "1.2/content-length/null-still-needed")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("length", [0, 1, 2])
def test_a_length_short_of_the_nul_is_refused(version: Version, length: int) -> None:
    data = b"SEND\nreceipt:a b\ncontent-length:%d\n\nabc\0" % length
    error = refuse(data, version, code="bad-content-length")
    assert "not NUL" in str(error)
    assert receipt_named(error) == "a b"


@requirement("1.0/error/null-terminated")
@requirement("1.1/content-length/null-still-needed", "1.2/content-length/null-still-needed")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_length_past_the_nul_takes_what_follows_and_is_refused_there(version: Version) -> None:
    head = b"ERROR\ncontent-length:5\n\n"
    decoder = FrameDecoder(version)
    assert decoder.feed(head + b"abc\0") == []
    assert decoder.pending_bytes == len(head) + 4
    refuse(head + b"abc\0SEND\n\n\0", version, code="bad-content-length")
    assert decode_one(head + b"abc\0S\0", version).body == b"abc\0S"


@pytest.mark.parametrize("receipt", [r"a\cb", r"\\", "a:b", "é"])
def test_the_refusal_of_a_counted_body_names_the_receipt_in_every_chunking(receipt: str) -> None:
    data = f"SEND\nreceipt:{receipt}\ncontent-length:2\n\nabc".encode()
    named = set()
    for pieces in ([data + b"\0"], octets(data)):
        decoder = FrameDecoder("1.2", tolerance=Tolerance.RAW_COLON)
        _, error = read(decoder, pieces)
        assert error is not None
        named.add(receipt_named(error))
    assert named == {receipt.replace(r"\c", ":").replace(r"\\", "\\")}


@requirement("1.1/repeated/first-wins-client", "1.2/repeated/first-wins-client")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("later", ["1", "9", "3", "x", "-1", ""])
def test_the_first_of_several_lengths_counts(version: Version, later: str) -> None:
    data = f"SEND\ncontent-length:3\na:b\ncontent-length:{later}\n\na\0b\0".encode()
    frame = decode_one(data, version)
    assert frame.body == b"a\0b"
    assert frame.repeated == (("content-length", later),)


def test_a_bad_first_length_is_not_saved_by_a_later_one() -> None:
    data = b"SEND\ncontent-length:x\ncontent-length:3\n\nabc\0"
    refuse(data, code="bad-content-length")


def test_a_length_in_another_case_is_a_header_like_any_other() -> None:
    assert decode_one(b"SEND\nContent-Length:99\n\nabc\0").body == b"abc"


# Frames that may not have a body.


@requirement("1.1/body/others-must-not", "1.2/body/others-must-not")
@requirement("1.1/receipt-frame/empty-body", "1.2/receipt-frame/empty-body")
@pytest.mark.parametrize("version", [None, *ESCAPING])
@pytest.mark.parametrize("command", BODYLESS)
@pytest.mark.parametrize("length", [b"", b"content-length:4\n"])
def test_a_body_where_none_may_be_is_refused(
    version: Version | None, command: str, length: bytes
) -> None:
    data = b"%b\nreceipt:7\n%b\nbody\0" % (command.encode(), length)
    error = refuse(data, version, code="body-not-allowed")
    assert command in str(error)
    assert receipt_named(error) == "7"


@requirement("1.0/subscribe/body-ignored", "1.0/receipt-frame/empty-body")
@pytest.mark.parametrize("command", BODYLESS)
def test_a_body_where_none_may_be_is_ignored_on_1_0(command: str) -> None:
    data = b"%b\na:b\n\nbody\0" % command.encode()
    assert decode_one(data, "1.0") == Frame(command, {"a": "b"})


@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("length", [b"", b"content-length:4\n"])
def test_a_body_where_none_may_be_is_ignored_if_tolerated(
    version: Version | None, length: bytes
) -> None:
    data = b"SUBSCRIBE\n%b\nbody\0" % length
    assert decode_one(data, version, tolerance=Tolerance.BODY).body == b""


# Between frames.


@requirement("1.0/bnf/trailing-lf-after-null")
@requirement("1.1/frame/trailing-eols", "1.2/frame/trailing-eols")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("count", [1, 2, 50])
def test_line_feeds_between_frames_are_counted_and_skipped(
    version: Version | None, count: int
) -> None:
    data = b"\n" * count
    assert decode(data + b"SEND\n\nx\0" + data, version) == [Frame("SEND", {}, b"x")]
    for pieces in ([data], octets(data)):
        decoder = FrameDecoder(version)
        assert read(decoder, pieces) == ([], None)
        assert (decoder.eols, decoder.pending_bytes) == (count, 0)


@requirement("1.2/frame/trailing-eols", "1.2/frame/eol-cr-optional")
@pytest.mark.parametrize("version", [None, "1.2"])
def test_cr_lf_between_frames_is_counted_and_skipped(version: Version | None) -> None:
    data = b"\r\n\n\r\n" * 17
    assert decode(data + b"SEND\n\nx\0" + data, version) == [Frame("SEND", {}, b"x")]
    for pieces in ([data], octets(data)):
        decoder = FrameDecoder(version)
        assert read(decoder, pieces) == ([], None)
        assert (decoder.eols, decoder.pending_bytes) == (51, 0)


@requirement("1.1/heartbeat/eol-when-idle", "1.2/heartbeat/eol-when-idle")
def test_a_heart_beat_is_no_frame_but_is_counted() -> None:
    decoder = FrameDecoder("1.2")
    assert [decoder.feed(b"\n"), decoder.eols] == [[], 1]
    assert [decoder.feed(b"\r"), decoder.eols] == [[], 1]
    assert [decoder.feed(b"\n"), decoder.eols] == [[], 2]
    assert decoder.feed(b"\n" + NEXT + b"\n") == [NEXT_FRAME]
    assert decoder.eols == 4


@requirement("1.1/frame/eol-lf-only", "1.0/bnf/trailing-lf-after-null")
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("data", [b"\r\n", b"\r", b"\n\r\n"])
def test_cr_between_frames_is_refused_on_1_0_and_1_1(version: Version, data: bytes) -> None:
    refuse(data, version, code="bad-frame-start")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_cr_lf_between_frames_is_skipped_if_tolerated(version: Version) -> None:
    data = b"\r\n" + NEXT + b"\r\n\n"
    assert decode(data, version, tolerance=Tolerance.CRLF) == [NEXT_FRAME]


@requirement("1.2/bnf/stream", "1.2/frame/eol-lf-required")
@pytest.mark.parametrize("version", [None, "1.2"])
@pytest.mark.parametrize("data", [b"\r\r", b"\rSEND\n\n\0", b"\n\r\0", b"\r "])
def test_a_bare_cr_between_frames_is_refused(version: Version | None, data: bytes) -> None:
    refuse(data, version, code="bad-frame-start")


@requirement("1.1/bnf/stream", "1.2/bnf/stream")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("data", [b"\0", b"\n\0", b"\0\n"])
def test_nul_between_frames_is_refused(version: Version | None, data: bytes) -> None:
    refuse(data, version, code="bad-frame-start")


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_nul_between_frames_is_skipped_if_tolerated(version: Version | None) -> None:
    data = b"\0\0\n\0" + NEXT + b"\0\0\n" + NEXT + b"\0"
    assert decode(data, version, tolerance=Tolerance.EXTRA_NUL) == [NEXT_FRAME, NEXT_FRAME]


@requirement("1.1/bnf/stream", "1.2/bnf/stream", "1.0/bnf/frame-stream")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("data", [b" ", b"\t\n", b"x", b":", b"\xef\xbb\xbf", b" \n"])
def test_anything_else_between_frames_begins_an_unknown_command(
    version: Version | None, data: bytes
) -> None:
    refuse(data + NEXT, version, code="unknown-command")


def test_octets_of_tls_are_refused_at_once() -> None:
    hello = bytes.fromhex("16030100f8010000f40303")
    with pytest.raises(RemoteProtocolError):
        FrameDecoder().feed(hello)


# NUL before the blank line.


@requirement("1.1/bnf/frame", "1.2/bnf/frame")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize(
    "data", [b"SEND\0", b"SEND\n\0", b"SEND\na:b\0", b"SEND\na:b\n\0", b"SEND\na:\0b\n\n\0"]
)
def test_nul_before_the_blank_line_is_refused(version: Version | None, data: bytes) -> None:
    error = refuse(data, version, code="bad-header")
    assert "before the blank line" in str(error)


def test_a_long_head_is_refused_for_the_nul_in_it_and_not_for_its_length() -> None:
    refuse(b"CONNECT\na:%b\0" % (b"x" * 2000), None, code="bad-header")


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_the_refusal_of_nul_before_the_blank_line_names_the_receipt(
    version: Version | None,
) -> None:
    assert receipt_named(refuse(b"SEND\nreceipt:7\n\0", version, code="bad-header")) == "7"


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_header_lines_may_be_followed_by_nul_if_tolerated(version: Version | None) -> None:
    # The example of DISCONNECT in 1.1 and 1.2.
    data = b"DISCONNECT\nreceipt:77\n\0\nRECEIPT\nreceipt-id:77\n\0"
    assert decode(data, version, tolerance=Tolerance.NO_BLANK_LINE) == [
        Frame("DISCONNECT", {"receipt": "77"}),
        Frame("RECEIPT", {"receipt-id": "77"}),
    ]
    bare = decode_one(b"DISCONNECT\n\0", version, tolerance=Tolerance.NO_BLANK_LINE)
    assert bare == Frame("DISCONNECT")


@pytest.mark.parametrize("data", [b"SEND\0", b"SEND\na:b\0", b"SEND\na:\0b\n\n\0"])
def test_nul_within_a_line_is_not_tolerated(data: bytes) -> None:
    refuse(data, tolerance=Tolerance.NO_BLANK_LINE, code="bad-header")


def test_a_frame_without_blank_line_may_count_no_octets() -> None:
    data = b"SEND\ncontent-length:0\n\0"
    assert decode_one(data, tolerance=Tolerance.NO_BLANK_LINE).body == b""


@pytest.mark.parametrize("rest", [b"", b"\0\0", b"ab\0", b"\n\0"])
def test_a_frame_without_blank_line_has_no_body_to_count(rest: bytes) -> None:
    data = b"SEND\nreceipt:7\ncontent-length:2\n\0" + rest
    error = refuse(data, tolerance=Tolerance.NO_BLANK_LINE, code="bad-header")
    assert receipt_named(error) == "7"


def test_lenient_reads_what_is_correct_as_strict_does() -> None:
    data = b"\nSEND\na:\\c\ncontent-length:3\n\n\0\n\0\0\nBEGIN\r\na:b\r\n\r\n\0\r\n"
    assert decode(data, tolerance=Tolerance.LENIENT) == decode(data)


# Errors.


def test_frames_before_an_error_are_not_lost() -> None:
    decoder = FrameDecoder("1.2")
    assert decoder.feed(NEXT + b"\n" + NEXT + b"bad\n\n\0" + NEXT) == [NEXT_FRAME, NEXT_FRAME]
    assert decoder.pending_bytes == 0
    for data in (b"", NEXT, b"", b"\n"):
        with pytest.raises(RemoteProtocolError) as caught:
            decoder.feed(data)
        assert caught.value.code == "unknown-command"
    with pytest.raises(RemoteProtocolError):
        decoder.eof()


def test_frames_before_a_frame_that_begins_badly_are_not_lost() -> None:
    # The head is refused although its frame is not complete.
    decoder = FrameDecoder("1.2")
    assert decoder.feed(NEXT + b"bad\n\n") == [NEXT_FRAME]
    with pytest.raises(RemoteProtocolError):
        decoder.feed(b"")


def test_an_error_says_what_to_answer() -> None:
    error = refuse(
        b"SEND\nreceipt:7\n\nx\0BEGIN\nreceipt:8\n\nx\0", after=1, code="body-not-allowed"
    )
    assert error.message == str(error) == "the frame BEGIN must not have a body"
    assert error.reply == Frame(
        "ERROR",
        {
            "message": "the frame BEGIN must not have a body",
            "stompkit-code": "body-not-allowed",
            "content-type": "text/plain",
            "receipt-id": "8",
        },
        b"the frame BEGIN must not have a body",
    )


# The end of the stream.


@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("data", [b"", b"\n", NEXT, NEXT + b"\n\n\n"])
def test_the_stream_may_end_between_frames(version: Version | None, data: bytes) -> None:
    decoder = FrameDecoder(version)
    decoder.feed(data)
    decoder.eof()
    decoder.eof()


@pytest.mark.parametrize("version", [None, "1.2"])
@pytest.mark.parametrize("data", [b"\r", b"\r\n\r", NEXT + b"\r\n\r"])
def test_the_stream_may_end_within_a_line_end(version: Version | None, data: bytes) -> None:
    decoder = FrameDecoder(version)
    decoder.feed(data)
    decoder.eof()


@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("data", [b"S", b"SEND\n", b"SEND\n\nx", b"SEND\ncontent-length:3\n\nab\0"])
def test_the_stream_may_not_end_within_a_frame(version: Version | None, data: bytes) -> None:
    for pieces in ([data], octets(data), [b"\n\n" + data]):
        decoder = FrameDecoder(version)
        assert read(decoder, pieces) == ([], None)
        for _ in range(2):
            with pytest.raises(RemoteProtocolError, match=f" {len(data)} octets into it") as caught:
                decoder.eof()
            assert caught.value.code == "truncated"
        with pytest.raises(RemoteProtocolError):
            decoder.feed(b"\0")


# The handshake.


def test_the_handshake_gives_one_frame_at_a_time() -> None:
    decoder = FrameDecoder()
    assert decoder.version is None
    assert decoder.feed(b"\n" + NEXT + b"\n" + NEXT + NEXT) == [NEXT_FRAME]
    assert decoder.pending_bytes == 1 + 2 * len(NEXT)
    assert decoder.feed(b"") == [NEXT_FRAME]
    assert decoder.feed(b"SEND") == [NEXT_FRAME]
    assert decoder.feed(b"") == []
    assert decoder.feed(b"\n\n\0") == [Frame("SEND")]


@pytest.mark.parametrize("cut", [None, 40, 46, 60])
def test_what_follows_the_handshake_is_read_by_the_version_negotiated(cut: int | None) -> None:
    connect = b"CONNECT\r\nlogin:a\\cb:c\r\n\r\n\0"
    data = connect + b"\nSEND\na:b\\c\n\n\0SEND\na:b\r\n\nx\0"
    decoder = FrameDecoder()
    (frame,) = decoder.feed(data[:cut])
    assert frame == Frame("CONNECT", {"login": "a\\cb:c"})
    decoder.negotiated("1.1")
    assert decoder.version == "1.1"
    frames, error = read(decoder, [b"", data[len(data[:cut]) :]])
    assert error is None
    assert frames == [Frame("SEND", {"a": "b:"}), Frame("SEND", {"a": "b\r"}, b"x")]


def test_what_follows_the_handshake_is_refused_by_the_version_negotiated() -> None:
    decoder = FrameDecoder()
    decoder.feed(b"CONNECT\n\n\0SEND\na:\\r\n\n\0")
    decoder.negotiated("1.1")
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.feed(b"")
    assert caught.value.code == "bad-escape"


@pytest.mark.parametrize(("version", "taken"), [("1.2", [NEXT_FRAME]), ("1.1", [])])
def test_a_cr_left_over_from_the_handshake_is_judged_by_the_version_negotiated(
    version: Version, taken: list[Frame]
) -> None:
    decoder = FrameDecoder()
    decoder.feed(b"CONNECT\n\n\0\r")
    decoder.negotiated(version)
    assert decoder.feed(b"") == []
    frames, error = read(decoder, [b"\n" + NEXT])
    assert frames == taken
    assert (error is None) == bool(taken)


def test_line_ends_behind_the_handshake_are_no_frame_that_broke_off() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(NEXT + b"\n\r\n\n") == [NEXT_FRAME]
    decoder.eof()
