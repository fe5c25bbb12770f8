"""Invalid or nearly valid STOMP data, as broken or hostile clients send it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stompkit.frames import Version

__all__ = [
    "BODIES",
    "COMMANDS",
    "CONNECTS",
    "ENCODINGS",
    "ESCAPES",
    "HEADS",
    "LENGTHS",
    "LINE_ENDS",
    "STRANGERS",
    "Malformed",
]

_SEND: Final = b"SEND\ndestination:{queue}\nreceipt:m\n"
_HTTP: Final = b" / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Malformed:
    """Data that no client should send."""

    #: Description for a report, the same for all versions.
    name: str
    #: The bytes. ``{queue}`` is replaced by a destination, ``{login}`` by the header lines that
    #: CONNECT requires; the requested receipt is ``m``.
    octets: bytes
    #: True if the data is unambiguous, so that executing it is harmless.
    is_clear: bool = False

    def to(self, destination: str, login: Mapping[str, str]) -> bytes:
        """Return the bytes, with this destination and these headers of CONNECT."""
        lines = "".join(f"{name}:{value}\n" for name, value in login.items())
        octets = self.octets.replace(b"{queue}", destination.encode())
        return octets.replace(b"{login}", lines.encode())


def _line(name: str, line: bytes, *, is_clear: bool = False) -> Malformed:
    """Return a SEND with one additional header line."""
    return Malformed(name, _SEND + line + b"\n\nx\0", is_clear)


def _length(value: str, name: str, *, is_clear: bool = False) -> Malformed:
    """Return a SEND with a body of one byte and this content-length."""
    return _line(f"content-length {name}", b"content-length:" + value.encode(), is_clear=is_clear)


def _connect(name: str, line: bytes, rest: bytes = b"\n\n\0") -> Malformed:
    """Return a CONNECT with an additional first header line, and the data after the headers."""
    return Malformed(f"CONNECT with {name}", b"CONNECT\n" + line + b"\n{login}h:v" + rest)


COMMANDS: Final = (
    Malformed("unknown command", b"STAMP\ndestination:{queue}\nreceipt:m\n\nx\0"),
    Malformed("command in lower case", _SEND.replace(b"SEND", b"send") + b"\nx\0", is_clear=True),
    Malformed("blank before the command", b" " + _SEND + b"\nx\0", is_clear=True),
    Malformed("blank after the command", _SEND.replace(b"SEND", b"SEND ") + b"\nx\0", True),
    Malformed("byte order mark", b"\xef\xbb\xbf" + _SEND + b"\nx\0", is_clear=True),
    Malformed("command that is not UTF-8", b"S\xff\xfeND\nreceipt:m\n\nx\0"),
    Malformed("command of 2 KiB", b"S" * 2_048 + b"\nreceipt:m\n\nx\0"),
    Malformed("header line in place of the command", _SEND[5:] + b"\nx\0"),
    Malformed("NUL between frames", b"\0\0" + _SEND + b"\nx\0", is_clear=True),
    Malformed(
        "MESSAGE from a client",
        b"MESSAGE\ndestination:{queue}\nmessage-id:1\nsubscription:s1\nreceipt:m\n\nx\0",
    ),
    Malformed("ERROR from a client", b"ERROR\nmessage:m\nreceipt:m\n\nx\0"),
    Malformed("RECEIPT from a client", b"RECEIPT\nreceipt-id:m\nreceipt:m\n\n\0"),
    Malformed("CONNECTED from a client", b"CONNECTED\nversion:1.2\nreceipt:m\n\n\0"),
)

HEADS: Final = (
    _line("header line without colon", b"nonsense"),
    _line("header without name", b":value"),
    _line("header line that is only a colon", b":"),
    _line("header line that goes on in the next", b"h:a\n b"),
    _line("colon in a header value", b"h:a:b", is_clear=True),
    _line("NUL in a header value", b"h:a\0b"),
    _line("NUL in a header name", b"a\0b:h"),
    Malformed("NUL before the blank line", _SEND + b"\0", is_clear=True),
    Malformed("NUL after the command", b"SEND\0"),
    Malformed("destination without value", b"SEND\ndestination:\nreceipt:m\n\nx\0"),
)

ENCODINGS: Final = (
    _line("header value with the octet FF", b"h:a\xffb"),
    _line("header value in Latin-1", b"h:caf\xe9"),
    _line("UTF-8 that is cut short", b"h:\xe2\x82"),
    _line("UTF-8 that is overlong", b"h:\xc0\xaf"),
    _line("UTF-8 of a surrogate", b"h:\xed\xa0\x80"),
    _line("UTF-8 beyond Unicode", b"h:\xf4\x90\x80\x80"),
    _line("header name that is not UTF-8", b"\xff\xfe:h"),
    Malformed("destination that is not UTF-8", _SEND.replace(b"}", b"}\xff") + b"\nx\0"),
    Malformed("frame in UTF-16", "SEND\nreceipt:m\n\n\0".encode("utf-16-be")),
)

LENGTHS: Final = (
    _length("-1", "of -1"),
    _length("-2147483648", "of -2**31"),
    _length("-9223372036854775808", "of -2**63"),
    _length(str(2**31), "of 2**31"),
    _length(str(2**32 + 1), "of 2**32 + 1"),
    _length(str(2**63), "of 2**63"),
    _length(str(2**64 + 1), "of 2**64 + 1"),
    _length("9" * 1_000, "of 1,000 digits"),
    _length("", "without value"),
    _length("x", "that is a letter"),
    _length("1x", "that ends in a letter"),
    _length("1.0", "with a point"),
    _length("0x1", "in hexadecimal"),
    _length("1,1", "that is two numbers"),
    _length("\u0661", "in Arabic digits"),
    _length("+1", "with a plus", is_clear=True),
    _length(" 1", "after a blank", is_clear=True),
    _length("0", "short of NUL"),
    _length("100", "past NUL"),
)

#: For 1.1 and 1.2; 1.0 has no escapes.
ESCAPES: Final = (
    _line(r"escape \t", rb"h:a\tb"),
    _line(r"escape \C", rb"h:a\Cb"),
    _line(r"escape \x41", rb"h:a\x41b"),
    _line(r"escape \:", rb"h:a\:b"),
    _line("backslash at the end of a line", b"h:a\\"),
    _line("undefined escape in a header name", rb"a\tb:h"),
)

_CRLF: Final = Malformed(
    "lines that end in CR LF", _SEND.replace(b"\n", b"\r\n") + b"\r\nx\0", True
)
_CR: Final = Malformed("lines that end in CR", _SEND.replace(b"\n", b"\r") + b"\rx\0")
_CR_WITHIN: Final = _line("CR within a header value", b"h:a\rb", is_clear=True)
#: Invalid line ends, which depend on the version.
LINE_ENDS: Final[dict[Version, tuple[Malformed, ...]]] = {
    "1.0": (_CRLF, _CR),
    "1.1": (_CRLF, _CR, _line(r"escape \r", rb"h:a\rb")),
    "1.2": (_CR, _CR_WITHIN),
}

BODIES: Final = (
    Malformed("body on BEGIN", b"BEGIN\ntransaction:t\nreceipt:m\n\nbody\0", is_clear=True),
    Malformed(
        "counted body on BEGIN",
        b"BEGIN\ntransaction:u\nreceipt:m\ncontent-length:4\n\nb\0dy\0",
        is_clear=True,
    ),
    Malformed("body on DISCONNECT", b"DISCONNECT\nreceipt:m\n\nbody\0", is_clear=True),
)

#: For the start of a connection.
CONNECTS: Final = (
    _connect("header line without colon", b"nonsense"),
    _connect("header without name", b":value"),
    _connect("NUL in its head", b"h:a", b"\0\n\n\0"),
    _connect("a header that is not UTF-8", b"h:\xff"),
    _connect("a content-length of -1", b"content-length:-1"),
    _connect("a content-length that is a letter", b"content-length:x"),
    _connect("a content-length past NUL", b"content-length:100"),
    _connect("an enormous content-length", b"content-length:" + b"9" * 30),
    _connect("a body", b"a:b", b"\n\nbody\0"),
    _connect("a heart-beat that is a word", b"heart-beat:often"),
    _connect("a heart-beat of one number", b"heart-beat:1000"),
    _connect("a heart-beat of three numbers", b"heart-beat:1,2,3"),
    _connect("a heart-beat that is negative", b"heart-beat:-1,-1"),
    _connect("a heart-beat that is enormous", b"heart-beat:%b,0" % (b"9" * 30)),
    _connect("an empty accept-version", b"accept-version:"),
    _connect("commas for versions", b"accept-version:,,,"),
    Malformed("CONNECT in lower case", b"connect\n{login}\n\0"),
    Malformed("DISCONNECT first", b"DISCONNECT\nreceipt:m\n\n\0"),
    Malformed("NUL first", b"\0"),
    Malformed("line ends and a NUL first", b"\n\r\n\n\0"),
)

#: Data of other protocols or of port scanners.
STRANGERS: Final = (
    Malformed("TLS", bytes.fromhex("16030100f8010000f40303") + b"\x5a" * 240),
    Malformed("HTTP", b"GET" + _HTTP),
    Malformed("HTTP with a body", b"POST" + _HTTP + b"{}\n" * 40),
    Malformed("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"),
    Malformed("MQTT", b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd"),
    Malformed("AMQP 0-9-1", b"AMQP\x00\x00\x09\x01"),
    Malformed("OpenWire", b"\x00\x00\x00\x10\x01ActiveMQ\x00\x00\x00\x0c\x01"),
    Malformed("SMTP", b"EHLO localhost\r\n"),
    Malformed("PROXY protocol", b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n"),
    Malformed("CONNECT in UTF-16", "CONNECT\n\n\0".encode("utf-16")),
    Malformed("every octet there is", bytes(range(256))),
    Malformed("1,000 times NUL", b"\0" * 1_000),
)
