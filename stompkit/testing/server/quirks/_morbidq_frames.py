"""MorbidQ's frame decoder and encoder."""

from __future__ import annotations

import re
from typing import Final

from stompkit.frames import COMMANDS, Frame
from stompkit.testing.server.quirks._rules.rule import Quirks
from stompkit.testing.server.quirks._wire import whole

__all__ = ["BadFrameError", "MorbidQFraming"]

_NUL: Final = b"\0"
_END: Final = b"\0\n"
#: MorbidQ's library supports STOMP 1.0, and only commands in capitals.
_KNOWN: Final = frozenset(COMMANDS) - {"STOMP", "NACK"}
#: Matches content-length only if another line follows.
_LENGTH: Final = re.compile(rb"(?m)^content-length\s*:\s*(\d+)\s*\n")
_LENGTH_ANYWHERE: Final = re.compile(rb"(?m)^content-length\s*:\s*(\d+)\s*$")


class BadFrameError(Exception):
    """A frame that cannot be decoded, because no active rule allows it."""


class MorbidQFraming:
    """Decodes and encodes frames by the rules about bytes."""

    def __init__(self, quirks: Quirks) -> None:
        """Start with nothing read."""
        self._quirks = quirks
        self._pending = b""
        #: True if each NUL is replaced by NUL LF on input, so that clients may omit the LF.
        self._expands = "Q9" in quirks
        self._end = _END if self._expands else _NUL

    # Decoding.

    def feed(self, data: bytes) -> None:
        """Process bytes."""
        self._pending += data.replace(_NUL, _END) if self._expands else data

    def next(self) -> Frame | None:
        """Return the next frame, if it is complete; raises BadFrameError for an invalid one."""
        while self._pending:
            line, end, rest = self._pending.partition(b"\n")
            if not end and not self._is_hopeless(line):
                return None
            command = line if "Q10" in self._quirks else line.removesuffix(b"\r")
            if command.decode("latin-1") in _KNOWN:
                frame = self._frame(command.decode(), rest)
                if frame is not None:
                    # One line feed counts as a part of the frame.
                    self._pending = self._pending.removeprefix(b"\n")
                return frame
            self._skip(line, rest)
        return None

    @staticmethod
    def _is_hopeless(line: bytes) -> bool:
        """Return True if the received part of a command cannot become a known one."""
        return not any(known.encode().startswith(line) for known in _KNOWN)

    def _skip(self, line: bytes, rest: bytes) -> None:
        """Drop data that does not begin with a known command.

        It looks for the end of such a frame in its first line only; without one it drops all
        pending data.
        """
        if "Q2" in self._quirks:
            self._pending = rest if line.endswith(_NUL) else b""
            return
        if line in (b"", b"\r"):
            self._pending = rest
            return
        self._pending = self._pending.partition(_NUL)[2]
        raise BadFrameError(f"unknown command {line[:40]!a}")

    def _frame(self, command: str, rest: bytes) -> Frame | None:
        if "Q10" not in self._quirks:
            rest = rest.replace(b"\r\n\r\n", b"\n\n", 1)
        # A blank line may follow immediately: the command's line feed is its first half.
        head, gap, body = (b"\n" + rest).partition(b"\n\n")
        head = head[1:]
        if not gap or self._end in head:
            head, end, self._pending = rest.partition(self._end)
            if not end:
                self._pending = b"%b\n%b" % (command.encode(), rest)
                return None
            # All of it is the head, including the NUL.
            return Frame(command, self._headers(head + _NUL))
        length = self._length(head)
        end_at = body.find(self._end) if length is None else length
        if end_at < 0 or len(body) < end_at + len(self._end):
            return None
        self._pending = body[end_at:].removeprefix(self._end)
        return Frame(command, self._headers(head), body[:end_at])

    def _length(self, head: bytes) -> int | None:
        match = (_LENGTH if self._expands else _LENGTH_ANYWHERE).search(head)
        return None if match is None else whole(match[1].decode())

    def _headers(self, head: bytes) -> dict[str, str]:
        headers: dict[str, str] = {}
        is_lax = "Q10" in self._quirks
        for line in head.decode("utf-8", "surrogateescape").split("\n") if head else ():
            name, colon, value = line.partition(":")
            if is_lax:
                # Without a colon it removes the last character to get the name.
                name, value = (name, value) if colon else (line[:-1], line)
                headers[name.strip()] = value.strip()
            elif not colon:
                raise BadFrameError("header line without a colon")
            else:
                headers.setdefault(name, value.removesuffix("\r"))
        return headers

    # Encoding.

    def encoded(self, frame: Frame) -> bytes:
        """Return a frame as bytes; nothing is escaped, and nothing is added."""
        lines = [frame.command, *(f"{name}:{value}" for name, value in frame.headers.items())]
        head = "\n".join(lines).encode("utf-8", "surrogateescape")
        return b"%b\n\n%b%b" % (head, frame.body, _END if "Q8" in self._quirks else _NUL)
