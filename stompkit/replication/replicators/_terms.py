"""What callers see of a replicator: its settings of retries, its figures, what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stompkit._common.retry import delay_s
from stompkit.replication.replicators.messages import Key

__all__ = [
    "DeadLetter",
    "LaneStats",
    "ReplicatorStats",
    "ReplicatorStopped",
    "RetryPolicy",
    "Unfinished",
]


class ReplicatorStopped(Exception):
    """The replicator was stopped before this was done."""


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A key that was given up."""

    topic: str
    key: Key
    #: How often it was tried.
    tries: int
    #: Why the last try has failed.
    reason: str


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """A key that was not done when the replicator was stopped."""

    topic: str
    key: Key
    tries: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """What becomes of a key that has failed."""

    #: How often it is tried again; ``None``: for ever.
    max_retries: int | None
    #: How long until the first of these, in seconds; twice that until the next...
    retry_s: float
    #: ...up to so long.
    max_retry_s: float
    #: Called in this process with what is given up; what it raises is one more failure.
    dead_letter: Callable[[DeadLetter], object] | None

    def delay_s(self, failures: int) -> float:
        """How long to wait after so many failures."""
        return delay_s(failures, self.retry_s, self.max_retry_s)

    def is_exhausted(self, failures: int) -> bool:
        """Whether that was the last try."""
        return self.max_retries is not None and failures > self.max_retries


@dataclass(frozen=True, kw_only=True)
class LaneStats:
    """What one worker has to do and has done."""

    name: str
    #: The process; ``None`` where there is none.
    pid: int | None
    waiting: int
    #: What waits for its next try.
    delayed: int
    in_flight: int
    done: int
    #: Tries that have failed.
    failed: int
    #: What was given up.
    dead: int
    #: What another one stands for.
    merged: int
    #: How often the process had to be started again.
    restarts: int


@dataclass(frozen=True, kw_only=True)
class ReplicatorStats:
    """What a replicator has to do and has done."""

    #: Keys that were taken, once for each callback.
    received: int
    #: Keys of topics that no callback is for.
    unknown: int
    #: Messages that could not be read.
    corrupt: int
    #: How often it has connected to silent publishers again.
    reconnects: int
    workers: tuple[LaneStats, ...]

    @property
    def waiting(self) -> int:
        """Keys that wait for a worker, those for their next try not counted."""
        return sum(each.waiting for each in self.workers)

    @property
    def delayed(self) -> int:
        """Keys that wait for their next try."""
        return sum(each.delayed for each in self.workers)

    @property
    def in_flight(self) -> int:
        """Keys that workers have at the moment."""
        return sum(each.in_flight for each in self.workers)

    @property
    def done(self) -> int:
        """Keys that a callback has returned true for."""
        return sum(each.done for each in self.workers)

    @property
    def failed(self) -> int:
        """Tries that have failed."""
        return sum(each.failed for each in self.workers)

    @property
    def dead(self) -> int:
        """Keys that were given up."""
        return sum(each.dead for each in self.workers)

    @property
    def merged(self) -> int:
        """Keys that others stand for."""
        return sum(each.merged for each in self.workers)

    @property
    def restarts(self) -> int:
        """How often a worker was started again."""
        return sum(each.restarts for each in self.workers)
