"""Heads that differ from one before in nothing but one value, and need not be parsed again."""

from __future__ import annotations

from typing import Final

from stompkit.frames._grammar import Version

__all__ = ["HeadTemplate", "likeness"]

#: What differs from one frame to the next of peers that otherwise repeat themselves.
_VARIES: Final = "receipt"
_VARIES_IN_ANSWERS: Final[dict[Version, str]] = {
    "1.0": "message-id",
    "1.1": "message-id",
    "1.2": "id",
}
#: Octets that stand for themselves in every version, wherever they stand in a value.
_PLAIN: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./@"


class HeadTemplate:
    """What frames of one kind have in common: all of their heads, or all but one value."""

    __slots__ = ("after", "before", "command", "head", "headers", "length", "value", "varies")

    def __init__(
        self, command: str, headers: dict[str, str], head: bytes, length: int, varies: str
    ) -> None:
        """Take a frame as the model; ``length`` is the declared one of its body, or -1.

        ``varies`` is the header whose value may be another one; empty for none.
        """
        self.command = command
        self.headers = headers.copy()
        self.head = head
        self.length = length
        self.varies = varies
        #: That value in the frame that was looked at last.
        self.value = ""
        self.before, self.after = head + b"\n\n", b""
        if varies:
            at = head.index(f"\n{varies}:".encode()) + len(varies) + 2
            end = head.find(b"\n", at)
            self.before, self.after = head[:at], b"\n\n" if end < 0 else head[end:] + b"\n\n"

    def body_start(self, data: bytes, start: int) -> int:
        """Where the body begins of the frame at ``start``; 0 if its head is another one."""
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


def likeness(
    command: str, headers: dict[str, str], head: bytes, length: int, version: Version
) -> HeadTemplate | None:
    """Make a model of a frame without repeated headers, if its head is as simple as most are."""
    if b"\\" in head or b"\r" in head:
        return None
    answers = command == "ACK" or command == "NACK"
    varies = _VARIES_IN_ANSWERS[version] if answers else _VARIES
    if f"\n{varies}:".encode() not in head:
        varies = ""
    return HeadTemplate(command, headers, head, length, varies)
