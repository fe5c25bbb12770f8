"""Command and headers: everything before the blank line."""

from __future__ import annotations

import pytest

from stompkit.frames import COMMANDS, Frame, RemoteProtocolError, Tolerance, Version, encode
from stompkit.frames._head import parse_head, receipt_in
from tests.frames.helpers import (
    ESCAPING,
    EVERY_VERSION,
    VERSIONS,
    decode_one,
    receipt_named,
    refuse,
    requirement,
)

CONNECTING = ("CONNECT", "STOMP", "CONNECTED")


def head(text: str | bytes, version: Version | None = "1.2") -> tuple[object, ...]:
    """Return command, headers and repeated headers, parsed without any tolerance."""
    octets = text.encode() if isinstance(text, str) else text
    return parse_head(octets, version, Tolerance.NONE)[:3]


def headers(lines: str, version: Version = "1.2") -> dict[str, str]:
    """Return the headers of a SEND frame with these lines, read in every chunking."""
    return decode_one(f"SEND\n{lines}\n\n\0".encode(), version).headers


# Commands.


@requirement("1.0/frame/command-first-line", "1.1/frame/command-line", "1.2/frame/command-line")
@requirement("1.1/frame/zero-headers-allowed", "1.2/frame/zero-headers-allowed")
@requirement("1.0/bnf/header-count-any")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_read_without_headers(version: Version | None, command: str) -> None:
    assert head(command, version) == (command, {}, ())
    frame = decode_one(f"{command}\n\n\0".encode(), version)
    assert frame == Frame(command)


@requirement("1.1/frame/case-sensitive", "1.2/frame/case-sensitive")
@requirement("1.0/bnf/commands-uppercase")
@requirement("1.1/client-frames/unknown-may-error", "1.2/client-frames/unknown-may-error")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize(
    "command", ["send", "Send", "SEND ", " SEND", "SEN", "SENDX", "GET / X", "é"]
)
def test_any_other_command_is_refused(version: Version | None, command: str) -> None:
    error = refuse(f"{command}\nreceipt:7\n\n\0".encode(), version, code="unknown-command")
    assert ascii(command) in str(error)
    assert receipt_named(error) == "7"


def test_a_command_in_the_wrong_case_is_told_the_right_one() -> None:
    error = refuse(b"send\n\n\0", code="unknown-command")
    assert "did you mean SEND?" in str(error)


@requirement("1.0/bnf/command-line-lf", "1.1/frame/eol-lf-only")
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_command_before_cr_lf_is_told_the_version_that_has_them(version: Version) -> None:
    error = refuse(b"SEND\r\na:b\n\n\0", version, code="unknown-command")
    assert "need STOMP 1.2" in str(error)


def test_what_is_quoted_from_the_peer_is_short_and_in_ascii() -> None:
    error = refuse(f"{'é' * 20}\n\n\0".encode(), code="unknown-command")
    assert str(error).isascii()
    with pytest.raises(RemoteProtocolError) as caught:
        head("X" * 10_000)
    assert len(str(caught.value)) < 150


# Header lines.


@requirement("1.0/frame/header-key-value-newline")
@requirement("1.1/frame/header-format", "1.2/frame/header-format")
@pytest.mark.parametrize("version", VERSIONS)
def test_headers_keep_their_order(version: Version) -> None:
    assert list(headers("c:3\na:1\nb:2", version).items()) == [("c", "3"), ("a", "1"), ("b", "2")]


@requirement("1.1/frame/header-format", "1.2/frame/header-format")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("lines", ["no colon", "a:b\nno colon", "no colon\na:b", "x\\c", " ", "\t"])
def test_a_line_without_a_colon_is_refused(version: Version | None, lines: str) -> None:
    error = refuse(f"SEND\nreceipt:7\n{lines}\n\n\0".encode(), version, code="bad-header")
    assert "without a colon" in str(error)
    assert receipt_named(error) == "7"


@requirement("1.0/bnf/header-name-chars", "1.1/bnf/header-name-chars", "1.2/bnf/header-name-chars")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("lines", [":x", ":", "a:b\n:x", "a:\\\\\n:x"])
def test_an_empty_name_is_refused(version: Version | None, lines: str) -> None:
    error = refuse(f"SEND\n{lines}\nreceipt:7\n\n\0".encode(), version, code="bad-header")
    assert "empty name" in str(error)
    assert receipt_named(error) == "7"


@requirement("1.1/bnf/empty-value", "1.2/bnf/empty-value")
@pytest.mark.parametrize("version", ESCAPING)
def test_a_value_may_be_empty(version: Version) -> None:
    assert headers("a:\nb:", version) == {"a": "", "b": ""}


@requirement("1.0/bnf/header-value-non-empty")
def test_an_empty_value_is_taken_on_1_0_too() -> None:
    # The grammar of 1.0 has no empty values, but no known broker refuses them.
    assert headers("a:", "1.0") == {"a": ""}


@requirement("1.1/frame/case-sensitive", "1.2/frame/case-sensitive")
@pytest.mark.parametrize("version", VERSIONS)
def test_names_that_differ_in_case_differ(version: Version) -> None:
    assert headers("a:1\nA:2\nReceipt:3", version) == {"a": "1", "A": "2", "Receipt": "3"}


@requirement("1.1/encoding/never-trim-pad", "1.2/encoding/never-trim-pad")
@pytest.mark.parametrize("version", VERSIONS)
def test_blanks_belong_to_names_and_values(version: Version) -> None:
    assert headers(" a : 1 \n\tb\t:\t", version) == {" a ": " 1 ", "\tb\t": "\t"}
    assert headers("a: \na :x", version) == {"a": " ", "a ": "x"}


# Repeated headers.


@requirement("1.1/repeated/first-wins-client", "1.2/repeated/first-wins-client")
@requirement("1.1/repeated/later-ignored", "1.2/repeated/later-ignored")
@requirement("1.2/repeated/first-wins-server")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_of_repeated_headers_counts_and_the_others_are_kept(version: Version) -> None:
    frame = decode_one(b"MESSAGE\nfoo:World\nbar:1\nfoo:Hello\nbar:2\nfoo:!\n\n\0", version)
    assert list(frame.headers.items()) == [("foo", "World"), ("bar", "1")]
    assert frame.repeated == (("foo", "Hello"), ("bar", "2"), ("foo", "!"))


@requirement("1.1/repeated/later-ignored", "1.2/repeated/later-ignored")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("value", ["", "1", "same value", "é", "\\\\"])
def test_a_repeated_header_is_kept_even_if_its_value_is_the_same(
    version: Version | None, value: str
) -> None:
    frame = decode_one(f"ERROR\nfoo:{value}\nfoo:{value}\nfoo:{value}\n\n\0".encode(), version)
    assert frame.repeated == (("foo", frame.headers["foo"]),) * 2


@requirement("1.2/repeated/first-wins-client")
def test_names_are_compared_unescaped() -> None:
    # A writer that escapes more than necessary names the same header.
    frame = decode_one(rb"SEND" b"\n" rb"a\cb:1" b"\n" rb"a\cb:2" b"\n\n\0")
    assert (frame.headers, frame.repeated) == ({"a:b": "1"}, (("a:b", "2"),))


# Escapes.


@requirement("1.1/encoding/decode-newline", "1.2/encoding/decode-newline")
@requirement("1.1/encoding/decode-colon", "1.2/encoding/decode-colon")
@requirement("1.1/encoding/decode-backslash", "1.2/encoding/decode-backslash")
@pytest.mark.parametrize("version", ESCAPING)
def test_names_and_values_are_unescaped(version: Version) -> None:
    assert headers(r"a\c\n\\:b\c\n\\", version) == {"a:\n\\": "b:\n\\"}


@requirement("1.2/encoding/decode-cr")
def test_a_carriage_return_is_unescaped_on_1_2() -> None:
    assert headers(r"a\r:\r\nb", "1.2") == {"a\r": "\r\nb"}


@requirement("1.1/encoding/undefined-escape-fatal", "1.2/encoding/undefined-escape-fatal")
@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("line", [r"a:\t", r"\t:a", "a:\\", "\\:a", r"a:\\\x", r"a:\ ", r"a:\😀"])
def test_undefined_sequences_are_fatal(version: Version, line: str) -> None:
    error = refuse(f"SEND\nreceipt:7\n{line}\n\n\0".encode(), version, code="bad-escape")
    assert f"STOMP {version}" in str(error)
    assert receipt_named(error) == "7"


@requirement("1.1/encoding/undefined-escape-fatal")
def test_a_carriage_return_has_no_escape_on_1_1() -> None:
    error = refuse(b"SEND\na:\\r\n\n\0", "1.1", code="bad-escape")
    assert r"'\\r'" in str(error)


@requirement("1.0/bnf/no-escaping")
def test_a_backslash_is_a_character_on_1_0() -> None:
    assert headers(r"a\c:\n\t\\", "1.0") == {r"a\c": r"\n\t\\"}


@requirement("1.1/encoding/no-escape-in-connect", "1.2/encoding/no-escape-in-connect")
@requirement("1.1/encoding/escape-outside-connect", "1.2/encoding/escape-outside-connect")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("command", CONNECTING)
def test_connect_stomp_and_connected_are_not_escaped(version: Version | None, command: str) -> None:
    frame = decode_one(f"{command}\npasscode:a\\cb\\t:c\\\n\n\0".encode(), version)
    assert frame.headers == {"passcode": "a\\cb\\t:c\\"}


@pytest.mark.parametrize("command", ["SEND", "ERROR"])
def test_nothing_is_unescaped_before_a_version_is_negotiated(command: str) -> None:
    frame = decode_one(f"{command}\na:\\c:\\t\n\n\0".encode(), None)
    assert frame.headers == {"a": "\\c:\\t"}


# Colons in values.


@requirement("1.0/bnf/header-value-may-hold-colon")
def test_a_value_may_hold_colons_on_1_0() -> None:
    assert headers("a:b:c\nd::", "1.0") == {"a": "b:c", "d": ":"}


@requirement("1.1/bnf/raw-colon-in-value", "1.2/bnf/raw-colon-in-value")
@requirement("1.1/bnf/header-value-chars", "1.2/bnf/header-value-chars")
@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("line", ["a:b:c", "a::", r"a:\c:", "x:y\na:b:c"])
def test_a_raw_colon_in_a_value_is_refused(version: Version, line: str) -> None:
    error = refuse(f"SEND\nreceipt:7\n{line}\n\n\0".encode(), version, code="raw-colon")
    assert "'a'" in str(error)
    assert receipt_named(error) == "7"


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("line", ["a:b:c", r"a:b\c:c", r"a:b:\\"])
def test_a_raw_colon_is_kept_if_tolerated(version: Version, line: str) -> None:
    data = f"SEND\n{line}\nz:y\n\n\0".encode()
    frame = decode_one(data, version, tolerance=Tolerance.RAW_COLON)
    assert frame.headers["a"] == line[2:].replace(r"\c", ":").replace(r"\\", "\\")


# Bytes that are not ASCII.


@requirement("1.1/encoding/utf8-headers", "1.2/encoding/utf8-headers")
@requirement("1.1/utf8/must-support", "1.2/utf8/must-support")
@requirement("1.0/bnf/ascii-headers")
@pytest.mark.parametrize("version", VERSIONS)
def test_names_and_values_are_utf_8(version: Version) -> None:
    # The grammar of 1.0 has US-ASCII alone, but its peers send UTF-8.
    assert headers("é€😀:\u2028\x85\ufeff", version) == {"é€😀": "\u2028\x85\ufeff"}


BAD_UTF8 = [b"\xff", b"\xc3", b"\xc0\x80", b"\xe2\x82", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"]


@requirement("1.1/encoding/utf8-headers", "1.2/encoding/utf8-headers")
@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("bad", BAD_UTF8)
def test_invalid_utf_8_is_refused(version: Version | None, bad: bytes) -> None:
    error = refuse(b"SEND\nreceipt:7\na:%b\n\n\0" % bad, version, code="bad-utf8")
    assert f"{bad[0]:#04x} at 17" in str(error)
    assert receipt_named(error) == "7"
    assert receipt_named(refuse(b"SEND\n%b:1\n\n\0" % bad, version, code="bad-utf8")) is None


@pytest.mark.parametrize("bad", BAD_UTF8)
def test_invalid_utf_8_is_carried_through_if_tolerated(bad: bytes) -> None:
    data = b"SEND\na%b:\xc3\xa9%b\n\n\0" % (bad, bad)
    frame = decode_one(data, tolerance=Tolerance.INVALID_UTF8)
    assert frame.headers.keys() == {"a" + bad.decode("utf-8", "surrogateescape")}
    assert encode(frame, "1.2", tolerance=Tolerance.INVALID_UTF8) == data


# Carriage returns.


@requirement("1.2/frame/eol-cr-optional", "1.2/overview/crlf-lines", "1.2/frame/eol-lf-required")
@pytest.mark.parametrize("version", [None, "1.2"])
@pytest.mark.parametrize("command_end", ["\n", "\r\n"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("blank_line", ["\n", "\r\n"])
def test_each_line_may_end_in_cr_lf(
    version: Version | None, command_end: str, line_end: str, blank_line: str
) -> None:
    data = f"SEND{command_end}a:1{line_end}b:2{line_end}{blank_line}\r\nx\0"
    frame = decode_one(data.encode(), version)
    assert frame == Frame("SEND", {"a": "1", "b": "2"}, b"\r\nx")
    assert decode_one(f"SEND{command_end}{blank_line}\0".encode(), version) == Frame("SEND")


@requirement("1.2/frame/eol-cr-optional", "1.2/frame/blank-line")
@pytest.mark.parametrize("version", [None, "1.2"])
@pytest.mark.parametrize("head", [b"SEND\n", b"SEND\r\n", b"SEND\na:1\n", b"SEND\r\na:1\r\n"])
@pytest.mark.parametrize("blank_line", [b"\n", b"\r\n"])
@pytest.mark.parametrize("body", [b"\n", b"\r\n", b"\n\n", b"\n\r\n", b"\r\n\n", b"\r"])
def test_the_body_begins_behind_the_first_blank_line_of_either_kind(
    version: Version | None, head: bytes, blank_line: bytes, body: bytes
) -> None:
    assert decode_one(head + blank_line + body + b"\0", version).body == body


@requirement("1.1/frame/eol-lf-only", "1.0/bnf/command-line-lf")
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("lines", ["a:1\r\n", "a:1\n\r:\n", "\ra\r:\r1\r\n"])
def test_a_carriage_return_is_a_character_on_1_0_and_1_1(version: Version, lines: str) -> None:
    frame = decode_one(f"SEND\n{lines}\nx\0".encode(), version)
    pairs = (line.split(":") for line in lines.split("\n")[:-1])
    assert frame.headers == {name: value for name, value in pairs}


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_blank_line_of_cr_lf_is_none_on_1_0_and_1_1(version: Version) -> None:
    error = refuse(b"SEND\na:b\r\n\r\n\nbody\0", version, code="bad-header")
    assert "CR LF" in str(error)


def test_a_line_without_a_colon_is_not_quoted() -> None:
    """The line may be a passcode, and errors are logged."""
    error = refuse(b"CONNECT\nlogin:me\npasscode secret\n\n\0", None, code="bad-header")
    assert "line 2" in str(error)
    assert "secret" not in repr(error.reply)


@requirement("1.2/bnf/header-value-chars", "1.2/bnf/header-name-chars")
@requirement("1.2/frame/eol-lf-required")
@pytest.mark.parametrize(
    "lines", ["a:b\rc", "a\rb:c", "\ra:b", "a:\rb", "a:b\r\r", "a:b\r\nc:d\r\r", "a:b\rc\\\\"]
)
def test_a_bare_carriage_return_is_refused_on_1_2(lines: str) -> None:
    error = refuse(f"SEND\nreceipt:7\n{lines}\n\n\0".encode(), "1.2", code="bare-cr")
    assert receipt_named(error) == "7"


def test_a_bare_carriage_return_is_a_character_in_the_handshake() -> None:
    # The peer may speak 1.0, where this byte has no meaning.
    frame = decode_one(b"CONNECT\nlogin:a\rb\r\n\n\0", None)
    assert frame.headers == {"login": "a\rb"}


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_lines_may_end_in_cr_lf_if_tolerated(version: Version) -> None:
    data = b"SEND\r\na:1\r\nb:2\nc:x\ry\r\n\r\nbody\r\n\0\r\n"
    frame = decode_one(data, version, tolerance=Tolerance.CRLF)
    assert frame == Frame("SEND", {"a": "1", "b": "2", "c": "x\ry"}, b"body\r\n")


def test_tolerating_cr_lf_does_not_tolerate_bare_ones_on_1_2() -> None:
    refuse(b"SEND\na:b\rc\n\n\0", "1.2", tolerance=Tolerance.LENIENT, code="bare-cr")


# The other tolerances.


@pytest.mark.parametrize("version", ESCAPING)
def test_undefined_sequences_stand_for_themselves_if_tolerated(version: Version) -> None:
    data = rb"SEND" b"\n" rb"path:C\c\temp\new\\" b"\n\n\0"
    frame = decode_one(data, version, tolerance=Tolerance.UNKNOWN_ESCAPE)
    assert frame.headers == {"path": "C:\\temp\new\\"}


def test_padding_is_removed_on_1_0_if_tolerated() -> None:
    data = b"SEND\ndestination: /queue/a \n content-length\t: 3\na : b c \na:d\n\nx\0y\0"
    frame = decode_one(data, "1.0", tolerance=Tolerance.PADDING)
    expected = {"destination": "/queue/a", "content-length": "3", "a": "b c"}
    assert frame == Frame("SEND", expected, b"x\0y", (("a", "d"),))


@requirement("1.1/encoding/never-trim-pad", "1.2/encoding/never-trim-pad")
@pytest.mark.parametrize("version", ESCAPING)
def test_padding_is_never_removed_on_1_1_and_1_2(version: Version) -> None:
    frame = decode_one(b"SEND\n a : b \n\n\0", version, tolerance=Tolerance.LENIENT)
    assert frame.headers == {" a ": " b "}


@pytest.mark.parametrize(
    ("command", "lines", "expected"),
    [
        # The examples of the specification of 1.0.
        ("CONNECT", "login: me\npasscode:you", {"login": "me", "passcode": "you"}),
        ("CONNECTED", "session: 1", {"session": "1"}),
        # A peer that names a version follows the stricter rules.
        ("CONNECT", "login: me\naccept-version:1.1", {"login": " me", "accept-version": "1.1"}),
        ("STOMP", "accept-version:1.0\nhost: h", {"accept-version": "1.0", "host": " h"}),
        ("CONNECTED", "session: 1\nversion:1.2", {"session": " 1", "version": "1.2"}),
        ("ERROR", "message: no", {"message": " no"}),
    ],
)
def test_padding_is_removed_in_the_handshake_of_1_0_if_tolerated(
    command: str, lines: str, expected: dict[str, str]
) -> None:
    data = f"{command}\n{lines}\n\n\0".encode()
    assert decode_one(data, None, tolerance=Tolerance.PADDING).headers == expected
    raw = dict(line.split(":") for line in lines.split("\n"))
    assert decode_one(data, None).headers == raw


@pytest.mark.parametrize("version", [None, "1.0"])
@pytest.mark.parametrize("line", [" :x", "\t \t:x"])
def test_a_name_of_padding_alone_is_empty(version: Version | None, line: str) -> None:
    data = f"CONNECT\n{line}\n\n\0".encode()
    error = refuse(data, version, tolerance=Tolerance.PADDING, code="bad-header")
    assert "empty name" in str(error)
    assert decode_one(data, version).headers == {line[:-2]: "x"}


# The receipt requested by a broken frame.


@requirement("1.1/error/receipt-id", "1.2/error/receipt-id", "1.2/headers/error-identify")
@pytest.mark.parametrize(
    ("lines", "receipt"),
    [
        (b"", None),
        (b"receipt:", ""),
        (b"a:b\nreceipt:7", "7"),
        (b"receipt:7\r\na:b", "7"),
        (b"receipt:\xc3\xa9", "é"),
        (b"receipt:7\nreceipt:8", "7"),
        (b"receipt", None),
        (b"receipt \nReceipt:1\nreceipts:2", None),
        (b"receipt:a\\c\nreceipt:8", None),
        (b"receipt:a:b\nreceipt:8", None),
        (b"receipt:\xff\nreceipt:8", None),
    ],
)
def test_the_receipt_of_a_broken_frame_is_found_where_it_is_plain(
    lines: bytes, receipt: str | None
) -> None:
    assert receipt_in(b"SEND\n" + lines) == receipt


def test_a_command_is_no_receipt() -> None:
    assert receipt_in(b"receipt:7") is None
