"""Parse the bytes before the blank line into a command and its headers."""

from __future__ import annotations

from typing import Final

from stompkit.frames._commands import COMMANDS
from stompkit.frames._errors import RemoteProtocolError, refusal
from stompkit.frames._escapes import unescape
from stompkit.frames._grammar import UNESCAPED_COMMANDS, Tolerance, Version

__all__ = ["Head", "parse_head"]

#: Headers by name, and the later entries of repeated ones.
_Headers = tuple[dict[str, str], tuple[tuple[str, str], ...]]
#: A command, its headers, and True if the encoder writes the same lines for them in all versions.
Head = tuple[str, dict[str, str], tuple[tuple[str, str], ...], bool]

_NONE: Final = Tolerance.NONE
_RAW_COLON: Final = Tolerance.RAW_COLON
_SHOWN_CHARACTERS = 60
_NEEDS_1_2 = "lines that end in CR LF need STOMP 1.2"


def parse_head(head: bytes, version: Version | None, tolerance: Tolerance) -> Head:
    """Parse a command line and header lines; ``head`` ends before the last line's end.

    ``version`` is ``None`` while it has not been negotiated. Raises
    :class:`RemoteProtocolError` for whatever the version's grammar does not allow and
    ``tolerance`` does not let pass.
    """
    # True while nothing prevents that the lines are sent again in all versions.
    is_sendable = version != "1.0"
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        text = _decode_anyway(head, tolerance, error)
        is_sendable = False
    if "\r" in text:
        text = _without_cr(text, version, tolerance)
        is_sendable = False
    lines = text.split("\n")
    command = lines[0]
    if command not in COMMANDS:
        raise _unknown_command(command, head)
    del lines[0]
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise _no_colon(lines, head)
        headers[name] = value
    plain = command in UNESCAPED_COMMANDS or version == "1.0" or version is None
    if not plain:
        if "\\" in text:
            headers, repeated = _escaped(lines, version or "1.2", tolerance, head)
            return command, headers, repeated, False
        if text.count(":") != len(lines):
            if not tolerance & _RAW_COLON:
                raise _raw_colon(lines, head)
            is_sendable = False
    if "" in headers:
        raise _empty_name(head)
    if plain and tolerance & Tolerance.PADDING and _is_1_0(command, headers, version):
        headers, repeated = _unpadded(lines, head)
        return command, headers, repeated, False
    if len(headers) != len(lines):
        headers, repeated = _first_wins([_pair(line) for line in lines])
        return command, headers, repeated, False
    return command, headers, (), is_sendable and not plain


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name, value


def _is_1_0(command: str, headers: dict[str, str], version: Version | None) -> bool:
    """Return True if the peer speaks 1.0; in the handshake, if it sends no version header."""
    if version is None and command in UNESCAPED_COMMANDS:
        return headers.keys().isdisjoint(("accept-version", "version"))
    return version == "1.0"


def _unpadded(lines: list[str], head: bytes) -> _Headers:
    pairs = []
    for line in lines:
        name, value = _pair(line)
        name = name.strip(" \t")
        if not name:
            raise _empty_name(head)
        pairs.append((name, value.strip(" \t")))
    return _first_wins(pairs)


def _first_wins(pairs: list[tuple[str, str]]) -> _Headers:
    headers: dict[str, str] = {}
    later = []
    for name, value in pairs:
        if name in headers:
            later.append((name, value))
        else:
            headers[name] = value
    return headers, tuple(later)


def _escaped(lines: list[str], version: Version, tolerance: Tolerance, head: bytes) -> _Headers:
    """Return the headers when at least one contains a backslash."""
    keep = bool(tolerance & Tolerance.UNKNOWN_ESCAPE)
    pairs = []
    for line in lines:
        name, value = _pair(line)
        if ":" in value and not tolerance & _RAW_COLON:
            raise _raw_colon([line], head)
        if not name:
            raise _empty_name(head)
        try:
            name = unescape(name, version, keep_unknown=keep)
            value = unescape(value, version, keep_unknown=keep)
        except ValueError as error:
            raise refusal(
                f"undefined escape sequence {_shown(str(error))} in a header of STOMP {version}",
                "bad-escape",
                receipt=receipt_in(head),
            ) from None
        pairs.append((name, value))
    return _first_wins(pairs)


def _decode_anyway(head: bytes, tolerance: Tolerance, error: UnicodeDecodeError) -> str:
    if tolerance & Tolerance.INVALID_UTF8:
        return head.decode("utf-8", "surrogateescape")
    raise refusal(
        f"headers are not UTF-8: octet {head[error.start]:#04x} at {error.start}",
        "bad-utf8",
        receipt=receipt_in(head),
    ) from None


def _without_cr(text: str, version: Version | None, tolerance: Tolerance) -> str:
    """Remove the carriage returns that belong to line ends.

    1.2 allows the byte nowhere else; on 1.0 and 1.1 it is an ordinary character.
    """
    strict_1_2 = version == "1.2"
    if not strict_1_2 and version is not None and not tolerance & Tolerance.CRLF:
        return text
    if text.endswith("\r"):
        text = text[:-1]
    text = text.replace("\r\n", "\n")
    if strict_1_2 and "\r" in text:
        raise refusal(
            "a carriage return stands within a header, where STOMP 1.2 has it escaped as \\r",
            "bare-cr",
            receipt=receipt_in(text.encode("utf-8", "surrogateescape")),
        )
    return text


def receipt_in(head: bytes | bytearray) -> str | None:
    """Return the receipt that a broken frame asked for, so that the ERROR frame can name it.

    Only a value without escapes is returned: a guess about an unreadable frame is useless.
    """
    for line in head.split(b"\n")[1:]:
        name, colon, value = line.partition(b":")
        if name == b"receipt" and colon:
            if b"\\" in value or b":" in value:
                return None
            try:
                return value.decode().removesuffix("\r")
            except UnicodeDecodeError:
                return None
    return None


def _shown(text: str) -> str:
    """Quote peer input on one line, in ASCII, cut to a readable length."""
    if len(text) > _SHOWN_CHARACTERS:
        text = text[:_SHOWN_CHARACTERS] + "..."
    return ascii(text)


def _unknown_command(command: str, head: bytes) -> RemoteProtocolError:
    message = f"unknown command {_shown(command)}"
    if command.endswith("\r"):
        message += f" ({_NEEDS_1_2})"
    elif command.strip().upper() in COMMANDS:
        message += f" (did you mean {command.strip().upper()}? commands are case sensitive)"
    return refusal(message, "unknown-command", receipt=receipt_in(head))


def _no_colon(lines: list[str], head: bytes) -> RemoteProtocolError:
    # The line is not quoted: it may be a passcode that lost its colon, and this may be logged.
    number = next(index for index, line in enumerate(lines, 1) if ":" not in line)
    message = f"header line without a colon: line {number} after the command"
    if lines[number - 1] == "\r":
        message += f" ({_NEEDS_1_2})"
    return refusal(message, "bad-header", receipt=receipt_in(head))


def _raw_colon(lines: list[str], head: bytes) -> RemoteProtocolError:
    line = next(line for line in lines if line.count(":") > 1)
    name = line.partition(":")[0]
    return refusal(
        f"the value of header {_shown(name)} holds a colon that is not escaped as \\c",
        "raw-colon",
        receipt=receipt_in(head),
    )


def _empty_name(head: bytes) -> RemoteProtocolError:
    return refusal("header line with an empty name", "bad-header", receipt=receipt_in(head))
