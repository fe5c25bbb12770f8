"""Encoding, and frames that cannot be encoded."""

from __future__ import annotations

import pytest

from stompkit.frames import (
    COMMANDS,
    Frame,
    FrameDecoder,
    LocalProtocolError,
    Tolerance,
    Version,
    encode,
)
from tests.frames.helpers import ESCAPING, EVERY_VERSION, VERSIONS, requirement

CONNECTING = ("CONNECT", "STOMP", "CONNECTED")


def refused(frame: Frame, version: Version | None, *, tolerance: Tolerance = Tolerance.NONE) -> str:
    """Encode a frame that cannot be encoded; return the message of the error."""
    with pytest.raises(LocalProtocolError) as caught:
        encode(frame, version, tolerance=tolerance)
    assert str(caught.value).isascii()
    return str(caught.value)


def read_again(frame: Frame, version: Version | None) -> Frame:
    """Return the frame as a peer reads it."""
    (got,) = FrameDecoder(version).feed(encode(frame, version))
    return got


# The shape of a frame.


@requirement("1.1/bnf/frame", "1.2/bnf/frame", "1.2/frame/zero-headers-allowed")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_frame_without_headers_is_command_blank_line_and_nul(
    version: Version | None, command: str
) -> None:
    assert encode(Frame(command), version) == f"{command}\n\n\0".encode()


@requirement("1.1/frame/header-format", "1.2/frame/header-format", "1.1/frame/eol-lf-only")
@pytest.mark.parametrize("version", EVERY_VERSION)
def test_headers_keep_their_order_and_lines_end_in_lf(version: Version | None) -> None:
    frame = Frame("BEGIN", {"c": "3", "a": "", "b": " é€😀 "}, repeated=(("a", "2"), ("c", "3")))
    assert encode(frame, version) == "BEGIN\nc:3\na:\nb: é€😀 \na:2\nc:3\n\n\0".encode()


@requirement("1.1/repeated/first-wins-client", "1.2/repeated/first-wins-client")
@pytest.mark.parametrize("version", VERSIONS)
def test_repeated_headers_come_back_as_they_went(version: Version) -> None:
    frame = Frame("MESSAGE", {"a": "1", "b": "1"}, b"", (("b", "2"), ("a", "1"), ("a", "3")))
    assert read_again(frame, version) == frame


def test_an_unknown_command_is_refused() -> None:
    assert "'send'" in refused(Frame("send"), "1.2")
    refused(Frame("SEND\n"), "1.2")
    refused(Frame(""), None)


def test_what_a_frame_was_read_from_is_not_looked_at() -> None:
    (frame,) = FrameDecoder("1.2").feed(b"SEND\r\na:b\r\n\r\nx\0")
    frame.headers["a"] = "c"
    assert encode(frame, "1.2") == b"SEND\na:c\ncontent-length:1\n\nx\0"


# content-length.


@requirement("1.1/content-length/should-with-body", "1.2/content-length/should-with-body")
@requirement("1.1/content-length/must-with-nulls", "1.2/content-length/must-with-nulls")
@requirement("1.0/send/content-length-recommended", "1.0/message/content-length-recommended")
@requirement("1.0/error/content-length-recommended", "1.1/content-length/is-octet-count")
@requirement("1.2/content-length/is-octet-count")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("command", ["SEND", "MESSAGE", "ERROR"])
@pytest.mark.parametrize("body", [b"x", b"\0", b"a\0b", "é€😀".encode()])
def test_a_body_is_counted(version: Version | None, command: str, body: bytes) -> None:
    name = command.encode()
    length = b"content-length:%d" % len(body)
    assert encode(Frame(command, {}, body), version) == b"%b\n%b\n\n%b\0" % (name, length, body)
    data = encode(Frame(command, {"a": "b"}, body), version)
    assert data == b"%b\na:b\n%b\n\n%b\0" % (name, length, body)


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_a_length_that_is_there_stays_where_it_is(version: Version | None) -> None:
    frame = Frame("SEND", {"content-length": "3", "a": "b"}, b"xyz")
    assert encode(frame, version) == b"SEND\ncontent-length:3\na:b\n\nxyz\0"
    empty = Frame("BEGIN", {"content-length": "0"})
    assert encode(empty, version) == b"BEGIN\ncontent-length:0\n\n\0"


@requirement("1.1/content-length/is-octet-count", "1.2/content-length/is-octet-count")
@pytest.mark.parametrize(
    "value", ["2", "4", "", "x", "-3", "+3", " 3", "03", "٣", "3\r", "9" * 5000]
)
def test_a_length_that_is_not_the_bodys_is_refused(value: str) -> None:
    frame = Frame("SEND", {"content-length": value}, b"xyz")
    assert "body has 3 octets" in refused(frame, "1.2")
    for version in EVERY_VERSION:
        refused(frame, version)
        refused(Frame("SEND", {"content-length": "1"}), version)


@requirement("1.1/body/others-must-not", "1.2/body/others-must-not")
@requirement("1.1/body/only-send-message-error", "1.2/body/only-send-message-error")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("command", [name for name, row in COMMANDS.items() if not row.body])
def test_a_body_where_none_may_be_is_refused(version: Version | None, command: str) -> None:
    frame = Frame(command, {}, b"x")
    assert command in refused(frame, version)
    data = encode(frame, version, tolerance=Tolerance.BODY)
    assert data == f"{command}\ncontent-length:1\n\nx\0".encode()


# Escapes.


@requirement("1.1/encoding/encode-reverse", "1.2/encoding/encode-reverse")
@requirement("1.1/encoding/escape-outside-connect", "1.2/encoding/escape-outside-connect")
@pytest.mark.parametrize("version", ESCAPING)
def test_names_and_values_are_escaped(version: Version) -> None:
    frame = Frame("SEND", {"a:\n\\": ":b\n\\n", "c": "d"}, b"", (("a:\n\\", "\n"),))
    expected = rb"SEND|a\c\n\\:\cb\n\\n|c:d|a\c\n\\:\n||".replace(b"|", b"\n") + b"\0"
    assert encode(frame, version) == expected
    assert read_again(frame, version) == frame


@requirement("1.1/encoding/escape-outside-connect", "1.2/encoding/escape-outside-connect")
@pytest.mark.parametrize("version", ESCAPING)
def test_colons_are_escaped_where_nothing_else_is(version: Version) -> None:
    frame = Frame("SEND", {"id": "a:1", "b:c": "d", "e": "f"}, b"", (("id", ":"), ("e", "g")))
    expected = rb"SEND|id:a\c1|b\cc:d|e:f|id:\c|e:g||".replace(b"|", b"\n") + b"\0"
    assert encode(frame, version) == expected
    assert read_again(frame, version) == frame


@requirement("1.2/encoding/escape-outside-connect", "1.1/frame/eol-lf-only")
def test_a_carriage_return_is_escaped_on_1_2_and_a_character_before() -> None:
    frame = Frame("SEND", {"a\r": "\rb\r"})
    assert encode(frame, "1.2") == rb"SEND" b"\n" rb"a\r:\rb\r" b"\n\n\0"
    assert encode(frame, "1.1") == encode(frame, "1.0") == b"SEND\na\r:\rb\r\n\n\0"
    assert [read_again(frame, version) for version in VERSIONS] == [frame] * 3


@requirement("1.0/bnf/no-escaping", "1.0/bnf/header-value-may-hold-colon")
def test_nothing_is_escaped_on_1_0() -> None:
    frame = Frame("SEND", {"a\\": "b:\\n"})
    assert encode(frame, "1.0") == b"SEND\na\\:b:\\n\n\n\0"
    assert read_again(frame, "1.0") == frame


@requirement("1.1/encoding/no-escape-in-connect", "1.2/encoding/no-escape-in-connect")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("command", CONNECTING)
def test_nothing_is_escaped_in_connect_stomp_and_connected(
    version: Version | None, command: str
) -> None:
    frame = Frame(command, {"passcode": r"a:b\c\\"})
    assert (
        encode(frame, version) == f"{command}\npasscode:{frame.headers['passcode']}\n\n\0".encode()
    )
    assert read_again(frame, version) == frame


@pytest.mark.parametrize("command", ["SEND", "ERROR", "CONNECT"])
def test_nothing_is_escaped_before_a_version_is_negotiated(command: str) -> None:
    frame = Frame(command, {"message": r"a:b\c"})
    assert encode(frame) == f"{command}\nmessage:a:b\\c\n\n\0".encode()


# Frames that cannot be encoded.


@requirement("1.0/bnf/header-name-chars", "1.1/bnf/header-name-chars", "1.2/bnf/header-name-chars")
@pytest.mark.parametrize("version", EVERY_VERSION)
def test_an_empty_name_is_refused(version: Version | None) -> None:
    for value in ("", "x", "a:b"):
        assert "empty" in refused(Frame("SEND", {"a": "b", "": value}), version)
        refused(Frame("SEND", {"a": "b"}, b"", (("", value),)), version)


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_a_repeated_header_without_a_first_one_is_refused(version: Version | None) -> None:
    # A peer would take the repeated header for the valid one: here, for the length of the body.
    for body in (b"", b"xyz"):
        frame = Frame("SEND", {"a": "b"}, body, (("a", "c"), ("content-length", "1")))
        assert "'content-length'" in refused(frame, version)


@requirement("1.1/bnf/header-value-chars", "1.2/bnf/header-value-chars")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("command", ["SEND", "CONNECT"])
@pytest.mark.parametrize("headers", [{"a": "\0"}, {"\0": "a"}, {"a": "b", "c": "d\0e"}])
def test_nul_in_a_header_is_refused(
    version: Version | None, command: str, headers: dict[str, str]
) -> None:
    assert "NUL" in refused(Frame(command, headers), version)
    refused(Frame(command, {"a": ""}, b"", (("a", "\0"),)), version)


@requirement("1.0/bnf/header-name-chars", "1.0/bnf/no-escaping")
@pytest.mark.parametrize(
    ("version", "command"),
    [
        *((version, command) for version in EVERY_VERSION for command in CONNECTING),
        *((version, command) for version in (None, "1.0") for command in ("SEND", "ERROR")),
    ],
)
def test_what_needs_an_escape_is_refused_where_there_is_none(
    version: Version | None, command: str
) -> None:
    assert "line feed" in refused(Frame(command, {"a": "b\nc"}), version)
    assert "line feed" in refused(Frame(command, {"a\nb": "c"}), version)
    assert "holds a colon" in refused(Frame(command, {"a:b": "c"}), version)
    refused(Frame(command, {"a": "1"}, b"", (("a", "b\nc"),)), version)


@requirement("1.1/encoding/no-escape-in-connect", "1.2/encoding/no-escape-in-connect")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("command", CONNECTING)
@pytest.mark.parametrize("headers", [{"a": "b\r"}, {"a": "b\rc"}, {"a\r": "b"}])
def test_a_carriage_return_in_the_handshake_is_refused(
    version: Version | None, command: str, headers: dict[str, str]
) -> None:
    # At the end of a line, a reader of any version takes it for part of the line end.
    assert "carriage return" in refused(Frame(command, headers), version)


def test_a_carriage_return_before_a_version_is_negotiated_is_refused() -> None:
    refused(Frame("ERROR", {"message": "a\rb"}), None)


@requirement("1.1/encoding/utf8-headers", "1.2/encoding/utf8-headers")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("lone", ["\ud800", "\udc80", "\udcff", "\udfff"])
def test_a_lone_surrogate_is_refused(version: Version | None, lone: str) -> None:
    for headers in ({"a": lone}, {f"a{lone}": ""}, {"a": f"é{lone}"}):
        assert "surrogate" in refused(Frame("SEND", headers), version)


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_octets_that_were_not_utf_8_go_out_as_they_came_if_tolerated(
    version: Version | None,
) -> None:
    data = encode(Frame("SEND", {"a": "é\udcff"}), version, tolerance=Tolerance.INVALID_UTF8)
    assert data == b"SEND\na:\xc3\xa9\xff\n\n\0"


@pytest.mark.parametrize("lone", ["\ud800", "\udc0a", "\udc00", "\udfff"])
def test_surrogates_that_stand_for_no_octet_are_refused_even_so(lone: str) -> None:
    refused(Frame("SEND", {"a": lone}), "1.2", tolerance=Tolerance.INVALID_UTF8)


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_no_tolerance_lets_a_header_break_out_of_its_line(version: Version | None) -> None:
    for headers in ({"a": "b\0"}, {"": "x"}):
        refused(Frame("CONNECT", headers), version, tolerance=Tolerance.LENIENT)
    refused(Frame("CONNECT", {"a": "b\nc:d"}), version, tolerance=Tolerance.LENIENT)
