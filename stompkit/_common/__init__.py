"""Internal helpers shared by several packages; not part of the public API."""

from stompkit._common.peers import (
    LOOK_S,
    MOST_GRACE_S,
    Clock,
    PeerDeadline,
    can_write,
    has_unread,
)

__all__ = ["LOOK_S", "MOST_GRACE_S", "Clock", "PeerDeadline", "can_write", "has_unread"]
