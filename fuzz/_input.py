"""What targets make of the octets that they are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple, TypeVar

__all__ = ["Step", "chosen", "pieces", "script", "steps"]

_T = TypeVar("_T")

#: Begins a step of a script; no text in UTF-8 has it.
_MARK: Final = b"\xfe"


def chosen(choices: Sequence[_T], octet: int) -> _T:
    """One of some things, by an octet."""
    return choices[octet % len(choices)]


def pieces(data: bytes, sizes: bytes) -> list[bytes]:
    """Cut octets into pieces of these sizes, over and over; none of them is empty."""
    lengths = [size % 32 + 1 for size in sizes] or [len(data) or 1]
    rounds = lengths * (len(data) // sum(lengths) + 1)
    ends = [min(end, len(data)) for end in accumulate(rounds, initial=0)]
    return [data[start:end] for start, end in pairwise(ends) if start < end]


class Step(NamedTuple):
    """What a client does, and the octets that go with it."""

    what: str
    text: bytes


def steps(data: bytes) -> Iterator[Step]:
    """Read a script: octets to send, with steps in between that are a mark and a letter each.

    Octets without a step before them are ``|``, which sends them.
    """
    first, *others = data.split(_MARK)
    if first:
        yield Step("|", first)
    for each in others:
        yield Step(each[:1].decode("latin-1"), each[1:])


def script(settings: Sequence[int], *parts: bytes | str) -> bytes:
    """Write a script: octets are sent, and of a text the first letter is the step.

    A text of two letters is a step with an argument, which the octets behind it go on with.
    """
    made = bytes(settings)
    goes_on = True
    for part in parts:
        if isinstance(part, str):
            made += _MARK + part.encode()
        else:
            made += part if goes_on else _MARK + b"|" + part
        goes_on = isinstance(part, str)
    return made
