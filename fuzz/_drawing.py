"""Random streams of frames: most frames are valid, the others have one or two mutations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from fuzz._peers import Stream
from stompkit.frames import VERSIONS

__all__ = ["draw"]

_COMMANDS: Final = (
    *(b"SEND", b"SEND", b"SEND", b"MESSAGE", b"MESSAGE", b"MESSAGE", b"ERROR", b"RECEIPT"),
    *(b"CONNECT", b"CONNECTED", b"STOMP", b"SUBSCRIBE", b"UNSUBSCRIBE", b"ACK", b"NACK"),
    *(b"BEGIN", b"COMMIT", b"ABORT", b"DISCONNECT"),
)
_NAMES: Final = (
    *(b"destination", b"id", b"receipt", b"message-id", b"subscription", b"ack", b"x", b"foo"),
    *(b"transaction", b"content-type", b"host", b"login", b"Destination", b"a b", b"1"),
    b"-",
)
_VALUES: Final = (
    *(b"/queue/a", b"/topic/b.c", b"1", b"0", b"client", b"text/plain;charset=utf-8", b"x y"),
    *(b"message-12345", b"0123456789abcdef" * 3, b"a=b&c", b"\x7f\x01\t!", b"*"),
)
_ESCAPES: Final = (b"\\n", b"\\c", b"\\\\", b"\\r", b"\\\\n", b"\\\\\\c", b"a\\nb\\cc\\\\d")
_WRONG_ESCAPES: Final = (b"\\t", b"\\", b"\\N", b"\\0", b"\\:", b"\\\\\\", b"\\\xc3\xa9")
_UTF8: Final = ("é", "日本", "😀", "\ufeffx", "\u00a0", "\u2028", "\x85")
_NOT_UTF8: Final = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"a\xe9b")
_BLANKS: Final = (b" ", b"  x", b"x ", b"\tx\t", b" x y ")
_LENGTHS: Final = (
    b"",
    b"-1",
    b"+1",
    b"x",
    b"1x",
    b" 1",
    b"1 ",
    b"0x1",
    b"1.0",
    b"1_0",
    b"\xc2\xb2",
)
_BODIES: Final = (
    *(b"hello", b"", b"\n", b"\r\n", b"a\n\nb", b"SEND\nx:y\n\nz", b"\xff\xfe", b"x" * 200),
    *(b" ", b"content-length:3\n\n", b"\xef\xbb\xbfx"),
)
_WITH_BODY: Final = (b"SEND", b"MESSAGE", b"ERROR")
_OCTETS: Final = (b"", b"\0", b"\n", b"\r", b":", b"\\", b" ", b"\xff", b"A")
_BETWEEN: Final = (
    *(b"\n", b"\n", b"\n", b"\n\n", b"\n", b"\n", b"\n\n\n\n", b"\n", b"\n"),
    *(b"\n", b"\n\n\n", b"\r\n", b"\n\r\n\n", b"\r", b"\0", b" ", b"\r\r\n", b"\n\0"),
)


class _Drawn:
    """A frame in parts, for mutations to change."""

    def __init__(self, random: Random) -> None:
        """Draw a valid frame."""
        pick = random.random
        self.command = _COMMANDS[int(pick() * len(_COMMANDS))]
        self.headers = [
            (_NAMES[int(pick() * len(_NAMES))], _VALUES[int(pick() * len(_VALUES))])
            for _ in range(int(pick() * 4))
        ]
        self.body = b""
        if self.command in _WITH_BODY:
            self.body = _BODIES[int(pick() * len(_BODIES))]
            if pick() < 0.5:
                at = int(pick() * (len(self.headers) + 1))
                self.headers.insert(at, (b"content-length", b"%d" % len(self.body)))
        self.eol = b"\n"
        self.blank = b""
        self.end = b"\0"

    def wire(self) -> bytes:
        """Return the encoded frame."""
        eol = self.eol
        head = [self.command, eol]
        for name, value in self.headers:
            head += (name, b":", value, eol) if name is not _NO_COLON else (value, eol)
        return b"".join((*head, self.blank or eol, self.body, self.end))

    def put(self, name: bytes, value: bytes, random: Random) -> None:
        """Insert a header at a random position."""
        self.headers.insert(int(random.random() * (len(self.headers) + 1)), (name, value))


_NO_COLON: Final = b"no colon"
_Mutation = Callable[[_Drawn, Random], None]


def _escape(frame: _Drawn, random: Random) -> None:
    frame.put(b"x", random.choice(_VALUES) + random.choice(_ESCAPES), random)


def _escape_in_name(frame: _Drawn, random: Random) -> None:
    frame.put(random.choice(_NAMES) + random.choice(_ESCAPES), b"1", random)


def _wrong_escape(frame: _Drawn, random: Random) -> None:
    name = random.choice((b"x", b"x" + random.choice(_WRONG_ESCAPES)))
    frame.put(name, random.choice(_WRONG_ESCAPES), random)


def _raw_colon(frame: _Drawn, random: Random) -> None:
    frame.put(b"url", random.choice((b":", b"a:b", b"tcp://h:1", b"::")), random)


def _repeated(frame: _Drawn, random: Random) -> None:
    for _ in range(random.choice((2, 2, 3))):
        frame.put(b"foo", random.choice(_VALUES), random)


def _crlf(frame: _Drawn, random: Random) -> None:
    frame.eol = b"\r\n"


def _mixed_ends(frame: _Drawn, random: Random) -> None:
    frame.eol, frame.blank = random.choice(((b"\n", b"\r\n"), (b"\r\n", b"\n")))


def _carriage_return(frame: _Drawn, random: Random) -> None:
    frame.put(
        *random.choice(((b"x", b"a\rb"), (b"x", b"a\r"), (b"a\rb", b"1"), (b"x", b"\r"))), random
    )


def _no_colon(frame: _Drawn, random: Random) -> None:
    frame.put(_NO_COLON, random.choice((b"x", b" ", b"destination", b"\\c", b"\r")), random)


def _empty_name(frame: _Drawn, random: Random) -> None:
    frame.put(b"", random.choice(_VALUES), random)


def _empty_value(frame: _Drawn, random: Random) -> None:
    frame.put(b"x", b"", random)


def _blanks(frame: _Drawn, random: Random) -> None:
    blank = random.choice(_BLANKS)
    frame.put(*random.choice(((b"x", blank), (blank, b"1"))), random)


def _odd_name(frame: _Drawn, random: Random) -> None:
    frame.put(random.choice((b"__proto__", b"constructor", b"toString")), b"1", random)


def _utf8(frame: _Drawn, random: Random) -> None:
    text = random.choice(_UTF8).encode()
    frame.put(*random.choice(((b"x", text), (text, b"1"))), random)


def _not_utf8(frame: _Drawn, random: Random) -> None:
    octets = random.choice(_NOT_UTF8)
    frame.put(*random.choice(((b"x", octets), (octets, b"1"))), random)


def _length_off(frame: _Drawn, random: Random) -> None:
    length = max(0, len(frame.body) + random.choice((-2, -1, 0, 1, 2, 20)))
    frame.put(b"content-length", b"%d" % length, random)


def _length_zeros(frame: _Drawn, random: Random) -> None:
    frame.headers.insert(
        0, (b"content-length", b"0" * random.choice((1, 30)) + b"%d" % len(frame.body))
    )


def _length_odd(frame: _Drawn, random: Random) -> None:
    frame.headers.insert(0, (b"content-length", random.choice(_LENGTHS)))


def _length_huge(frame: _Drawn, random: Random) -> None:
    frame.headers.insert(0, (b"content-length", random.choice((b"67108865", b"9" * 18, b"9" * 25))))


def _nul_in_body(frame: _Drawn, random: Random) -> None:
    frame.command = random.choice(_WITH_BODY)
    frame.body = random.choice((b"\0", b"a\0b", b"\0\0", b"a\0\n\nb", b"\0\nSEND\n\n\0"))
    if random.random() < 0.8:
        frame.headers.insert(0, (b"content-length", b"%d" % len(frame.body)))


def _body_anywhere(frame: _Drawn, random: Random) -> None:
    frame.body = random.choice(_BODIES)


def _nul_in_head(frame: _Drawn, random: Random) -> None:
    frame.put(*random.choice(((b"x", b"a\0b"), (b"a\0b", b"1"), (b"x", b"\0"))), random)


def _no_nul(frame: _Drawn, random: Random) -> None:
    frame.end = b""


def _no_blank_line(frame: _Drawn, random: Random) -> None:
    frame.blank = b"\0"


def _other_command(frame: _Drawn, random: Random) -> None:
    command = frame.command
    frame.command = random.choice(
        (
            *(command.lower(), command + b" ", b" " + command, b"FOO", b"\xef\xbb\xbf" + command),
            *(
                command + b"\r",
                command[:-1],
                command + b":",
                command + b"\0",
                b"\xff",
                b"S\xc3\xa9",
            ),
        )
    )


def _long(frame: _Drawn, random: Random) -> None:
    size = random.choice((300, 1_000, 4_000))
    if random.random() < 0.002:
        size = 70_000
    frame.put(*random.choice(((b"x", b"y" * size), (b"n" * size, b"1"))), random)


def _many(frame: _Drawn, random: Random) -> None:
    count = 1_001 if random.random() < 0.002 else 30
    frame.headers += [(b"h%d" % number, b"v") for number in range(count)]


def _octet(frame: _Drawn, random: Random) -> None:
    """Encode the frame, then change, remove or insert one byte."""
    wire = frame.wire()
    at = int(random.random() * len(wire))
    new = random.choice(
        (b"", b"\0", b"\n", b"\r", b":", b"\\", b" ", b"\xff", b"A", wire[at : at + 2])
    )
    wire = wire[:at] + new + wire[at + random.choice((0, 1)) :]
    frame.wire = lambda: wire  # type: ignore[method-assign]


_MUTATIONS: Final[tuple[_Mutation, ...]] = (
    *(_escape, _escape_in_name, _wrong_escape, _raw_colon, _repeated, _crlf, _crlf, _mixed_ends),
    *(_carriage_return, _no_colon, _empty_name, _empty_value, _blanks, _utf8, _not_utf8),
    *(_length_off, _length_zeros, _length_odd, _length_huge, _nul_in_body, _body_anywhere),
    *(
        _odd_name,
        _nul_in_head,
        _no_nul,
        _no_blank_line,
        _other_command,
        _long,
        _many,
        _octet,
        _octet,
    ),
)


def draw(seed: int) -> Iterator[tuple[Stream, int]]:
    """Yield random streams endlessly, each with the number of frames in it."""
    random = Random(seed)
    pick = random.random
    while True:
        version = VERSIONS[int(pick() * 3)]
        count = 1 + int(pick() * 3)
        parts = []
        if pick() < 0.05:
            parts.append(_BETWEEN[int(pick() * len(_BETWEEN))])
        for _ in range(count):
            frame = _Drawn(random)
            chance = pick()
            if chance < 0.25:
                _MUTATIONS[int(pick() * len(_MUTATIONS))](frame, random)
            if chance < 0.05:
                _MUTATIONS[int(pick() * len(_MUTATIONS))](frame, random)
            parts.append(frame.wire())
            if pick() < 0.15:
                parts.append(_BETWEEN[int(pick() * len(_BETWEEN))])
        octets = b"".join(parts)
        cut = int(pick() * len(octets)) if pick() < 0.5 else 0
        yield Stream(version, octets, cut), count
