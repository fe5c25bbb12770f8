"""Helpers by which targets interpret their input bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple, TypeVar

__all__ = ["Step", "chosen", "pieces", "script", "steps"]

_T = TypeVar("_T")

#: Begins a step of a script; no text in UTF-8 contains it.
_MARK: Final = b"\xfe"


def chosen(choices: Sequence[_T], octet: int) -> _T:
    """Return one of several choices, selected by a byte."""
    return choices[octet % len(choices)]


def pieces(data: bytes, sizes: bytes) -> list[bytes]:
    """Cut bytes into pieces of these sizes, repeatedly; no piece is empty."""
    lengths = [size % 32 + 1 for size in sizes] or [len(data) or 1]
    rounds = lengths * (len(data) // sum(lengths) + 1)
    ends = [min(end, len(data)) for end in accumulate(rounds, initial=0)]
    return [data[start:end] for start, end in pairwise(ends) if start < end]


class Step(NamedTuple):
    """An action of a client, with its bytes."""

    what: str
    text: bytes


def steps(data: bytes) -> Iterator[Step]:
    """Read a script: bytes to send, and steps that begin with a mark and a letter.

    Bytes without a preceding step are ``|``, which sends them.
    """
    first, *others = data.split(_MARK)
    if first:
        yield Step("|", first)
    for each in others:
        yield Step(each[:1].decode("latin-1"), each[1:])


def script(settings: Sequence[int], *parts: bytes | str) -> bytes:
    """Write a script: bytes are sent; the first letter of a text is the step.

    A text of two letters is a step with an argument, which the following bytes continue.
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
