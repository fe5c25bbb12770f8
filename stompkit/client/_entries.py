"""Frames to send to the broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from twisted.internet.defer import Deferred

from stompkit.frames import Frame, Version

__all__ = ["Entry", "Wire", "size_of"]


class Wire(Protocol):
    """A connection that is logged in."""

    @property
    def version(self) -> Version:
        """The negotiated STOMP version."""

    @property
    def is_writable(self) -> bool:
        """True if the transport has room."""

    def write(self, frame: Frame) -> None:
        """Send a frame; raises ``LocalProtocolError`` for a frame that cannot be encoded."""

    def write_all(self, frames: Sequence[Frame]) -> None:
        """Send frames together; after ``LocalProtocolError`` none is sent."""


class Entry:
    """A frame to send, and the Deferred of its caller.

    ``done`` fires on the frame's receipt; without a receipt, when the frame has been given to the
    transport. ``survives`` is true if the frame may be sent on any connection: unless it is
    confirmed, it is resent on the next one. ``size`` is 0 for a frame that is exempt from the
    limits.
    """

    __slots__ = ("done", "frame", "receipt", "size", "survives", "written")

    def __init__(self, frame: Frame, receipt: str | None, size: int, *, survives: bool) -> None:
        """Create an entry for an unwritten frame."""
        self.frame = frame
        self.receipt = receipt
        self.size = size
        self.done: Deferred[None] = Deferred()
        self.survives = survives
        self.written = False


def size_of(frame: Frame) -> int:
    """Return the size in bytes of a message in the limits of the buffer."""
    headers = frame.headers
    return len(frame.body) + sum(map(len, headers)) + sum(map(len, headers.values()))
