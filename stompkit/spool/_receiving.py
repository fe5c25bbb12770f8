"""How a receiver is doing."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ReceiverStatus"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceiverStatus:
    """How a receiver is doing."""

    connected: bool = False
    """Whether a broker is there; what waits with it is known to no client."""
    received: int = 0
    """Messages that were new, and are in the spool."""
    duplicates: int = 0
    """Messages that were there already, and were acknowledged only."""
    waiting: int = 0
    """Messages that have come, and are not in the spool yet."""
    groups: int = 0
    """How many times messages were written together."""
    last_group_messages: int = 0
    last_group_s: float = 0.0
    """Seconds that it took to write the last group, until it was on the disk."""
    problem: str = ""
    """What it waits for: the broker's return, or room on the disk."""
    failure: Exception | None = None
    """What has ended it."""
