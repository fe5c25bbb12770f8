"""Header lines of MESSAGE and RECEIPT frames, as each version escapes them."""

from __future__ import annotations

import re
from typing import Final

from stompkit._common.text import trimmed
from stompkit.frames import Version, escape

__all__ = ["header_line", "is_same_on_1_0"]

#: A header line whose name has blanks or control characters at its ends.
_PADDED: Final = re.compile(rb"(?m)^(?:[\0-\t\v-\x20]|[^:\n]*[\0-\t\v-\x20]:)")


def header_line(name: str, value: str, version: Version) -> bytes:
    """Return one escaped header line with its line end.

    1.0 has no escapes, and cannot represent a line feed, or a colon in a name. The escaped form is
    then sent as the closest equivalent. Bytes that are not UTF-8, which a tolerant decoder keeps,
    are sent unchanged. Readers of 1.0 remove blanks around a name, and would take it for another
    one, such as a header that only the broker may set: on 1.0 such a line is left out.
    """
    if version == "1.0":
        if not name or name != trimmed(name):
            return b""
        if "\n" not in value and "\n" not in name and ":" not in name:
            return f"{name}:{value}\n".encode("utf-8", "surrogateescape")
        version = "1.1"
    line = f"{escape(name, version)}:{escape(value, version)}\n"
    return line.encode() if line.isascii() else line.encode("utf-8", "surrogateescape")


def is_same_on_1_0(lines: bytes) -> bool:
    """Return True if lines without escapes are certainly the same on 1.0."""
    return lines.isascii() and _PADDED.search(lines) is None
