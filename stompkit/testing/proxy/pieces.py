"""Splits a stream of bytes into the pieces that rules act on, and parses their frames."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from stompkit.frames import (
    AFTER_LOGIN,
    COMMANDS,
    VERSIONS,
    Frame,
    FrameDecoder,
    RemoteProtocolError,
    Tolerance,
    Version,
)
from stompkit.testing.frames.matching import Direction

__all__ = ["Piece", "Reader", "Splitter"]

_LF: Final = 10
_CR: Final = 13
_NUL: Final = 0
_COMMANDS: Final = tuple(name.encode() for name in COMMANDS)
_LONGEST_COMMAND: Final = max(map(len, _COMMANDS))
#: The first content-length counts (1.2, "Repeated Header Entries"); 1.0 allows blanks around name
#: and value.
_CONTENT_LENGTH: Final = re.compile(rb"\n[ \t]*content-length[ \t]*:[ \t]*([0-9]{1,19})[ \t\r]*\n")
#: Maximum size in bytes of a head, all lines together: no broker accepts more.
_MOST_HEAD_BYTES: Final = 1024 * 1024
#: Superfluous NULs between frames, as some peers send them.
_NULS: Final = re.compile(rb"\0+")


class Piece(NamedTuple):
    """Bytes that belong together: a frame, a line end between frames, or the rest."""

    octets: bytes
    """The bytes, exactly as they came."""
    is_frame: bool = False
    """True for a frame, from its command to its NUL."""
    is_beat: bool = False
    """True for a line end between frames: a heart-beat.

    A line feed that came together with a frame, after its NUL, does not count.
    """


class _NoFrameError(Exception):
    """The bytes at the position of a frame are not a frame."""


class Splitter:
    """Splits one direction of a connection into pieces, without changing the bytes.

    A frame is returned when it is complete; until then its bytes are pending. Bytes that cannot
    start a frame end the parsing: they and all later bytes are the rest. The same applies to a
    frame that is larger than the limit of stompkit's decoder, which limits the pending bytes.
    """

    def __init__(self) -> None:
        """Start at a position where a frame may begin."""
        self._pending = bytearray()
        self._is_lost = False
        self._forget_progress()

    def _forget_progress(self) -> None:
        self._searched = 0  # number of bytes of the frame that have been searched
        self._body_start = 0  # offset of its body; 0 while its head is incomplete
        self._need = 0  # its size in bytes; 0 while unknown

    @property
    def pending(self) -> bytes:
        """The start of an incomplete frame."""
        return bytes(self._pending)

    @property
    def pending_bytes(self) -> int:
        """Number of pending bytes."""
        return len(self._pending)

    @property
    def is_lost(self) -> bool:
        """True if the stream no longer consists of frames."""
        return self._is_lost

    def lose(self) -> None:
        """Treat all pending and later bytes as the rest."""
        self._is_lost = True

    def feed(self, octets: bytes) -> list[Piece]:
        """Process bytes and return the pieces that are complete."""
        pieces: list[Piece] = []
        start = 0
        is_behind_frame = False
        self._pending += octets
        try:
            while start < len(self._pending) and not self._is_lost:
                end = self._end_of_eol(start)
                if end:
                    eol = bytes(self._pending[start:end])
                    pieces.append(Piece(eol, is_beat=not is_behind_frame))
                elif nuls := _NULS.match(self._pending, start):
                    end = nuls.end()
                    pieces.append(Piece(bytes(nuls[0])))
                else:
                    end = self._end_of_frame(start)
                    if not end:
                        break
                    pieces.append(Piece(bytes(self._pending[start:end]), is_frame=True))
                self._forget_progress()
                start = end
                is_behind_frame = pieces[-1].is_frame
        except _NoFrameError:
            self._is_lost = True
        if self._is_lost:
            pieces += [Piece(rest)] if (rest := bytes(self._pending[start:])) else []
            start = len(self._pending)
        del self._pending[:start]
        return pieces

    def _end_of_eol(self, start: int) -> int:
        """Return the end of a line end that begins at ``start``; 0 if there is none, or not yet."""
        octet = self._pending[start]
        if octet == _LF:
            return start + 1
        if octet == _CR and self._pending[start + 1 : start + 2] == b"\n":
            return start + 2
        return 0

    def _end_of_frame(self, start: int) -> int:
        """Return the end of the frame that begins at ``start``; 0 while it is incomplete."""
        pending = self._pending
        if not self._need and not self._body_start:
            self._find_body(start)
        if not self._need and self._body_start:
            nul = pending.find(b"\0", start + max(self._body_start, self._searched))
            self._searched = len(pending) - start
            self._need = nul + 1 - start if nul >= 0 else 0
        if max(self._need, self._searched) > AFTER_LOGIN.max_frame_bytes:
            raise _NoFrameError
        end = start + self._need
        if not self._need or len(pending) < end:
            return 0
        if pending[end - 1] != _NUL:
            raise _NoFrameError
        return end

    def _find_body(self, start: int) -> None:
        """Find the blank line and the length of the body."""
        pending = self._pending
        self._check_command(start)
        begin = start + max(self._searched - 2, 0)  # a blank line may have begun there
        nul = pending.find(b"\0", start + self._searched)
        limit = nul if nul >= 0 else len(pending)
        gap = pending.find(b"\n\n", begin, limit)
        after = gap + 2
        other = pending.find(b"\n\r\n", begin, limit if gap < 0 else gap + 1)
        if other >= 0:
            gap, after = other, other + 3
        if gap >= 0:
            declared = _CONTENT_LENGTH.search(pending, start, gap + 1)
            self._body_start = self._searched = after - start
            if declared is not None:
                self._need = self._body_start + int(declared[1]) + 1
        elif nul >= 0:
            # Without a blank line, as in the DISCONNECT example of the 1.2 specification.
            self._need = nul + 1 - start
        else:
            self._searched = len(pending) - start
            if self._searched > _MOST_HEAD_BYTES:
                raise _NoFrameError

    def _check_command(self, start: int) -> None:
        """Check that a frame may begin at ``start``."""
        line, end, _ = self._pending[start : start + _LONGEST_COMMAND + 2].partition(b"\n")
        command = bytes(line).removesuffix(b"\r")
        if command not in _COMMANDS and (
            end or not any(name.startswith(command) for name in _COMMANDS)
        ):
            raise _NoFrameError


class Reader:
    """Parses the frames of one connection, by the rules of its negotiated version."""

    def __init__(self) -> None:
        """Start before CONNECT."""
        #: The version in CONNECTED, or before it the highest that CONNECT offers.
        self.version: Version = "1.2"
        self._decoders: dict[Direction, FrameDecoder] = {
            direction: FrameDecoder(limits=AFTER_LOGIN, tolerance=Tolerance.LENIENT)
            for direction in ("received", "sent")
        }

    def read(self, direction: Direction, octets: bytes) -> Frame | None:
        """Parse one whole frame; return ``None`` for bytes that are not a frame."""
        decoder = self._decoders[direction]
        try:
            frames = decoder.feed(octets)
        except RemoteProtocolError:
            return None
        if len(frames) != 1 or decoder.pending_bytes:
            return None
        frame = frames[0]
        if frame.command in ("CONNECT", "STOMP"):
            offered = frame.headers.get("accept-version", "1.0").replace(" ", "").split(",")
            self._settle([v for v in VERSIONS if v in offered], "received")
        elif frame.command == "CONNECTED":
            said = frame.headers.get("version", "1.0")
            self._settle([v for v in VERSIONS if v == said], "received", "sent")
        return frame

    def _settle(self, versions: Sequence[Version], *directions: Direction) -> None:
        self.version = versions[-1] if versions else self.version
        for direction in directions:
            self._decoders[direction].negotiated(self.version, AFTER_LOGIN)
