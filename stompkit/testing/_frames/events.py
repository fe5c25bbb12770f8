"""What happens on the wire between clients and a broker, one value for each event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from stompkit.frames import Frame
from stompkit.testing._frames.matching import Direction
from stompkit.testing._frames.words import shown_frame, shown_text

__all__ = ["Closed", "End", "Event", "Octets", "Opened", "SeenFrame"]

#: The two ends of a connection.
End = Literal["client", "broker"]


@dataclass(frozen=True)
class Opened:
    """A client has connected."""

    connection: int
    """The connection, numbered from 1 in the order of arrival."""
    at_s: float = 0.0
    """When, in seconds since the log began."""

    def __str__(self) -> str:
        """On one line, without the time."""
        return f"#{self.connection} opened"


@dataclass(frozen=True)
class Closed:
    """A connection has ended."""

    connection: int
    """The connection, numbered from 1 in the order of arrival."""
    at_s: float = 0.0
    """When, in seconds since the log began."""
    by: End | None = None
    """Which end closed it; ``None`` where that is not known, or where it was neither."""
    reason: str = ""
    """What is known about it, in words."""

    def __str__(self) -> str:
        """On one line, without the time."""
        by = "" if self.by is None else f" by the {self.by}"
        return f"#{self.connection} closed{by}" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True)
class Octets:
    """Octets that are no frame; on this connection nothing is read in this direction any more."""

    direction: Direction
    """Which way they went, as the broker sees it."""
    connection: int
    """The connection, numbered from 1 in the order of arrival."""
    octets: bytes
    """The octets; where they were very many, the first of them."""
    at_s: float = 0.0
    """When the first of them came, in seconds since the log began."""

    def __str__(self) -> str:
        """On one line, without the time."""
        what = f"no frame but {shown_text(self.octets)}"
        return f"#{self.connection} {self.direction:<8} {what}"


@dataclass(frozen=True)
class SeenFrame:
    """A frame that has passed between a client and the broker."""

    direction: Direction
    """Which way it went, as the broker sees it: ``received`` from a client or ``sent`` to it."""
    connection: int
    """The connection, numbered from 1 in the order of arrival."""
    at_s: float
    """When, in seconds since the log began."""
    frame: Frame
    """The frame, with passcodes masked. It belongs to the log: don't change it."""
    cut_bytes: int = 0
    """How many octets of the body were left out at its end because it was so long."""
    number: int = field(default=0, compare=False)
    """Its place in the log: it only grows, also when the log is cleared."""

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
        """The body as UTF-8; raises UnicodeDecodeError where it is something else."""
        return self.frame.text

    def __str__(self) -> str:
        """On one line, without the time."""
        cut = f"  ({self.cut_bytes} more octets)" if self.cut_bytes else ""
        return f"#{self.connection} {self.direction:<8} {shown_frame(self.frame)}{cut}"


#: Whatever a log or a transcript has to tell of.
Event = Opened | Closed | Octets | SeenFrame
