"""A callback with its workers, and the assignment of keys to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stompkit.replication.workers._subqueue import SubQueue
from stompkit.replication.workers.messages import check_topic
from stompkit.replication.workers.ring import HashRing

__all__ = ["Handler", "check_settings"]


@dataclass(slots=True)
class Handler:
    """A callback with its workers."""

    #: Function that makes the workers, given the prefix of their names; raises ``ValueError``.
    make: Callable[[str], Sequence[SubQueue]]
    subqueues: dict[str, SubQueue] = field(default_factory=dict)
    ring: HashRing | None = None

    def begin(self, prefix: str) -> None:
        """Create the workers."""
        self.subqueues = {
            str(number): subqueue for number, subqueue in enumerate(self.make(prefix))
        }
        self.ring = HashRing(self.subqueues)

    def subqueue(self, octets: bytes) -> SubQueue:
        """Return the worker for a key."""
        assert self.ring is not None
        return self.subqueues[self.ring.node(octets)]


def check_settings(topics: Sequence[str], **numbers: float) -> None:
    """Raise ``ValueError`` for invalid arguments of a decorator."""
    if not topics:
        raise ValueError("a callback is for one topic at least")
    for topic in topics:
        check_topic(topic)
    for name, number in numbers.items():
        least = 1 if name in ("workers", "queue_limit", "max_batch") else 0
        if number < least:
            raise ValueError(f"{name} cannot be {number}")
