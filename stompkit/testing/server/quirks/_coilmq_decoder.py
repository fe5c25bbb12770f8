"""CoilMQ's frame decoder."""

from __future__ import annotations

from collections import deque
from typing import Final

from stompkit.frames import COMMANDS, Frame, Limits, Version, refusal, unescape
from stompkit.testing.server.quirks._rules.rule import Quirks

__all__ = ["FRAMING", "CoilMQDecoder"]

#: The rules implemented here.
FRAMING: Final = (
    "eol-wedges",
    "split-frame-closes",
    "content-length-not-checked",
    "second-colon-closes",
    "lines-trimmed",
    "header-last-wins",
    "no-escapes",
)
#: Size of a read of CoilMQ, in bytes.
_READ_BYTES: Final = 4096


class CoilMQDecoder:
    """Decodes frames by the active rules of CoilMQ, and by the specification otherwise."""

    def __init__(self, quirks: Quirks, limits: Limits) -> None:
        """Start with nothing read."""
        self._quirks = quirks
        self._limits = limits
        self._version: Version | None = None
        self._pending = b""
        self._reads: deque[bytes] = deque()

    def negotiated(self, version: Version, limits: Limits | None = None) -> None:
        """Decode the following frames by the rules of a version."""
        self._version = version
        self._limits = limits or self._limits

    def feed(self, data: bytes) -> list[Frame]:
        """Return the next frame, if it is complete; raises RemoteProtocolError on bad bytes."""
        self._reads += [data[at : at + _READ_BYTES] for at in range(0, len(data), _READ_BYTES)]
        while True:
            frame = self._next()
            if frame is not None:
                return [frame]
            if not self._reads:
                return []
            self._pending += self._reads.popleft()

    def _next(self) -> Frame | None:
        """Take the frame at the start of the pending bytes; ``None`` while it is incomplete."""
        if "eol-wedges" not in self._quirks:
            self._pending = self._pending.lstrip(b"\r\n")
        elif self._pending.startswith((b"\r", b"\n")):
            # CoilMQ looks for a frame there, does not find one, and stops processing.
            self._pending = b"\n"
            return None
        if len(self._pending) > self._limits.max_frame_bytes:
            raise refusal("frame too large", "frame-too-large")
        if not self._pending:
            return None
        head, body = self._parts()
        is_whole = "split-frame-closes" in self._quirks
        if body is None and not is_whole:
            return None
        command, headers = self._parsed(head)
        length = _length(headers)
        if body is not None:
            end = body.find(b"\0") if length is None else length
            if 0 <= end < len(body):
                return self._taken(Frame(command, headers, body[:end]), body, end)
        if is_whole and (length is None or (body is not None and len(body) == length)):
            raise refusal("a frame that ends with the octets read", "malformed")
        return None

    def _taken(self, frame: Frame, body: bytes, end: int) -> Frame:
        if body[end] and "content-length-not-checked" not in self._quirks:
            raise refusal("no NUL after the body that content-length declares", "malformed")
        self._pending = body[end + 1 :]
        return frame

    def _parts(self) -> tuple[bytes, bytes | None]:
        """Return the head, and the bytes after its blank line, if that has come."""
        pending = self._pending
        gaps = [(pending.find(gap), len(gap)) for gap in (b"\n\n", b"\n\r\n")]
        found = [each for each in gaps if each[0] >= 0]
        if not found:
            return pending.removesuffix(b"\n"), None
        start, size = min(found)
        return pending[:start], pending[start + size :]

    def _parsed(self, head: bytes) -> tuple[str, dict[str, str]]:
        try:
            lines = head.decode().split("\n")
        except UnicodeDecodeError:
            raise refusal("headers are not UTF-8", "malformed") from None
        if "lines-trimmed" in self._quirks:
            lines = [line.strip() for line in lines]
        else:
            lines = [line.removesuffix("\r") for line in lines]
        command = lines[0]
        if command not in COMMANDS:
            # The first frame gets this error; any other ends the connection.
            code = "unknown-command" if self._version is None else "malformed"
            raise refusal("Expected CONNECT or STOMP command", code)
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, value = self._header(line)
            if name not in headers or "header-last-wins" in self._quirks:
                headers[name] = value
        return command, headers

    def _header(self, line: str) -> tuple[str, str]:
        name, colon, value = line.partition(":")
        if not colon or (":" in value and "second-colon-closes" in self._quirks):
            raise refusal("header line without one colon", "malformed")
        version = self._version
        if version is None or "no-escapes" in self._quirks:
            return name, value
        try:
            return unescape(name, version), unescape(value, version)
        except ValueError:
            raise refusal("undefined escape sequence", "malformed") from None


def _length(headers: dict[str, str]) -> int | None:
    """Return the length of the body; ``None`` if it is missing or negative."""
    try:
        length = int(headers.get("content-length", "-1"))
    except ValueError:
        raise refusal("content-length is not a number", "malformed") from None
    return length if length >= 0 else None
