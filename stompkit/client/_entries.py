"""Frames on their way to the broker."""

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
        """The version that was negotiated."""

    @property
    def is_writable(self) -> bool:
        """Whether the transport has room."""

    def write(self, frame: Frame) -> None:
        """Send a frame; raises ``LocalProtocolError`` for one that can't be sent."""

    def write_all(self, frames: Sequence[Frame]) -> None:
        """Send frames at once; raises ``LocalProtocolError``, and then nothing is sent."""


class Entry:
    """One frame on its way, and who waits for it.

    ``done`` fires on the frame's receipt, or without one when the frame has been given to the
    transport. ``survives`` says that the frame is for any connection, and sent on the next one if
    it has not been confirmed on this. ``size`` is 0 for a frame that is exempt from the limits.
    """

    __slots__ = ("done", "frame", "receipt", "size", "survives", "written")

    def __init__(self, frame: Frame, receipt: str | None, size: int, *, survives: bool) -> None:
        """Make an entry for a frame that is not written yet."""
        self.frame = frame
        self.receipt = receipt
        self.size = size
        self.done: Deferred[None] = Deferred()
        self.survives = survives
        self.written = False


def size_of(frame: Frame) -> int:
    """What a message counts for in the limits of the buffer, in octets."""
    headers = frame.headers
    return len(frame.body) + sum(map(len, headers)) + sum(map(len, headers.values()))
