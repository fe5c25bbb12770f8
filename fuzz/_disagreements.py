"""Classes of disagreements between decoders, and the rules that assign them.

A disagreement is the first frame, or the end, that a decoder reads differently from the reference.
Later differences in the same stream are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from fuzz._peers import REFUSED, Outcome, Seen, Stream
from fuzz._reference import COMMANDS_1_0, COMPLETE, INCOMPLETE, Decoded, Read
from stompkit.frames import AFTER_LOGIN, Version

__all__ = ["CLASSES", "Class", "Difference", "classify", "compare", "table"]

_STOMPKIT: Final = "stompkit"
_STOMP_PY: Final = "stomp.py"
_STOMPJS: Final = "stompjs"


class Difference(NamedTuple):
    """The first difference between a decoder and the reference; a missing frame is None."""

    peer: str
    stream: Stream
    expected: Read | None
    expected_end: str
    seen: Seen | None
    seen_end: str
    #: Position in the stream at which the disputed frame begins.
    start: int
    #: Earlier frames, on which both seem to agree.
    earlier: list[Read]


class Class(NamedTuple):
    """One kind of disagreement, with the decision about it."""

    name: str
    #: Peers that differ from the reference in this way.
    who: tuple[str, ...]
    about: str
    #: The peer that is right, with the sentence that decides.
    decided: str
    #: The shortest example: a version, and bytes.
    example: tuple[Version, bytes]
    #: True if it may be missing among ten thousand frames.
    rare: bool = False


def compare(peer: str, stream: Stream, reference: Decoded, outcome: Outcome) -> Difference | None:
    """Return the first difference between a decoder and the reference, if there is any."""
    frames, end = reference
    others = outcome.frames
    at = start = 0
    for frame, other in zip(frames, others):  # noqa: B905
        if frame[:3] != other:
            break
        at, start = at + 1, frame.end
    expected = frames[at] if at < len(frames) else None
    seen = others[at] if at < len(others) else None
    if expected is None and seen is None:
        if end == INCOMPLETE and not stream.octets[start:].strip(b"\r\n"):
            return None  # half of a line end, which some decoders keep and others skip
        if outcome.end == (end if end in (COMPLETE, INCOMPLETE) else REFUSED):
            return None
    return Difference(peer, stream, expected, end, seen, outcome.end, start, frames[:at])


def classify(difference: Difference) -> str | None:
    """Name the class of a disagreement; None if no rule matches."""
    for name, who, fits in _RULES:
        if difference.peer in who and fits(difference):
            return name
    reason = difference.expected_end
    if difference.expected is None and reason in CLASSES and difference.peer in CLASSES[reason].who:
        return reason
    return None


# The rules. Each examines the first frame on which the decoders differ.


def _head(difference: Difference) -> bytes:
    """Return the bytes of the frame including its blank line, or all bytes if it has none."""
    octets = difference.stream.octets
    blank = rb"\n\r?\n" if difference.stream.version == "1.2" else rb"\n\n"
    found = re.compile(blank).search(octets, _command_start(difference))
    return octets[difference.start : found.end() if found else len(octets)]


def _command_start(difference: Difference) -> int:
    octets, start = difference.stream.octets, difference.start
    while octets[start : start + 1] in (b"\r", b"\n"):
        start += 1
    return start


def _is_refused(difference: Difference) -> bool:
    return difference.seen is None and difference.seen_end == REFUSED


def _is_read(difference: Difference) -> bool:
    """Return True if the reference reads the frame, or waits for more of it."""
    return difference.expected is not None or difference.expected_end in (COMPLETE, INCOMPLETE)


def _nul_in_head(difference: Difference) -> bool:
    return _is_read(difference) and b"\0" in _head(difference)


def _nul_ends_head(difference: Difference) -> bool:
    """Return True if stomp.py ends this frame, or an earlier one, at a NUL in its head."""
    octets = difference.stream.octets
    heads = [octets[frame.start : frame.body_start] for frame in difference.earlier]
    return _nul_in_head(difference) or any(b"\0" in head for head in heads)


def _nul_is_refused(difference: Difference) -> bool:
    return _is_refused(difference) and _nul_in_head(difference)


def _breaks_limit(difference: Difference) -> bool:
    if not _is_refused(difference):
        return False
    limits = AFTER_LOGIN
    command, *lines = _head(difference).lstrip(b"\r\n").split(b"\n")
    length = re.search(rb"\ncontent-length:0*([0-9]+)\r?\n", _head(difference))
    return (
        len(command) > limits.max_command_bytes
        or len(lines) > limits.max_headers
        or any(len(line) > limits.max_header_line_bytes for line in lines)
        or (length is not None and int(length[1]) > limits.max_body_bytes)
    )


def _ignores_body(difference: Difference) -> bool:
    """Return True for a frame of 1.0 whose body and ``content-length`` stompkit ignores."""
    head = _head(difference).lstrip(b"\n")
    if difference.stream.version != "1.0" or not head.startswith(_BODYLESS):
        return False
    has_body = difference.expected is not None and difference.expected.body != b""
    return (has_body or b"\ncontent-length:" in head) and not _is_refused(difference)


def _crlf_too_early(difference: Difference) -> bool:
    """Return True if a carriage return, on 1.0 or 1.1, is read as part of a line end."""
    if difference.stream.version == "1.2" or b"\r" not in _head(difference):
        return False
    expected, seen = difference.expected, difference.seen
    # For stomp.js this is the length of the body, for the others another header.
    has_length = difference.peer == _STOMPJS and b"\n\rcontent-length:" in _head(difference)
    if expected is None or seen is None:
        waits = seen is None and difference.seen_end == INCOMPLETE
        return difference.expected_end == INCOMPLETE or (has_length and waits)
    if difference.peer == _STOMPJS:
        if has_length:
            seen = seen._replace(body=expected.body)
        return _js("cr")(difference._replace(seen=seen))
    lines = [line.removesuffix(b"\r") for line in expected.lines]
    return seen.headers == _py_headers(lines)


def _crs_are_blank(difference: Difference) -> bool:
    """Return True if stomp.js reads a line of 1.2 with several carriage returns as blank."""
    if difference.stream.version != "1.2" or difference.expected is not None:
        return False
    return difference.seen is not None and bool(re.search(rb"\n\r\r+\n", _head(difference)))


def _lost_frame(difference: Difference) -> bool:
    """Return True if the stream begins with bytes that stomp.py reads as a blank line."""
    octets = difference.stream.octets
    ends = octets[: len(octets) - len(octets.lstrip(b"\r\n"))]
    is_off = _is_read(difference) or bool(difference.earlier)
    return is_off and bool(_PY_BLANK.search(ends))


def _mixed_ends(difference: Difference) -> bool:
    """Return True if the blank line of a frame of 1.2 has another line end than the line before."""
    if difference.stream.version != "1.2" or not _is_read(difference):
        return False
    return bool(re.search(rb"(?:\r\n\n|[^\r]\n\r\n)\Z", _head(difference)))


def _unescapes(command: str) -> Callable[[Difference], bool]:
    """Return a rule of stomp.py: it unescapes headers of these frames, which have no escapes."""

    def fits(difference: Difference) -> bool:
        expected, seen = difference.expected, difference.seen
        if expected is None or seen is None or command not in ("", expected.command):
            return False
        is_plain = difference.stream.version == "1.0" or expected.command in _UNESCAPED
        is_same = (seen.command, seen.body) == (expected.command, expected.body)
        return is_plain and is_same and seen.headers == _py_headers(expected.lines)

    return fits


def _js(part: str) -> Callable[[Difference], bool]:
    """Return a rule of stomp.js: it matches if *part* of its handling of headers matters."""

    def fits(difference: Difference) -> bool:
        expected, seen = difference.expected, difference.seen
        if expected is None or seen is None:
            return False
        if (seen.command, seen.body) != (expected.command, expected.body):
            return False
        version = difference.stream.version
        model = _js_headers(expected.lines, expected.command, version)
        without = _js_headers(expected.lines, expected.command, version, without=part)
        return seen.headers == model != without

    return fits


_BODYLESS: Final = tuple(
    command.encode() + b"\n" for command in sorted(COMMANDS_1_0 - {"SEND", "MESSAGE", "ERROR"})
)
_PY_BLANK: Final = re.compile(rb"\n\n|\r\n\r\n")
_PLAIN: Final = {"\\n": "\n", "\\c": ":", "\\\\": "\\", "\\r": "\r"}
_UNESCAPED: Final = ("CONNECT", "CONNECTED", "STOMP")


def _unescaped(text: str) -> str:
    return re.sub(r"\\[nc\\r]", lambda found: _PLAIN[found[0]], text)


def _pairs(lines: list[bytes]) -> list[tuple[str, str]]:
    pairs = [line.decode("utf-8").partition(":") for line in lines]
    return [(name, value) for name, _, value in pairs]


def _py_headers(lines: list[bytes]) -> dict[str, str]:
    """Return the headers as stomp.py reads them: it unescapes in all frames, of all versions."""
    headers: dict[str, str] = {}
    for name, value in _pairs(lines):
        headers.setdefault(_unescaped(name), _unescaped(value))
    return headers


#: Characters that JavaScript treats as blanks.
_JS_BLANKS: Final = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)


def _js_headers(
    lines: list[bytes], command: str, version: str, *, without: str = ""
) -> dict[str, str]:
    """Return the headers as stomp.js reads them, optionally without one of its peculiarities."""
    headers: dict[str, str] = {}
    blanks = _JS_BLANKS if without != "cr" else _JS_BLANKS.replace("\r", "")
    for name, value in _pairs(lines):
        if without != "cr":
            value = value.replace("\r", "")
        if without != "trim":
            name, value = name.strip(blanks), value.strip(blanks)
        is_escaped = version != "1.0" and command not in _UNESCAPED
        if without == "version" and version == "1.1" and is_escaped:
            name, value = _unescaped(name), _unescaped(value)
        if version == "1.2" and (is_escaped or (command == "STOMP" and without != "stomp")):
            if without == "names":
                name = _unescaped(name)
            if without == "order":
                value = _unescaped(value)
            for sequence in ("\\r", "\\n", "\\c", "\\\\"):
                value = value.replace(sequence, _PLAIN[sequence]) if without != "order" else value
        if name != "__proto__" or without == "proto":
            headers.setdefault(name, value)
    return headers


_RULES: Final[tuple[tuple[str, tuple[str, ...], Callable[[Difference], bool]], ...]] = (
    ("NUL in head", (_STOMPKIT,), _nul_is_refused),
    ("limit", (_STOMPKIT,), _breaks_limit),
    ("body on 1.0", (_STOMPKIT,), _ignores_body),
    ("blank lines first", (_STOMP_PY,), _lost_frame),
    ("NUL in head", (_STOMP_PY,), _nul_ends_head),
    ("CR before 1.2", (_STOMP_PY, _STOMPJS), _crlf_too_early),
    ("carriage return", (_STOMPJS,), _crs_are_blank),
    ("mixed line ends", (_STOMP_PY,), _mixed_ends),
    ("escapes in STOMP", (_STOMP_PY,), _unescapes("STOMP")),
    ("escapes where there are none", (_STOMP_PY,), _unescapes("")),
    ("lost name", (_STOMPJS,), _js("proto")),
    ("escapes of 1.1", (_STOMPJS,), _js("version")),
    ("escapes in STOMP", (_STOMPJS,), _js("stomp")),
    ("escapes in names", (_STOMPJS,), _js("names")),
    ("escaped backslash", (_STOMPJS,), _js("order")),
    ("outer blanks", (_STOMPJS,), _js("trim")),
)

_BOTH: Final = (_STOMP_PY, _STOMPJS)
_ALL: Final = (_STOMPKIT, *_BOTH)
_KIND: Final = "stompkit refuses it as the reference does"

CLASSES: Final[dict[str, Class]] = {
    each.name: each
    for each in (
        Class(
            "NUL in head",
            (_STOMPKIT, _STOMP_PY),
            "There is a NUL before the blank line. The BNF of each version permits it in headers.",
            "stompkit refuses it. Otherwise, a frame without its blank line would include the next"
            ' frame. 1.0, introduction: "the null indicates the end of the frame". stomp.py ends'
            " the frame there, and reads the rest as another frame.",
            ("1.2", b"ACK\nx:\0\n\n\0"),
        ),
        Class(
            "limit",
            (_STOMPKIT,),
            "A command, a header line, the number of headers or ``content-length`` exceeds a limit"
            " of stompkit.",
            'stompkit refuses it at once. 1.2, Size Limits: "servers MAY place maximum limits".',
            ("1.2", b"SEND\ncontent-length:67108865\n\n\0"),
        ),
        Class(
            "body on 1.0",
            (_STOMPKIT,),
            "A frame of 1.0 other than SEND, MESSAGE and ERROR has a body or a ``content-length``.",
            'stompkit ignores both. 1.0, SUBSCRIBE: "The body of the SUBSCRIBE command is'
            ' ignored"; the other commands have no use for a body.',
            ("1.0", b"ACK\n\nx\0"),
        ),
        Class(
            "command of another version",
            _ALL,
            "STOMP or NACK on 1.0.",
            "The decoder of stompkit reads it. ``Session`` refuses it, and can name the receipt.",
            ("1.0", b"NACK\n\n\0"),
        ),
        Class(
            "empty value",
            _ALL,
            "A header of 1.0 has an empty value. The BNF requires ``1*<any CHAR except LF>``.",
            "stompkit reads it. The meaning is clear, and 1.1 permits it.",
            ("1.0", b"SEND\nx:\n\n\0"),
        ),
        Class(
            "not US-ASCII",
            _ALL,
            "A header of 1.0 is not US-ASCII, the ``CHAR`` of the BNF.",
            "stompkit reads it if it is UTF-8, which 1.1 requires.",
            ("1.0", b"SEND\nx:\xc3\xa9\n\n\0"),
        ),
        Class(
            "unknown command",
            _BOTH,
            "The BNF does not contain the command.",
            f"{_KIND}. BNF: ``command = client-command | server-command``.",
            ("1.2", b"A\n\n\0"),
        ),
        Class(
            "octet between frames",
            _BOTH,
            "A NUL, or a carriage return outside a line end, is at the beginning of a frame.",
            f"{_KIND}. BNF: ``NULL *( EOL )``, and no command begins with these bytes.",
            ("1.2", b"\0"),
        ),
        Class(
            "no colon",
            _BOTH,
            "A header line has no colon. stomp.js adds the next line to the name.",
            f'{_KIND}. BNF: ``header = header-name ":" header-value``.',
            ("1.2", b"ACK\nx\n\n\0"),
        ),
        Class(
            "empty name",
            _BOTH,
            "A header has an empty name. stomp.py drops it.",
            f'{_KIND}. BNF: ``header-name = 1*<any OCTET except CR or LF or ":">``.',
            ("1.2", b"ACK\n:\n\n\0"),
        ),
        Class(
            "raw colon",
            _BOTH,
            "A value contains an unescaped colon, on 1.1 or 1.2.",
            f"{_KIND}, unless ``Tolerance.RAW_COLON`` is given. BNF: ``header-value = *<any OCTET"
            ' except CR or LF or ":">``.',
            ("1.2", b"ACK\nx::\n\n\0"),
        ),
        Class(
            "carriage return",
            _BOTH,
            "A header of 1.2 has a carriage return that is not part of a line end. stomp.js drops"
            " it.",
            f'{_KIND}. BNF: ``header-value = *<any OCTET except CR or LF or ":">``.',
            ("1.2", b"ACK\nx:\rx\n\n\0"),
        ),
        Class(
            "undefined escape",
            _BOTH,
            "A backslash begins no escape sequence of the version.",
            f'{_KIND}. Value Encoding: "Undefined escape sequences such as ``\\t`` [...] MUST be'
            ' treated as a fatal protocol error".',
            ("1.2", b"ACK\nx:\\\n\n\0"),
        ),
        Class(
            "not UTF-8",
            _BOTH,
            "The command or a header is not UTF-8. Both libraries replace it by U+FFFD.",
            f'{_KIND}. Value Encoding: "The commands and headers are encoded in UTF-8".',
            ("1.2", b"ACK\nx:\xff\n\n\0"),
        ),
        Class(
            "body not allowed",
            _BOTH,
            "A frame other than SEND, MESSAGE and ERROR has or announces a body, on 1.1 or 1.2.",
            f'{_KIND}. Body: "All other frames MUST NOT have a body".',
            ("1.2", b"ACK\n\nx\0"),
        ),
        Class(
            "not a length",
            _BOTH,
            "``content-length`` is not a number. stomp.js never finishes reading if there are no"
            " digits.",
            f'{_KIND}. content-length: "This header is an octet count for the length of the'
            ' message body".',
            ("1.2", b"SEND\ncontent-length:\n\n\0"),
        ),
        Class(
            "no NUL at the end",
            _BOTH,
            "The byte after the length in ``content-length`` is not NUL. stomp.js drops that byte."
            " stomp.py uses the first NUL if the length is too small.",
            f'{_KIND}. content-length: "The frame still needs to be terminated with a NULL octet".',
            ("1.2", b"SEND\ncontent-length:0\n\nx\0"),
        ),
        Class(
            "CR before 1.2",
            _BOTH,
            "A header of 1.0 or 1.1 contains a carriage return. Both libraries remove one at the"
            " end of a line, and stomp.js removes all others.",
            "stompkit keeps it, as the reference does, unless ``Tolerance.CRLF`` is given. 1.1,"
            ' BNF: ``header-value = *<any OCTET except LF or ":">``.',
            ("1.1", b"ACK\nx:\r\ny:\n\n\0"),
        ),
        Class(
            "blank lines first",
            (_STOMP_PY,),
            "Two or more line ends, read together, precede the first frame. stomp.py drops the"
            " bytes up to the next NUL.",
            'stompkit reads the frame. Heart-beating: "if the sender has no real STOMP frame to'
            ' send, it MUST send an end-of-line (EOL)".',
            ("1.2", b"\n\nACK\n\n\0"),
        ),
        Class(
            "mixed line ends",
            (_STOMP_PY,),
            "A frame of 1.2 has lines that end with LF and lines that end with CR LF around its"
            " blank line.",
            "stompkit reads both, as the reference does. 1.2, BNF: ``EOL = [CR] LF``.",
            ("1.2", b"ACK\r\n\n\0"),
        ),
        Class(
            "escapes where there are none",
            (_STOMP_PY,),
            "stomp.py unescapes headers of 1.0, CONNECT and CONNECTED.",
            'stompkit keeps it, as the reference does. Value Encoding: "All frames except the'
            ' ``CONNECT`` and ``CONNECTED`` frames will also escape".',
            ("1.0", b"ACK\nx:\\c\n\n\0"),
        ),
        Class(
            "escapes in STOMP",
            (_STOMP_PY, _STOMPJS),
            "A backslash in a header of STOMP is treated as an escape.",
            'stompkit keeps it, as the reference does. CONNECT or STOMP Frame: "servers MUST'
            ' handle a ``STOMP`` frame in the same manner as a ``CONNECT`` frame".',
            ("1.2", b"STOMP\nx:\\c\n\n\0"),
            rare=True,
        ),
        Class(
            "escapes of 1.1",
            (_STOMPJS,),
            "stomp.js does not unescape headers on 1.1.",
            'stompkit unescapes them. 1.1, Value Encoding: "the following transformations MUST be'
            ' applied".',
            ("1.1", b"ACK\nx:\\c\n\n\0"),
        ),
        Class(
            "escapes in names",
            (_STOMPJS,),
            "stomp.js does not unescape names of headers.",
            'stompkit unescapes them. Value Encoding: "to allow header keys and values to contain'
            ' those frame header delimiting octets".',
            ("1.2", b"ACK\n\\c:\n\n\0"),
        ),
        Class(
            "escaped backslash",
            (_STOMPJS,),
            "stomp.js replaces ``\\\\`` last, and uses the second backslash as the beginning of"
            " another escape.",
            "stompkit reads from left to right: ``\\\\n`` is a backslash and an n. Value Encoding:"
            ' "``\\\\`` (octet 92 and 92) translates to ``\\`` (octet 92)".',
            ("1.2", b"ACK\nx:\\\\n\n\n\0"),
            rare=True,
        ),
        Class(
            "outer blanks",
            (_STOMPJS,),
            "stomp.js trims blanks, also those of Unicode, at both ends of names and values.",
            'stompkit keeps them. 1.2, Value Encoding: "clients and servers MUST never trim or pad'
            ' headers with spaces".',
            ("1.2", b"ACK\nx: \n\n\0"),
        ),
        Class(
            "lost name",
            (_STOMPJS,),
            "stomp.js loses a header with the name ``__proto__``, since an assignment of it to an"
            " object has no effect.",
            "stompkit reads it like any other name.",
            ("1.2", b"ACK\n__proto__:\n\n\0"),
        ),
    )
}


#: Representation of line ends in the table.
_LF: Final = "↵".encode()
_CR: Final = "␍".encode()


def table() -> str:
    """Return the table of the classes for docs/explanation/fuzzing.rst."""
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        "   :widths: 18 12 25 30 15",
        "",
        "   * - Class",
        "     - Decoder",
        "     - Difference",
        "     - Decision",
        "     - Example",
    ]
    for each in CLASSES.values():
        version, octets = each.example
        shown = octets.replace(b"\n", _LF).replace(b"\r", _CR).replace(b"\0", b"^@")
        text = shown.decode("utf-8", "backslashreplace")
        lines += [
            f"   * - {each.name}",
            f"     - {', '.join(each.who)}",
            f"     - {each.about}",
            f"     - {each.decided}",
            f"     - {version}: ``{text}``",
        ]
    return "\n".join(lines)
