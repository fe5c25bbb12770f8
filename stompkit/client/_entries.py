"""Frames to send to the broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from twisted.internet.defer import Deferred

from stompkit.frames import Frame, Version

__all__ = ["Entry", "OnDone", "Packet", "Wire", "size_of"]

#: Called once, with ``None`` or the error; the same events as those of a Deferred.
OnDone = Callable[[Exception | None], object]


class Packet(Protocol):
    """Content of one SEND frame, without its destination."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the frame."""

    @property
    def body(self) -> bytes:
        """Body of the frame."""


class Wire(Protocol):
    """A connection that is logged in."""

    @property
    def version(self) -> Version:
        """The negotiated STOMP version."""

    @property
    def is_writable(self) -> bool:
        """True if the transport has room."""

    @property
    def has_failed(self) -> bool:
        """True if the connection is about to end, and no frame can be sent."""

    def encode(self, frame: Frame) -> bytes:
        """Return a frame's bytes; raises ``LocalProtocolError`` if it cannot be encoded."""

    def write_encoded(self, data: bytes) -> None:
        """Send encoded frames, in the order in which they were encoded."""

    def write_all(self, frames: Sequence[Frame]) -> None:
        """Send frames together; after ``LocalProtocolError`` none is sent."""


class Entry:
    """A frame to send, and the Deferred or the function of its caller.

    It is done when the frame's receipt has come; without a receipt, when the frame has been given
    to the transport. ``survives`` is true if the frame may be sent on any connection: unless it is
    confirmed, it is resent on the next one. ``size`` is 0 for a frame that is exempt from the
    limits.
    """

    __slots__ = ("_on_done", "done", "frame", "receipt", "size", "survives", "written")

    def __init__(
        self,
        frame: Frame,
        receipt: str | None,
        size: int,
        *,
        survives: bool,
        on_done: OnDone | None = None,
    ) -> None:
        """Create an entry for an unwritten frame; ``done`` is not used with ``on_done``."""
        self.frame = frame
        self.receipt = receipt
        self.size = size
        self.done: Deferred[None]
        self.survives = survives
        self.written = False
        self._on_done = on_done

    def finish(self, error: Exception | None) -> None:
        """Notify the caller, unless it has cancelled the Deferred."""
        if self._on_done is not None:
            self._on_done(error)
        elif self.done.called:  # cancelled
            return
        elif error is None:
            self.done.callback(None)
        else:
            self.done.errback(error)


def size_of(frame: Frame) -> int:
    """Return the size in bytes of a message in the limits of the buffer."""
    headers = frame.headers
    return len(frame.body) + len("".join(headers)) + len("".join(headers.values()))
