"""Heart-beat arithmetic (1.1 and 1.2, "Heart-beating"). Time is an argument, in seconds."""

from __future__ import annotations

from typing import Final

from stompkit.frames._grammar import Version
from stompkit.frames._numbers import parse_number

__all__ = ["HeartBeat", "HeartBeatOffer", "parse_heart_beat"]

#: Capability and wish of one party, in milliseconds: the two numbers of the header.
HeartBeatOffer = tuple[int, int]

#: Share of the interval after which a beat is sent, so that it arrives in time.
_SEND_EARLY: Final = 0.6
#: Maximum interval in milliseconds accepted from a peer: a larger one is an attack or a mistake.
_LONGEST_MS: Final = 2**31 - 1
_MOST_DIGITS: Final = 19


def parse_heart_beat(value: str | None) -> HeartBeatOffer:
    """Parse the header's value; a missing header is ``0,0``.

    Raises ``ValueError`` for anything but two non-negative decimal numbers and a comma.
    """
    if value is None:
        return 0, 0
    words = value.split(",")
    numbers = [parse_number(word, _MOST_DIGITS) for word in words]
    first, second = numbers if len(numbers) == 2 else (None, None)
    if first is None or second is None:
        raise ValueError(
            f"heart-beat {value[:40]!a} is not two numbers of milliseconds and a comma"
        )
    return min(first, _LONGEST_MS), min(second, _LONGEST_MS)


class HeartBeat:
    """Both directions of one connection: when to send a beat, when the peer is dead.

    The owner records bytes sent and received in ``last_sent`` and ``last_received``. It asks for
    the next deadline, and then checks :meth:`must_send` and :meth:`is_dead`. ``send_s`` and
    ``receive_s`` are the intervals in seconds; 0 means no beats.
    """

    __slots__ = ("last_received", "last_sent", "receive_s", "send_s", "tolerance")

    def __init__(self, now: float, *, tolerance: float = 2.0) -> None:
        """Start without beats; a peer silent for ``tolerance`` times the interval is dead.

        The specification leaves the error margin open. A peer that is late by less than a whole
        interval is kept.
        """
        self.send_s = 0.0
        self.receive_s = 0.0
        self.tolerance = tolerance
        self.last_sent = now
        self.last_received = now

    def negotiate(self, ours: HeartBeatOffer, theirs: HeartBeatOffer, version: Version) -> None:
        """Settle both intervals from the two headers; 1.0 has no heart-beats."""
        if version == "1.0":
            return
        self.send_s = _interval_s(ours[0], theirs[1])
        self.receive_s = _interval_s(theirs[0], ours[1])

    def next_deadline(self) -> float | None:
        """Return when :meth:`must_send` or :meth:`is_dead` may change; None without beats."""
        deadlines = []
        if self.send_s:
            deadlines.append(self.last_sent + self.send_s * _SEND_EARLY)
        if self.receive_s:
            deadlines.append(self.last_received + self.receive_s * self.tolerance)
        return min(deadlines, default=None)

    def must_send(self, now: float) -> bool:
        """Return True if a line end must be sent now."""
        return bool(self.send_s) and now >= self.last_sent + self.send_s * _SEND_EARLY

    def is_dead(self, now: float) -> bool:
        """Return True if the peer has been silent for too long."""
        return bool(self.receive_s) and now >= self.last_received + self.receive_s * self.tolerance


def _interval_s(can_ms: int, wants_ms: int) -> float:
    return max(can_ms, wants_ms) / 1000 if can_ms and wants_ms else 0.0
