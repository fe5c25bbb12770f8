"""Entries of a segment's index."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Entry"]


class Entry(NamedTuple):
    """Index entry of a block, or of a batch in a sealed segment."""

    first: int
    offset: int
    messages: int
    #: Size in bytes.
    length: int
    #: Reception times of its first and its last message, in microseconds since 1970.
    since_us: int
    until_us: int

    @property
    def end(self) -> int:
        """The ordinal after the last message."""
        return self.first + self.messages
