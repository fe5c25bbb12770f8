"""Frames, read from a stream of bytes and written into one."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote_to_bytes

from tests.conformance.second_client.escapes import Lost, escape, unescape
from tests.conformance.second_client.switches import Switch

Headers = dict[bytes, bytes]
Pairs = list[tuple[bytes, bytes]]
Frame = tuple[bytes, Headers, bytes]


class Codec:
    """Reads and writes the frames of one connection."""

    def __init__(self, switch: Switch) -> None:
        """Start without data, and without a version."""
        self.switch, self.has = switch, switch.has
        self.version = b""
        self._buffer = b""
        #: The last content-length of MESSAGE, for one of the switches.
        self._length: bytes | None = None

    # Reading.

    def feed(self, octets: bytes) -> None:
        """Add received bytes."""
        self._buffer += octets

    def next_frame(self) -> Frame | None:
        """Take the next complete frame from the buffer."""
        takes_cr = self._skip_line_ends()
        gap = re.search(rb"\n\r?\n" if takes_cr else rb"\n\n", self._buffer)
        if not self.version and self._buffer and self.has("reads CONNECTED in one piece"):
            gap = gap or re.search(rb"$", self._buffer)
        if gap is None:
            return None
        lines = self._buffer[: gap.start()].split(b"\n")
        command, *lines = (line.removesuffix(b"\r") if takes_cr else line for line in lines)
        headers = self._parse_headers(command, lines)
        if not headers and self.has("needs headers in each frame"):
            raise Lost("a frame without headers")
        length = self._content_length(command, headers)
        body = self._take_body(gap.end(), length)
        if body is None:
            return None
        if length is None and self.has("takes bodies without content-length for text"):
            body = body.decode("utf-8", "replace").encode()
        return command, headers, body

    def _skip_line_ends(self) -> bool:
        """Skip line ends between frames; return True if lines may end with CR LF."""
        takes_cr = self.version in (b"", b"1.2") and not self.has("takes no CR LF on 1.2")
        if self.version == b"1.1" and self.has("takes CR LF on 1.1"):
            takes_cr = True
        if self.has("skips one line end between frames"):
            self._buffer = self._buffer.removeprefix(b"\n")
        else:
            self._buffer = self._buffer.lstrip(b"\r\n" if takes_cr else b"\n")
        if self.has("decides by the first line end") and takes_cr:
            return self._buffer.partition(b"\n")[0].endswith(b"\r")
        return takes_cr

    def _parse_headers(self, command: bytes, lines: list[bytes]) -> Headers:
        """Parse header lines into a dictionary, with the first of repeated headers."""
        headers: Headers = {}
        if len(lines) > 16 and self.has("refuses more than 16 headers"):
            raise Lost("too many headers")
        for line in lines:
            name, value = self._parse_header(command, line)
            if self.has("drops names with blanks") and b" " in name:
                continue
            if self.has("drops empty values") and not value:
                continue
            is_further = len(headers) >= 20 and name.startswith(b"x-")
            if is_further and self.has("drops the twenty-first header"):
                continue
            if self.has("takes the last of repeated headers"):
                headers[name] = value
            headers.setdefault(name, value)
        return headers

    def _parse_header(self, command: bytes, line: bytes) -> tuple[bytes, bytes]:
        """Parse a header line into a name and a value."""
        if len(line) > 512 and self.has("refuses lines of more than 512 octets"):
            raise Lost("a line is too long")
        is_early = command != b"CONNECTED" and self.has("unescapes lines before it splits them")
        name, colon, value = (self._unescape(line) if is_early else line).partition(b":")
        if not colon or not name:
            raise Lost(f"no header: {line!r}")
        if is_early:
            pass
        elif command != b"CONNECTED" or self.has("unescapes CONNECTED"):
            if not self.has("unescapes values only"):
                name = self._unescape(name)
            value = self._unescape(value)
        if self.has("lowers header names"):
            name = name.lower()
        return name, self._changed(name, value)

    def _changed(self, name: bytes, value: bytes) -> bytes:
        """Return a value as some switches change it."""
        if self.has("trims values"):
            return value.strip(b" ")
        if self.has("trims values on 1.0") and self.version == b"1.0":
            return value.strip(b" ")
        if self.has("replaces tabs in values"):
            return value.replace(b"\t", b" ")
        if self.has("cuts values at 255"):
            return value[:255]
        if self.has("strips line ends around values"):
            return value.strip(b"\r\n")
        if self.has("decodes percent signs in headers"):
            return unquote_to_bytes(value)
        if self.has("drops quotes around headers"):
            return re.sub(rb'^"(.*)"$', rb"\1", value)
        is_number = name.startswith(b"x-") and re.fullmatch(rb"[0-9]{1,9}(\.[0-9]+)?", value)
        if is_number and self.has("normalises numbers in headers"):
            return b"%g" % float(value)
        if self.has("combines accents in headers"):
            return unicodedata.normalize("NFC", value.decode()).encode()
        return value

    def _unescape(self, text: bytes) -> bytes:
        return unescape(text, self.version, self.switch)

    def _content_length(self, command: bytes, headers: Headers) -> int | None:
        """Return the length of the body, or None if it ends at the first NUL."""
        length = headers.get(b"content-length")
        if self.has("ignores content-length"):
            length = None
        if self.has("ignores content-length on 1.0") and self.version == b"1.0":
            length = None
        if command == b"MESSAGE" and self.has("keeps the content-length of the MESSAGE before"):
            length = self._length = length or self._length
        return None if length is None else int(length)

    def _take_body(self, start: int, length: int | None) -> bytes | None:
        """Take a frame from the buffer, and return its body; or None if it is incomplete."""
        end = self._buffer.find(b"\0", start) if length is None else start + length
        if end < 0 and self.has("ends bodies at the end of a packet"):
            end, self._buffer = len(self._buffer), self._buffer + b"\0"
        if end < 0 or end >= len(self._buffer):
            return None
        if self._buffer[end] != 0:
            raise Lost("no NUL follows the body")
        body, self._buffer = self._buffer[start:end], self._buffer[end + 1 :]
        return body

    # Writing.

    def encode(self, command: bytes, headers: Pairs, body: bytes = b"") -> bytes:
        """Return the bytes of a frame."""
        if command == b"SEND" and self.has("repeats headers") and self.version != b"1.0":
            headers = [*headers, *((name, b"earlier") for name, _ in headers)]
        if self.has("adds headers of its own"):
            headers = [*headers, (b"x-client", b"second/1"), (b"client-lang", b"Python")]
        if self._writes_length(command):
            is_wrong = self.has("counts characters")
            length = len(body.decode("utf-8", "replace")) if is_wrong else len(body)
            headers = [*headers, (b"content-length", b"%d" % length)]
        lines = [command, *(self._line(command, name, value) for name, value in headers)]
        is_cr = self.version == b"1.2" and self.has("writes CR LF on 1.2")
        head = (b"\r\n" if is_cr else b"\n").join([*lines, b"", b""])
        if self.version == b"1.2" and self.has("writes CR LF and LF by turns on 1.2"):
            ends = [b"\r\n" if n % 2 else b"\n" for n in range(len(lines) + 1)]
            head = b"".join(map(b"".join, zip([*lines, b""], ends, strict=True)))
        tail = b"\n" if self.has("ends each frame with a line end") else b""
        start = b"\n\n" if self.has("writes line ends before each frame") and self.version else b""
        return start + head + body + b"\0" + tail

    def _writes_length(self, command: bytes) -> bool:
        """Return True if a frame has content-length."""
        if self.has("says content-length in each frame of 1.2") and self.version == b"1.2":
            return True
        return command == b"SEND" and not self.has("sends no content-length")

    def _line(self, command: bytes, name: bytes, value: bytes) -> bytes:
        """Return a header line."""
        if self.has("lowers destinations") and name == b"destination":
            value = value.lower()
        is_raw = name == b"destination" and self.has("does not escape destinations")
        is_opening = command in (b"CONNECT", b"STOMP")
        if not is_raw and (not is_opening or self.has("escapes CONNECT")):
            name, value = self._escape(name), self._escape(value)
            value = self._escape(value) if self.has("escapes twice") else value
        if self.has("lowers header names that it writes"):
            name = name.lower()
        return name + b":" + value

    def _escape(self, text: bytes) -> bytes:
        return escape(text, self.version, self.switch)
