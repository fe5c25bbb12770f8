"""Read heads by shape: the names of a head with a known shape are not parsed again."""

from __future__ import annotations

from typing import Final, final

from stompkit.frames._commands import COMMANDS
from stompkit.frames._escapes import unescape
from stompkit.frames._frame import Frame
from stompkit.frames._grammar import UNESCAPED_COMMANDS, Version
from stompkit.frames._shape import Shape

__all__ = ["HeadReader"]

_COMMANDS: Final = frozenset(COMMANDS) - UNESCAPED_COMMANDS
#: Maximum number of lines in all shapes of one peer, and of characters in each name. The shapes of
#: a hostile peer take less than 100 KiB.
_MOST_LINES: Final = 256
_LONGEST_NAME: Final = 64
#: After this many consecutive heads without a known shape, only every Nth head is looked up.
_FUTILE: Final = 16


@final
class HeadReader:
    """Reads the heads of one peer whose command and header names it knows.

    It reads only what the grammar of 1.1 and 1.2 allows. All other heads are left to
    :func:`parse_head`: those with a carriage return, a repeated header, an undefined escape
    sequence, or a colon that is not escaped.
    """

    __slots__ = ("_last", "_line_count", "_misses", "_shapes", "_version")

    def __init__(self, version: Version) -> None:
        """Start without shapes."""
        self._version: Version = version
        #: Shapes by their command and names, in a line each.
        self._shapes: dict[str, Shape] = {}
        self._line_count = 0
        #: Shape of the last head.
        self._last: Shape | None = None
        #: Heads since the last one with a known shape.
        self._misses = 0

    def read(self, head: bytes) -> Frame | None:
        """Return a frame without its body, or None if the shape of the head is not known.

        The shape is then kept for later heads. ``head`` contains no NUL.
        """
        misses = self._misses
        self._misses = misses + 1
        if misses > _FUTILE and misses % _FUTILE:
            return None
        try:
            text = head.decode()
        except UnicodeDecodeError:
            return None
        if "\r" in text:
            return None
        lines = text.split("\n")
        shape = self._last
        if shape is None or not shape.fits(lines):
            shape = self._find(lines)
            if shape is None:
                return None
            self._last = shape
        # Each line has the colon after its name.
        if text.count(":") != shape.colons:
            return None
        headers = None
        if "\\" in text:
            try:
                headers = self._unescaped(shape, lines)
            except ValueError:
                return None
        self._misses = 0
        return Frame(shape.command, headers, b"", (), head, None, headers is None, shape, lines)

    def _find(self, lines: list[str]) -> Shape | None:
        """Return the shape of lines, or keep it for later heads and return None."""
        command = lines[0]
        if command not in _COMMANDS:
            return None
        names: list[str] = []
        for index in range(1, len(lines)):
            line = lines[index]
            end = line.find(":")
            if end < 1:
                return None
            names.append(line[:end])
        key = "\n".join([command, *names])
        shape = self._shapes.get(key)
        if shape is None and "\\" not in key and len(set(names)) == len(names):
            self._keep(key, command, names)
        return shape

    def _keep(self, key: str, command: str, names: list[str]) -> None:
        """Keep a new shape, if it is small enough."""
        size = len(names) + 1
        if size > _MOST_LINES:
            return
        for name in names:
            if len(name) > _LONGEST_NAME:
                return
        if self._line_count + size > _MOST_LINES:
            if self._misses <= _FUTILE:
                return  # some of the old ones are in use
            self._shapes.clear()
            self._line_count = 0
        self._line_count += size
        self._shapes[key] = self._last = Shape(command, names)

    def _unescaped(self, shape: Shape, lines: list[str]) -> dict[str, str]:
        """Return the headers of a head; raises ValueError for an undefined escape sequence."""
        headers = {}
        for name, index in shape.places.items():
            value = lines[index][len(name) + 1 :]
            headers[name] = unescape(value, self._version) if "\\" in value else value
        return headers
