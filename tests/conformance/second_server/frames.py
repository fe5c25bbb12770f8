"""Frames, read from a stream of bytes and written into one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tests.conformance.second_server.escapes import Refusal, escape, unescape, unescape_connect
from tests.conformance.second_server.switches import Switch

Headers = dict[bytes, bytes]
Pairs = Sequence[tuple[bytes, bytes]]
Frame = tuple[bytes, Headers, bytes]

_MOST_HEADERS, _LONGEST_LINE, _LONGEST_BODY = 1_000, 65_536, 16 * 1024 * 1024
#: Number of bytes after which one of the switches inserts a heart-beat.
_PIECE: Final = 60_000


def by_turns(lines: Sequence[bytes]) -> bytes:
    """Return lines of which every other one ends in CR LF."""
    return b"".join(line + (b"\r\n" if n % 2 else b"\n") for n, line in enumerate(lines))


class Codec:
    """Reads and writes the frames of one connection."""

    def __init__(self, switch: Switch) -> None:
        """Start without data, and without a version."""
        self.switch, self.has = switch, switch.has
        self.version = b""
        self.is_beating = False
        self._buffer = b""
        #: The last content-length of SEND, for one of the switches.
        self._length: bytes | None = None

    # Reading.

    def feed(self, octets: bytes) -> None:
        """Add received bytes."""
        self._buffer += octets

    def next_frame(self) -> Frame | None:
        """Take the next complete frame from the buffer."""
        takes_cr = self.version in (b"", b"1.2") or self.has("takes CR LF on 1.1")
        self._buffer = self._buffer.lstrip(b"\r\n" if takes_cr else b"\n")
        gap = re.search(rb"\n\r?\n" if takes_cr else rb"\n\n", self._buffer)
        head = self._buffer[: gap.start()] if gap else self._buffer
        self._check_head(head)
        if gap is None:
            return None
        if head != head.decode("utf-8", "ignore").encode():
            raise Refusal("the head of a frame is not UTF-8")
        command, *lines = (
            line.removesuffix(b"\r") if takes_cr else line for line in head.split(b"\n")
        )
        headers = self._parse_headers(command, lines)
        body = self._take_body(gap.end(), self._content_length(command, headers))
        return None if body is None else (command, headers, body)

    def _check_head(self, head: bytes) -> None:
        """Refuse a head that is too large, or not valid text."""
        if b"\0" in head:
            raise Refusal("the head of a frame has a NUL")
        lines = head.split(b"\n")
        most = 16 if self.has("refuses more than 16 headers") else _MOST_HEADERS
        longest = 512 if self.has("refuses lines of more than 512 octets") else _LONGEST_LINE
        if len(lines) - 1 > most or max(map(len, lines)) > longest:
            raise Refusal("too many headers, or a line that is too long")

    def _parse_headers(self, command: bytes, lines: list[bytes]) -> Headers:
        """Parse header lines into a dictionary, with the first of repeated headers."""
        headers: Headers = {}
        for line in lines:
            name, value = self._parse_header(command, line)
            if self.has("lowers header names"):
                name = name.lower()
            if self.has("trims values"):
                value = value.strip()
            if self.has("strips line ends around values"):
                value = value.strip(b"\r\n")
            if self.has("replaces tabs in values"):
                value = value.replace(b"\t", b" ")
            if self.has("folds blanks in values"):
                value = re.sub(rb" +", b" ", value)
            if self.has("cuts values at 255"):
                value = value[:255]
            if self.has("takes the last of repeated headers"):
                headers[name] = value
            headers.setdefault(name, value)
        for name in (b"content-length", b"receipt", b"transaction"):
            if name.title() in headers and self.has(f"finds {name.decode()} in capitals"):
                headers.setdefault(name, headers[name.title()])
        return headers

    def _parse_header(self, command: bytes, line: bytes) -> tuple[bytes, bytes]:
        """Parse a header line into a name and a value."""
        is_escaped = self.version and command not in (b"CONNECT", b"STOMP")
        is_early = is_escaped and self.has("unescapes lines before it splits them")
        name, colon, value = (self._unescape(line) if is_early else line).partition(b":")
        if self.has("splits headers at the last colon on 1.0") and self.version == b"1.0":
            name, colon, value = line.rpartition(b":")
        if not colon or not name:
            raise Refusal("a header line without a name or a colon")
        if is_escaped and not is_early:
            name = name if self.has("unescapes values only") else self._unescape(name)
            value = self._unescape(value)
            if self.has("unescapes twice"):
                value = self._unescape(value) if re.search(rb"\\[\\cn]", value) else value
        elif self.has("unescapes CONNECT") and command == b"CONNECT":
            value = unescape_connect(value)
        return name, value

    def _unescape(self, text: bytes) -> bytes:
        return unescape(text, self.version, self.switch)

    def _content_length(self, command: bytes, headers: Headers) -> int | None:
        """Return the length of the body, or None if it ends at the first NUL."""
        length = headers.get(b"content-length")
        if command == b"SEND" and self.has("keeps the content-length of the SEND before"):
            length = self._length = length or self._length
        if length is not None and not length.isdigit():
            raise Refusal("content-length is no number")
        if length is None or self.has("ends bodies at the first NUL"):
            return None
        return int(length)

    def _take_body(self, start: int, length: int | None) -> bytes | None:
        """Take a frame from the buffer, and return its body; or None if it is incomplete."""
        end = self._buffer.find(b"\0", start) if length is None else start + length
        if end < 0 and self.has("ends bodies at the end of a packet"):
            end, self._buffer = len(self._buffer), self._buffer + b"\0"
        most = _LONGEST_BODY if self.version else _LONGEST_LINE
        if max(end, len(self._buffer)) - start > most:
            raise Refusal("the body is too long")
        if end < 0 or end >= len(self._buffer):
            return None
        if self._buffer[end] != 0:
            raise Refusal("no NUL follows the body")
        body, self._buffer = self._buffer[start:end], self._buffer[end + 1 :]
        return body

    # Writing.

    def encode(self, command: bytes, headers: Pairs, body: bytes = b"") -> bytes:
        """Return the bytes of a frame."""
        if command == b"RECEIPT" and self.has("sends bodies with RECEIPT in CR LF on 1.2"):
            body = b"done" if self.version == b"1.2" else b""
        lines = [command]
        for name, value in headers:
            if command != b"CONNECTED":
                name, value = self._escape(name), self._escape(value)
            if command == b"RECEIPT" and self.has("escapes receipts twice"):
                value = self._escape(value)
            lines.append(name + b":" + value)
        if self._adds_length(command, headers):
            lines.append(b"content-length:%d" % len(body))
        end = b"" if self.has("ends frames without line ends") else b"\n"
        octets = self._eol(command).join([*lines, b"", body]) + b"\0" + end
        if self.version == b"1.2" and self.has("writes CR LF and LF by turns on 1.2"):
            octets = by_turns([*lines, b""]) + body + b"\0" + end
        if self.is_beating and len(octets) > _PIECE and self.has("beats inside frames"):
            octets = octets[:_PIECE] + b"\n" + octets[_PIECE:]
        return octets

    def _adds_length(self, command: bytes, headers: Pairs) -> bool:
        """Return True if a frame without content-length gets one."""
        has_length = any(name == b"content-length" for name, _ in headers)
        is_on = self.has("says content-length in each frame of 1.2") and self.version == b"1.2"
        return is_on and not has_length

    def _eol(self, command: bytes) -> bytes:
        """Return the line end of a frame."""
        is_long = self.has("writes CR LF on 1.2")
        if command == b"RECEIPT":
            is_long = is_long or self.has("sends bodies with RECEIPT in CR LF on 1.2")
        return b"\r\n" if is_long and self.version == b"1.2" else b"\n"

    def _escape(self, text: bytes) -> bytes:
        return escape(text, self.version, self.switch)
