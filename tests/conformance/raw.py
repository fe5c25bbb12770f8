"""Frames as bytes, parsed and assembled without interpretation."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Self

_LENGTH = re.compile(rb"^content-length:(\d+)\r?$", re.MULTILINE)


@dataclass
class Raw:
    """A frame, or the line ends between two frames, which have no command."""

    command: bytes
    #: Header lines, still escaped.
    lines: list[bytes] = field(default_factory=list)
    body: bytes = b""
    #: The line end of the head.
    eol: bytes = b"\n"

    @classmethod
    def parse(cls, octets: bytes) -> Self:
        """Parse a piece of the output of :class:`Splitter`."""
        if not octets.endswith(b"\0"):
            return cls(b"", [], octets)
        eol = b"\r\n" if b"\r\n" in octets.partition(b"\n\n")[0] else b"\n"
        head, _, body = octets[:-1].partition(eol * 2)
        command, *lines = head.split(eol)
        return cls(command, lines, body, eol)

    def octets(self) -> bytes:
        """Return the encoded frame."""
        if not self.command:
            return self.body
        head = self.eol.join([self.command, *self.lines, b"", b""])
        return head + self.body + b"\0"

    def get(self, name: str) -> str | None:
        """Return the first value of a header."""
        prefix = f"{name}:".encode()
        values = (line[len(prefix) :] for line in self.lines if line.startswith(prefix))
        value = next(values, None)
        return None if value is None else value.decode("utf-8", "surrogateescape")

    def drop(self, *names: str) -> None:
        """Remove headers."""
        prefixes = tuple(f"{name}:".encode() for name in names)
        self.lines = [line for line in self.lines if not line.startswith(prefixes)]

    def put(self, name: str, value: str) -> None:
        """Set a header."""
        self.drop(name)
        self.lines.append(f"{name}:{value}".encode("utf-8", "surrogateescape"))

    def put_body(self, body: bytes) -> None:
        """Set the body, and content-length if there is one."""
        self.body = body
        if self.get("content-length") is not None:
            self.put("content-length", str(len(body)))


class Splitter:
    """Splits a stream into frames and the line ends between them, without changes."""

    def __init__(self) -> None:
        """Start at the beginning of a frame."""
        self._pending = b""

    @property
    def pending(self) -> bytes:
        """The incomplete rest."""
        return self._pending

    def feed(self, octets: bytes) -> list[Raw]:
        """Return the frames that are complete with these bytes."""
        self._pending += octets
        pieces = []
        while end := self._end():
            pieces.append(Raw.parse(self._pending[:end]))
            self._pending = self._pending[end:]
        return pieces

    def _end(self) -> int:
        pending = self._pending
        line_ends = len(pending) - len(pending.lstrip(b"\r\n"))
        if line_ends:
            return line_ends
        nul = pending.find(b"\0")
        if nul < 0:
            return 0
        head, gap, _ = pending[:nul].partition(b"\n\n")
        if not gap:
            head, gap, _ = pending[:nul].partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        # A body that is longer than its content-length ends at the next NUL, too.
        end = pending.find(b"\0", len(head + gap) + int(length[1])) if length else nul
        return end + 1
