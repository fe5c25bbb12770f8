"""Base class of queues: what the parts of a queue call of it."""

from __future__ import annotations

from collections import deque

from stompkit.server.domain.deliveries import ConnectionBase, MessageReference
from stompkit.server.domain.destinations import Destination
from stompkit.server.domain.sub_queue import SubQueue

__all__ = ["QueueBase"]


class QueueBase(Destination):
    """A queue as its expiry sees it."""

    sub_queues: list[SubQueue[MessageReference]]
    #: Connections that wait for room, in the order in which they are resumed.
    blocked: deque[ConnectionBase]
    #: Number of messages that left without acknowledgement.
    lost: int

    def refill(self, sub_queue: SubQueue[MessageReference]) -> None:
        """Load more of a sub-queue if its window has run low."""
        raise NotImplementedError

    def retry_overdue(self) -> None:
        """Retry dead-lettering expired messages for which there was no room."""
        raise NotImplementedError

    def loaded(self, sub_queue: SubQueue[MessageReference]) -> None:
        """Continue after a sub-queue has been read."""
        raise NotImplementedError
