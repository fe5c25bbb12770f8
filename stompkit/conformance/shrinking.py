"""Search for the smallest part of a failing input that still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["shrink", "shrink_pieces"]

_Items = TypeVar("_Items", bytes, tuple[bytes, ...])


def shrink(items: _Items, fails: Callable[[_Items], bool]) -> _Items:
    """Remove as much of the failing ``items`` as possible: first halves, then single ones.

    The result fails, and would not fail without any one of its items.
    """
    chunk = max(1, len(items) // 2)
    while True:
        before = len(items)
        at = 0
        while at < len(items):
            rest = items[:at] + items[at + chunk :]
            if fails(rest):
                items = rest
            else:
                at += chunk
        if chunk > 1:
            chunk //= 2
        elif len(items) == before:
            return items


def shrink_pieces(
    pieces: tuple[bytes, ...], fails: Callable[[tuple[bytes, ...]], bool]
) -> tuple[bytes, ...]:
    """Remove pieces, then bytes of the remaining pieces, as long as the rest fails.

    Pieces are joined if that makes no difference.
    """
    while True:
        before = pieces
        pieces = shrink(pieces, fails)
        joined = (b"".join(pieces),)
        if len(pieces) > 1 and fails(joined):
            pieces = joined
        for place in range(len(pieces)):
            pieces = _with_smaller(pieces, place, fails)
        if pieces == before:
            return pieces


def _with_smaller(
    pieces: Sequence[bytes], place: int, fails: Callable[[tuple[bytes, ...]], bool]
) -> tuple[bytes, ...]:
    """Return the pieces with one of them reduced to its smallest failing size."""
    before, after = tuple(pieces[:place]), tuple(pieces[place + 1 :])
    smaller = shrink(pieces[place], lambda octets: fails((*before, octets, *after)))
    return (*before, smaller, *after)
