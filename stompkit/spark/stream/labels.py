"""Labels: the headers of messages that identify changesets and their parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from stompkit.spark.stream.headers import first_values, several_parts
from stompkit.spool import Block

__all__ = ["ORIGIN", "SEQUENCE", "Label", "Unlabelled", "labels"]

ORIGIN: Final = "stompkit-origin"
SEQUENCE: Final = "stompkit-sequence"
#: Maximum number of digits of a number in a header.
_MOST_DIGITS: Final = 18


class Label(NamedTuple):
    """The origin, sequence number and part of a message."""

    ordinal: int
    origin: str
    sequence: int
    part: int
    of: int


class Unlabelled(NamedTuple):
    """A message without a valid label; its reader reports errors."""

    ordinal: int
    #: True if it is one of several parts, and only its body says of which changeset.
    is_part: bool


def labels(block: Block) -> Iterator[Label | Unlabelled]:
    """Yield the label of each message of a block."""
    origins, numbers = (first_values(block, name) for name in (ORIGIN, SEQUENCE))
    parts = several_parts(block)
    for row in range(block.count):
        ordinal = block.first + row
        origin, number = origins.get(row), numbers.get(row)
        part, of = parts.get(row, ("1", "1"))
        is_valid = _is_number(part) and _is_number(of) and 0 < int(part) <= int(of)
        if origin is None or number is None or not _is_number(number):
            yield Unlabelled(ordinal, is_valid and row in parts)
        elif not is_valid:
            yield Unlabelled(ordinal, False)
        else:
            yield Label(ordinal, origin, int(number), int(part), int(of))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
