"""Templates of heads: a head that differs in one value only is not parsed again."""

from __future__ import annotations

from typing import Final

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


class HeadTemplate:
    """The common part of frames of one kind: all of their heads, or all but one value."""

    __slots__ = ("after", "before", "command", "head", "headers", "length", "value", "varies")

    def __init__(
        self, command: str, headers: dict[str, str], head: bytes, length: int, varies: str
    ) -> None:
        """Use a frame as the template; ``length`` is its declared body length, or -1.

        ``varies`` is the header whose value may differ; empty for none.
        """
        self.command = command
        self.headers = headers.copy()
        self.head = head
        self.length = length
        self.varies = varies
        #: Value of that header in the frame matched last.
        self.value = ""
        self.before, self.after = head + b"\n\n", b""
        if varies:
            at = head.index(f"\n{varies}:".encode()) + len(varies) + 2
            end = head.find(b"\n", at)
            self.before, self.after = head[:at], b"\n\n" if end < 0 else head[end:] + b"\n\n"

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


def likeness(
    command: str, headers: dict[str, str], head: bytes, length: int, version: Version
) -> HeadTemplate | None:
    """Return a template for a frame without repeated headers, or None if its head is not simple."""
    if b"\\" in head or b"\r" in head:
        return None
    answers = command == "ACK" or command == "NACK"
    varies = _VARIES_IN_ANSWERS[version] if answers else _VARIES
    if f"\n{varies}:".encode() not in head:
        varies = ""
    return HeadTemplate(command, headers, head, length, varies)
