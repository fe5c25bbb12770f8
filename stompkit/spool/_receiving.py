"""The status of a receiver."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ReceiverStatus"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceiverStatus:
    """Status of a receiver."""

    connected: bool = False
    """True if a broker is connected; clients cannot know how many messages wait there."""
    received: int = 0
    """Number of new messages written to the spool."""
    duplicates: int = 0
    """Number of messages already in the spool, which were only acknowledged."""
    waiting: int = 0
    """Number of messages received but not written to the spool yet."""
    groups: int = 0
    """Number of groups of messages written together."""
    last_group_messages: int = 0
    last_group_s: float = 0.0
    """Time in seconds to write and sync the last group."""
    problem: str = ""
    """Reason for which the receiver waits: a lost broker, or a disk that cannot be written."""
    failure: Exception | None = None
    """Error that ended the receiver."""
