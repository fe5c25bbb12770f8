"""Pieces of a spool: messages in the order in which they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from stompkit.spool import Block

__all__ = ["Piece", "Reader", "Run", "Wholes", "runs"]


class Reader(Protocol):
    """The interface that reading in order needs from :class:`stompkit.spool.SpoolReader`."""

    def floor(self) -> tuple[int, ...]:
        """Return the first retained ordinal of each partition."""

    def head(self) -> tuple[int, ...]:
        """Return the ordinal after the last message of each partition."""

    def blocks(self, partition: int, start: int, end: int) -> Iterator[Block]:
        """Yield the messages of a partition from ``start`` up to ``end``, exclusive."""


#: Consecutive messages: ordinal to assign to the first, its own ordinal, and their number.
Run = tuple[int, int, int]


class Wholes(NamedTuple):
    """The changesets in several messages that a task completes, as planned by the driver."""

    #: Lowest ordinal in the spool of a message with a part of them.
    since: int
    #: Assigned ordinals of the messages that complete them.
    places: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """Messages of a partition that one task reads, in another order than they arrived.

    The assigned ordinals depend only on the spool, not on the batch bounds. A message beyond a
    fence is therefore beyond it in any batch.
    """

    start: int
    end: int
    #: Runs of messages to read; omitted messages are duplicates.
    runs: tuple[Run, ...]

    def blocks(self, reader: Reader, partition: int) -> Iterator[Block]:
        """Yield the messages with the ordinals of their new order."""
        for place, first, amount in self.runs:
            for block in reader.blocks(partition, first, first + amount):
                yield block.moved(place + block.first - first)

    def with_next(self, other: Piece) -> Piece:
        """Return one piece that contains both pieces and the messages between them."""
        amount = other.start - self.end
        between = ((self.end, self.end, amount),) if amount else ()
        return Piece(self.start, other.end, (*self.runs, *between, *other.runs))


def runs(start: int, order: Sequence[int]) -> Iterator[Run]:
    """Yield ordinals as runs, which are assigned ordinals from ``start`` on."""
    at = 0
    for number in range(1, len(order) + 1):
        if number == len(order) or order[number] != order[number - 1] + 1:
            yield start + at, order[at], number - at
            at = number
