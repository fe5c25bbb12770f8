"""Stamps: each commit replaces the stamp of the store, and shows by it who has written last."""

from __future__ import annotations

from secrets import token_hex

__all__ = ["Stamps", "epoch_of"]


def epoch_of(stamp: str) -> int:
    """Return the epoch of the broker that has written a stamp; 0 if it had no lease."""
    epoch, dot, _ = stamp.partition(".")
    return int(epoch, 16) if dot else 0


class Stamps:
    """The stamps that the store can have, if nobody else has written.

    There is one, unless the outcome of a commit is unknown. A stamp is ``EPOCH.NUMBER.RANDOM``, all
    hexadecimal, with at most 32 characters.
    """

    def __init__(self, epoch: int, stamp: str) -> None:
        """Start with the stamp that was read or written last."""
        self._prefix = f"{epoch:x}."
        self._suffix = f".{token_hex(4)}"
        self._number = 0
        #: Whether each possible stamp shows that the uncertain commit was done.
        self._possible = {stamp: False}

    def new(self) -> str:
        """Return a stamp that no commit had before."""
        self._number += 1
        return f"{self._prefix}{self._number:x}{self._suffix}"

    def begin(self) -> None:
        """Start another commit: the outcome of earlier ones does not matter any more."""
        self._possible = dict.fromkeys(self._possible, False)

    @property
    def known(self) -> list[str]:
        """All possible stamps."""
        return list(self._possible)

    def has(self, stamp: str) -> bool:
        """Return True if the store can have this stamp."""
        return stamp in self._possible

    def is_done(self, stamp: str) -> bool:
        """Return True if this stamp shows that the uncertain commit was done."""
        return self._possible[stamp]

    def only(self, stamp: str) -> None:
        """Record that the store has this stamp."""
        self._possible = {stamp: False}

    def tried(self, stamp: str, *, is_done: bool) -> None:
        """Record that a commit with this stamp was tried, whose outcome is unknown.

        ``is_done`` is true if this stamp shows that the uncertain commit was done.
        """
        self._possible[stamp] = is_done
