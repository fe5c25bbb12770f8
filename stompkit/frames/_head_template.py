"""Templates of heads: a head that differs in one value only is not parsed again."""

from __future__ import annotations

from typing import Final

from stompkit.frames._frame import Frame
from stompkit.frames._grammar import Version

__all__ = ["HeadTemplate", "likeness"]

#: The header whose value usually differs between otherwise equal frames of a peer.
_VARIES: Final = "receipt"
_VARIES_IN_ANSWERS: Final[dict[Version, str]] = {
    "1.0": "message-id",
    "1.1": "message-id",
    "1.2": "id",
}
#: Bytes that need no escape in any version, anywhere in a value.
_PLAIN: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./@"
#: After this many heads that match no template, only every Nth one becomes a template.
_FUTILE: Final = 32


class HeadTemplate:
    """The common part of frames of one kind: all of their heads, or all but one value."""

    __slots__ = (
        "after",
        "before",
        "command",
        "head",
        "headers",
        "is_plain",
        "length",
        "misses",
        "value",
        "varies",
    )

    def __init__(self, frame: Frame, head: bytes, length: int, varies: str) -> None:
        """Use a frame as the template; ``length`` is its declared body length, or -1.

        ``varies`` is the header whose value may differ; empty for none.
        """
        self.command = frame.command
        self.headers = frame.headers.copy()
        self.is_plain = frame.is_plain
        self.head = head
        self.length = length
        self.varies = varies
        #: Value of that header in the frame matched last.
        self.value = ""
        #: Heads with the same first byte since the last one that matched a template.
        self.misses = 0
        self.before, self.after = head + b"\n\n", b""
        if varies:
            at = head.index(f"\n{varies}:".encode()) + len(varies) + 2
            end = head.find(b"\n", at)
            self.before, self.after = head[:at], b"\n\n" if end < 0 else head[end:] + b"\n\n"

    def is_to_be_replaced(self) -> bool:
        """Record a head that does not match; return True if it should become the template."""
        self.misses += 1
        # It seldom helps where all heads differ.
        return self.misses <= _FUTILE or not self.misses % _FUTILE

    def body_start(self, data: bytes, start: int) -> int:
        """Return where the body of the frame at ``start`` begins; 0 if its head does not match."""
        at = start + len(self.before)
        if data[start:at] != self.before:
            return 0
        if not self.varies:
            return at
        end = data.find(b"\n", at)
        after = end + len(self.after)
        if end < 0 or data[end:after] != self.after:
            return 0
        value = data[at:end]
        if not value.isalnum() and value.translate(None, _PLAIN):
            return 0
        self.value = value.decode()
        return after


def likeness(frame: Frame, head: bytes, length: int, version: Version) -> HeadTemplate | None:
    """Return a template for a frame without repeated headers, or None if its head is not simple."""
    if head.find(b"\\") >= 0 or head.find(b"\r") >= 0:
        return None
    answers = frame.command == "ACK" or frame.command == "NACK"
    varies = _VARIES_IN_ANSWERS[version] if answers else _VARIES
    if head.find(f"\n{varies}:".encode()) < 0:
        varies = ""
    return HeadTemplate(frame, head, length, varies)
