"""An entry of a segment's index."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Entry"]


class Entry(NamedTuple):
    """A block, or what corresponds to one in a sealed segment."""

    first: int
    offset: int
    messages: int
    #: In octets.
    length: int
    #: When its first and its last message were received, in microseconds since 1970.
    since_us: int
    until_us: int

    @property
    def end(self) -> int:
        """The ordinal after its last one."""
        return self.first + self.messages
