"""The settings of a client: when to connect again, and how much to hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["BufferLimits", "ReconnectPolicy"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReconnectPolicy:
    """How long to wait between attempts to connect: exponential back-off with full jitter.

    Before attempt number ``n`` after a failure the client waits for a time that is equally likely
    to be anything between zero and the smaller of ``max_s`` and ``initial_s * factor ** (n - 1)``.
    The hosts take turns, and each attempt takes the next one.
    """

    initial_s: float = 0.1
    """The longest wait before the first new attempt, in seconds."""
    factor: float = 2.0
    """By how much the longest wait grows with each failure in a row."""
    max_s: float = 30.0
    """The longest wait of all, in seconds."""
    max_attempts: int | None = None
    """Failures in a row after which the client gives up; ``None``: it never does."""
    attempt_timeout_s: float = 10.0
    """How long one attempt may take, from its beginning until CONNECTED has come, in seconds."""
    settle_s: float = 5.0
    """How long a connection has to last, in seconds, before its loss is not one more failure in
    a row. It keeps a broker that lets clients in only to throw them out from being stormed."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense; raises ``ValueError``."""
        if self.initial_s < 0 or self.max_s < self.initial_s:
            raise ValueError("initial_s is at least 0 and max_s at least initial_s")
        if self.factor < 1:
            raise ValueError("factor is at least 1")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ValueError("max_attempts is at least 1, or None")
        if self.attempt_timeout_s <= 0 or self.settle_s < 0:
            raise ValueError("attempt_timeout_s is more than 0 and settle_s at least 0")

    def delay_s(self, failures: int, random: Callable[[], float]) -> float:
        """The wait before the next attempt after ``failures`` in a row, in seconds.

        ``random`` gives a number from 0 to below 1.
        """
        steps = max(failures - 1, 0)
        if self.initial_s and steps * math.log(self.factor) < math.log(self.max_s / self.initial_s):
            longest = self.initial_s * self.factor**steps
        else:  # a power that may be too large for a float
            longest = self.max_s if self.initial_s else 0.0
        return random() * longest


@dataclass(frozen=True, kw_only=True, slots=True)
class BufferLimits:
    """How much a client holds in memory.

    The size of a message is that of its body and its headers, in octets.
    """

    send_messages: int = 10_000
    """Messages that wait for being sent or for their receipt."""
    send_bytes: int = 64 * 1024 * 1024
    """Octets of these messages."""
    queue_messages: int = 1_000
    """Messages of one subscription that wait for being handled, before the client reads no more
    from the broker; the subscription's ``prefetch``, if that is more."""
    queue_bytes: int = 16 * 1024 * 1024
    """Octets of these messages."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense; raises ``ValueError``."""
        if min(self.send_messages, self.send_bytes, self.queue_messages, self.queue_bytes) < 1:
            raise ValueError("each limit is at least 1")
