"""Delays between attempts."""

from __future__ import annotations

from typing import Final

__all__ = ["Backoff", "delay_s"]

#: After this many failures in a row the exponent grows no further; a float would overflow at 1,024.
_MAX_DOUBLINGS: Final = 60


def delay_s(failures: int, initial_s: float, max_s: float) -> float:
    """Return the delay in seconds after *failures* failures in a row.

    It is *initial_s* after the first failure, twice as long after each further one, and at most
    *max_s*.
    """
    return min(max_s, initial_s * 2.0 ** min(max(failures - 1, 0), _MAX_DOUBLINGS))


class Backoff:
    """The delays of one series of attempts, each twice as long as the one before."""

    def __init__(self, initial_s: float, max_s: float) -> None:
        """Start with *initial_s* seconds; no delay is longer than *max_s* seconds."""
        self._initial_s = initial_s
        self._max_s = max_s
        self._failures = 0

    @property
    def delay_s(self) -> float:
        """The delay in seconds that the next failure causes."""
        return delay_s(self._failures + 1, self._initial_s, self._max_s)

    def fail(self) -> float:
        """Count a failure, and return the delay in seconds until the next attempt."""
        self._failures += 1
        return delay_s(self._failures, self._initial_s, self._max_s)

    def reset(self) -> None:
        """Reset the delay, after a success."""
        self._failures = 0
