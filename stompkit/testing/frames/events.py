"""Events on the wire between clients and a broker, one class for each kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from stompkit.frames import Frame
from stompkit.testing.frames.matching import Direction
from stompkit.testing.frames.words import shown_frame, shown_text

__all__ = ["Closed", "End", "Event", "Octets", "Opened", "SeenFrame", "size_bytes"]

#: The two ends of a connection.
End = Literal["client", "broker"]


@dataclass(frozen=True)
class Opened:
    """A client has connected."""

    connection: int
    """The connection, numbered from 1 in the order of arrival."""
    at_s: float = 0.0
    """Time in seconds since the log began."""

    def __str__(self) -> str:
        """Return the event on one line, without the time."""
        return f"#{self.connection} opened"


@dataclass(frozen=True)
class Closed:
    """A connection has ended."""

    connection: int
    """The connection, numbered from 1 in the order of arrival."""
    at_s: float = 0.0
    """Time in seconds since the log began."""
    by: End | None = None
    """The end that closed the connection; ``None`` if unknown, or if it was neither."""
    reason: str = ""
    """The known reason, in words."""

    def __str__(self) -> str:
        """Return the event on one line, without the time."""
        by = "" if self.by is None else f" by the {self.by}"
        return f"#{self.connection} closed{by}" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True)
class Octets:
    """Bytes that are not a frame; no more frames are parsed in this direction afterwards."""

    direction: Direction
    """Direction as the broker sees it."""
    connection: int
    """The connection, numbered from 1 in the order of arrival."""
    octets: bytes
    """The bytes; only the first of them if there were too many."""
    at_s: float = 0.0
    """Time of the first byte in seconds since the log began."""

    def __str__(self) -> str:
        """Return the event on one line, without the time."""
        what = f"no frame but {shown_text(self.octets)}"
        return f"#{self.connection} {self.direction:<8} {what}"


@dataclass(frozen=True)
class SeenFrame:
    """A frame that has passed between a client and the broker."""

    direction: Direction
    """Direction as the broker sees it: ``received`` from a client or ``sent`` to it."""
    connection: int
    """The connection, numbered from 1 in the order of arrival."""
    at_s: float
    """Time in seconds since the log began."""
    frame: Frame
    """The frame, with passcodes masked. It belongs to the log: do not change it."""
    cut_bytes: int = 0
    """Number of bytes cut from the end of a long body."""
    number: int = field(default=0, compare=False)
    """Sequence number in the log: it only grows, also when the log is cleared."""

    @property
    def command(self) -> str:
        """The command."""
        return self.frame.command

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, each with its first value."""
        return self.frame.headers

    @property
    def body(self) -> bytes:
        """The body."""
        return self.frame.body

    @property
    def text(self) -> str:
        """The body as UTF-8 text; raises UnicodeDecodeError if it is not valid UTF-8."""
        return self.frame.text

    def __str__(self) -> str:
        """Return the event on one line, without the time."""
        cut = f"  ({self.cut_bytes} more octets)" if self.cut_bytes else ""
        return f"#{self.connection} {self.direction:<8} {shown_frame(self.frame)}{cut}"


#: Any event of a log or a transcript.
Event = Opened | Closed | Octets | SeenFrame


def size_bytes(event: Event) -> int:
    """Return the size of an event in bytes; a character of a header counts as one byte."""
    if not isinstance(event, SeenFrame):
        return 0
    return len(event.body) + sum(len(name) + len(value) for name, value in event.frame.items())
