"""How much a target takes: searches that are bounded in size and time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stompkit.conformance.peer import Peer
from stompkit.conformance.robustness import settle
from stompkit.conformance.target import Target
from stompkit.conformance.verdict import Failed, Outcome

__all__ = ["KIB", "MIB", "Limit", "grow", "number", "search", "size"]

KIB: Final = 1024
MIB: Final = 1024 * KIB
#: What takes longer than this twice, in seconds, is as far as a search goes.
_SLOW_S: Final = 0.5
#: Where something takes longer than this, in seconds, silence about what is twice as large may be
#: no refusal: some targets look again and again at all that they have, and run short of memory.
_NOTICEABLE_S: Final = 0.15
#: How long a target may take to refuse what has become too much, in seconds.
_REFUSAL_S: Final = 0.1


def number(count: int) -> str:
    """A number of things."""
    return f"{count:,}"


def size(octets: int) -> str:
    """A number of octets, to three figures."""
    for factor, unit in ((MIB, "MiB"), (KIB, "KiB")):
        if octets >= factor:
            return f"{octets / factor:.3g} {unit}"
    return f"{octets} octets"


@dataclass
class Limit:
    """What was found: the most that is accepted, and the least above it that is not."""

    most: int
    refused: int | None = None
    outcome: Outcome = Outcome.ACCEPTED

    def note(self, tried: int, outcome: Outcome) -> None:
        """Take in what became of an attempt."""
        if outcome is Outcome.ACCEPTED:
            self.most = tried
        else:
            self.refused, self.outcome = tried, outcome

    def record(self, target: Target, about: str, shown: Callable[[int], str] = number) -> None:
        """Put it into the report, with a lapse where the target falls silent beyond it."""
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
    """Double until something is refused, or ``cap`` is reached; then close in on the limit.

    The limit is known in the end to one of so many ``parts`` of it; 0 finds it exactly.  What is
    not answered, or takes long, ends the search, for each more would take as long.
    """
    until = time.monotonic() + seconds
    found = Limit(0)
    tried = min(start, cap)
    took_s = 0.0
    while found.refused is None and found.most < cap:
        outcome, took_now_s = _timed(attempt, tried)
        if outcome is Outcome.ACCEPTED and took_now_s > _SLOW_S:
            # It may have been chance.
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
    """What comes of an attempt, and the seconds that it takes."""
    began = time.monotonic()
    outcome = attempt(size)
    return outcome, time.monotonic() - began


def grow(
    peer: Peer, begin: bytes, more: bytes, *, cap: int, seconds: float, start: int = KIB
) -> Limit:
    """Send a frame that never ends until the target has enough of it.

    ``begin`` is how it begins, ``more`` what it goes on with. Its size is doubled each time that
    the target has said nothing for a while, up to ``cap``.  Where the target reads no more the
    limit is not known, but the target is safe.
    """
    until = time.monotonic() + seconds
    heard = len(peer.frames)
    found = Limit(0)
    sent = 0
    tried = start
    stream = begin + more * (cap // len(more))
    while found.refused is None and found.most < cap and time.monotonic() < until:
        try:
            peer.send_raw(stream[sent:tried])
        except Failed:
            break
        sent = tried
        settle([peer], lambda peer: len(peer.frames) > heard, _REFUSAL_S)
        if len(peer.frames) > heard:
            found.note(tried, Outcome.ERROR_AND_CLOSE)
        elif peer.is_closed_by_target:
            found.note(tried, Outcome.CLOSE)
        else:
            found.note(tried, Outcome.ACCEPTED)
        tried = min(2 * tried, cap)
    return found
