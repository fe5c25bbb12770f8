"""Requests for missing changesets: one at a time, to one node that has them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from stompkit.replica.engine._core import Core
from stompkit.replica.engine._facts import Gone, Sent, Want
from stompkit.replica.engine._peers import Peers
from stompkit.replica.engine._types import Peer
from stompkit.replica.store import Reader
from stompkit.replica.vectors import missing

__all__ = ["Requests"]

#: Number of consecutive unanswered requests after which a warning is reported.
_TOLD_AFTER: Final = 3


@dataclass(slots=True)
class _Open:
    """A pending request."""

    number: int
    peer: str
    port: int
    #: Timeout of the request; each received changeset extends it.
    until_s: float
    #: Number of changesets received, and whether one of them was useful.
    came: int = 0
    is_of_use: bool = False


class Requests:
    """Schedules the requests."""

    def __init__(self, core: Core, peers: Peers) -> None:
        """Start without a request."""
        self._core = core
        self._peers = peers
        self._open: _Open | None = None
        #: Time since when something is missing, in monotonic seconds.
        self._since_s: float | None = None
        self._number = core.chance.getrandbits(40)
        #: Number of consecutive unanswered requests, by node.
        self._unanswered: Counter[str] = Counter()
        #: Numbers of held changesets, which may be beyond the vectors of others.
        self._held: dict[str, list[int]] = {}
        self.is_behind_all = False
        #: True if :meth:`poll` has seen that.
        self._is_behind_seen = False

    def look(self, reader: Reader) -> None:
        """Load the numbers of held changesets."""
        self._held = reader.held_numbers()

    def ranges(self) -> dict[str, tuple[int, int]]:
        """Return the first gap of each origin."""
        core = self._core
        known = self._peers.known()
        for origin, numbers in self._held.items():
            known[origin] = max(known.get(origin, 0), numbers[-1])
        gaps = missing(core.vector, known)
        for origin, (first, last) in gaps.items():
            for number in self._held.get(origin, ()):
                # Held changesets are not requested again.
                if number == first:
                    first += 1
                elif number > first:
                    last = min(last, number - 1)
                    break
            gaps[origin] = (first, last)
        return {
            origin: gap
            for origin, gap in gaps.items()
            if gap[0] <= gap[1] and origin != core.origin
        }

    def progress(self, came: int, *, is_of_use: bool) -> None:
        """Extend the timeout, because changesets have arrived."""
        if self._open is not None:
            self._is_answered(self._open.peer)
            self._open.until_s = self._core.monotonic() + self._core.settings.request_timeout_s
            self._open.came += came
            self._open.is_of_use |= is_of_use

    def sent(self, facts: Sent) -> None:
        """Complete a request."""
        if self._open is None or self._open.number != facts.number:
            return
        self._is_answered(self._open.peer)
        if not self._open.is_of_use:
            # An immediate repetition would bring the same, or be lost in the same way.
            self._put_off(self._open.peer)
        self._open = None
        self._since_s = self._core.monotonic() - self._core.settings.request_delay_s

    def gone(self, facts: Gone) -> None:
        """Note that a node no longer keeps what was requested."""
        if self._open is None or self._open.number != facts.number:
            return
        self._is_answered(self._open.peer)
        peer = self._peers.get(self._open.peer)
        if peer is not None:
            peer.is_gone = True
        self._open = None

    def caught_up(self) -> None:
        """Reset after a snapshot: what is still missing can be requested."""
        self._is_behind_seen = False

    def disconnected(self, port: int) -> None:
        """Cancel the request on a disconnected channel."""
        if self._open is not None and self._open.port == port:
            self._open = None

    def poll(self, now: float) -> None:
        """Send a request if something has been missing for long enough, or time one out."""
        request = self._open
        if request is not None:
            if now < request.until_s:
                return
            self._core.counts["timeouts"] += 1
            if not request.came:
                self._is_unanswered(request.peer)
            self._put_off(request.peer)
            self._open = None
        ranges = self.ranges()
        if not ranges:
            for origin in list(self._unanswered):
                self._is_answered(origin)
            self._since_s = None
            self.is_behind_all = False
            return
        if self._since_s is None:
            self._since_s = now
        if now < self._since_s + self._core.settings.request_delay_s:
            return
        able = self._able(ranges, now)
        self._is_behind_seen = self.is_behind_all
        if not able:
            return
        # Pick randomly among the nodes that have the most of it.
        most = max(_count(part) for _, part in able)
        best = [each for each in able if _count(each[1]) == most]
        peer, wanted = best[self._core.chance.randrange(len(best))]
        port = min(peer.ports & self._core.connected)
        self._number += 1
        settings = self._core.settings
        self._open = _Open(self._number, peer.origin, port, now + settings.request_timeout_s)
        self._core.counts["requests"] += 1
        self._core.say(
            port,
            Want(
                to=peer.origin,
                number=self._number,
                ranges=wanted,
                most=settings.window,
                most_bytes=settings.window_bytes,
            ),
            to=peer.origin,
        )

    def deadline(self, now: float) -> float | None:
        """Return the time at which :meth:`poll` is due; ``None`` for never, as things are."""
        if self._open is not None:
            return self._open.until_s
        ranges = self.ranges()
        if not ranges:
            return None
        if self._since_s is None:
            # :meth:`poll` starts the wait for what may be in transit.
            return now
        due = self._since_s + self._core.settings.request_delay_s
        if self._able(ranges, max(now, due)):
            return due
        if self.is_behind_all and not self._is_behind_seen:
            return due
        later = [
            each.useless_until_s
            for each in self._peers.reachable(self._core.connected)
            if each.useless_until_s > now and self._part(each, ranges)
        ]
        return max(due, min(later)) if later else None

    def _able(
        self, ranges: dict[str, tuple[int, int]], now: float
    ) -> list[tuple[Peer, dict[str, tuple[int, int]]]]:
        """Return the nodes to ask, with the ranges that each has."""
        able = []
        gone = False
        for peer in self._peers.reachable(self._core.connected):
            part = self._part(peer, ranges)
            if not part:
                continue
            if peer.is_gone:
                gone = True
            elif peer.useless_until_s <= now:
                able.append((peer, part))
        self.is_behind_all = gone and not able
        return able

    def _part(self, peer: Peer, ranges: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        """Return the parts of the ranges that a node has."""
        found = {}
        for origin, (first, last) in ranges.items():
            upto = min(last, peer.vector.get(origin, 0))
            if upto >= first:
                found[origin] = (first, upto)
        return found

    def _is_unanswered(self, origin: str) -> None:
        """Warn of a node that is heard and does not answer: the connection works one way only."""
        self._unanswered[origin] += 1
        count = self._unanswered[origin]
        if count >= _TOLD_AFTER:
            self._core.warnings[f"silent {origin}"] = (
                f"{origin} has what is missing here, and has answered none of {count} requests:"
                " what carries the channel between their brokers has to carry requests and answers"
                " too, as `stompkit bridge --channel` does"
            )

    def _is_answered(self, origin: str) -> None:
        """Withdraw the warning about a node."""
        self._unanswered.pop(origin, None)
        self._core.warnings.pop(f"silent {origin}", None)

    def _put_off(self, origin: str) -> None:
        peer = self._peers.get(origin)
        if peer is not None:
            wait = self._core.settings.repeat_s * (0.5 + self._core.chance.random())
            peer.useless_until_s = self._core.monotonic() + wait


def _count(ranges: dict[str, tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in ranges.values())
