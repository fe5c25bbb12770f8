"""Limits of a target, found by searches that are bounded in size and time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stompkit.conformance.peer import Peer
from stompkit.conformance.robustness import settle
from stompkit.conformance.target import Target
from stompkit.conformance.verdict import FailedError, Outcome

__all__ = ["KIB", "MIB", "Limit", "grow", "number", "search", "size"]

KIB: Final = 1024
MIB: Final = 1024 * KIB
#: A search stops at a step that takes longer than this twice, in seconds.
_SLOW_S: Final = 0.5
#: If a step takes longer than this, in seconds, silence about twice the size may not be a refusal:
#: some targets reread all pending data repeatedly, and run short of memory.
_NOTICEABLE_S: Final = 0.15
#: Time in seconds for a target to refuse an excessive size.
_REFUSAL_S: Final = 0.1


def number(count: int) -> str:
    """Format a number of items."""
    return f"{count:,}"


def size(octets: int) -> str:
    """Format a number of bytes, to three significant figures."""
    for factor, unit in ((MIB, "MiB"), (KIB, "KiB")):
        if octets >= factor:
            return f"{octets / factor:.3g} {unit}"
    return f"{octets} octets"


@dataclass
class Limit:
    """The result of a search: the largest accepted size, and the smallest refused one above."""

    most: int
    refused: int | None = None
    outcome: Outcome = Outcome.ACCEPTED

    def note(self, tried: int, outcome: Outcome) -> None:
        """Record the outcome of an attempt."""
        if outcome is Outcome.ACCEPTED:
            self.most = tried
        else:
            self.refused, self.outcome = tried, outcome

    def record(self, target: Target, about: str, shown: Callable[[int], str] = number) -> None:
        """Add the limit to the report, with a lapse if the target gives no answer beyond it."""
        if self.refused is None:
            target.profile(about, f"at least {shown(self.most)}")
            return
        most = shown(self.most) if self.most else f"less than {shown(self.refused)}"
        target.profile(about, most)
        target.note(f"{about}: {shown(self.refused)} is {self.outcome}")
        target.should(
            self.outcome is not Outcome.NOTHING,
            f"{about}: {shown(self.refused)} is neither accepted nor refused",
        )


def search(
    attempt: Callable[[int], Outcome], *, cap: int, seconds: float, start: int = 1, parts: int = 0
) -> Limit:
    """Double the size until it is refused, or ``cap`` is reached; then narrow the limit down.

    The limit is determined to one of ``parts`` parts of it; 0 finds it exactly.  An attempt without
    an answer, or a slow one, ends the search, since each further one would take as long.
    """
    until = time.monotonic() + seconds
    found = Limit(0)
    tried = min(start, cap)
    took_s = 0.0
    while found.refused is None and found.most < cap:
        outcome, took_now_s = _timed(attempt, tried)
        if outcome is Outcome.ACCEPTED and took_now_s > _SLOW_S:
            # Measure again: the delay may have been a coincidence.
            took_now_s = min(took_now_s, _timed(attempt, tried)[1])
        if outcome is Outcome.NOTHING and took_s > _NOTICEABLE_S:
            break
        found.note(tried, outcome)
        if took_now_s > _SLOW_S or time.monotonic() > until:
            break
        took_s = took_now_s
        tried = min(2 * tried, cap)
    while found.refused is not None and found.outcome is not Outcome.NOTHING:
        precision = max(1, found.most // parts) if parts else 1
        if found.refused - found.most <= precision or time.monotonic() > until:
            break
        tried = (found.most + found.refused) // 2
        found.note(tried, attempt(tried))
    return found


def _timed(attempt: Callable[[int], Outcome], size: int) -> tuple[Outcome, float]:
    """Return the outcome of an attempt, and its duration in seconds."""
    began = time.monotonic()
    outcome = attempt(size)
    return outcome, time.monotonic() - began


def grow(
    peer: Peer, begin: bytes, more: bytes, *, cap: int, seconds: float, start: int = KIB
) -> Limit:
    """Send an endless frame until the target refuses it.

    ``begin`` is its start, ``more`` is repeated. Its size doubles whenever the target has not
    answered for a while, up to ``cap``.  If the target stops reading, the limit is unknown, but the
    target is safe.
    """
    until = time.monotonic() + seconds
    received = len(peer.frames)
    found = Limit(0)
    sent = 0
    tried = start
    stream = begin + more * (cap // len(more))
    while found.refused is None and found.most < cap and time.monotonic() < until:
        try:
            peer.send_raw(stream[sent:tried])
        except FailedError:
            break
        sent = tried
        settle([peer], lambda peer: len(peer.frames) > received, _REFUSAL_S)
        if len(peer.frames) > received:
            found.note(tried, Outcome.ERROR_AND_CLOSE)
        elif peer.is_closed_by_target:
            found.note(tried, Outcome.CLOSE)
        else:
            found.note(tried, Outcome.ACCEPTED)
        tried = min(2 * tried, cap)
    return found
