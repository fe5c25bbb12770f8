"""Serialisation and parsing of transcripts. The format itself: transcripts.py."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from stompkit.frames import COMMANDS, Frame
from stompkit.testing.frames.events import Closed, End, Event, Octets, Opened, SeenFrame
from stompkit.testing.frames.matching import Direction

__all__ = [
    "FIRST_LINE",
    "TranscriptError",
    "parse_transcript",
    "written_event",
    "written_transcript",
]

FIRST_LINE: Final = "STOMP transcript 1"
_ANY_VERSION: Final = re.compile(r"STOMP transcript (\S+)")
_END: Final = "^@"
_FORGOTTEN: Final = re.compile(r"=== (\d+) earlier events forgotten")
_MARK: Final = re.compile(
    r"=== connection (?P<connection>[1-9]\d*)"
    r" (?:(?P<opened>opened)|(?P<closed>closed)(?: by the (?P<by>client|broker))?"
    r"|(?P<direction>received|sent)(?P<octets> octets)?)"
    r"(?: at (?P<at_s>\d+(?:\.\d+)?) s)?"
    r"(?:, (?P<cut>[1-9]\d*) octets cut)?"
    r"(?:: (?P<reason>.*))?"
)
_SHORT: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(.?))", re.DOTALL)
_UNESCAPED: Final = {"\\": b"\\", "n": b"\n", "r": b"\r", "t": b"\t", "c": b":"}


class TranscriptError(ValueError):
    """A text is not a valid transcript; the message has the position and the reason."""


# Writing.


def written_transcript(events: Iterable[Event], forgotten: int, *, timed: bool) -> str:
    """Return the text of a transcript."""
    parts = [FIRST_LINE + "\n"]
    if forgotten:
        parts.append(f"=== {forgotten} earlier events forgotten\n")
    parts += [written_event(event, timed=timed) for event in events]
    return "\n".join(parts)


def written_event(event: Event, *, timed: bool = True) -> str:
    """Return the text of one event; an empty line separates it from the one before."""
    mark = f"=== connection {event.connection} "
    at = f" at {event.at_s:.6f} s" if timed else ""
    match event:
        case Opened():
            return f"{mark}opened{at}\n"
        case Closed():
            by = "" if event.by is None else f" by the {event.by}"
            reason = f": {_visible(event.reason)}" if event.reason else ""
            return f"{mark}closed{by}{at}{reason}\n"
        case Octets():
            return f"{mark}{event.direction} octets{at}\n{_block(event.octets)}{_END}\n"
        case SeenFrame():
            cut = f", {event.cut_bytes} octets cut" if event.cut_bytes else ""
            return f"{mark}{event.direction}{at}{cut}\n{_frame(event.frame)}"


def _frame(frame: Frame) -> str:
    """Return the text of a frame as the specifications print it."""
    lines = [frame.command]
    lines += [f"{_name(name)}:{_visible(value)}" for name, value in frame.items()]
    return "\n".join([*lines, "", f"{_block(frame.body)}{_END}\n"])


def _name(name: str) -> str:
    """Escape the name of a header, which ends at the first colon."""
    return _visible(name).replace(":", "\\c")


def _block(octets: bytes) -> str:
    """Escape bytes that may take several lines."""
    text = octets.decode("utf-8", "surrogateescape")
    lines = [_visible(line) for line in text.split("\n")]
    # A blank before the end mark is not at the end of its line.
    if text.endswith(" "):
        lines[-1] = lines[-1].removesuffix("\\x20") + " "
    return "\n".join(lines)


def _visible(text: str) -> str:
    """Escape characters of a one-line text that are invisible or could get lost."""
    if not text.isprintable() or "\\" in text:
        text = "".join(_character(character) for character in text)
    text = text.replace(_END, "\\x5e@")
    return f"{text[:-1]}\\x20" if text.endswith(" ") else text


def _character(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    if character.isprintable():
        return character
    return "".join(f"\\x{octet:02x}" for octet in character.encode("utf-8", "surrogateescape"))


# Reading.


def parse_transcript(text: str, name: str = "transcript") -> tuple[tuple[Event, ...], int, bool]:
    """Parse a transcript: return its events, the number of forgotten ones, and if it is timed.

    ``name`` is its name in the message of TranscriptError.
    """
    return _Reader(text, name).read()


class _Reader:
    """The lines of a transcript, with the position of the reader."""

    def __init__(self, text: str, name: str) -> None:
        # Some tools convert line ends to CR LF; a CR of a frame is written as \r.
        self._lines = text.replace("\r\n", "\n").removeprefix("\ufeff").split("\n")
        self._name = name
        self._next = 0

    def read(self) -> tuple[tuple[Event, ...], int, bool]:
        self._check_first_line()
        events: list[Event] = []
        timed: set[bool] = set()
        forgotten = 0
        while self._next < len(self._lines):
            line = self._take()
            if not line.strip() or line.startswith("#"):
                continue
            count = _FORGOTTEN.fullmatch(line)
            if count is not None and not events:
                forgotten = int(count[1])
                continue
            mark = _MARK.fullmatch(line)
            if mark is None:
                raise self._error(f"{line[:80]!r} does not begin an event")
            timed.add(mark["at_s"] is not None)
            if len(timed) > 1:
                raise self._error("some events have a time and others have none")
            events.append(self._event(mark, len(events)))
        return tuple(events), forgotten, timed != {False}

    def _check_first_line(self) -> None:
        first = self._take()
        if first == FIRST_LINE:
            return
        version = _ANY_VERSION.fullmatch(first)
        if version is None:
            raise self._error(f"a transcript begins with {FIRST_LINE!r}")
        raise self._error(f"version {version[1]!r} of the format is not known, only 1 is")

    def _event(self, mark: re.Match[str], number: int) -> Event:
        """Read the event that starts with a mark."""
        connection, at_s = int(mark["connection"]), float(mark["at_s"] or 0)
        if mark["cut"] is not None and (mark["direction"] is None or mark["octets"] is not None):
            raise self._error("only the body of a frame can be cut")
        if mark["reason"] is not None and mark["closed"] is None:
            raise self._error("only the end of a connection has a reason")
        if mark["opened"]:
            return Opened(connection, at_s)
        if mark["closed"]:
            by: End | None = None
            if mark["by"] is not None:
                by = "client" if mark["by"] == "client" else "broker"
            return Closed(connection, at_s, by, self._text(mark["reason"] or ""))
        direction: Direction = "received" if mark["direction"] == "received" else "sent"
        if mark["octets"]:
            return Octets(direction, connection, self._block(), at_s)
        return SeenFrame(direction, connection, at_s, self._frame(), int(mark["cut"] or 0), number)

    def _frame(self) -> Frame:
        command = self._take_of("a frame")
        if command not in COMMANDS:
            raise self._error(f"{command[:80]!r} is not a command of STOMP")
        headers: dict[str, str] = {}
        repeated = []
        while line := self._take_of("a frame"):
            name, colon, value = line.partition(":")
            if not (name and colon):
                raise self._error(f"a header is written as name:value, not as {line[:80]!r}")
            pair = self._text(name), self._text(value)
            if pair[0] in headers:
                repeated.append(pair)
            else:
                headers[pair[0]] = pair[1]
        return Frame(command, headers, self._block(), tuple(repeated))

    def _block(self) -> bytes:
        """Read bytes up to the end mark."""
        pieces = []
        while _END not in (line := self._take_of("octets")):
            pieces.append(self._octets(line))
        last, _, rest = line.partition(_END)
        if rest:
            raise self._error(f"something follows {_END}; write \\x5e@ where it is no end")
        return b"\n".join([*pieces, self._octets(last)])

    def _text(self, text: str) -> str:
        return self._octets(text).decode("utf-8", "surrogateescape")

    def _octets(self, text: str) -> bytes:
        """Resolve escapes."""
        if "\\" not in text:
            return text.encode("utf-8", "surrogateescape")
        octets = bytearray()
        end = 0
        for match in _ESCAPED.finditer(text):
            octets += text[end : match.start()].encode("utf-8", "surrogateescape")
            end = match.end()
            if match[1] is not None:
                octets.append(int(match[1], 16))
            elif match[2] in _UNESCAPED:
                octets += _UNESCAPED[match[2]]
            else:
                raise self._error(f"{match[0]!r} is not an escape sequence of a transcript")
        return bytes(octets + text[end:].encode("utf-8", "surrogateescape"))

    def _take(self) -> str:
        self._next += 1
        return self._lines[self._next - 1]

    def _take_of(self, what: str) -> str:
        if self._next == len(self._lines):
            raise self._error(f"the text ends within {what}, before {_END}")
        return self._take()

    def _error(self, problem: str) -> TranscriptError:
        return TranscriptError(f"{self._name}, line {self._next}: {problem}")
