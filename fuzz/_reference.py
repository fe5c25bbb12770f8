"""A reference decoder, written from the BNF of the specifications: plain, slow, and strict.

It shares no code with ``stompkit.frames``. The grammar is that of "Augmented BNF". Rules from the
text of a specification have a comment with the name of the section.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["COMMANDS_1_0", "COMPLETE", "INCOMPLETE", "Decoded", "Read", "decode"]

#: The stream ends with a frame, or with the line ends after one.
COMPLETE: Final = "complete"
#: The stream ends within a frame or a line end.
INCOMPLETE: Final = "incomplete"

COMMANDS_1_0: Final = frozenset(
    "SEND SUBSCRIBE UNSUBSCRIBE BEGIN COMMIT ABORT ACK DISCONNECT"
    # "CONNECT" is missing in the BNF of 1.0; the text has it.
    " CONNECT CONNECTED MESSAGE RECEIPT ERROR".split()
)
_COMMANDS: Final = {
    "1.0": COMMANDS_1_0,
    "1.1": COMMANDS_1_0 | {"NACK", "STOMP"},
    "1.2": COMMANDS_1_0 | {"NACK", "STOMP"},
}
#: 1.1 and 1.2, "Value Encoding". STOMP is handled like CONNECT: "CONNECT or STOMP Frame".
_UNESCAPED: Final = ("CONNECT", "CONNECTED", "STOMP")
#: 1.1 and 1.2, "Body".
_WITH_BODY: Final = ("SEND", "MESSAGE", "ERROR")
_ESCAPES: Final = {
    "1.1": {"n": "\n", "c": ":", "\\": "\\"},
    "1.2": {"n": "\n", "c": ":", "\\": "\\", "r": "\r"},
}


class Read(NamedTuple):
    """One frame, with its position."""

    command: str
    headers: dict[str, str]
    body: bytes
    #: The header lines as received, without their line ends.
    lines: list[bytes]
    start: int
    body_start: int
    end: int


class Decoded(NamedTuple):
    """The frames of a stream, and its end: complete, incomplete, or the reason for a refusal."""

    frames: list[Read]
    end: str


class _Refused(Exception):
    """The bytes are not a frame; the argument is the reason, in one or two words."""


class _Incomplete(Exception):
    """The bytes end within a frame."""


def decode(stream: bytes, version: str) -> Decoded:
    """Read frames from the beginning of a stream, by the grammar of one version."""
    frames: list[Read] = []
    at = 0
    try:
        while True:
            at = _skip_line_ends(stream, at, version)
            if at == len(stream):
                return Decoded(frames, COMPLETE)
            frames.append(_frame(stream, at, version))
            at = frames[-1].end
    except _Refused as refused:
        return Decoded(frames, str(refused))
    except _Incomplete:
        return Decoded(frames, INCOMPLETE)


def _skip_line_ends(stream: bytes, at: int, version: str) -> int:
    """Skip ``*( EOL )``; at the beginning of a stream it is a heart-beat ("Heart-beating")."""
    while at < len(stream):
        if stream[at] == 10:
            at += 1
        elif version == "1.2" and stream[at] == 13 and at + 1 == len(stream):
            raise _Incomplete
        elif version == "1.2" and stream[at : at + 2] == b"\r\n":
            at += 2
        elif stream[at] in (0, 13):
            raise _Refused("octet between frames")
        else:
            break
    return at


def _frame(stream: bytes, start: int, version: str) -> Read:
    lines, body_start = _lines(stream, start, version)
    command = _text(lines.pop(0), version)
    if command not in _COMMANDS[version]:
        known = command in _COMMANDS["1.2"]
        raise _Refused("command of another version" if known else "unknown command")
    headers: dict[str, str] = {}
    for line in lines:
        name, value = _header(line, command, version)
        # "Repeated Header Entries": only the first entry is used.
        headers.setdefault(name, value)
    end = _body_end(stream, body_start, headers, version, command)
    body = stream[body_start:end]
    if body and version != "1.0" and command not in _WITH_BODY:
        raise _Refused("body not allowed")
    return Read(command, headers, body, lines, start, body_start, end + 1)


def _lines(stream: bytes, at: int, version: str) -> tuple[list[bytes], int]:
    """Read the lines up to the blank one; return them, and the start of the body."""
    lines: list[bytes] = []
    while True:
        line_end = stream.find(b"\n", at)
        if line_end < 0:
            raise _Incomplete
        line = stream[at:line_end]
        at = line_end + 1
        if version == "1.2" and line.endswith(b"\r"):
            line = line[:-1]  # EOL = [CR] LF
        if not line:
            return lines, at
        lines.append(line)


def _text(octets: bytes, version: str) -> str:
    if version == "1.0" and not octets.isascii():
        raise _Refused("not US-ASCII")  # CHAR
    try:
        return octets.decode("utf-8")  # "Value Encoding"
    except UnicodeDecodeError:
        raise _Refused("not UTF-8") from None


def _header(line: bytes, command: str, version: str) -> tuple[str, str]:
    if b":" not in line:
        raise _Refused("no colon")
    name, _, value = line.partition(b":")
    if not name:
        raise _Refused("empty name")
    if version == "1.0":
        if not value:
            raise _Refused("empty value")
        return _text(name, version), _text(value, version)
    if version == "1.2" and b"\r" in line:
        raise _Refused("carriage return")
    if command in _UNESCAPED:
        return _text(name, version), _text(value, version)
    if b":" in value:
        raise _Refused("raw colon")
    return _unescape(_text(name, version), version), _unescape(_text(value, version), version)


def _unescape(text: str, version: str) -> str:
    if "\\" not in text:
        return text
    plain = ""
    characters = iter(text)
    for character in characters:
        if character == "\\":
            letter = next(characters, "")
            if letter not in _ESCAPES[version]:
                raise _Refused("undefined escape")
            plain += _ESCAPES[version][letter]
        else:
            plain += character
    return plain


def _body_end(
    stream: bytes, start: int, headers: dict[str, str], version: str, command: str
) -> int:
    """Return the position of the NUL that ends a frame."""
    declared = headers.get("content-length")
    if declared is None:
        end = stream.find(b"\0", start)
        if end < 0:
            raise _Incomplete
        return end
    if not (declared.isascii() and declared.isdigit()):
        raise _Refused("not a length")
    if int(declared) and version != "1.0" and command not in _WITH_BODY:
        raise _Refused("body not allowed")
    end = start + int(declared)
    if end >= len(stream):
        raise _Incomplete
    if stream[end] != 0:
        raise _Refused("no NUL at the end")
    return end
