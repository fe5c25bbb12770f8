"""Settings of a client: reconnection and buffer limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stompkit.frames import HeartBeatOffer, Tolerance

__all__ = [
    "DEFAULT_BUFFERS",
    "DEFAULT_HEART_BEAT_MS",
    "DEFAULT_RECONNECT",
    "DEFAULT_REPLY_DESTINATION",
    "DEFAULT_TOLERANCE",
    "BufferLimits",
    "ReconnectPolicy",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReconnectPolicy:
    """Time between attempts to connect: exponential back-off with full jitter.

    Before attempt ``n`` after a failure the client waits for a random time. It is uniformly
    distributed between zero and the smaller of ``max_s`` and ``initial_s * factor ** (n - 1)``.
    Each attempt uses the next of the hosts.
    """

    initial_s: float = 0.1
    """Maximum wait in seconds before the first new attempt."""
    factor: float = 2.0
    """Factor by which the maximum wait grows with each consecutive failure."""
    max_s: float = 30.0
    """Maximum wait in seconds before any attempt."""
    max_attempts: int | None = None
    """Number of consecutive failures after which the client gives up; ``None`` for no limit."""
    attempt_timeout_s: float = 10.0
    """Maximum time in seconds of one attempt, from its start until CONNECTED is received."""
    settle_s: float = 5.0
    """Minimum duration in seconds of a connection. An earlier loss counts as one more consecutive
    failure. The back-off then protects a broker that accepts clients and disconnects them at once.
    """

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for invalid settings."""
        if self.initial_s < 0 or self.max_s < self.initial_s:
            raise ValueError("initial_s is at least 0 and max_s at least initial_s")
        if self.factor < 1:
            raise ValueError("factor is at least 1")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ValueError("max_attempts is at least 1, or None")
        if self.attempt_timeout_s <= 0 or self.settle_s < 0:
            raise ValueError("attempt_timeout_s is more than 0 and settle_s at least 0")

    def delay_s(self, failures: int, random: Callable[[], float]) -> float:
        """Return the wait in seconds before the next attempt after ``failures`` consecutive ones.

        ``random`` returns a number from 0 to below 1.
        """
        steps = max(failures - 1, 0)
        if self.initial_s and steps * math.log(self.factor) < math.log(self.max_s / self.initial_s):
            longest = self.initial_s * self.factor**steps
        else:  # a power that may be too large for a float
            longest = self.max_s if self.initial_s else 0.0
        return random() * longest


@dataclass(frozen=True, kw_only=True, slots=True)
class BufferLimits:
    """Limits of the memory that a client uses for messages.

    The size of a message is that of its body and its headers, in bytes.
    """

    send_messages: int = 10_000
    """Maximum number of messages that wait to be sent or confirmed."""
    send_bytes: int = 64 * 1024 * 1024
    """Maximum total size in bytes of these messages."""
    queue_messages: int = 1_000
    """Maximum number of waiting messages per subscription before the client pauses reading; the
    subscription's ``prefetch``, if that is more."""
    queue_bytes: int = 16 * 1024 * 1024
    """Maximum total size in bytes of these messages."""

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for invalid limits."""
        if min(self.send_messages, self.send_bytes, self.queue_messages, self.queue_bytes) < 1:
            raise ValueError("each limit is at least 1")


# Defaults of all clients.

DEFAULT_RECONNECT: Final = ReconnectPolicy()
DEFAULT_BUFFERS: Final = BufferLimits()
#: Intervals in milliseconds at which a client can send and wants to receive heart-beats.
DEFAULT_HEART_BEAT_MS: Final[HeartBeatOffer] = (10_000, 10_000)
#: Deviations of brokers that a client accepts.
DEFAULT_TOLERANCE: Final = Tolerance.RAW_COLON | Tolerance.BODY
#: Queue for replies to requests; ``{id}`` is replaced by a random word.
DEFAULT_REPLY_DESTINATION: Final = "/temp-queue/stompkit-{id}"
